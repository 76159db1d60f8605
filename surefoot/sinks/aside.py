"""A sink on a thread of its own: one that waits for a network keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Sink
from surefoot.core.tree import Array

MOST = 1_000
"""Writes that may wait; those that come when there are more are dropped."""
MOMENT, PATIENCE = 1.0, 60.0
"""Seconds that the end of a run waits for a sink in silence, and at most."""
Tell: TypeAlias = Callable[[Mapping[str, Any]], None]


class Aside:
    """Hands everything over to a sink in the order it came. What that has to say is passed on here
    by whoever trains, since nobody else may write into a run."""

    def __init__(self, name: str, make: Callable[[Tell], Sink], tell: Tell) -> None:
        """`make` is told where to leave messages; it must not take long."""
        self._name, self._tell = name, tell
        self._said: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._sink = make(self._said.put)
        self._dropped = False
        self._thread = Thread(target=self._attend, name=name, daemon=True)
        self._thread.start()

    def write(self, step: int, metrics: Metrics) -> None:
        self._give(lambda: self._sink.write(step, metrics))

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        found = arrays()  # now: a learner goes on
        self._give(lambda: self._sink.spread(step, lambda: found))

    def event(self, entry: Mapping[str, Any]) -> None:
        self._pass_on()
        self._work.put(lambda: self._sink.event(entry))  # there are few, and all of them matter

    def close(self) -> None:
        self._work.put(self._sink.close)
        self._work.put(None)
        self._thread.join(MOMENT)
        if self._thread.is_alive():
            self._say(f"waiting up to {PATIENCE:.0f} s for {self._name} to take the rest")
            self._thread.join(PATIENCE)
        self._pass_on()
        if self._thread.is_alive():
            self._say(f"{self._name} did not take everything in {PATIENCE:.0f} s")

    def _give(self, work: Callable[[], None]) -> None:
        self._pass_on()
        if self._work.qsize() < MOST:
            self._work.put(work)
        elif not self._dropped:
            self._dropped = True
            self._say(f"{self._name} is too slow: it does not get everything")

    def _attend(self) -> None:
        while work := self._work.get():
            work()

    def _say(self, message: str) -> None:
        self._tell({"event": "sink-error", "message": message})

    def _pass_on(self) -> None:
        while not self._said.empty():
            self._tell(self._said.get())
