"""Which states of a run are on disk: the last ones, the best, and those the user pinned."""

from __future__ import annotations

from surefoot.store.checkpoint import Boundary, Checkpoint, Checkpoints


class Keeper:
    """Writes what is to be kept and removes what is not.

    The best state waits in memory until something is saved. Every checkpoint names the best as of
    then, and that one is kept as long as the checkpoint is: so whoever goes back to it finds it.
    """

    def __init__(self, checkpoints: Checkpoints, keep: int) -> None:
        self._checkpoints, self._keep = checkpoints, keep
        self._best: Boundary | None = None

    def offer(self, boundary: Boundary) -> None:
        """Remember the state if it is the best so far."""
        if boundary.best == boundary.step:
            self._best = boundary

    def save(self, boundary: Boundary) -> None:
        """Write the best state and this one, unless they are on disk; then tidy up."""
        steps = {checkpoint.step for checkpoint in self._checkpoints.listed()}
        for kept in (self._best, boundary):
            if kept is not None and kept.step not in steps:
                self._checkpoints.write(kept)
                steps.add(kept.step)
        self._best = None
        self._prune()

    def _prune(self) -> None:
        there = self._checkpoints.listed()
        kept = [*_last(there, self._keep), *(c for c in there if c.pinned)]
        steps = {step for c in kept for step in (c.step, c.manifest.best)}
        for checkpoint in there:
            if checkpoint.step not in steps:
                self._checkpoints.remove(checkpoint)
        self._checkpoints.tidy()


def _last(checkpoints: list[Checkpoint], count: int) -> list[Checkpoint]:
    """Pick the last ones: of those a run can go on from, and the very last in any case."""
    return [*[c for c in checkpoints if c.manifest.exact][-count:], *checkpoints[-1:]]
