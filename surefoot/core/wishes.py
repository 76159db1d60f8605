"""What somebody at the keyboard asks of a run, until there is time for it."""

from __future__ import annotations

from collections import deque

KEYS = {"p": "pause", "c": "checkpoint", "e": "evaluate", "v": "video", "q": "stop"}
"""What keys stand for."""


class Wishes:
    """Asked for in one thread, taken in another."""

    def __init__(self) -> None:
        self._asked: deque[str] = deque()

    @property
    def pending(self) -> list[str]:
        return list(self._asked)

    def ask(self, wish: str) -> None:
        self._asked.append(wish)

    def take(self) -> str | None:
        """Return the oldest wish, which is granted with that; None if there is none."""
        return self._asked.popleft() if self._asked else None
