"""Places elsewhere, all of them on this machine: a directory, fsspec's memory, an S3 server (moto)
and a server that speaks Google Drive v3."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

from surefoot.core.protocols import Store
from surefoot.store.places import open_store
from tests import drive_server

KINDS = ("directory", "memory", "s3", "drive")
SECRETS = ("AKIAPLANTEDKEY000000", "planted/secret/key/of/amazon", "GOCSPX-planted-client-secret")


@dataclass(frozen=True)
class Place:
    """A place for a run."""

    kind: str
    url: str
    environ: dict[str, str] = field(default_factory=dict)
    """What a process needs to reach it."""
    drive: drive_server.World | None = None

    def store(self) -> Store:
        return open_store(self.url)


@contextmanager
def place(kind: str, tmp_path: Path) -> Iterator[Place]:
    """Open a place; what this process needs to reach it is set meanwhile."""
    name = uuid.uuid4().hex[:8]
    if kind == "directory":
        yield Place(kind, str(tmp_path / "mounted" / name))
    elif kind == "memory":
        yield Place(kind, f"memory://{name}/run")
    elif kind == "s3":
        with _amazon(name) as found, environment(found.environ):
            yield found
    else:
        with _google(name, tmp_path) as found, environment(found.environ):
            yield found


@contextmanager
def _amazon(name: str) -> Iterator[Place]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environ = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": SECRETS[0],
        "AWS_SECRET_ACCESS_KEY": SECRETS[1],
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        with environment(environ):
            boto3.client("s3").create_bucket(Bucket=f"bucket-{name}")
        yield Place("s3", f"s3://bucket-{name}/runs/run", environ)
    finally:
        server.stop()


@contextmanager
def _google(name: str, tmp_path: Path) -> Iterator[Place]:
    with drive_server.serving() as server:
        home = tmp_path / "config"
        file = home / "surefoot" / "drive.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(server.login()))
        environ = {"XDG_CONFIG_HOME": str(home), "SUREFOOT_DRIVE_ENDPOINT": server.url}
        yield Place("drive", f"gdrive://surefoot/{name}", environ, server.world)


@contextmanager
def live_drive() -> Iterator[Place]:
    """A folder in the Drive of whoever runs the tests, which is emptied afterwards."""
    found = Place("drive", f"gdrive://surefoot-tests/{uuid.uuid4().hex[:8]}")
    try:
        yield found
    finally:
        store = found.store()
        for key in store.list():
            store.delete(key)


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
