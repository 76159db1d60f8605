"""What happened in a rollout, and the episodes it is part of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from surefoot.core.protocols import Step
from surefoot.core.rollout import Episode
from surefoot.core.state import State
from surefoot.core.tree import Array

Rows: TypeAlias = slice | Array
"""Some of the rows: a range, or those of these numbers."""
Time: TypeAlias = int | Array
"""Which step of a rollout: of all rows in question, or of each of them."""


@dataclass(frozen=True)
class Facts:
    """What happened to N rows in T steps, each [T, N]; as in Step."""

    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    lost: Array
    success: Array

    @classmethod
    def blank(cls, horizon: int, rows: int) -> Facts:
        """Make facts of steps that count and in which nothing happened."""
        shape = (horizon, rows)
        terminated, truncated = np.zeros((2, *shape), bool)
        valid, success = np.ones(shape, bool), np.full(shape, np.nan)
        lost = np.zeros(shape, np.int64)
        return cls(np.zeros(shape), terminated, truncated, valid, lost, success)

    @classmethod
    def of(cls, step: Step) -> Facts:
        """Take down one step of all rows."""
        facts = cls.blank(1, len(step.reward))
        facts.write((0, slice(None)), step)
        return facts

    @property
    def ended(self) -> Array:
        """[T, N]: terminated or truncated."""
        ended: Array = self.terminated | self.truncated
        return ended

    def breaks(self, place: Any = ...) -> Array:
        """Say whether an episode ended or was lost in these steps, or in all."""
        breaks: Array = self.terminated[place] | self.truncated[place] | (self.lost[place] > 0)
        return breaks

    @classmethod
    def joined(cls, parts: list[Facts]) -> Facts:
        """Put what happened one after another into one."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def write(self, place: tuple[Time, Rows], step: Step) -> None:
        """Take down a step of some rows that is out of the ordinary."""
        self.reward[place] = step.reward
        self.terminated[place], self.truncated[place] = step.terminated, step.truncated
        self.valid[place], self.lost[place] = step.valid, step.lost
        self.success[place] = step.success

    def clear(self, rows: slice) -> None:
        """Make these rows' steps ones that count and in which nothing happened."""
        every = (slice(None), rows)
        self.terminated[every] = self.truncated[every] = False
        self.valid[every], self.lost[every], self.success[every] = True, 0, np.nan

    def lose(self, place: tuple[Time, Rows], episodes: int) -> None:
        """Take down a step of some rows that nobody made, and how many episodes that cost."""
        self.reward[place], self.success[place], self.lost[place] = 0.0, np.nan, episodes
        self.terminated[place] = self.truncated[place] = self.valid[place] = False


class Tally:
    """Where each row is in its episode: its number, steps so far, rewards so far."""

    def __init__(self, rows: int) -> None:
        self.number = np.zeros(rows, np.int64)
        self.length = np.zeros(rows, np.int64)
        self.total = np.zeros(rows)

    @classmethod
    def of(cls, rows: int, state: State) -> Tally:
        """Make the tally whose state this is."""
        tally = cls(rows)
        for name, counts in vars(tally).items():
            counts[:] = state[name]
        return tally

    def state(self) -> State:
        return {name: counts.copy() for name, counts in vars(self).items()}

    def skip(self, episodes: Array) -> None:
        """Leave out so many episodes of each row [N]; what was cut is no Episode."""
        self.number += episodes
        self.length[episodes > 0] = 0
        self.total[episodes > 0] = 0.0

    def add(self, facts: Facts) -> tuple[Array, list[Episode]]:
        """Count steps; return how many steps of its episode were before each [T, N], and the
        episodes that were completed, in the order of (t, row).

        What was played of an episode that is lost is taken back: it becomes invalid.
        """
        ended, valid = facts.ended, facts.valid
        breaks = facts.breaks()
        passed = ended + facts.lost
        begun = _begun(breaks)
        for t, row in np.argwhere(facts.lost).tolist():
            valid[begun[t, row] : t + 1, row] = False
        counted = np.zeros((len(valid) + 1, valid.shape[1]), np.int64)
        np.cumsum(valid, axis=0, out=counted[1:])
        carried = np.cumsum(breaks, axis=0) == breaks  # of an episode that began before all this
        before = counted[:-1] - np.take_along_axis(counted, begun, 0) + self.length * carried
        length = before + valid
        earlier = np.where(carried, self.total, 0.0)
        total = earlier + _sums(np.where(valid, facts.reward, 0.0), begun)
        number = self.number + np.cumsum(passed, axis=0) - passed
        columns = (number, total, length, facts.terminated, facts.success)
        _, rows = np.nonzero(ended)
        episodes = [
            Episode(row, index, whole, steps, terminated, None if math.isnan(success) else success)
            for row, index, whole, steps, terminated, success in zip(
                rows.tolist(), *(column[ended].tolist() for column in columns), strict=True
            )
        ]
        self.number += passed.sum(0)
        self.length = np.where(breaks[-1], 0, length[-1])
        self.total = np.where(breaks[-1], 0.0, total[-1])
        return before.astype(np.int32), episodes


def _begun(breaks: Array) -> Array:
    """Return for each step [T, N] at which step its episode began, or 0 if that was before."""
    after = np.where(breaks, np.arange(1, len(breaks) + 1)[:, None], 0)
    begun = np.zeros_like(after)
    np.maximum.accumulate(after[:-1], axis=0, out=begun[1:])
    return begun


def _sums(reward: Array, begun: Array) -> Array:
    """Return for each step [T, N] the sum of all rewards here that are of its episode."""
    first = (begun == np.arange(len(begun))[:, None]).T
    sums = np.add.reduceat(reward.T.reshape(-1), np.flatnonzero(first))
    each: Array = sums[np.cumsum(first) - 1].reshape(first.shape).T
    return each
