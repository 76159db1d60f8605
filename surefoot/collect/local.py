"""Steps a vector environment in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.collect.record import Record, Tally
from surefoot.core import seeding, tree
from surefoot.core.protocols import Actor, State, VectorEnv
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.tree import Tree


class LocalCollector:
    """Plays `horizon` steps of every row per rollout, asking the actor for `width` rows at once."""

    def __init__(self, env: VectorEnv, horizon: int, seed: int, width: int | None = None) -> None:
        self.spec = env.spec
        self._env, self._horizon, self._seed = env, horizon, seed
        self._groups = _groups(env.spec.rows, width or env.spec.rows)
        self._iteration = 0
        self._memory: Tree | None = None
        self._obs: Tree = {}
        self._begin(Tally(env.spec.rows))

    def collect(self, actor: Actor) -> Rollout:
        random = seeding.generator(self._seed, Purpose.ACTION, self._iteration)
        noise = actor.noise(random, self._horizon, self.spec.rows)
        memory = actor.memory(self.spec.rows) if self._memory is None else self._memory
        record = Record(self.spec, self._horizon, self._obs)
        for t in range(self._horizon):
            obs = tree.index(record.obs, t)
            action, memory = self._act(actor, obs, memory, tree.index(noise, t))
            record.add(t, action, self._env.step(action), self._tally)
        self._obs = tree.map(np.copy, tree.index(record.obs, self._horizon))
        self._memory = memory
        self._iteration += 1
        rollout = record.rollout()
        return replace(rollout, log_prob=actor.log_prob(rollout))

    def state(self) -> State:
        return {"iteration": self._iteration, "episodes": self._tally.number.copy()}

    def restore(self, state: State) -> None:
        """Go on after the recorded episodes, each row at the start of its next one."""
        self._iteration = int(state["iteration"])
        tally = Tally(self.spec.rows)
        tally.number += np.asarray(state["episodes"]) + 1
        self._begin(tally)

    def close(self) -> None:
        self._env.close()

    def _begin(self, tally: Tally) -> None:
        self._tally = tally
        self._memory = None
        self._obs = tree.map(np.copy, self._env.reset(EpisodeSeeds(self._seed), tally.number))

    def _act(self, actor: Actor, obs: Tree, memory: Tree, noise: Tree) -> tuple[Tree, Tree]:
        """Ask the actor group by group: every call has the same width, so that the last bits of
        a row's action do not depend on how many rows there are."""
        answers = []
        for rows, kept in self._groups:
            given = (tree.index(part, rows) for part in (obs, memory, noise))
            group_obs, group_memory, group_noise = given
            answer = actor.act(group_obs, None, group_memory, group_noise)
            answers.append([tree.index(part, kept) for part in answer])
        actions, memories = zip(*answers, strict=True)
        return _join(actions), _join(memories)


def _groups(rows: int, width: int) -> list[tuple[Any, slice]]:
    """Cut rows into groups of one width; the last is filled up with its last row, again and again.

    Each group says which rows it asks for and which answers it keeps.
    """
    if width == rows:
        return [(slice(None), slice(None))]
    starts = range(0, rows, width)
    return [(np.arange(s, s + width).clip(max=rows - 1), slice(0, rows - s)) for s in starts]


def _join(parts: tuple[Tree, ...]) -> Tree:
    if len(parts) == 1:
        return parts[0]
    return tree.map(lambda *leaves: np.concatenate(leaves), *parts)
