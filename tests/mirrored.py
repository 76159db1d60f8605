"""Runs that are mirrored, in processes of their own that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import surefoot
from surefoot.core.errors import SurefootError
from surefoot.elsewhere import push
from surefoot.store import drive, lease, mirror
from surefoot.store.checkpoint import MANIFEST, Boundary, Checkpoints
from surefoot.store.fetching import Source
from surefoot.store.places import open_store
from surefoot.store.saver import Saver
from tests.killing import CASES

TINY: dict[str, Any] = {
    "seed": 3,
    "envs": 4,
    "hall_of_fame": 0,
    "tensorboard": False,
    "recent_episodes": 5,
    "total_steps": 2048,
    "checkpoint_every": "4it",
    "ppo": {"horizon": 32, "minibatch_size": 64, "epochs": 1},
    "policy": {"hidden": [16]},
}


def hurry() -> None:
    """Try again sooner than people would."""
    drive.FIRST_WAIT, drive.LONGEST_WAIT = 0.01, 0.1
    mirror.FIRST_WAIT, mirror.LONGEST_WAIT, mirror.HURRY = 0.05, 0.2, 0.2
    lease.SETTLE = 0.05


def train(case: str, out: Path, url: str, environ: dict[str, str], **more: Any) -> None:
    os.environ.update(environ)
    hurry()
    env, settings = CASES[case]
    surefoot.train(env, out=out, mirror=url, output="quiet", **{**settings, **more})


def train_and_die(case: str, out: Path, url: str, environ: dict[str, str]) -> None:
    """Train, and be killed in the middle, at the third save, when two checkpoints are there."""
    os.environ.update(environ)
    original, saves = Saver.save, 0

    def save(self: Saver, boundary: Boundary) -> None:
        nonlocal saves
        original(self, boundary)
        saves += 1
        if saves == 3:
            store = open_store(url)
            while manifests(store) < 2:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)

    Saver.save = save  # type: ignore[method-assign]
    train(case, out, url, environ)


def manifests(store: Any) -> int:
    return sum(key.endswith(MANIFEST) for key in store.list("checkpoints"))


def resume(url: str, out: Path, environ: dict[str, str]) -> None:
    os.environ.update(environ)
    hurry()
    surefoot.resume(url, out=out, output="quiet")


def send(path: Path, url: str, environ: dict[str, str]) -> None:
    os.environ.update(environ)
    hurry()
    push(path, url, 3, False, lambda done, total, note="": None)


def incomplete(store: Any, url: str, tmp_path: Path) -> list[str]:
    """Fetch everything; name the checkpoints that show at a place and are not whole."""
    there = store.list()
    if not any(key.endswith(MANIFEST) for key in there):
        return []
    place = tmp_path / "looked-at"
    place.mkdir()
    with contextlib.suppress(SurefootError):  # it may have no run.json yet
        Source(store, url, place).everything(lambda done, total: None)
    checkpoints = Checkpoints(place)
    broken = []
    for path in checkpoints.paths():
        if (path / MANIFEST).exists():
            try:
                checkpoints.read(path)
            except SurefootError as error:
                broken.append(str(error))
    return broken
