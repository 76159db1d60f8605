"""Metrics are named numbers. One without a value is absent, never NaN."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from surefoot.core.tree import Array

Metrics: TypeAlias = dict[str, float]


class Averages:
    """Mean per name over whatever was added; NaN stands for absence and is not counted."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._counts: defaultdict[str, int] = defaultdict(int)

    def add(self, columns: Mapping[str, Array]) -> None:
        """Add arrays of values by name."""
        for name, values in columns.items():
            for value in values.tolist():
                if not math.isnan(value):
                    self._sums[name] += value
                    self._counts[name] += 1

    def means(self, prefix: str = "") -> Metrics:
        """Return the mean of every name that got a value."""
        return {prefix + name: self._sums[name] / count for name, count in self._counts.items()}


def mean(values: Iterable[float]) -> float | None:
    """Return the mean, or None of nothing."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else None


def present(**values: float | None) -> Metrics:
    """Keep the values that exist."""
    return {name: float(value) for name, value in values.items() if value is not None}


def prefixed(group: str, metrics: Mapping[str, float]) -> Metrics:
    """Put every name into a group: `kl` becomes `ppo/kl`."""
    return {f"{group}/{name}": value for name, value in metrics.items()}
