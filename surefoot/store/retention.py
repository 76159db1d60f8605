"""Which states of a run are kept on disk: the best and the last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surefoot.core.protocols import State
from surefoot.store import checkpoint
from surefoot.store.checkpoint import Checkpoint


@dataclass(frozen=True)
class Boundary:
    """A run between two iterations."""

    step: int
    score: float | None
    """Mean return of the recent episodes, if there are enough."""
    state: State


class Keeper:
    """Keeps the best state, in memory at once and on disk now and then, and the last one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._score = float("-inf")
        self._unsaved: Boundary | None = None
        self._saved: Checkpoint | None = None

    def offer(self, boundary: Boundary) -> None:
        """Remember the state if its score is the best so far; of equals the later one."""
        if boundary.score is not None and boundary.score >= self._score:
            self._score = boundary.score
            self._unsaved = boundary

    def save_best(self) -> None:
        """Write the best state if it is not on disk yet; it replaces the one before."""
        if self._unsaved is None:
            return
        old, self._saved = self._saved, self._write(self._unsaved)
        self._unsaved = None
        if old is not None and old.path != self._saved.path:
            checkpoint.delete(old.path)

    def save_last(self, boundary: Boundary) -> None:
        """Write the best state, and this one unless it is the same or nothing was played."""
        self.save_best()
        if boundary.step > (self._saved.step if self._saved is not None else 0):
            self._write(boundary)

    def _write(self, boundary: Boundary) -> Checkpoint:
        return checkpoint.write(self._directory, boundary.step, boundary.state, boundary.score)
