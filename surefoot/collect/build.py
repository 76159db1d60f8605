"""Where settings become a collector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from surefoot.collect.care import Care
from surefoot.collect.choose import choose, cores
from surefoot.collect.collector import StageCollector
from surefoot.collect.crew import SPIN, settle_in_worker
from surefoot.collect.local import local_collector
from surefoot.collect.pace import AsTheyCome, Inference, Padded
from surefoot.collect.processes import ProcessStage
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
    if config.collector == "processes":
        return _processes(config, make, kind, tell)
    env = make_vector(make, config.envs, rebuild=kind == "rebuild")
    width, restoration = config.inference_width(), _restoration(kind, env)
    return local_collector(env, config.ppo.horizon, config.seed, width, restoration)


def _processes(
    config: Config, make: Factory, kind: Kind, tell: Callable[[Mapping[str, Any]], None]
) -> Collector:
    workers = config.n_proc or 1
    # With a core to spare for this process, a worker steps one lane while the actor is asked for
    # its other. Without, a worker that waits leaves its core to asking the actor.
    spare = cores() > workers
    lanes, minimum = (2, -(-config.envs // 2)) if spare else (1, 1)
    inference: Inference = Padded(config.inference_width())
    if config.min_inference_size is not None:
        lanes, minimum, inference = config.envs, config.min_inference_size, AsTheyCome()
    stage = ProcessStage(
        make,
        rows=config.envs,
        workers=workers,
        horizon=config.ppo.horizon,
        inference=inference,
        minimum=minimum,
        delegate=config.min_inference_size is None,
        care=Care(config.step_timeout, config.worker_restarts, config.on_env_error == "restart"),
        lanes=lanes,
        spin=SPIN if spare else 0.0,
        rebuild=kind == "rebuild",
        tell=tell,
    )
    try:
        return StageCollector(stage, config.seed, _restoration(kind, stage))
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
