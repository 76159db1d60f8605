"""Events that come up before there is anywhere to write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Bulletin:
    """Takes events; keeps them until somebody listens, and passes them on from then."""

    def __init__(self) -> None:
        self._kept: list[Mapping[str, Any]] = []
        self._listener: Callable[[Mapping[str, Any]], None] = self._kept.append

    def __call__(self, entry: Mapping[str, Any]) -> None:
        self._listener(entry)

    def listen(self, listener: Callable[[Mapping[str, Any]], None]) -> None:
        """Hand over what was kept, and everything that comes."""
        self._listener = listener
        for entry in self._kept:
            listener(entry)
        self._kept.clear()
