"""Steps a vector environment in this process."""

from __future__ import annotations

import numpy as np

from surefoot.collect.collector import StageCollector
from surefoot.collect.pace import Padded
from surefoot.collect.record import Rows
from surefoot.collect.restoration import Fresh, Restoration
from surefoot.core.protocols import Step, VectorEnv
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.tree import Array, Tree


class LocalStage:
    """All rows at once; sending is stepping."""

    def __init__(self, env: VectorEnv) -> None:
        self.spec = env.spec
        self.replaced = 0
        self._env = env
        self._none = np.zeros(env.spec.rows, np.int64)
        self._step: Step | None = None

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        return self._env.reset(seeds, episodes)

    def restart(self, rows: Array) -> Tree:
        return self._env.restart(rows)

    def send(self, rows: Rows, action: Tree) -> None:
        self._step = self._env.step(action)

    def receive(self, count: int) -> tuple[Rows, Step]:
        assert self._step is not None
        return slice(0, self.spec.rows), self._step

    def broken(self) -> tuple[Array, Tree]:
        return self._none, {}

    def close(self) -> None:
        self._env.close()


def local_collector(
    env: VectorEnv,
    horizon: int,
    seed: int,
    width: int | None = None,
    restoration: Restoration | None = None,
) -> StageCollector:
    """Make a collector that steps `env` here, asking the actor for `width` rows at once."""
    inference = Padded(width or env.spec.rows)
    return StageCollector(LocalStage(env), inference, horizon, seed, restoration or Fresh(env.spec))
