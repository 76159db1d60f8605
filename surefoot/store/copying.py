"""What of a run is to be at a place elsewhere, in which order it gets there, and what goes again.

The place looks like the run's directory. A checkpoint's manifest is sent after everything it
names, and deleted before: so whoever finds a manifest there finds a whole checkpoint.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from surefoot.core.errors import CheckpointError, Missing, StoreError, Unreachable
from surefoot.core.protocols import Kept, Store
from surefoot.store.checkpoint import (
    MANIFEST,
    NAME,
    PINNED,
    STATE,
    TENSORS,
    Checkpoint,
    Checkpoints,
    Manifest,
    parse_manifest,
)
from surefoot.store.durable import STAGING
from surefoot.store.lease import KEY as LEASE
from surefoot.store.plain import described
from surefoot.store.retention import kept_steps

FIRST, LOGS = ("run.json", "config.yaml"), ("metrics.jsonl", "journal.jsonl")
OURS = ("checkpoints", "segments", "wandb", "lock", LEASE)
"""Names in a run's directory that are seen to apart, or are of no use elsewhere."""
LOG_SECONDS, LOG_RATE = 60.0, 100_000
"""How often files that grow are sent at most, and bytes per second that this may come to, since
they are sent whole; but for checkpoints and the end of a run."""


@dataclass(frozen=True)
class File:
    """A file to be sent."""

    key: str
    path: Path
    size: int
    changed: int

    @classmethod
    def at(cls, run: Path, path: Path) -> File:
        found = path.stat()
        return cls(path.relative_to(run).as_posix(), path, found.st_size, found.st_mtime_ns)

    @property
    def stamp(self) -> tuple[int, int]:
        return self.size, self.changed


@dataclass(frozen=True)
class Batch:
    """Files, and the one that makes sense of them, which is sent last."""

    files: list[File]
    commit: File | None = None
    withdraw: str = ""
    """A key that is to be deleted before: a manifest of something else with the same name."""

    def all(self) -> list[File]:
        return [*self.files, *([self.commit] if self.commit else [])]


class Nowhere:
    """A store that has not been opened."""

    def put(self, key: str, file: Path) -> Kept:
        raise Unreachable("it is not open")

    def get(self, key: str, file: Path) -> None:
        raise Unreachable("it is not open")

    def list(self, prefix: str = "") -> dict[str, Kept]:
        raise Unreachable("it is not open")

    def delete(self, key: str) -> None:
        raise Unreachable("it is not open")

    def sweep(self) -> None:
        raise Unreachable("it is not open")


NOWHERE = Nowhere()


@dataclass
class Copy:
    """A run's directory and its copy elsewhere."""

    run: Path
    keep: int
    store: Store = NOWHERE
    there: dict[str, Kept] = field(default_factory=dict)
    """What is at the place, as far as we know."""
    manifests: dict[str, bytes] = field(default_factory=dict)
    """Manifests of the checkpoints there, by the checkpoint's name."""
    _stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    _logs_sent: float = 0.0

    def look(self) -> None:
        """Find out what is there."""
        self.there = self.store.list()
        names = [key for key in self.there if key.endswith(f"/{MANIFEST}")]
        self.manifests = {
            _folder(key): fetched(self.store, key) for key in names if _is_checkpoint(key)
        }

    def batches(self, everything: bool) -> list[Batch]:
        """List what is to be sent, the most important first; `everything` includes files that
        were sent a moment ago and have grown since."""
        checkpoints = list(self._checkpoints())
        newest = checkpoints[0] if checkpoints else None
        logs_due = newest is not None or everything or self._due()
        logs = self._changed(self._logs()) if logs_due else []
        plan = [Batch(self._changed(self.run / name for name in FIRST))]
        plan.append(replace(newest, files=[*newest.files, *logs]) if newest else Batch(logs))
        plan += checkpoints[1:]
        if logs_due:
            plan.append(Batch(self._changed(self._others())))
        return [batch for batch in plan if batch.all()]

    def send(
        self,
        batch: Batch,
        sent: Callable[[File], None],
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a batch, and tell of each file; what has gone meanwhile is of no use without the
        rest, and the rest is not sent. `before_commit` may raise."""
        if batch.withdraw:
            self._withdraw(batch.withdraw)
        for file in batch.files:
            if self._sent(file):
                sent(file)
            elif batch.commit:
                return
        if batch.commit:
            before_commit()
        if batch.commit and (content := _read(batch.commit.path)) and self._sent(batch.commit):
            self.manifests[_folder(batch.commit.key)] = content
            sent(batch.commit)
        if any(file.key in LOGS for file in batch.files):
            self._logs_sent = time.monotonic()

    def whole(self, checkpoint: Checkpoint) -> bool:
        """Say whether this very checkpoint is there."""
        try:
            content = (checkpoint.path / MANIFEST).read_bytes()
        except OSError:
            return False
        return self.manifests.get(checkpoint.path.name) == content

    def needed(self) -> set[int]:
        """Say which checkpoints have to stay here: each until it is there, or a newer one is and it
        is not among those to be kept."""
        here = Checkpoints(self.run).listed()
        missing = [checkpoint.step for checkpoint in here if not self.whole(checkpoint)]
        newest = max((c.step for c in here if c.step not in missing), default=-1)
        wanted = {checkpoint.step for checkpoint in self._wanted(here)}
        return {step for step in missing if step > newest or step in wanted}

    def ahead(self) -> list[str]:
        """Name the checkpoints there that are newer than all here, and were never here."""
        checkpoints = Checkpoints(self.run)
        last = max((c.step for c in checkpoints.listed()), default=-1)
        given_up = {_read(path / MANIFEST) for path in checkpoints.superseded.glob("step_*")}
        newer = {name: text for name, text in self.manifests.items() if _step(name) > last}
        return sorted(name for name, text in newer.items() if text not in given_up)

    def give_up_later(self) -> None:
        """Withdraw checkpoints that are newer than all here: the run has gone back."""
        last = max((c.step for c in Checkpoints(self.run).listed()), default=-1)
        for name in [name for name in self.manifests if _step(name) > last]:
            self._withdraw(f"checkpoints/{name}/{MANIFEST}")

    def prune(self) -> None:
        """Delete checkpoints there that are not to be kept, their manifests first, and segments
        that nothing names any more."""
        known = {name: found for name in self.manifests if (found := self._manifest(name))}
        pinned = {_folder(key) for key in self.there if key.endswith(f"/{PINNED}")}
        here = Checkpoints(self.run).paths()
        pinned -= {path.name for path in here if not (path / PINNED).exists()}
        steps = kept_steps(list(known.values()), self.keep, {_step(name) for name in pinned})
        keep = {name for name, manifest in known.items() if manifest.step in steps}
        for name in known.keys() - keep:
            self._withdraw(f"checkpoints/{name}/{MANIFEST}")
        ours = self._wanted()
        wanted = keep | {checkpoint.path.name for checkpoint in ours}
        segments = {key for name in keep for key in known[name].segments}
        segments |= {key for checkpoint in ours for key in checkpoint.manifest.segments}
        for key in list(self.there):
            if key.startswith("checkpoints/step_"):
                gone = _folder(key) not in wanted
                gone |= key.endswith(f"/{PINNED}") and _folder(key) not in pinned
            else:
                gone = key.startswith("segments/") and Path(key).stem not in segments
            if gone:
                self._delete(key)

    def _checkpoints(self) -> Iterator[Batch]:
        """List the checkpoints that are to be sent: the newest first, but for the best it names."""
        missing = [c for c in reversed(self._wanted()) if not self.whole(c)]
        best = missing[0].manifest.best if missing else None
        for checkpoint in sorted(missing, key=lambda checkpoint: checkpoint.step != best):
            folder = checkpoint.path
            sizes = checkpoint.manifest.segments.items()
            segments = [
                self.run / "segments" / f"{name}.safetensors"
                for name, size in sizes
                if (kept := self.there.get(f"segments/{name}.safetensors")) is None
                or kept.size != size
            ]
            try:
                parts = [File.at(self.run, path) for path in segments]
                parts += self._other(folder / name for name in (TENSORS, STATE))
                commit = File.at(self.run, folder / MANIFEST)
            except FileNotFoundError:  # it is being removed
                continue
            yield Batch(parts, commit, commit.key if folder.name in self.manifests else "")

    def _wanted(self, here: list[Checkpoint] | None = None) -> list[Checkpoint]:
        """List the checkpoints here that should be there, oldest first."""
        here = Checkpoints(self.run).listed() if here is None else here
        pinned = {checkpoint.step for checkpoint in here if checkpoint.pinned}
        steps = kept_steps([checkpoint.manifest for checkpoint in here], self.keep, pinned)
        return [checkpoint for checkpoint in here if checkpoint.step in steps]

    def _logs(self) -> list[Path]:
        return [*(self.run / name for name in LOGS), *sorted(self.run.glob("models/*.pth"))]

    def _others(self) -> Iterator[Path]:
        """Find everything else: videos, trajectories, reports, marks of pinned checkpoints."""
        done = {*FIRST, *LOGS, *OURS}
        for top in sorted(self.run.iterdir()):
            if top.name not in done and not top.name.startswith(STAGING):
                within = sorted(top.rglob("*")) if top.is_dir() else [top]
                yield from (p for p in within if p.is_file() and not p.name.startswith(STAGING))
        for checkpoint in self._wanted():
            if checkpoint.pinned:
                yield checkpoint.path / PINNED

    def _changed(self, paths: Iterable[Path]) -> list[File]:
        """List those that were not sent as they are."""
        found = [File.at(self.run, path) for path in paths if path.is_file()]
        unsent = [file for file in found if self._stamps.get(file.key) != file.stamp]
        return [file for file in unsent if self._differs(file)]

    def _other(self, paths: Iterable[Path]) -> list[File]:
        """List those of which something else is there, or nothing."""
        return [file for path in paths if self._differs(file := File.at(self.run, path))]

    def _differs(self, file: File) -> bool:
        kept = self.there.get(file.key)
        if kept is None or kept.size != file.size or kept.md5 is None:
            return True
        same = described(file.path).md5 == kept.md5
        if same:
            self._stamps[file.key] = file.stamp
        return not same

    def _due(self) -> bool:
        size = sum(self.there[name].size for name in LOGS if name in self.there)
        return time.monotonic() - self._logs_sent > max(LOG_SECONDS, size / LOG_RATE)

    def _sent(self, file: File) -> bool:
        """Send a file, unless it has gone meanwhile; say which."""
        try:
            self._send(file)
        except (FileNotFoundError, StoreError):
            if file.path.exists():
                raise
            return False
        return True

    def _send(self, file: File) -> None:
        if file.key.startswith(("checkpoints/", "segments/")):  # these do not change
            self.there[file.key] = self.store.put(file.key, file.path)
            return
        with tempfile.TemporaryDirectory() as place:
            taken = Path(place) / file.path.name
            shutil.copyfile(file.path, taken)
            self.there[file.key] = self.store.put(file.key, taken)
        self._stamps[file.key] = file.stamp

    def _withdraw(self, key: str) -> None:
        self._delete(key)
        self.manifests.pop(_folder(key), None)

    def _delete(self, key: str) -> None:
        self.store.delete(key)
        self.there.pop(key, None)

    def _manifest(self, name: str) -> Manifest | None:
        try:
            return parse_manifest(self.manifests[name])
        except CheckpointError:
            return None


def fetched(store: Store, key: str) -> bytes:
    """Read a small file from a store."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "file"
        store.get(key, file)
        return file.read_bytes()


def identity_there(store: Store) -> bytes | None:
    """Read run.json from a place; None if no run is there."""
    try:
        return fetched(store, "run.json")
    except Missing:
        return None


def _is_checkpoint(key: str) -> bool:
    parts = key.split("/")
    return len(parts) == 3 and parts[0] == "checkpoints" and bool(NAME.fullmatch(parts[1]))


def _folder(key: str) -> str:
    return key.split("/")[-2]


def _step(name: str) -> int:
    return int(name.removeprefix("step_"))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
