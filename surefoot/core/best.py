"""The best of a run so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Best:
    """The highest score and the step it was reached at; of equals the later one."""

    score: float | None = None
    step: int | None = None

    def after(self, score: float | None, step: int) -> Best:
        if score is None or (self.score is not None and score < self.score):
            return self
        return Best(score, step)
