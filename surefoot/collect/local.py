"""Steps a vector environment in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.collect.record import Record, Tally
from surefoot.collect.restoration import Fresh, Restoration
from surefoot.core import seeding, tree
from surefoot.core.protocols import Actor, VectorEnv
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree


class LocalCollector:
    """Plays `horizon` steps of every row per rollout, asking the actor for `width` rows at once."""

    def __init__(
        self,
        env: VectorEnv,
        horizon: int,
        seed: int,
        width: int | None = None,
        restoration: Restoration | None = None,
    ) -> None:
        self.spec = env.spec
        self._env, self._horizon, self._seed = env, horizon, seed
        self._restoration = restoration or Fresh(env.spec)
        self._groups = _groups(env.spec.rows, width or env.spec.rows)
        self._iteration = 0
        self._memory: Tree | None = None
        self._begun = np.ones(env.spec.rows, bool)
        self._tally = Tally(env.spec.rows)
        self._obs = self._reset()

    def collect(self, actor: Actor) -> Rollout:
        random = seeding.generator(self._seed, Purpose.ACTION, self._iteration)
        noise = actor.noise(random, self._horizon, self.spec.rows)
        blank = actor.memory(self.spec.rows)
        memory = blank if self._memory is None else self._memory
        record = Record(self.spec, self._horizon, self._obs)
        for t in range(self._horizon):
            obs = tree.index(record.obs, t)
            memory = _renewed(memory, blank, self._begun)
            action, memory = self._act(actor, obs, memory, tree.index(noise, t))
            step = self._env.step(action)
            record.add(t, action, step, self._tally)
            self._begun = step.terminated | step.truncated
        self._obs = tree.map(np.copy, tree.index(record.obs, self._horizon))
        self._memory = memory
        self._iteration += 1
        rollout = record.rollout()
        self._restoration.note(rollout)
        return replace(rollout, log_prob=actor.log_prob(rollout))

    def anchor(self) -> None:
        rows = self._restoration.unsaveable()
        if rows.any():
            self._tally.skip(rows)
            self._begun = self._begun | rows
            self._obs = tree.map(np.copy, self._env.restart(rows))
            self._restoration.cut(rows, self._obs)

    @property
    def exact(self) -> bool:
        return self._restoration.exact

    def state(self) -> State:
        return {
            "iteration": self._iteration,
            "tally": self._tally.state(),
            "begun": self._begun,
            "memory": self._memory,
            "environments": self._restoration.state(),
        }

    def restore(self, state: State) -> None:
        self._iteration = _count(state["iteration"])
        self._tally = Tally.of(self.spec.rows, state["tally"])
        self._begun = np.zeros(self.spec.rows, bool) | state["begun"]
        self._memory = _memory(state["memory"], self.spec.rows)
        self._obs = self._restoration.restore(self._reset(), state["environments"])

    def renew(self, state: State) -> None:
        self._iteration = _count(state["iteration"])
        self._tally = Tally(self.spec.rows)
        self._tally.number += int(np.max(state["tally"]["number"])) + 1
        self._begun, self._memory = np.ones(self.spec.rows, bool), None
        self._obs = self._reset()
        self._restoration.cut(self._begun, self._obs)

    def close(self) -> None:
        self._env.close()

    def _reset(self) -> Tree:
        return tree.map(np.copy, self._env.reset(EpisodeSeeds(self._seed), self._tally.number))

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


def _renewed(memory: Tree, blank: Tree, rows: Array) -> Tree:
    """Let these rows forget; what they remember has their axis first."""

    def renew(kept: Array, empty: Array) -> Array:
        return np.where(rows.reshape(-1, *[1] * (kept.ndim - 1)), empty, kept)

    return tree.map(renew, memory, blank) if rows.any() else memory


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _memory(value: Any, rows: int) -> Tree | None:
    """Check what rows remembered: nothing yet, or a tree of arrays with their axis first."""
    if value is not None:
        for leaf in tree.leaves(value):
            if not isinstance(leaf, np.ndarray) or leaf.shape[:1] != (rows,):
                raise ValueError(f"memory of {rows} rows is {leaf!r:.40}")
    return value
