"""Where settings become a collector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

from surefoot.collect.care import Care
from surefoot.collect.choose import always_apart, choose, stepped
from surefoot.collect.collector import StageCollector
from surefoot.collect.crew import SPIN, settle_in_worker
from surefoot.collect.local import local_collector
from surefoot.collect.overlap import Beside, OverlapCollector, apart
from surefoot.collect.pace import AsTheyCome, Padded
from surefoot.collect.processes import Manner, ProcessStage, as_it_is, in_parent
from surefoot.collect.restoration import Fresh, Inexact, Replay, Restoration, Snapshots
from surefoot.config import Config
from surefoot.core.hardware import cores
from surefoot.core.protocols import Collector, Replayable, Snapshotted
from surefoot.envs import envpool, probe
from surefoot.envs.make import Factory, make_vector
from surefoot.envs.probe import Kind, Way
from surefoot.transforms import channels


def find_way(config: Config, make: Factory) -> Way:
    """Settle how environments come back: as configured, or as a probe finds."""
    if config.env_backend == "envpool":
        return Way("fresh", "a pool can only be made anew")
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
    make = stepped(config, make)
    if config.collector == "processes":
        return _processes(config, make, kind, tell)
    env = make_vector(make, config.envs, rebuild=kind == "rebuild")
    return local_collector(
        env,
        config.learning.horizon,
        config.seed,
        config.inference_width(),
        _restoration(kind, env),
        channels(config.rewards),
    )


def _processes(
    config: Config, make: Factory, kind: Kind, tell: Callable[[Mapping[str, Any]], None]
) -> Collector:
    workers = config.n_proc or 1
    threads = envpool.threads_of(make)
    spare = cores() > workers * threads
    stage = ProcessStage(
        make,
        rows=config.envs,
        workers=workers,
        horizon=config.learning.horizon,
        manner=_manner(config, spare),
        care=Care(config.step_timeout, config.worker_restarts, config.on_env_error == "restart"),
        spin=SPIN if spare else 0.0,
        rebuild=kind == "rebuild",
        tell=tell,
    )
    try:
        parts = (stage, config.seed, _restoration(kind, stage), channels(config.rewards))
        if config.overlap:
            return OverlapCollector(*parts, _beside(config, spare, stage))
        return StageCollector(*parts)
    except BaseException:
        stage.close()
        raise


def _beside(config: Config, spare: bool, stage: ProcessStage) -> Beside:
    """Settle where the learner works while workers play: on a core of its own for the time of an
    update, where they would fill all."""
    shared = not spare and not always_apart(config) and cores() > 1
    return partial(apart, stage.pids) if shared else nullcontext


def _manner(config: Config, spare: bool) -> Manner:
    """Settle how workers play; `spare` says whether there is a core for this process too."""
    if config.min_inference_size is not None:
        return Manner(AsTheyCome(), config.min_inference_size, config.envs, in_parent)
    inference = Padded(config.inference_width())
    if config.overlap:
        # Log-probabilities are left to a worker that leaves this process a core, and so has less to
        # do; but last bits would differ in the smaller batches of several, or on torch's threads.
        judges = config.n_proc == 1 and spare and config.policy.plain
        return Manner(inference, delegate=as_it_is, judges=judges)
    if spare and not config.policy.plain:
        # A worker steps one lane while the actor, which acts here, is asked for its other. Without
        # a spare core, a worker that waits leaves its own to the actor.
        return Manner(inference, minimum=-(-config.envs // 2), lanes=2)
    return Manner(inference)


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
