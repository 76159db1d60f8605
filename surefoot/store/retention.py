"""Which states of a run are kept on disk: the best and the last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from surefoot.core.protocols import State
from surefoot.store import checkpoint
from surefoot.store.checkpoint import Checkpoint


class Keeper:
    """Keeps the best state, in memory at once and on disk now and then, and the last one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._score = float("-inf")
        self._unsaved: tuple[int, State] | None = None
        self._saved: Checkpoint | None = None

    def offer(self, step: int, score: float | None, state: Callable[[], State]) -> None:
        """Remember the state if its score is the best so far; of equals the later one."""
        if score is not None and score >= self._score:
            self._score = score
            self._unsaved = (step, state())

    def save_best(self) -> None:
        """Write the best state if it is not on disk yet; it replaces the one before."""
        if self._unsaved is None:
            return
        step, state = self._unsaved
        old, self._saved = self._saved, checkpoint.write(self._directory, step, state, self._score)
        self._unsaved = None
        if old is not None:
            checkpoint.delete(old.path)

    def save_last(self, step: int, score: float | None, state: Callable[[], State]) -> None:
        """Write the state of the last iteration, unless there was none or it is saved already."""
        self.save_best()
        if step > (self._saved.step if self._saved is not None else 0):
            checkpoint.write(self._directory, step, state(), score)
