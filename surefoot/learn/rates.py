"""Settings that follow the run's progress, and learning rates that follow the KL divergence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from surefoot.core.state import State
from surefoot.maths import schedules
from surefoot.schedules import Adaptive, Constant, Cosine, Linear, Rate, Schedule


def follow(schedule: Schedule) -> Callable[[float], float]:
    """Turn a schedule into a function of the share of the budget that is spent."""
    match schedule:
        case Constant(value=value):
            return lambda _: value
        case Linear(start=start, end=end):
            return partial(schedules.linear, start, end)
        case Cosine(start=start, end=end):
            return partial(schedules.cosine, start, end)


class LearningRate(Protocol):
    def at(self, fraction: float) -> float:
        """Return the rate when `fraction` of the budget is spent."""

    def adapt(self, kl: float) -> None:
        """Take note of an epoch's mean KL."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


class ScheduledRate:
    """Follows the run's progress alone."""

    def __init__(self, schedule: Schedule) -> None:
        self.at = follow(schedule)

    def adapt(self, kl: float) -> None:
        """The KL does not matter."""

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Nothing was kept."""


class AdaptiveRate:
    """Keeps the KL of an epoch near a target."""

    def __init__(self, schedule: Adaptive) -> None:
        self._schedule = str(schedule)
        self._target = schedule.kl
        self._rate = schedule.start

    def at(self, fraction: float) -> float:
        return self._rate

    def adapt(self, kl: float) -> None:
        self._rate = schedules.adapted(self._rate, kl, self._target)

    def state(self) -> State:
        return {"schedule": self._schedule, "rate": self._rate}

    def restore(self, state: State) -> None:
        if state.get("schedule") == self._schedule:  # else a fork asked for another one
            self._rate = float(state["rate"])


def build_rate(schedule: Rate) -> LearningRate:
    return AdaptiveRate(schedule) if isinstance(schedule, Adaptive) else ScheduledRate(schedule)
