"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from contextlib import suppress
from typing import Any

LOCAL = 3
"""Where a terminal's attributes say whether it waits for Enter."""


class Keyboard:
    """Standard input, if it is a terminal that this process is in the foreground of; who is in the
    background must leave it alone, or is stopped by the kernel."""

    def __init__(self) -> None:
        self._wire = _terminal()
        self._before: list[Any] | None = None

    def wait(self, seconds: float) -> str:
        """Wait for a key, but no longer than this; return it, or nothing."""
        if self._wire is None or not self._in_front():
            time.sleep(seconds)
            return ""
        try:
            now = termios.tcgetattr(self._wire)
            if now[LOCAL] & termios.ICANON:  # at first, and after the shell had it in between
                self._before = now
                tty.setcbreak(self._wire, termios.TCSANOW)
            ready, _, _ = select.select([self._wire], [], [], seconds)
            pressed = os.read(self._wire, 1) if ready else b""
        except (OSError, termios.error):  # it was closed, or has hung up
            self._wire = None
            return ""
        if ready and not pressed:  # its end
            self._wire = None
        return pressed.decode("latin-1")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._wire is not None and self._before is not None and self._in_front():
            with suppress(termios.error, OSError):
                termios.tcsetattr(self._wire, termios.TCSANOW, self._before)

    def _in_front(self) -> bool:
        try:
            return self._wire is not None and os.tcgetpgrp(self._wire) == os.getpgrp()
        except OSError:
            return False


def _terminal() -> int | None:
    """Find the terminal of standard input."""
    try:
        wire = sys.stdin.fileno()
        return wire if os.isatty(wire) else None
    except (AttributeError, OSError, ValueError):  # none, closed, or not a file
        return None
