"""The least average cost of small queues, by relative value iteration: a model of its own, which
shares nothing with the environment but the numbers in its description."""

from __future__ import annotations

from itertools import product

import numpy as np

MOST = 60
"""Jobs of a kind that are followed; so many are next to impossible."""
PRECISE = 1e-9


def least_cost(arrivals: list[float], success: list[float], costs: list[float]) -> float:
    """Return the least long-term cost per step of one server for several kinds of jobs. In each
    step it tries one kind, of which one job is done with this chance, or idles; then one of each
    kind arrives with its chance; then each that waits costs."""
    shape = (MOST + 1,) * len(arrivals)
    waiting = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"))
    cost = np.tensordot(np.array(costs), waiting, 1)
    values = np.zeros(shape)
    while True:
        following = _after_arrivals(cost + values, arrivals)
        choices = [following]
        for kind, chance in enumerate(success):
            fewer = np.roll(following, 1, axis=kind)
            fewer = np.where(waiting[kind] > 0, fewer, following)
            choices.append(chance * fewer + (1 - chance) * following)
        better = np.minimum.reduce(choices)
        change = better - values
        if np.ptp(change[tuple(slice(0, MOST // 2) for _ in shape)]) < PRECISE:
            return float(change.flat[0])
        values = better - better.flat[0]


def _after_arrivals(values: np.ndarray, arrivals: list[float]) -> np.ndarray:
    """Return what is to be expected of each state before arrivals."""
    expected = np.zeros_like(values)
    for come in product((0, 1), repeat=len(arrivals)):
        chance = np.prod([p if one else 1 - p for p, one in zip(arrivals, come, strict=True)])
        moved = values
        for axis, one in enumerate(come):
            if one:
                last = np.take(moved, [MOST], axis)
                moved = np.concatenate([np.delete(moved, 0, axis), last], axis)
        expected += chance * moved
    return expected


SINGLE = {"arrivals": [0.5], "success": [0.7], "costs": [1.0]}
TWO = {"arrivals": [0.3, 0.25], "success": [0.9, 0.6], "costs": [3.0, 1.0]}
"""The instances single_queue and two_queues."""
