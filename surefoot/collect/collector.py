"""The collector: plays rollouts on a stage, wherever that is, and can come back to where it was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from surefoot.collect.facts import Tally
from surefoot.collect.pace import Cue, Played
from surefoot.collect.restoration import Restoration
from surefoot.core import tree
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Actor
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree


class Stage(Protocol):
    """Where rows are played. What methods return may be overwritten by the next call."""

    spec: Spec
    replaced: int
    """How many of those who play had to be replaced, in the whole run."""

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        """As a vector environment does."""

    def restart(self, rows: Array) -> Tree:
        """As a vector environment does; what it returns counts for these rows."""

    def begin(self, actor: Actor, cue: Cue, obs: Tree) -> None:
        """Begin a rollout in which rows see this [N, …] at first."""

    def finish(self) -> Played:
        """Play it to its end."""

    def broken(self) -> tuple[Array, Tree]:
        """Say how many episodes each row [N] has lost since this was asked last, other than in a
        rollout; return what such rows see [N, …]."""

    def close(self) -> None: ...


class StageCollector:
    """Has rollouts played on a stage, one after another."""

    def __init__(
        self, stage: Stage, seed: int, restoration: Restoration, channels: Sequence[str] = ()
    ) -> None:
        """`channels` are what rollouts have of the numbers that environments report."""
        self.spec, self._channels = stage.spec, channels
        self._stage, self._seed, self._restoration = stage, seed, restoration
        self._iteration = 0
        self._memory: Tree | None = None
        self._begun = np.ones(self.spec.rows, bool)
        self._tally = Tally(self.spec.rows)
        self._obs = self._reset()

    def collect(self, actor: Actor, ahead: bool = False) -> Rollout:
        self._begin(actor)
        return judged(self._end(), actor)

    def beside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def anchor(self) -> None:
        self._settle()
        rows = self._restoration.unsaveable()
        if rows.any():
            self._skip(rows.astype(np.int64), self._stage.restart(rows))
            self._settle()

    @property
    def exact(self) -> bool:
        return self._restoration.exact

    def state(self) -> State:
        environments = self._restoration.state()
        while self._settle():  # taking it down may have found that somebody is gone
            environments = self._restoration.state()
        return self._counts(environments)

    def restore(self, state: State) -> None:
        self._iteration = _count(state["iteration"])
        self._stage.replaced = _count(state.get("replaced", 0))
        self._tally = Tally.of(self.spec.rows, state["tally"])
        self._begun = np.zeros(self.spec.rows, bool) | state["begun"]
        self._memory = _memory(state["memory"], self.spec.rows)
        self._obs = self._restoration.restore(self._reset(), state["environments"])

    def renew(self, state: State) -> None:
        self._iteration = _count(state["iteration"])
        self._stage.replaced = _count(state.get("replaced", 0))
        self._tally = Tally(self.spec.rows)
        self._tally.number += int(np.max(state["tally"]["number"])) + 1
        self._begun, self._memory = np.ones(self.spec.rows, bool), None
        self._obs = self._reset()
        self._restoration.cut(self._begun, self._obs)

    def close(self) -> None:
        self._stage.close()

    def _begin(self, actor: Actor) -> None:
        """Have a rollout begun where the last one ended."""
        self._settle()
        memory = actor.memory(self.spec.rows) if self._memory is None else self._memory
        cue = Cue(self._seed, self._iteration, memory, self._begun)
        self._stage.begin(actor, cue, self._obs)

    def _end(self) -> Rollout:
        """Have the rollout played to its end, and count it."""
        record, self._memory, seconds, log_prob = self._stage.finish()
        self._obs = tree.map(lambda leaf: leaf[-1].copy(), record.obs)
        self._begun = record.facts.breaks((-1, slice(None)))
        self._iteration += 1
        rollout = record.rollout(self._tally, self._channels)
        self._restoration.note(rollout)
        metrics = {**rollout.metrics, **self._supervision()}
        return replace(rollout, metrics=metrics, seconds=seconds, log_prob=log_prob)

    def _counts(self, environments: State) -> State:
        return {
            "replaced": self._stage.replaced,
            "iteration": self._iteration,
            "tally": self._tally.state(),
            "begun": self._begun,
            "memory": self._memory,
            "environments": environments,
        }

    def _reset(self) -> Tree:
        obs = self._stage.reset(EpisodeSeeds(self._seed), self._tally.number)
        return tree.map(np.copy, obs)

    def _settle(self) -> bool:
        """Take note of rows that had to begin a new episode on their own; say if there were."""
        episodes, obs = self._stage.broken()
        if episodes.any():
            self._skip(episodes, obs)
        return bool(episodes.any())

    def _skip(self, episodes: Array, obs: Tree) -> None:
        """Go on after so many episodes of each row, where it sees this."""
        rows = episodes > 0
        self._tally.skip(episodes)
        self._begun = self._begun | rows
        self._obs = tree.map(np.copy, self._obs)  # what was handed out stays as it was
        tree.write(self._obs, rows, tree.index(obs, rows))
        self._restoration.cut(rows, self._obs)

    def _supervision(self) -> Metrics:
        replaced = self._stage.replaced
        return {"collect/workers_replaced": float(replaced)} if replaced else {}


def judged(rollout: Rollout, actor: Actor) -> Rollout:
    """Add the log-probabilities that actions had for the actor that chose them, if those who played
    have not."""
    if rollout.log_prob is not None:
        return rollout
    begun = time.perf_counter()
    log_prob = actor.log_prob(rollout.obs, rollout.action)
    acting = rollout.seconds["acting"] + time.perf_counter() - begun
    return replace(rollout, log_prob=log_prob, seconds={**rollout.seconds, "acting": acting})


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
