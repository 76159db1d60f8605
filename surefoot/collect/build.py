"""Where settings become a collector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from surefoot.collect.choose import choose
from surefoot.collect.collector import StageCollector
from surefoot.collect.crew import settle_in_worker
from surefoot.collect.local import local_collector
from surefoot.collect.pace import Lockstep, Pace, WhoeverIsReady
from surefoot.collect.processes import Care, ProcessStage, by_group, by_row
from surefoot.collect.restoration import Fresh, Inexact, Replay, Restoration, Snapshots
from surefoot.config import Config
from surefoot.core.protocols import Collector, Replayable, Snapshotted
from surefoot.envs import probe
from surefoot.envs.make import Factory, make_vector
from surefoot.envs.probe import Kind, Way


def find_way(config: Config, make: Factory) -> Way:
    """Settle how environments come back: as configured, or as a probe finds."""
    wanted = None if config.restore == "auto" else config.restore
    if config.collector == "processes":  # they were chosen for environments that may do anything
        return settle_in_worker(wanted, make, config.seed, config.step_timeout)
    return probe.settle(wanted, make, config.seed)


def build_collector(
    config: Config,
    make: Factory,
    kind: Kind | None = None,
    tell: Callable[[Mapping[str, Any]], None] = lambda entry: None,
) -> Collector:
    """Make the collector that `config.collector` names; `kind` is how environments come back, and
    `tell` takes events."""
    config = choose(config, make).config
    kind = kind or find_way(config, make).kind
    if config.collector == "local":
        env = make_vector(make, config.envs, rebuild=kind == "rebuild")
        restoration = _restoration(kind, env)
        width = config.inference_width()
        return local_collector(env, config.ppo.horizon, config.seed, width, restoration)
    deal = by_group if config.min_inference_size is None else by_row
    stage = ProcessStage(
        make,
        rows=config.envs,
        workers=config.n_proc or 1,
        deal=deal,
        rebuild=kind == "rebuild",
        care=Care(config.step_timeout, config.worker_restarts, config.on_env_error == "restart"),
        tell=tell,
    )
    pace: Pace = Lockstep(stage.spec, stage.groups, config.inference_width())
    if config.min_inference_size is not None:
        pace = WhoeverIsReady(config.min_inference_size)
    try:
        return StageCollector(
            stage, pace, config.ppo.horizon, config.seed, _restoration(kind, stage)
        )
    except BaseException:
        stage.close()
        raise


def _restoration(kind: Kind, env: Any) -> Restoration:
    match kind:
        case "snapshot":
            return Snapshots(cast(Snapshotted, env))
        case "replay" | "rebuild":
            return Replay(cast(Replayable, env))
        case "fresh":
            return Fresh(env.spec)
        case "inexact":
            return Inexact(env.spec)
