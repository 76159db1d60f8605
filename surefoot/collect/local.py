"""Steps a vector environment in this process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surefoot.collect.collector import StageCollector
from surefoot.collect.pace import Cue, Inference, Padded, Played, Scene, play_here
from surefoot.collect.record import Record
from surefoot.collect.restoration import Fresh, Restoration
from surefoot.core.protocols import Actor, VectorEnv
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.tree import Array, Tree


class LocalStage:
    """All rows at once."""

    def __init__(self, env: VectorEnv, inference: Inference, horizon: int) -> None:
        self.spec = env.spec
        self.replaced = 0
        self._env, self._inference, self._horizon = env, inference, horizon
        self._none = np.zeros(env.spec.rows, np.int64)

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        return self._env.reset(seeds, episodes)

    def restart(self, rows: Array) -> Tree:
        return self._env.restart(rows)

    def begin(self, actor: Actor, cue: Cue, obs: Tree) -> None:
        self._actor, self._cue, self._record = actor, cue, Record.private(self.spec, self._horizon)
        self._record.begin(obs)

    def finish(self) -> Played:
        scene = Scene.of(self._actor, self._cue, self._record)
        lane = (slice(0, self.spec.rows), self._env)
        seconds = play_here([lane], self._inference, scene)
        return Played(self._record, scene.memory, seconds)

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
    channels: Sequence[str] = (),
) -> StageCollector:
    """Make a collector that steps `env` here, asking the actor for `width` rows at once."""
    stage = LocalStage(env, Padded(width or env.spec.rows), horizon)
    return StageCollector(stage, seed, restoration or Fresh(env.spec), channels)
