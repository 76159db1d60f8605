"""A sink that training can do without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Sink
from surefoot.core.tree import Array
from surefoot.sinks.plain import Silent


class Optional:
    """Makes a sink when there is something to show; once it fails, says so and goes on without."""

    def __init__(
        self, name: str, make: Callable[[], Sink], tell: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._name, self._make, self._tell = name, make, tell
        self._sink: Sink | None = None

    def write(self, step: int, metrics: Metrics) -> None:
        self._do(lambda sink: sink.write(step, metrics))

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        self._do(lambda sink: sink.spread(step, arrays))

    def event(self, entry: Mapping[str, Any]) -> None:
        if self._sink is not None:
            self._do(lambda sink: sink.event(entry))

    def close(self) -> None:
        if self._sink is not None:
            self._do(lambda sink: sink.close())

    def _do(self, work: Callable[[Sink], None]) -> None:
        try:
            if self._sink is None:
                self._sink = self._make()
            work(self._sink)
        except Exception as error:
            self._sink = Silent()
            message = (
                f"{self._name} fails, training goes on without: {type(error).__name__}: {error}"
            )
            self._tell({"event": "sink-error", "message": message})
