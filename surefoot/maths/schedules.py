"""The value of a schedule at a point of the run."""

from __future__ import annotations

import math

from surefoot.config import Adaptive, Constant, Cosine, Linear

LOWEST, HIGHEST = 1e-6, 1e-2
"""An adaptive rate is not moved further than this."""


def at(schedule: Constant | Linear | Cosine, fraction: float) -> float:
    """Evaluate a schedule when `fraction` of the budget is spent."""
    match schedule:
        case Constant(value=value):
            return value
        case Linear(start=start, end=end):
            return start + (end - start) * fraction
        case Cosine(start=start, end=end):
            return end + (start - end) * (1 + math.cos(math.pi * fraction)) / 2


def adapted(rate: float, kl: float, schedule: Adaptive) -> float:
    """Lower the rate when the KL is above twice its target, raise it when below half of it."""
    if kl > 2 * schedule.kl:
        return max(rate / 1.5, min(rate, LOWEST))
    if kl < schedule.kl / 2:
        return min(rate * 1.5, max(rate, HIGHEST))
    return rate
