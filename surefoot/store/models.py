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
        self._due: dict[str, Boundary] = {}

    def offer(self, boundary: Boundary, before: Progress, progress: Progress) -> None:
        """Remember the policy if its moment has come, or if its recent return is the best."""
        for i in range(1, self._count + 1):
            mark = i * progress.total_steps / (self._count + 1)
            if before.steps < mark <= progress.steps:
                self._due[f"pi_ckpt{i}"] = boundary
        if boundary.best_return == boundary.step:
            self._due["best_return_pi_ckpt"] = boundary

    def save(self) -> None:
        """Write what is remembered."""
        for name, boundary in list(self._due.items()):
            self._write(name, actor_file(_policy(boundary)))
            del self._due[name]

    def finish(self, boundary: Boundary) -> None:
        """Write what a run ends with."""
        self._write("final_actor", actor_file(_policy(boundary)))
        self._write("final_critic", critic_file(_policy(boundary)))

    def _write(self, name: str, content: bytes) -> None:
        durable.make_directory(self._directory)
        durable.write_file(self._directory / f"{name}.pth", content)


def _policy(boundary: Boundary) -> dict[str, Array]:
    policy: dict[str, Array] = boundary.state["learner"]["policy"]
    return policy
