"""A server on loopback that speaks as much of Google Drive v3 as surefoot uses, faults included.

Written after Google's documentation of the REST API; requests of the real client are answered. What
it does not know it refuses with 501, so that nothing is tested against an answer made up here.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FOLDER = "application/vnd.google-apps.folder"
TERM = re.compile(r"appProperties has \{ key='(\w+)' and value='([^']*)' \}")
FAULTS = ("500", "503", "429", "403", "drop", "short", "expire", "401")
BLOCK = 256 * 1024
"""Bytes that an upload is stored in multiples of."""


@dataclass
class File:
    id: str
    name: str
    mime: str
    parents: list[str]
    properties: dict[str, str]
    content: bytes = b""
    modified: float = field(default_factory=time.time)

    def described(self) -> dict[str, Any]:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.modified))
        about: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "mimeType": self.mime,
            "parents": self.parents,
            "appProperties": self.properties,
            "modifiedTime": f"{stamp}.{int(self.modified % 1 * 1000):03d}Z",
        }
        if self.mime != FOLDER:
            digest = hashlib.md5(self.content).hexdigest()
            about |= {"size": str(len(self.content)), "md5Checksum": digest}
        return about


@dataclass
class Session:
    file: str
    about: dict[str, Any]
    create: bool
    size: int
    received: bytearray = field(default_factory=bytearray)


class World:
    """What the server knows, and how it misbehaves."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.sessions: dict[str, Session] = {}
        self.tokens: set[str] = set()
        self.refresh_token = f"1//{uuid.uuid4().hex}"
        self.ids: set[str] = set()
        self.lock = threading.RLock()
        self.rate, self.dice = 0.0, random.Random(0)
        self.faults: list[str] = []
        """Faults for the next requests, before those by chance."""
        self.told: list[str] = []
        self.bytes_received = 0
        self.page = 1000
        self.full = self.no_storage = self.closed = False
        self.headers: list[str] = []

    def fault(self, upload: bool) -> str:
        with self.lock:
            if self.faults:
                return self.faults.pop(0)
            if self.rate and self.dice.random() < self.rate:
                kinds = (
                    FAULTS if upload else tuple(f for f in FAULTS if f not in ("short", "expire"))
                )
                return self.dice.choice(kinds)
        return ""

    def by_path(self, path: str) -> list[File]:
        mark = hashlib.sha256(path.encode()).hexdigest()[:40]
        return [file for file in self.files.values() if file.properties.get("path") == mark]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: World

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = parts.path
        if path == "/token":
            return self._token()
        upload = path.startswith("/upload/session/")
        fault = self.world.fault(upload)
        if self.world.closed or fault == "drop":
            return self._drop(upload)
        self.body = self._read(upload)
        if fault in ("500", "503", "429"):
            return self._error(int(fault), "backendError")
        if fault == "403":
            return self._error(403, "userRateLimitExceeded")
        if fault == "401":
            self.world.tokens.clear()
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.world.tokens:
            return self._error(401, "authError")
        with self.world.lock:
            if upload:
                return self._put(path.rpartition("/")[2], fault)
            if path.startswith("/upload/drive/v3/files"):
                return self._begin(method, path)
            if path == "/drive/v3/about":
                quota = {"usage": str(sum(len(f.content) for f in self.world.files.values()))}
                user = {"emailAddress": "somebody@example.com"}
                return self._answer(
                    {"user": user, "storageQuota": {**quota, "limit": "15000000000"}}
                )
            if path == "/drive/v3/files/generateIds":
                ids = [uuid.uuid4().hex for _ in range(int(self.query["count"]))]
                self.world.ids |= set(ids)
                return self._answer({"ids": ids})
            if path == "/drive/v3/files":
                return self._list() if method == "GET" else self._create()
            return self._one(method, path.rpartition("/")[2])

    def _read(self, upload: bool) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if upload:
            with self.world.lock:
                self.world.bytes_received += len(body)
        return body

    def _drop(self, upload: bool) -> None:
        """Close the connection in the middle; what has arrived of an upload stays."""
        length = int(self.headers.get("Content-Length") or 0)
        if upload and length and not self.world.closed:
            part = self.rfile.read(length // 2)
            with self.world.lock:
                self.world.bytes_received += len(part)
                session = self.world.sessions.get(self.path.rpartition("/")[2])
                start = self._start()
                if session and start is not None and start <= len(session.received):
                    kept = part[: len(part) // BLOCK * BLOCK]
                    session.received[start:] = kept
        self.close_connection = True

    def _start(self) -> int | None:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", self.headers.get("Content-Range", ""))
        return int(found.group(1)) if found else None

    def _token(self) -> None:
        form = parse_qs(self._read(False).decode())
        grant = form.get("grant_type", [""])[0]
        if grant == "refresh_token" and form["refresh_token"][0] != self.world.refresh_token:
            return self._answer({"error": "invalid_grant", "error_description": "revoked"}, 400)
        token = f"ya29.{uuid.uuid4().hex}"
        self.world.tokens.add(token)
        answer: dict[str, Any] = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        if grant == "authorization_code":
            answer |= {"refresh_token": self.world.refresh_token}
            answer |= {"scope": "https://www.googleapis.com/auth/drive.file"}
        return self._answer(answer)

    def _begin(self, method: str, path: str) -> None:
        """Begin a resumable upload."""
        if self.query.get("uploadType") != "resumable":
            return self._error(501, "notImplemented")
        if self.world.full or self.world.no_storage:
            who = "Service Accounts do not have storage quota." if self.world.no_storage else "full"
            return self._error(403, "storageQuotaExceeded", who)
        about = json.loads(self.body or b"{}")
        create = method == "POST"
        name = about.get("id") or uuid.uuid4().hex if create else path.rpartition("/")[2]
        if create and name in self.world.files:
            return self._error(409, "fileIdInUse")
        if create and about.get("id") and about["id"] not in self.world.ids:
            return self._error(400, "invalid")
        if not create and name not in self.world.files:
            return self._error(404, "notFound")
        if create and any(len(k) + len(v) > 124 for k, v in about["appProperties"].items()):
            return self._error(400, "propertyTooLong")
        number = uuid.uuid4().hex
        size = int(self.headers["X-Upload-Content-Length"])
        self.world.sessions[number] = Session(name, about, create, size)
        host = self.headers["Host"]
        return self._answer({}, 200, {"Location": f"http://{host}/upload/session/{number}"})

    def _put(self, number: str, fault: str) -> None:
        """Take a chunk, or say how much has arrived."""
        session = self.world.sessions.get(number)
        if session is None or fault == "expire":
            self.world.sessions.pop(number, None)
            return self._error(404, "notFound")
        start = self._start()
        if start is not None or session.size == 0:
            start = start or 0
            if start > len(session.received):
                return self._error(400, "invalidRange")
            taken = self.body
            if fault == "short":  # it takes less than it was given
                taken = taken[: len(taken) // 2 // BLOCK * BLOCK]
            session.received[start:] = taken
        if len(session.received) < session.size:
            return self._incomplete(session)
        if session.create and session.file in self.world.files:
            return self._error(409, "fileIdInUse")
        if session.create:
            file = File(
                session.file,
                session.about["name"],
                "application/octet-stream",
                session.about["parents"],
                session.about["appProperties"],
                bytes(session.received),
            )
            self.world.files[file.id] = file
        else:
            file = self.world.files[session.file]
            file.content, file.modified = bytes(session.received), time.time()
        return self._answer(file.described())

    def _incomplete(self, session: Session) -> None:
        headers = {"Range": f"bytes=0-{len(session.received) - 1}"} if session.received else {}
        return self._answer(None, 308, headers)

    def _create(self) -> None:
        about = json.loads(self.body)
        if about["id"] in self.world.files:
            return self._error(409, "fileIdInUse")
        file = File(
            about["id"], about["name"], about["mimeType"], about["parents"], about["appProperties"]
        )
        self.world.files[file.id] = file
        return self._answer(file.described())

    def _list(self) -> None:
        wanted = TERM.findall(self.query["q"])
        if (
            len(wanted) != self.query["q"].count(" has ")
            or "trashed = false" not in self.query["q"]
        ):
            return self._error(501, "notImplemented")
        found = [
            file.described()
            for file in self.world.files.values()
            if all(file.properties.get(name) == value for name, value in wanted)
        ]
        most = min(self.world.page, int(self.query["pageSize"]))
        start, size = int(self.query.get("pageToken", 0)), most
        answer: dict[str, Any] = {"files": found[start : start + size]}
        if start + size < len(found):
            answer["nextPageToken"] = str(start + size)
        return self._answer(answer)

    def _one(self, method: str, name: str) -> None:
        file = self.world.files.get(name)
        if file is None:
            return self._error(404, "notFound")
        if method == "DELETE":
            del self.world.files[name]
            return self._answer(None, 204)
        if method == "PATCH" and json.loads(self.body) == {"trashed": True}:
            del self.world.files[name]  # nobody looks into the bin here
            return self._answer(file.described())
        if method != "GET":
            return self._error(501, "notImplemented")
        if self.query.get("alt") != "media":
            return self._answer(file.described())
        first, last = 0, len(file.content) - 1
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(asked.group(1)), min(last, int(asked.group(2)))
        if first > last:
            return self._answer(None, 416, {"Content-Range": f"bytes */{len(file.content)}"})
        part = file.content[first : last + 1]
        where = f"bytes {first}-{last}/{len(file.content)}"
        return self._send(part, 206, {"Content-Range": where}, "application/octet-stream")

    def _error(self, status: int, reason: str, message: str = "no") -> None:
        details = [{"reason": reason, "message": message}]
        return self._answer(
            {"error": {"code": status, "message": message, "errors": details}}, status
        )

    def _answer(
        self, content: Any, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        return self._send(body, status, headers or {}, "application/json")

    def _send(self, body: bytes, status: int, headers: dict[str, str], kind: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that were killed."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass


@dataclass(frozen=True)
class Server:
    world: World
    url: str

    def login(self) -> dict[str, Any]:
        """Return what a person's login looks like who has agreed."""
        return {
            "type": "authorized_user",
            "client_id": "surefoot-tests.apps.googleusercontent.com",
            "client_secret": "GOCSPX-planted-client-secret",
            "refresh_token": self.world.refresh_token,
            "token_uri": f"{self.url}/token",
        }


@contextmanager
def serving() -> Iterator[Server]:
    """Serve for a while."""
    world = World()
    handler = type("Bound", (Handler,), {"world": world})
    server = Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Server(world, f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
