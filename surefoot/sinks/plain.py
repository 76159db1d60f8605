"""What standard output gets that no terminal shows live: text blocks, JSON lines, or nothing."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from surefoot.core.metrics import Metrics
from surefoot.core.signals import say_at_once
from surefoot.core.tree import Array
from surefoot.sinks.statistics import lasting, sections

SECONDS = 5.0
"""Between two blocks, or lines of metrics."""
LABEL, VALUE = 30, 15
"""Characters for a field's name and value."""


class Paced:
    """Shows the metrics of now and then; the last always."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()
        self._pending: tuple[int, Metrics] | None = None
        self._lasting: Metrics = {}

    def write(self, step: int, metrics: Metrics) -> None:
        self._lasting |= lasting(metrics)
        self._pending = (step, {**self._lasting, **metrics})
        if time.monotonic() - self._shown >= SECONDS:
            self._show()

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        pass

    def alert(self, text: str) -> None:
        say_at_once(text)

    def close(self) -> None:
        if self._pending is not None:
            self._show()

    def _show(self) -> None:
        assert self._pending is not None
        say(self._written(*self._pending))
        self._pending, self._shown = None, time.monotonic()

    def _written(self, step: int, metrics: Metrics) -> str:
        raise NotImplementedError


class PlainBlocks(Paced):
    """Aligned text without control characters."""

    def __init__(self, title: str, recent: int, algo: str = "ppo") -> None:
        super().__init__()
        self._recent, self._algo = recent, algo
        say(title)

    def event(self, entry: Mapping[str, Any]) -> None:
        if "message" in entry:
            say(str(entry["message"]))

    def _written(self, step: int, metrics: Metrics) -> str:
        lines = []
        elapsed = time.monotonic() - self._started
        for title, fields in sections(metrics, self._recent, elapsed, self._algo).items():
            lines += [f"-- {title} ".ljust(2 + LABEL + VALUE, "-")]
            lines += [f"  {_cut(name):<{LABEL}}{value:>{VALUE}}" for name, value in fields.items()]
        return "\n".join(lines) + "\n"


class JsonLogs(Paced):
    """One JSON object per line, for other programs: metrics now and then, every event."""

    def event(self, entry: Mapping[str, Any]) -> None:
        say(_line(entry))

    def _written(self, step: int, metrics: Metrics) -> str:
        return _line({"step": step, **metrics})


class Silent:
    """Says nothing; warnings go to standard error all the same."""

    def write(self, step: int, metrics: Metrics) -> None:
        pass

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        pass

    def event(self, entry: Mapping[str, Any]) -> None:
        pass

    def alert(self, text: str) -> None:
        say_at_once(text)

    def close(self) -> None:
        pass


def _cut(name: str) -> str:
    return name if len(name) < LABEL else f"{name[: LABEL - 2]}…"


def printable(text: str, besides: str = "") -> str:
    """Leave out control characters: names and messages may be anybody's."""
    return "".join(c if c.isprintable() or c in besides else "?" for c in text)


def _line(entry: Mapping[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, **entry}, default=str)


def say(text: str) -> None:
    """Print, unless nobody listens any more: a closed pipe must not end a training."""
    try:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        known = printable(text, "\n\t").encode(encoding, "replace").decode(encoding)
        print(known, flush=True)
    except (OSError, ValueError):  # closed, at either end
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
