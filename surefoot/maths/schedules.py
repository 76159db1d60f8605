"""Values that change over a run; `fraction` is the share of the budget that is spent."""

from __future__ import annotations

import math

LOWEST, HIGHEST = 1e-6, 1e-2
"""An adaptive rate is not moved further than this."""


def linear(start: float, end: float, fraction: float) -> float:
    """Go from start to end in a straight line."""
    return start + (end - start) * fraction


def cosine(start: float, end: float, fraction: float) -> float:
    """Go from start to end along half a cosine wave."""
    return end + (start - end) * (1 + math.cos(math.pi * fraction)) / 2


def adapted(rate: float, kl: float, target: float) -> float:
    """Lower a rate when the KL is above twice its target, raise it when below half of it."""
    if kl > 2 * target:
        return max(rate / 1.5, min(rate, LOWEST))
    if kl < target / 2:
        return min(rate * 1.5, max(rate, HIGHEST))
    return rate
