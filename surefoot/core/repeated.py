"""A row that others are combined with, again and again."""

from __future__ import annotations

import numpy as np

from surefoot.core.tree import Array

MOST = 256
"""Rows up to which it is repeated; beyond, arithmetic takes longer than what is saved."""


class Repeated:
    """An array […] to combine with each of B others, [B, …]. Few are given as many: numpy takes
    half the time, or less, for arrays of one shape."""

    def __init__(self, row: Array) -> None:
        self.row = row
        self._given: dict[int, Array] = {}

    def of(self, count: int) -> Array:
        """Return what goes with so many rows: [B, …], or […]."""
        if (found := self._given.get(count)) is not None:
            return found
        if count > MOST:
            return self.row
        self._given[count] = np.repeat(self.row[None], count, 0)
        return self._given[count]
