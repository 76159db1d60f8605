"""A rollout in the making, and the episodes it is part of."""

from __future__ import annotations

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
"""Some of the rows: those in a row, or those of these numbers."""
Time: TypeAlias = int | Array
"""Which step of a rollout: of all rows in question, or of each of them."""
ALL = slice(None)


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

    def skip(self, rows: Array) -> None:
        """Go to the next episode of these rows; the one before was cut, and is no Episode."""
        self.number[rows] += 1
        self.length[rows] = 0
        self.total[rows] = 0.0

    def add(self, step: Step, rows: Rows = ALL) -> list[Episode]:
        """Count a step of some rows; return the episodes it completed, in the order of rows."""
        self.length[rows] += step.valid
        self.total[rows] += np.where(step.valid, step.reward, 0.0)
        changed = step.terminated | step.truncated | step.lost
        if not changed.any():
            return []
        numbers = np.arange(len(self.number))[rows]
        self.skip(numbers[step.lost])
        ended = np.flatnonzero(step.terminated | step.truncated).tolist()
        return [self._complete(int(numbers[index]), step, index) for index in ended]

    def _complete(self, row: int, step: Step, index: int) -> Episode:
        success = float(step.success[index])
        episode = Episode(
            row=row,
            number=int(self.number[row]),
            total=float(self.total[row]),
            length=int(self.length[row]),
            terminated=bool(step.terminated[index]),
            success=None if np.isnan(success) else success,
        )
        self.number[row] += 1
        self.length[row] = 0
        self.total[row] = 0.0
        return episode


class Record:
    """Arrays of T steps of N rows, filled step by step: all rows at once, or each at its pace."""

    def __init__(self, spec: Spec, horizon: int, first_obs: Tree) -> None:
        self._shape = (horizon, spec.rows)
        self.obs = spec.empty_observations(horizon + 1, spec.rows)
        tree.write(self.obs, 0, first_obs)
        self.action = spec.empty_actions(*self._shape)
        self._reward = np.zeros(self._shape)
        self._terminated, self._truncated, self._valid = np.zeros((3, *self._shape), bool)
        self._episode_step = np.zeros(self._shape, np.int32)
        self._ends: list[int] = []
        """Places of the steps that ended an episode, t × N + row; then how each of them did."""
        self._finals: list[Tree] = [spec.empty_observations(0)]
        self._episodes: list[Episode] = []
        self._info: dict[str, Array] = {}

    def add(self, t: Time, rows: Rows, step: Step, tally: Tally) -> None:
        """Record the t-th step of some rows."""
        place = (t, rows)
        tree.write(self.obs, (t + 1, rows), step.obs)
        self._reward[place] = step.reward
        self._terminated[place], self._truncated[place] = step.terminated, step.truncated
        self._valid[place] = step.valid
        self._episode_step[place] = tally.length[rows]
        for name, values in step.info.items():
            if name not in self._info:
                self._info[name] = np.full(self._shape, np.nan)
            self._info[name][place] = values
        if step.lost.any():
            self._lose(
                np.broadcast_to(t, step.lost.shape)[step.lost], self._numbers(rows)[step.lost]
            )
        if completed := tally.add(step, rows):
            times = np.broadcast_to(t, step.lost.shape)[step.terminated | step.truncated]
            self._ends += [
                int(time) * self._shape[1] + episode.row
                for time, episode in zip(times, completed, strict=True)
            ]
            self._finals.append(step.final_obs)
            self._episodes += completed

    def rollout(self) -> Rollout:
        """Hand over everything; ends are in the order of (t, row), however they came in."""
        order = np.argsort(np.array(self._ends, np.int64))
        final_index = np.full(self._shape, -1, np.int32)
        final_index.reshape(-1)[np.array(self._ends, np.int64)[order]] = np.arange(len(order))
        final_obs = tree.map(lambda *parts: np.concatenate(parts)[order], *self._finals)
        return Rollout(
            obs=self.obs,
            action=self.action,
            log_prob=None,
            reward=self._reward,
            terminated=self._terminated,
            truncated=self._truncated,
            valid=self._valid,
            episode_step=self._episode_step,
            final_obs=final_obs,
            final_index=final_index,
            episodes=[self._episodes[index] for index in order],
            metrics=self._means(),
        )

    def _lose(self, times: Array, rows: Array) -> None:
        """Take back what these rows played of an episode that is lost at these steps."""
        for t, row in zip(times.tolist(), rows.tolist(), strict=True):
            ends = np.flatnonzero(self._terminated[:t, row] | self._truncated[:t, row])
            start = int(ends[-1]) + 1 if len(ends) else 0
            self._valid[start : t + 1, row] = False

    def _means(self) -> Metrics:
        """Average what environments reported over the steps that count."""
        means = {}
        for name in sorted(self._info):
            values = self._info[name][self._valid]
            present = values[~np.isnan(values)]
            if present.size:
                means[f"env/{name}"] = float(present.mean())
        return means

    def _numbers(self, rows: Rows) -> Array:
        return np.arange(self._shape[1])[rows]
