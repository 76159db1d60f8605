"""The collector: plays rollouts on a stage, wherever that is, and can come back to where it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.collect.pace import Inference, Scene, Stage, play
from surefoot.collect.record import Record, Tally
from surefoot.collect.restoration import Restoration
from surefoot.core import seeding, tree
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Actor
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree


class StageCollector:
    """Plays `horizon` steps of every row per rollout; asks the actor once `minimum` rows wait."""

    def __init__(
        self,
        stage: Stage,
        inference: Inference,
        horizon: int,
        seed: int,
        restoration: Restoration,
        minimum: int = 1,
    ) -> None:
        self.spec = stage.spec
        self._stage, self._inference, self._minimum = stage, inference, minimum
        self._horizon, self._seed, self._restoration = horizon, seed, restoration
        self._iteration = 0
        self._memory: Tree | None = None
        self._begun = np.ones(self.spec.rows, bool)
        self._tally = Tally(self.spec.rows)
        self._obs = self._reset()

    def collect(self, actor: Actor) -> Rollout:
        self._settle()
        random = seeding.generator(self._seed, Purpose.ACTION, self._iteration)
        noise = actor.noise(random, self._horizon, self.spec.rows)
        memory = actor.memory(self.spec.rows) if self._memory is None else self._memory
        memory = tree.map(np.copy, memory)  # what `state` returned stays as it was
        record = Record(self.spec, self._horizon, self._obs)
        scene = Scene(
            actor=actor,
            noise=noise,
            seen=tree.map(np.copy, self._obs),
            memory=memory,
            luck=tree.map(np.copy, tree.index(noise, 0)),
            begun=self._begun.copy(),
            record=record,
        )
        play(self._stage, self._inference, self._minimum, scene, self._horizon)
        self._obs, self._memory, self._begun = scene.seen, scene.memory, scene.begun
        self._iteration += 1
        rollout = record.rollout(self._tally)
        self._restoration.note(rollout)
        metrics = {**rollout.metrics, **self._supervision()}
        return replace(rollout, metrics=metrics, log_prob=actor.log_prob(rollout))

    def anchor(self) -> None:
        self._settle()
        rows = self._restoration.unsaveable()
        if rows.any():
            self._obs = tree.map(np.copy, self._stage.restart(rows))
            self._skip(rows.astype(np.int64))
            self._settle()

    @property
    def exact(self) -> bool:
        return self._restoration.exact

    def state(self) -> State:
        environments = self._restoration.state()
        while self._settle():  # taking it down may have found that somebody is gone
            environments = self._restoration.state()
        return {
            "replaced": self._stage.replaced,
            "iteration": self._iteration,
            "tally": self._tally.state(),
            "begun": self._begun,
            "memory": self._memory,
            "environments": environments,
        }

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

    def _reset(self) -> Tree:
        obs = self._stage.reset(EpisodeSeeds(self._seed), self._tally.number)
        return tree.map(np.copy, obs)

    def _settle(self) -> bool:
        """Take note of rows that had to begin a new episode on their own; say if there were."""
        episodes, obs = self._stage.broken()
        if episodes.any():
            self._obs = tree.map(np.copy, obs)
            self._skip(episodes)
        return bool(episodes.any())

    def _skip(self, episodes: Array) -> None:
        """Go on after so many episodes of each row."""
        self._tally.skip(episodes)
        self._begun = self._begun | (episodes > 0)
        self._restoration.cut(episodes > 0, self._obs)

    def _supervision(self) -> Metrics:
        replaced = self._stage.replaced
        return {"collect/workers_replaced": float(replaced)} if replaced else {}


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
