"""Signals that ask a run to end: they abandon what may be abandoned, and wait for the rest."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Abandon(KeyboardInterrupt):
    """Raised where work may be given up; what it leaves half done must not be used."""


class Held:
    """The signals that came. The first gives up abandonable work; a second stops at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.caught: list[int] = []
        self._say = say
        self._abandonable = False

    @contextmanager
    def abandonable(self) -> Iterator[None]:
        """Mark a stretch of work that a signal may end at any instruction."""
        try:
            self._abandonable = True
            if self.caught:
                raise Abandon
            yield
        finally:
            self._abandonable = False

    def handle(self, number: int, _: Any) -> None:
        self.caught.append(number)
        if len(self.caught) == 2:
            raise KeyboardInterrupt
        if len(self.caught) > 2:
            return  # it is stopping
        self._say("saving and stopping; once more stops at once")
        if self._abandonable:
            raise Abandon


def say_at_once(text: str) -> None:
    """Write to standard error by a plain system call: printing may be what a signal interrupts."""
    with suppress(OSError):
        os.write(2, f"\nsurefoot: {text}\n".encode())


@contextmanager
def held(say: Callable[[str], None] = say_at_once) -> Iterator[Held]:
    """Take the signals that end a process in hand while this lasts; what is inside ends itself.
    `say` is called by a handler, and must not mind what it interrupts."""
    signals = Held(say)
    with _handled(signals.handle, *ENDING):
        yield signals


def ignore() -> None:
    """Let a process that is leaving leave in peace."""
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def leaving() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a process in order, with their exit codes, while this lasts."""

    def leave(number: int, _: Any) -> None:
        sys.exit(128 + number)

    with _handled(leave, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def _handled(handle: Callable[[int, Any], None], *numbers: signal.Signals) -> Iterator[None]:
    """Install a handler; only a process's main thread can, elsewhere nothing changes."""
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        # nohup ignores SIGHUP, and that is to stay; SIGINT is ignored in any background job, which
        # must still end in order when somebody sends it.
        ours = [n for n in numbers if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        handlers = {number: signal.signal(number, handle) for number in ours}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            # None is a handler that is not Python's, which cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
