"""A row that others are combined with, again and again."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.core.tree import Array

MOST = 65_536
"""Numbers up to which it pays to repeat."""


class Repeated:
    """An array […] to combine with [B, …]. It is repeated beforehand, where that is little: numpy
    takes half the time, or less, for arrays of one shape."""

    def __init__(self, row: Array) -> None:
        self.row = row
        self._many: Array = row[None]

    def of(self, count: int) -> Array:
        """Return what goes with so many rows: [B, …], or […]. It must be left as it is."""
        many = self._many
        if len(many) == count:
            return many
        if count * self.row.size > MOST:
            return self.row
        if len(many) < count:
            self._many = many = np.repeat(self.row[None], count, 0)
        return many[:count]

    def __reduce__(self) -> tuple[Any, ...]:
        return Repeated, (self.row,)
