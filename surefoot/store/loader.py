"""Finds the checkpoint a run goes on from: the newest that is whole, and says what it passed by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surefoot.core.errors import CheckpointError, VersionError
from surefoot.core.state import State
from surefoot.store.checkpoint import Checkpoint, Checkpoints, describe


@dataclass(frozen=True)
class Found:
    """Where to go on from; without a checkpoint, the beginning."""

    checkpoint: Checkpoint | None
    state: State | None
    passed: dict[Path, str]
    """Newer checkpoints, newest first, and why each is not the one."""

    @property
    def step(self) -> int:
        return self.checkpoint.step if self.checkpoint else 0


def newest(checkpoints: Checkpoints, allow_inexact: bool = False) -> Found:
    """Read the newest checkpoint that is whole and, unless it need not be, exact."""
    passed: dict[Path, str] = {}
    damaged = False
    for path in reversed(checkpoints.paths()):
        try:
            if describe(path).manifest.exact or allow_inexact:
                found, state = checkpoints.read(path)
                return Found(found, state, passed)
            passed[path] = (
                f"skipped {path}: a snapshot of the model between two checkpoints of the whole "
                f"run; --allow-inexact goes on from it"
            )
        except VersionError:
            raise
        except CheckpointError as error:
            passed[path] = f"skipped {error}"
            damaged = True
    if damaged:
        reasons = "\n  ".join(passed.values())
        raise CheckpointError(
            f"none of the {len(passed)} checkpoints can be used; nothing was changed:\n  {reasons}"
        )
    return Found(None, None, passed)


def at(checkpoints: Checkpoints, path: Path, allow_inexact: bool = False) -> Found:
    """Read this checkpoint; all newer ones are passed by."""
    found, state = checkpoints.read(path)
    if not (found.manifest.exact or allow_inexact):
        raise CheckpointError(
            f"{path} is a snapshot of the model, taken between the moments from which this run "
            f"can go on exactly; --allow-inexact goes on from it, `surefoot fork` branches off"
        )
    newer = [p for p in checkpoints.paths() if int(p.name.removeprefix("step_")) > found.step]
    return Found(found, state, {path: f"set aside {path}" for path in reversed(newer)})
