"""Signals that ask a run to end, held until it is ready to."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held() -> Iterator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGHUP in a list; a second one acts at once.

    Only a process's main thread can do this; elsewhere the list stays empty.
    """
    caught: list[int] = []

    def handle(number: int, _: Any) -> None:
        caught.append(number)
        if len(caught) > 1:
            raise KeyboardInterrupt
        # A plain system call: printing may be what the signal interrupted.
        with suppress(OSError):
            os.write(2, b"\nsurefoot: saving after this iteration; once more stops at once\n")

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {s: signal.signal(s, handle) for s in ENDING}
    try:
        yield caught
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
