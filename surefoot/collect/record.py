"""A rollout in the making, and the episodes it is part of."""

from __future__ import annotations

import numpy as np

from surefoot.core import tree
from surefoot.core.metrics import Averages
from surefoot.core.protocols import Step
from surefoot.core.rollout import Episode, Rollout
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree


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

    def add(self, step: Step) -> list[Episode]:
        """Count a step; return the episodes it completed."""
        self.length += step.valid
        self.total += np.where(step.valid, step.reward, 0.0)
        ended = np.flatnonzero(step.terminated | step.truncated).tolist()
        return [self._complete(row, step) for row in ended]

    def _complete(self, row: int, step: Step) -> Episode:
        episode = Episode(
            row=row,
            number=int(self.number[row]),
            total=float(self.total[row]),
            length=int(self.length[row]),
            terminated=bool(step.terminated[row]),
            success=None if np.isnan(step.success[row]) else float(step.success[row]),
        )
        self.number[row] += 1
        self.length[row] = 0
        self.total[row] = 0.0
        return episode


class Record:
    """Arrays of T steps of N rows, filled step by step."""

    def __init__(self, spec: Spec, horizon: int, first_obs: Tree) -> None:
        shape = (horizon, spec.rows)
        self.obs = spec.empty_observations(horizon + 1, spec.rows)
        tree.write(self.obs, 0, first_obs)
        self._action = spec.empty_actions(*shape)
        self._reward = np.zeros(shape)
        self._terminated, self._truncated, self._valid = np.zeros((3, *shape), bool)
        self._episode_step = np.zeros(shape, np.int32)
        self._final_index = np.full(shape, -1, np.int32)
        self._finals: list[Tree] = [spec.empty_observations(0)]
        self._ends = 0
        self._episodes: list[Episode] = []
        self._averages = Averages()

    def add(self, t: int, action: Tree, step: Step, tally: Tally) -> None:
        """Record step t of every row."""
        tree.write(self._action, t, action)
        tree.write(self.obs, t + 1, step.obs)
        self._reward[t] = step.reward
        self._terminated[t], self._truncated[t] = step.terminated, step.truncated
        self._valid[t] = step.valid
        self._episode_step[t] = tally.length
        if step.info:
            self._averages.add(step.info)
        if completed := tally.add(step):
            rows = [episode.row for episode in completed]
            self._final_index[t, rows] = range(self._ends, self._ends + len(rows))
            self._ends += len(rows)
            self._finals.append(step.final_obs)
            self._episodes += completed

    def rollout(self) -> Rollout:
        return Rollout(
            obs=self.obs,
            action=self._action,
            log_prob=None,
            reward=self._reward,
            terminated=self._terminated,
            truncated=self._truncated,
            valid=self._valid,
            episode_step=self._episode_step,
            final_obs=tree.map(lambda *parts: np.concatenate(parts), *self._finals),
            final_index=self._final_index,
            episodes=self._episodes,
            metrics=self._averages.means("env/"),
        )
