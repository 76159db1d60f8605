"""Brings a run back from a place elsewhere: all of it, or as much as is needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from shlex import quote

from surefoot.core.errors import Missing, RunError, VersionError
from surefoot.core.protocols import Store
from surefoot.store import durable
from surefoot.store.checkpoint import (
    MANIFEST,
    PINNED,
    STATE,
    TENSORS,
    Checkpoint,
    Checkpoints,
    describe,
)
from surefoot.store.copying import FIRST, LOGS
from surefoot.store.lease import KEY as LEASE

LOOKS = 3
"""How often to look what is there, where whoever trains deletes old checkpoints meanwhile."""
FIXED = ("checkpoints/", "segments/")
"""How keys begin of what does not change while it is there."""


class Source:
    """A run at a place elsewhere, of which parts are fetched into a directory."""

    def __init__(self, store: Store, url: str, into: Path) -> None:
        """`into` is a directory that nobody else looks at yet."""
        self._store, self.into = store, into
        self._there = store.list()
        self.checkpoints = Checkpoints(into)
        if "run.json" not in self._there:
            raise RunError(
                f"{url} holds no run (it has no run.json); `surefoot runs {quote(url)}` lists runs"
            )

    def everything(self, tell: Callable[[int, int], None]) -> None:
        """Fetch all there is; `tell` hears how many bytes of how many are here."""
        for _ in range(LOOKS):
            if self._fetched_everything(tell):
                break
            self._there = self._store.list()
        for path in self.checkpoints.paths():
            if not (path / MANIFEST).exists():  # it was being sent, or deleted
                shutil.rmtree(path)

    def _fetched_everything(self, tell: Callable[[int, int], None]) -> bool:
        """Fetch what is not here yet; say whether it was all still there."""
        wanted = {key: kept.size for key, kept in self._there.items() if key != LEASE}
        total, done, whole = sum(wanted.values()), 0, True
        for key in sorted(wanted, key=lambda key: key.endswith(MANIFEST)):
            try:
                self._fetch(key)
            except Missing:
                whole = False
            done += wanted[key]
            tell(done, total)
        return whole

    def about(self) -> None:
        """Fetch what is known of the run without its checkpoints' contents."""
        self._fetch_all([*FIRST, "journal.jsonl"])
        for key in self._manifests():
            with suppress(Missing):  # it has just been deleted
                self._fetch(key)

    def to_go_on(self, checkpoint: str | int | None, allow_inexact: bool) -> None:
        """Fetch what a resume needs: the newest checkpoint that is whole, or the one asked for,
        and what it names as the best."""
        self._fetch_all([*FIRST, *LOGS, *self._below("models/"), *self._manifests()])
        found = [describe(path) for path in self.checkpoints.paths()]
        wanted: set[Path] = set()
        chosen = -1
        candidates = self._candidates(found, checkpoint, allow_inexact)
        if checkpoint is not None and not candidates:
            steps = ", ".join(str(one.step) for one in found)
            raise RunError(f"there is no checkpoint {checkpoint!r}; there are best, last, {steps}")
        for one in candidates:
            wanted.add(one.path)
            try:
                self._contents(one, segments=True)
                self.checkpoints.read(one.path)
            except VersionError:
                raise
            except (RunError, Missing):
                continue  # it stays, for a resume to say what is wrong with it
            for other in found:
                if other.step == one.manifest.best and other.step != one.step:
                    wanted.add(other.path)
                    self._contents(other, segments=True)
            chosen = one.step
            break
        for one in found:  # what is newer shows as what is set aside
            if one.path not in wanted and one.step < chosen:
                shutil.rmtree(one.path)

    def contents_of(self, one: Checkpoint) -> None:
        """Fetch what there is to know of one checkpoint's policy."""
        self._contents(one, segments=False)

    def _candidates(
        self, found: list[Checkpoint], asked: str | int | None, allow_inexact: bool
    ) -> list[Checkpoint]:
        if asked is None or not found:
            return [c for c in reversed(found) if c.manifest.exact or allow_inexact]
        if asked == "last":
            return found[-1:]
        if asked == "best":
            named = [c for c in found if c.step == found[-1].manifest.best]
            return named or found[-1:]
        return [c for c in found if str(asked).isdecimal() and c.step == int(asked)]

    def _contents(self, one: Checkpoint, segments: bool) -> None:
        names = [f"checkpoints/{one.path.name}/{name}" for name in (TENSORS, STATE, PINNED)]
        if segments:
            names += [f"segments/{name}.safetensors" for name in one.manifest.segments]
        self._fetch_all(names)

    def _manifests(self) -> list[str]:
        found = self._below("checkpoints/step_")
        return [key for key in found if key.endswith(f"/{MANIFEST}")]

    def _below(self, prefix: str) -> list[str]:
        return [key for key in self._there if key.startswith(prefix)]

    def _fetch_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self._there and not (self.into / key).exists():
                self._fetch(key)

    def _fetch(self, key: str) -> None:
        path = self.into / key
        if self.into.resolve() not in path.resolve().parents:
            raise RunError(f"{key!r:.100} would lie outside of the run")
        if key.startswith(FIXED) and path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        arriving = path.with_name(f"{durable.STAGING}{path.name}")
        try:
            self._store.get(key, arriving)
            if key.startswith(FIXED) and arriving.stat().st_size != self._there[key].size:
                raise RunError(f"{key} did not arrive whole; try again")
            os.replace(arriving, path)
        finally:
            arriving.unlink(missing_ok=True)


def staged(out: Path) -> Path:
    """Make a directory beside the one to be, in which it is put together."""
    durable.make_directory(out.absolute().parent)
    place = out.absolute().with_name(f"{durable.STAGING}{out.name}-{os.getpid()}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "checkpoints").mkdir()
    return place


def put_in_place(place: Path, out: Path) -> None:
    """Give a directory that is complete its name."""
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()
    try:
        os.rename(place, out)
    except OSError as error:
        raise RunError(f"cannot make {out}: {error.strerror}") from None
    durable.sync(out.absolute().parent)
