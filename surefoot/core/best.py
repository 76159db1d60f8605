"""The best of a run so far."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.core.state import State


@dataclass(frozen=True)
class Best:
    """The highest score and the step it was reached at; of equals the later one."""

    score: float | None = None
    step: int | None = None

    @classmethod
    def of(cls, state: State) -> Best:
        """Make the best whose state this is."""
        score, step = state["score"], state["step"]
        if (score is None) != (step is None):
            raise ValueError("a best score without its step")
        return cls() if score is None else cls(float(score), int(step))

    def after(self, score: float | None, step: int) -> Best:
        if score is None or (self.score is not None and score < self.score):
            return self
        return Best(score, step)
