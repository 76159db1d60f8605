"""Checkpoints: a directory each, which appears under its name only when it is complete.

checkpoints/step_000000100096/  manifest.json  tensors.safetensors  state.json  [pinned]
checkpoints/superseded/         what a resume left behind
segments/                       data that only grows, shared by the checkpoints that name it
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from surefoot.core.errors import CheckpointError, ConfigError, SaveError, VersionError
from surefoot.core.state import Piece, State
from surefoot.store import durable, format
from surefoot.store.segments import Segments, Stored

FORMAT = 2
TENSORS, STATE, MANIFEST, PINNED = "tensors.safetensors", "state.json", "manifest.json", "pinned"
NAME = re.compile(r"step_(\d{12,15})")
SUPERSEDED = 10
"""How many checkpoints that were set aside are kept."""
SEAL = "seal"


@dataclass(frozen=True)
class Boundary:
    """A run between two iterations: what may be saved."""

    step: int
    state: State
    exact: bool
    """Whether a run resumed from here goes on exactly; else it is a snapshot of the model."""
    score: float | None
    """Mean return of the recent episodes, if there were enough."""
    evaluation: float | None = None
    """Mean return of an evaluation at this very moment, if there was one."""
    best: int | None = None
    """The step of the best boundary so far."""
    best_return: int | None = None
    """The step at which the recent episodes were best."""
    update: str = ""
    """How updates are computed; empty if that has not shown yet."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of packages that its numbers depend on, beside those that all do."""


class Digest(BaseModel):
    """What a file must be."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sha256: str
    size: NonNegativeInt


class Manifest(BaseModel):
    """What manifest.json says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    format: int = FORMAT
    step: NonNegativeInt
    exact: bool
    score: float | None
    evaluation: float | None
    best: NonNegativeInt | None
    tensors: Digest
    state: Digest
    segments: dict[str, NonNegativeInt]
    """Names and sizes."""
    machine: dict[str, str | int]


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint and what its manifest says; its files are not verified yet."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def score(self) -> float | None:
        """What it is compared by: its evaluation if there was one, else the recent return."""
        evaluation = self.manifest.evaluation
        return self.manifest.score if evaluation is None else evaluation

    @property
    def pinned(self) -> bool:
        return (self.path / PINNED).exists()


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path) -> None:
        self.directory = run / "checkpoints"
        self.superseded = self.directory / "superseded"
        self._segments = Segments(run / "segments")

    def write(self, boundary: Boundary) -> Checkpoint:
        """Write a checkpoint that is there whole, durably, or not at all."""
        segments: dict[str, int] = {}

        def keep(piece: Piece) -> str:
            name, size = self._segments.keep(piece)
            segments[name] = size
            return name

        path = self.directory / f"step_{boundary.step:012d}"
        try:
            tensors, content = format.encode(boundary.state, keep)
        except ValueError as error:
            raise SaveError(f"{path} cannot be written: {error}") from None
        manifest = Manifest(
            step=boundary.step,
            exact=boundary.exact,
            score=boundary.score,
            evaluation=boundary.evaluation,
            best=boundary.best,
            tensors=_digest(tensors),
            state=_digest(content),
            segments=segments,
            machine=machine(boundary.update, boundary.libraries),
        )
        files = {TENSORS: tensors, STATE: content, MANIFEST: seal(manifest.model_dump())}
        durable.write_directory(path, files)
        return Checkpoint(path, manifest)

    def listed(self) -> list[Checkpoint]:
        """List the checkpoints with a sound manifest, oldest first."""
        return [found for path in self.paths() if (found := _try(path)) is not None]

    def paths(self) -> list[Path]:
        """List the directories that have the name of a checkpoint, oldest first."""
        found = [path for path in self.directory.glob("step_*") if NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))

    def read(self, path: Path, whole: bool = True) -> tuple[Checkpoint, State]:
        """Read a checkpoint after verifying every file against its manifest; if not `whole`, data
        that only grows is left out."""
        found = describe(path)
        with naming(path):
            tensors = _verified(path / TENSORS, found.manifest.tensors)
            content = _verified(path / STATE, found.manifest.state)
            fetch = self._fetcher(found.manifest) if whole else lambda names: ()
            return found, format.decode(tensors, content, fetch)

    def _fetcher(self, manifest: Manifest) -> Callable[[list[str]], Stored]:
        """Make what finds the segments that a manifest lists."""

        def fetch(names: list[str]) -> Stored:
            if not manifest.segments.keys() >= set(names):
                raise CheckpointError(f"state.json names a segment that {MANIFEST} does not")
            return Stored(self._segments, {name: manifest.segments[name] for name in names}, names)

        return fetch

    def remove(self, checkpoint: Checkpoint) -> None:
        """Remove a checkpoint, unless somebody has just pinned it."""
        if not checkpoint.pinned:
            doomed = durable.take_away(checkpoint.path)
            if (doomed / PINNED).exists():
                os.rename(doomed, checkpoint.path)
            else:
                shutil.rmtree(doomed)

    def pin(self, checkpoint: Checkpoint, pinned: bool) -> None:
        """Mark a checkpoint as one that stays, or take the mark away."""
        if pinned:
            durable.write_file(checkpoint.path / PINNED, b"")
        else:
            (checkpoint.path / PINNED).unlink(missing_ok=True)

    def supersede(self, path: Path) -> Path:
        """Move a checkpoint out of the way, newest first if there are several."""
        durable.make_directory(self.superseded)
        names = [path.name, *(f"{path.name}-{n}" for n in range(2, 10_000))]
        free = next(name for name in names if not (self.superseded / name).exists())
        os.rename(path, self.superseded / free)
        os.utime(self.superseded / free)  # when it was set aside
        for directory in (self.superseded, self.directory):
            durable.sync(directory)
        return self.superseded / free

    def tidy(self) -> None:
        """Remove what interrupted writers left, what was set aside long ago, and segments that no
        manifest names."""
        durable.sweep(self.directory)
        there = [p for p in self.superseded.glob("step_*") if not (p / PINNED).exists()]
        aside = sorted(there, key=lambda path: path.stat().st_mtime_ns)
        for path in aside[:-SUPERSEDED]:
            shutil.rmtree(path, ignore_errors=True)
        current = [_try(path) for path in self.paths()]
        if all(current):  # a manifest that cannot be read may name any
            found = [*current, *map(_try, self.superseded.glob("step_*"))]
            self._segments.retain({name for one in found if one for name in one.manifest.segments})


def require_saveable(boundary: Boundary) -> None:
    """Refuse a state that could never be written, before anything is trained."""
    try:
        format.encode(boundary.state, lambda piece: "")
    except ValueError as error:
        raise ConfigError(f"this run could not be saved: {error}") from None


def machine(update: str, libraries: Mapping[str, str]) -> dict[str, str | int]:
    """Describe what exact repetition depends on: how updates are computed, and versions of packages
    that not every run needs, among others."""
    return {
        **_versions(),
        **libraries,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "threads": torch.get_num_threads(),
        "update": update,
    }


@cache
def _versions() -> dict[str, str]:
    names = ("surefoot", "torch", "numpy", "gymnasium")
    found = {name: metadata.version(name) for name in names}
    return {**found, "python": platform.python_version()}


def machine_differences(
    checkpoint: Checkpoint, update: str, libraries: Mapping[str, str]
) -> list[str]:
    """Say what is not as it was when the checkpoint was written, and said so."""
    then, now = checkpoint.manifest.machine, machine(update, libraries)
    undecided = "update" if not update or not then.get("update") else None
    changed = [key for key in now if then.get(key, now[key]) != now[key] and key != undecided]
    return [f"{key} was {then[key]} and is {now[key]}" for key in changed]


def describe(path: Path) -> Checkpoint:
    """Read a checkpoint's manifest."""
    with naming(path):
        manifest = parse_manifest(durable.read_file(path / MANIFEST, format.JSON_BYTES))
        if path.name.partition("-")[0] != f"step_{manifest.step:012d}":
            raise CheckpointError(f"{MANIFEST} is of step {manifest.step}")
    return Checkpoint(path, manifest)


def parse_manifest(text: bytes) -> Manifest:
    """Understand what a manifest says."""
    content = _unsealed(text)
    if content.get("format") != FORMAT:
        version = content.get("format")
        raise VersionError(f"it has format {version!r:.20}; this surefoot reads {FORMAT}")
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise CheckpointError(f"{MANIFEST} has no sound {place!r:.60}") from None


def seal(manifest: dict[str, Any]) -> bytes:
    """Write a manifest with a hash of itself, so that a flipped bit is no other manifest."""
    return format.to_json({**manifest, SEAL: _digest(format.to_json(manifest)).sha256})


def _unsealed(text: bytes) -> dict[str, Any]:
    content = format.from_json(text, MANIFEST)
    if not isinstance(content, dict):
        raise CheckpointError(f"{MANIFEST} is not an object")
    said = content.pop(SEAL, None)
    if said is None and content.get("format") != FORMAT:
        return content  # the first format had no seal
    if said != _digest(format.to_json(content)).sha256:
        raise CheckpointError(f"{MANIFEST} is not as written")
    return content


def _try(path: Path) -> Checkpoint | None:
    try:
        return describe(path)
    except CheckpointError:
        return None


def _verified(path: Path, expected: Digest) -> bytes:
    content = durable.read_file(path, expected.size)
    if _digest(content) != expected:
        raise CheckpointError(f"{path.name} is not as written")
    return content


def _digest(content: bytes) -> Digest:
    return Digest(sha256=hashlib.sha256(content).hexdigest(), size=len(content))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the checkpoint's path in front of what is wrong with it."""
    try:
        yield
    except CheckpointError as error:
        raise type(error)(f"{path}: {error}") from None
