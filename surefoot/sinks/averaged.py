"""Spares a sink that takes its time: several writes become one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Sink
from surefoot.core.tree import Array

SECONDS = 0.5
"""Between two writes."""
SPREAD_SECONDS = 20.0
"""Between two looks at how numbers are spread."""
COUNTERS = ("progress/", "collect/")
"""What is not averaged: the last value counts."""


class Averaged:
    """Passes on the mean of each metric since it last did."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._written = self._spread = -SPREAD_SECONDS
        self._step = 0
        self._sums: Metrics = {}
        self._counts: dict[str, int] = {}

    def write(self, step: int, metrics: Metrics) -> None:
        self._step = step
        for name, value in metrics.items():
            fresh = name not in self._sums or name.startswith(COUNTERS)
            self._sums[name] = value if fresh else self._sums[name] + value
            self._counts[name] = 1 if fresh else self._counts[name] + 1
        if time.monotonic() - self._written >= SECONDS:
            self._pass_on()

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        if time.monotonic() - self._spread >= SPREAD_SECONDS:
            self._sink.spread(step, arrays)
            self._spread = time.monotonic()

    def event(self, entry: Mapping[str, Any]) -> None:
        if entry.get("event") == "save":  # what a run may go on from is to be there in full
            self._pass_on()
        self._sink.event(entry)

    def close(self) -> None:
        self._pass_on()
        self._sink.close()

    def _pass_on(self) -> None:
        if self._sums:
            means = {name: total / self._counts[name] for name, total in self._sums.items()}
            self._sink.write(self._step, means)
        self._sums, self._counts = {}, {}
        self._written = time.monotonic()
