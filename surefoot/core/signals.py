"""Signals that ask a run to end, held until it is ready to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def held() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list; a second one acts at once.

    Only a process's main thread can do this; elsewhere the list stays empty.
    """
    caught: list[int] = []

    def handle(number: int, _: Any) -> None:
        caught.append(number)
        if len(caught) > 1:
            raise KeyboardInterrupt

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
