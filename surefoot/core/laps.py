"""Where the time goes."""

from __future__ import annotations

import time


class Laps:
    """Divides all time among names: every moment belongs to the next lap that is called."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._spent: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Put down the time since the last lap under this name."""
        now = time.perf_counter()
        self._spent[name] = self._spent.get(name, 0.0) + now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """Return the seconds of each name since this was called last."""
        spent, self._spent = self._spent, {}
        return spent
