"""Which states of a run are on disk: the last ones, the best, and those the user pinned."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from surefoot.store.checkpoint import Boundary, Checkpoint, Checkpoints, Manifest


class Keeper:
    """Writes what is to be kept and removes what is not.

    The best state waits in memory until something is saved. Every checkpoint names the best as of
    then, and that one is kept as long as the checkpoint is: so whoever goes back to it finds it.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        keep: int,
        removable: Callable[[Sequence[Checkpoint]], Sequence[Checkpoint]] = lambda these: these,
    ) -> None:
        """`removable` chooses from those that are not to be kept."""
        self._checkpoints, self._keep, self._removable = checkpoints, keep, removable
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
        self.tidy()

    def tidy(self) -> None:
        """Remove what is not to be kept."""
        there = self._checkpoints.listed()
        pinned = {checkpoint.step for checkpoint in there if checkpoint.pinned}
        steps = kept_steps([checkpoint.manifest for checkpoint in there], self._keep, pinned)
        for checkpoint in self._removable([c for c in there if c.step not in steps]):
            self._checkpoints.remove(checkpoint)
        self._checkpoints.tidy()


def kept_steps(there: Sequence[Manifest], count: int, pinned: Set[int]) -> set[int | None]:
    """Choose which checkpoints stay: of those a run can go on from the last ones, the very last in
    any case, those pinned, and what each of these names as the best."""
    ordered = sorted(there, key=lambda manifest: manifest.step)
    exact = [manifest for manifest in ordered if manifest.exact]
    kept = [*exact[-count:], *ordered[-1:], *(m for m in ordered if m.step in pinned)]
    return {step for manifest in kept for step in (manifest.step, manifest.best)}
