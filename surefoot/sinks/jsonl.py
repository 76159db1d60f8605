"""Metrics and events as JSON lines: the truth that every other view can be made from."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from surefoot.core.metrics import Metrics

FLUSH_SECONDS = 0.5


class JsonLines:
    """metrics.jsonl gets every iteration, journal.jsonl every event, at once."""

    def __init__(self, directory: Path) -> None:
        self._metrics = (directory / "metrics.jsonl").open("a", encoding="utf-8")
        self._journal = (directory / "journal.jsonl").open("a", encoding="utf-8")
        self._flushed = time.monotonic()

    def write(self, step: int, metrics: Metrics) -> None:
        self._metrics.write(json.dumps({"step": step, **metrics}, allow_nan=False) + "\n")
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._metrics.flush()
            self._flushed = time.monotonic()

    def event(self, entry: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._journal.write(json.dumps({"time": now, **entry}) + "\n")
        _commit(self._journal)

    def close(self) -> None:
        for file in (self._metrics, self._journal):
            _commit(file)
            file.close()


def _commit(file: TextIO) -> None:
    file.flush()
    os.fsync(file.fileno())
