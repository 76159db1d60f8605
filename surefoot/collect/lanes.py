"""Who steps what: rows are dealt out to workers, in lanes that are stepped together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from surefoot.collect.facts import Rows

MOST = 254
"""Lanes of one worker: what a byte can tell apart, two orders excepted."""


@dataclass(frozen=True, eq=False)
class Lane:
    """Some rows that one worker steps together."""

    worker: int
    number: int
    """Among the lanes of that worker."""
    rows: slice

    @property
    def size(self) -> int:
        return int(self.rows.stop - self.rows.start)


def deal(rows: int, workers: int, lanes: int) -> list[Lane]:
    """Deal rows out evenly to workers, and what each gets to so many lanes of its own.

    The first lanes of all workers come first, then the second ones: those that are done at about
    the same time are one range of rows.
    """
    shares = [_cut(share, min(lanes, MOST)) for share in _cut(rows, workers)]
    dealt = [
        (number, worker, sizes[number])
        for number in range(len(shares[0]))
        for worker, sizes in enumerate(shares)
        if number < len(sizes)
    ]
    ends = accumulate((size for *_, size in dealt), initial=0)
    return [
        Lane(worker, number, slice(start, stop))
        for (number, worker, _), (start, stop) in zip(dealt, pairwise(ends), strict=True)
    ]


def rows_of(lanes: list[Lane]) -> Rows:
    """Name the rows of lanes that are in order: as a range, if they are one."""
    if all(one.rows.stop == other.rows.start for one, other in pairwise(lanes)):
        return slice(lanes[0].rows.start, lanes[-1].rows.stop)
    return np.concatenate([np.arange(lane.rows.start, lane.rows.stop) for lane in lanes])


def _cut(total: int, count: int) -> list[int]:
    """Cut a number of rows into so many parts, or as many as there are rows."""
    count = min(count, total)
    return [len(range(part, total, count)) for part in range(count)]
