"""How far a run has come. Every count that budgets, schedules and names refer to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from surefoot.core.metrics import Metrics, prefixed
from surefoot.core.rollout import Rollout
from surefoot.core.state import State


@dataclass(frozen=True)
class Progress:
    total_steps: int
    steps: int = 0
    iterations: int = 0
    episodes: int = 0
    epochs: int = 0
    optimizer_steps: int = 0

    @classmethod
    def of(cls, state: State) -> Progress:
        """Make the progress whose state this is; anything but counts is refused."""
        for name, count in state.items():
            if type(count) is not int or not 0 <= count < 2**62:
                raise ValueError(f"{name} is no count: {count!r:.40}")
        return cls(**state)

    @property
    def fraction(self) -> float:
        """Share of the budget that is spent, 0 … 1; what schedules follow."""
        return min(1.0, self.steps / self.total_steps)

    @property
    def done(self) -> bool:
        return self.steps >= self.total_steps

    @property
    def left(self) -> int:
        """What is left of the budget, in steps."""
        return max(0, self.total_steps - self.steps)

    def done_with(self, rollout: Rollout) -> bool:
        """Say whether this rollout spends what is left of the budget."""
        return rollout.steps >= self.left

    def after(self, rollout: Rollout, update: Metrics) -> Progress:
        """Count one iteration: its valid steps, and the passes its update says it made."""
        return replace(
            self,
            steps=self.steps + rollout.steps,
            iterations=self.iterations + 1,
            episodes=self.episodes + len(rollout.episodes),
            epochs=self.epochs + int(update.get("update/epochs", 0)),
            optimizer_steps=self.optimizer_steps + int(update.get("update/optimizer_steps", 0)),
        )

    def metrics(self) -> Metrics:
        return prefixed("progress", {name: float(count) for name, count in asdict(self).items()})
