"""Sinks that take their time."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from surefoot.core.metrics import Metrics
from surefoot.core.tree import Array
from surefoot.sinks import aside
from surefoot.sinks.aside import Aside, Tell


class Slow:
    """Waits until it is let go on, and takes down what it gets."""

    def __init__(self, tell: Tell) -> None:
        self.let, self.got = threading.Event(), list[Any]()
        self._tell = tell

    def write(self, step: int, metrics: Metrics) -> None:
        self.let.wait()
        self.got.append((step, metrics))
        self._tell({"message": f"step {step}"})

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        self.got.append((step, {name: values.tolist() for name, values in arrays().items()}))

    def event(self, entry: Mapping[str, Any]) -> None:
        self.got.append(entry)

    def close(self) -> None:
        self.got.append("closed")


def slow(tell: Tell = lambda entry: None) -> tuple[Aside, Slow]:
    made: list[Slow] = []

    def make(tell: Tell) -> Slow:
        made.append(Slow(tell))
        return made[0]

    return Aside("slow", make, tell), made[0]


def test_nobody_waits_for_a_slow_sink_and_it_gets_everything_in_order() -> None:
    sink, inner = slow()
    numbers = np.ones(2)
    sink.write(1, {"a": 1.0})
    sink.spread(1, lambda: {"b": numbers.copy()})
    numbers[:] = 7  # a learner goes on
    sink.event({"event": "save"})
    assert inner.got == []
    inner.let.set()
    sink.close()
    assert inner.got == [(1, {"a": 1.0}), (1, {"b": [1.0, 1.0]}), {"event": "save"}, "closed"]


def test_what_it_says_comes_from_the_thread_that_trains() -> None:
    said: list[tuple[str, threading.Thread]] = []
    sink, inner = slow(lambda entry: said.append((entry["message"], threading.current_thread())))
    inner.let.set()
    sink.write(1, {})
    sink.close()
    assert said == [("step 1", threading.current_thread())]


def test_a_run_ends_without_a_sink_that_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "MOMENT", 0.01)
    monkeypatch.setattr(aside, "PATIENCE", 0.01)
    said: list[str] = []
    sink, inner = slow(lambda entry: said.append(entry["message"]))
    sink.write(1, {})
    sink.close()
    assert [message.split(" ")[0] for message in said] == ["waiting", "slow"]
    inner.let.set()


def test_work_for_a_stuck_sink_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "MOST", 3)
    said: list[str] = []
    sink, inner = slow(lambda entry: said.append(entry["message"]))
    for step in range(20):
        sink.write(step, {})
    assert said == ["slow is too slow: it does not get everything"]
    inner.let.set()
    sink.close()
    assert len(inner.got) < 8
