"""models/: policies as files for people, written on the way and at the end."""

from __future__ import annotations

from pathlib import Path

from surefoot.core.progress import Progress
from surefoot.core.tree import Array
from surefoot.policy.files import actor_file, critic_file
from surefoot.store import durable
from surefoot.store.checkpoint import Boundary


class Models:
    """`count` policies at evenly spaced moments, the one with the best recent return, the final."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory, self._count = directory, count
        self._best: Boundary | None = None

    def offer(self, boundary: Boundary, before: Progress, progress: Progress) -> None:
        """Write the policy if its moment has come; remember it if its recent return is best."""
        for i in range(1, self._count + 1):
            mark = i * progress.total_steps / (self._count + 1)
            if before.steps < mark <= progress.steps:
                self._write(f"pi_ckpt{i}", actor_file(_policy(boundary)))
        if boundary.best_return == boundary.step:
            self._best = boundary

    def save(self) -> None:
        """Write the policy of the best recent return if it is new."""
        if self._best is not None:
            self._write("best_return_pi_ckpt", actor_file(_policy(self._best)))
            self._best = None

    def finish(self, boundary: Boundary) -> None:
        self._write("final_actor", actor_file(_policy(boundary)))
        self._write("final_critic", critic_file(_policy(boundary)))

    def _write(self, name: str, content: bytes) -> None:
        self._directory.mkdir(exist_ok=True)
        durable.write_file(self._directory / f"{name}.pth", content)


def _policy(boundary: Boundary) -> dict[str, Array]:
    policy: dict[str, Array] = boundary.state["learner"]["policy"]
    return policy
