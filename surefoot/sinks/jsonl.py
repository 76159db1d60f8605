"""Metrics and events as JSON lines: the truth that every other view can be made from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surefoot.core.metrics import Metrics
from surefoot.core.tree import Array


class JsonLines:
    """metrics.jsonl gets every iteration, journal.jsonl every event, at once.

    `offset` is where metrics.jsonl ends for a run that goes on: what comes after it is cut off.
    What cannot be written now, because the disk is full, is kept and tried again; `commit` says
    whether all is on disk.
    """

    def __init__(self, directory: Path, offset: int = 0) -> None:
        self._metrics = _Lines(directory / "metrics.jsonl")
        self._journal = _Lines(directory / "journal.jsonl")
        self.missing = self._metrics.cut(offset)
        """Bytes that metrics.jsonl should have had and has not."""

    @property
    def offset(self) -> int:
        """Bytes of metrics.jsonl, with what is still to be written."""
        return self._metrics.size

    def write(self, step: int, metrics: Metrics) -> None:
        self._metrics.add({"step": step, **metrics})
        self._metrics.flush()

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        pass

    def event(self, entry: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._journal.add({"time": now, **entry})
        self._journal.write_out()

    def commit(self) -> None:
        """Make sure that every metric is on disk; raise OSError where that cannot be."""
        if (error := self._metrics.write_out()) is not None:
            raise error

    def close(self) -> None:
        for lines in (self._metrics, self._journal):
            lines.close()


class _Lines:
    """A file of JSON lines, which is always cut at the end of a line before it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._written = os.fstat(self._file).st_size
        self._pending = b""
        if self._written and os.pread(self._file, 1, self._written - 1) != b"\n":
            self._pending = b"\n"  # a line was torn; nothing may be glued to it

    @property
    def size(self) -> int:
        return self._written + len(self._pending)

    def cut(self, size: int) -> int:
        """Forget what is behind this many bytes; return how many are missing to have so many."""
        if size < self._written:
            os.ftruncate(self._file, size)
            self._written, self._pending = size, b""
        return max(0, size - self._written)

    def add(self, entry: Mapping[str, Any]) -> None:
        self._pending += json.dumps(entry, allow_nan=False).encode() + b"\n"

    def flush(self) -> OSError | None:
        """Write what is pending; return what prevented it, if anything did."""
        try:
            while self._pending:
                count = os.pwrite(self._file, self._pending, self._written)
                self._written += count
                self._pending = self._pending[count:]
        except OSError as error:
            return OSError(error.errno, error.strerror, str(self._path))
        return None

    def write_out(self) -> OSError | None:
        """Write what is pending and make sure of it; return what prevented that."""
        error = self.flush()
        try:
            os.fsync(self._file)
        except OSError as refused:
            return error or OSError(refused.errno, refused.strerror, str(self._path))
        return error

    def close(self) -> None:
        if (error := self.write_out()) is not None:
            lost = self._pending.count(b"\n")
            print(f"surefoot: {lost} lines of {self._path} are lost: {error}", file=sys.stderr)
        os.close(self._file)
