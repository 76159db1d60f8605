"""The state of a run in memory: all of it, and nothing else, is what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from surefoot.core.best import Best
from surefoot.core.episodes import RecentEpisodes
from surefoot.core.errors import CheckpointError
from surefoot.core.events import Bulletin
from surefoot.core.progress import Progress
from surefoot.core.protocols import Collector, Learner
from surefoot.core.rollout import Rollout
from surefoot.core.spec import Spec, differences
from surefoot.core.state import State
from surefoot.store.checkpoint import Boundary

MISFITS = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    RuntimeError,
    OverflowError,
    AssertionError,
)
"""What restoring raises where a state is not of this run's shape."""


@dataclass
class Training:
    """Who plays, who learns, and how far they are."""

    restore_by: str
    """How environments come back: snapshot, replay, rebuild or fresh."""
    collector: Collector
    learner: Learner
    progress: Progress
    recent: RecentEpisodes
    events: Bulletin
    """What happens to those who play."""
    best_return: Best = field(default_factory=Best)
    best_evaluation: Best = field(default_factory=Best)
    metrics_bytes: int = 0
    """How much of metrics.jsonl belongs to what was restored."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of packages that its numbers depend on, beside those that all do."""

    def note(self, progress: Progress, rollout: Rollout, evaluation: float | None) -> None:
        """Count an iteration that is complete."""
        self.progress = progress
        total = float(rollout.reward[rollout.valid].sum())
        self.recent.add(rollout.episodes, total, rollout.steps)
        self.best_return = self.best_return.after(self.recent.score, progress.steps)
        self.best_evaluation = self.best_evaluation.after(evaluation, progress.steps)

    def boundary(self, metrics_bytes: int, evaluation: float | None = None) -> Boundary:
        """Take down everything as it is between two iterations."""
        by_evaluation = self.best_evaluation.step
        return Boundary(
            step=self.progress.steps,
            state={
                "spec": self.collector.spec.state(),
                "restore": self.restore_by,
                "progress": vars(self.progress),
                "recent": self.recent.state(),
                "best": {
                    "return": vars(self.best_return),
                    "evaluation": vars(self.best_evaluation),
                },
                "learner": self.learner.state(),
                "collector": self.collector.state(),
                "metrics_bytes": metrics_bytes,
            },
            exact=self.collector.exact,
            score=self.recent.score,
            evaluation=evaluation,
            best=self.best_return.step if by_evaluation is None else by_evaluation,
            best_return=self.best_return.step,
            update=self.learner.how,
            libraries=self.libraries,
        )

    def restore(self, step: int, state: State) -> None:
        """Become what `boundary` took down at this step, environments excepted."""
        try:
            if state["progress"]["steps"] != step:
                raise ValueError(f"it is of step {state['progress']['steps']!r:.40}, not {step}")
            then = Spec.from_state(state["spec"])
            if different := differences(then, self.collector.spec):
                raise CheckpointError(f"it is of another environment: {'; '.join(different)}")
            total, kept = self.progress.total_steps, Progress.of(state["progress"])
            self.progress = replace(kept, total_steps=total)
            self.recent.restore(state["recent"])
            self.best_return = Best.of(state["best"]["return"])
            self.best_evaluation = Best.of(state["best"]["evaluation"])
            self.metrics_bytes = state["metrics_bytes"]
            if type(self.metrics_bytes) is not int or self.metrics_bytes < 0:
                raise ValueError(f"metrics_bytes is {self.metrics_bytes!r:.40}")
            self.learner.restore(state["learner"])
        except MISFITS as error:
            raise CheckpointError(f"it does not fit this run's settings: {_said(error)}") from error

    def restore_environments(self, state: State) -> None:
        """Lead the environments to where they were; raise InexactError where that fails."""
        try:
            self.collector.restore(state["collector"])
        except MISFITS as error:
            raise CheckpointError(f"its environments cannot be restored: {_said(error)}") from error

    def renew_environments(self, state: State) -> None:
        """Let every row begin its next episode."""
        try:
            self.collector.renew(state["collector"])
        except MISFITS as error:
            raise CheckpointError(f"its environments cannot be renewed: {_said(error)}") from error


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"
