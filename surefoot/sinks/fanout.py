"""One sink in front of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Sink
from surefoot.core.tree import Array


class FanOut:
    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def write(self, step: int, metrics: Metrics) -> None:
        for sink in self._sinks:
            sink.write(step, metrics)

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        for sink in self._sinks:
            sink.spread(step, arrays)

    def event(self, entry: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            sink.event(entry)

    def close(self) -> None:
        # Every sink gets its chance, whatever another does; the first, which others may still write
        # to, is the last.
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)
