"""The value of a schedule at a point of the run."""

from __future__ import annotations

import math

from surefoot.config import Adaptive, Constant, Cosine, Linear


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
    """Lower the rate by half when the KL is twice its target, raise it when half of it."""
    if kl > 2 * schedule.kl:
        return max(rate / 1.5, 1e-6)
    if kl < schedule.kl / 2:
        return min(rate * 1.5, 1e-2)
    return rate
