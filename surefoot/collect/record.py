"""A rollout in the making, and the episodes it is part of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from surefoot.core import tree
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Step
from surefoot.core.rollout import Episode, Rollout
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree

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
        ended, valid = facts.terminated | facts.truncated, facts.valid
        breaks = ended | (facts.lost > 0)
        passed = ended + facts.lost
        begun = _begun(breaks)
        for t, row in np.argwhere(facts.lost).tolist():
            valid[begun[t, row] : t + 1, row] = False
        counted = np.zeros((len(valid) + 1, valid.shape[1]), np.int64)
        np.cumsum(valid, axis=0, out=counted[1:])
        carried = np.cumsum(breaks, axis=0) == breaks  # of an episode that began before all this
        before = counted[:-1] - np.take_along_axis(counted, begun, 0) + self.length * carried
        reward = np.where(valid, facts.reward, 0.0)
        number = self.number + np.cumsum(passed, axis=0) - passed
        episodes = [
            Episode(
                row=row,
                number=int(number[t, row]),
                total=float(self._total(reward, begun, carried, t, row)),
                length=int(before[t, row]) + int(valid[t, row]),
                terminated=bool(facts.terminated[t, row]),
                success=None if np.isnan(facts.success[t, row]) else float(facts.success[t, row]),
            )
            for t, row in np.argwhere(ended).tolist()
        ]
        self._go_on(breaks, begun, before + valid, carried, reward)
        self.number += passed.sum(0)
        return before.astype(np.int32), episodes

    def _total(self, reward: Array, begun: Array, carried: Array, t: int, row: int) -> float:
        """Sum up an episode's rewards to this step, those from before included."""
        earlier = float(self.total[row]) if carried[t, row] else 0.0
        return earlier + float(reward[begun[t, row] : t + 1, row].sum())

    def _go_on(
        self, breaks: Array, begun: Array, length: Array, carried: Array, reward: Array
    ) -> None:
        """Move to where rows are in their episodes after all this."""
        last = len(breaks) - 1
        for row in range(breaks.shape[1]):
            over = bool(breaks[last, row])
            total = 0.0 if over else self._total(reward, begun, carried, last, row)
            self.total[row], self.length[row] = total, 0 if over else length[last, row]


def _begun(breaks: Array) -> Array:
    """Return for each step [T, N] at which step its episode began, or 0 if that was before."""
    after = np.where(breaks, np.arange(1, len(breaks) + 1)[:, None], 0)
    begun = np.zeros_like(after)
    np.maximum.accumulate(after[:-1], axis=0, out=begun[1:])
    return begun


class Record:
    """Arrays of T steps of N rows, filled step by step: all rows at once, or each at its pace."""

    def __init__(self, spec: Spec, horizon: int, first_obs: Tree) -> None:
        self._shape = (horizon, spec.rows)
        self.obs = spec.empty_observations(horizon + 1, spec.rows)
        tree.write(self.obs, 0, first_obs)
        self.action = spec.empty_actions(*self._shape)
        self.facts = Facts.blank(*self._shape)
        self._finals = [spec.empty_observations(0)]
        self._final_places = [np.zeros(0, np.int64)]
        """Where in [T, N] those belong, flattened."""
        self._info: dict[str, Array] = {}

    def add(self, t: Time, rows: Rows, step: Step) -> None:
        """Record the t-th step of some rows."""
        place = (t, rows)
        tree.write(self.obs, (t + 1, rows), step.obs)
        if step.notable:
            self.facts.write(place, step)
            places = t * self._shape[1] + np.arange(self._shape[1])[rows]
            self._final_places.append(places[step.ended])
            self._finals.append(step.final_obs)
        else:
            self.facts.reward[place] = step.reward
        for name, values in step.info.items():
            if name not in self._info:
                self._info[name] = np.full(self._shape, np.nan)
            self._info[name][place] = values

    def rollout(self, tally: Tally) -> Rollout:
        """Hand over everything; `tally` says where rows were before it, and moves on."""
        episode_step, episodes = tally.add(self.facts)
        places = np.concatenate(self._final_places)
        order = np.argsort(places)  # ends stand in the order of (t, row), however they came in
        final_index = np.full(self._shape, -1, np.int32)
        final_index.reshape(-1)[places[order]] = np.arange(len(order))
        return Rollout(
            obs=self.obs,
            action=self.action,
            log_prob=None,
            reward=self.facts.reward,
            terminated=self.facts.terminated,
            truncated=self.facts.truncated,
            valid=self.facts.valid,
            episode_step=episode_step,
            final_obs=tree.map(lambda *parts: np.concatenate(parts)[order], *self._finals),
            final_index=final_index,
            episodes=episodes,
            metrics=self._means(),
        )

    def _means(self) -> Metrics:
        """Average what environments reported over the steps that count."""
        means = {}
        for name in sorted(self._info):
            values = self._info[name][self.facts.valid]
            present = values[~np.isnan(values)]
            if present.size:
                means[f"env/{name}"] = float(present.mean())
        return means
