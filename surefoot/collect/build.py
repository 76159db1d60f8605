"""Where settings become a collector."""

from __future__ import annotations

from typing import cast

from surefoot.collect.local import local_collector
from surefoot.collect.restoration import Fresh, Inexact, Replay, Restoration, Snapshots
from surefoot.config import Config
from surefoot.core.protocols import Collector, Replayable, Snapshotted, VectorEnv
from surefoot.envs import probe
from surefoot.envs.make import Factory, make_vector
from surefoot.envs.probe import Kind, Way


def find_way(config: Config, make: Factory) -> Way:
    """Settle how environments come back: as configured, or as a probe finds."""
    if config.restore != "auto":
        return probe.require(config.restore, make, config.seed)
    return probe.find(make, config.seed)


def build_collector(config: Config, make: Factory, kind: Kind | None = None) -> Collector:
    """Make the collector that `config.collector` names; `kind` is how environments come back."""
    kind = kind or find_way(config, make).kind
    env = make_vector(make, config.envs, rebuild=kind == "rebuild")
    horizon, seed, width = config.ppo.horizon, config.seed, config.inference_rows
    return local_collector(env, horizon, seed, width, _restoration(kind, env))


def _restoration(kind: Kind, env: VectorEnv) -> Restoration:
    match kind:
        case "snapshot":
            return Snapshots(cast(Snapshotted, env))
        case "replay" | "rebuild":
            return Replay(cast(Replayable, env))
        case "fresh":
            return Fresh(env.spec)
        case "inexact":
            return Inexact(env.spec)
