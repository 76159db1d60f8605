"""Who steps the environments, where that is left to us: whoever is faster. It changes no number."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from surefoot.config import Config
from surefoot.core import seeding
from surefoot.core.errors import ConfigError
from surefoot.core.hardware import cores, whole_cores
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.envs import envpool
from surefoot.envs.make import Factory, make_some
from surefoot.envs.probe import random_action
from surefoot.envs.vector import NativeVector
from surefoot.transforms import channels

FOR_WORKERS = (
    "n_proc",
    "min_inference_size",
    "overlap",
    "on_env_error",
    "step_timeout",
    "worker_restarts",
)
"""Settings that mean nothing without workers."""
SHORT_RUN = 2_000
"""Steps of a run that takes under a minute, unless a step takes longer than 30 ms."""
POOL_STEPS = 500_000
"""Steps of a run in which workers save more time than they take to start, though EnvPool has
threads of its own: they share out acting and recording too, and no thread waits for another."""
TIMED_STEPS, TIMED_SECONDS = 200, 0.5
"""An environment is timed for so many steps, or so long."""
TURN = 100e-6
"""Seconds that asking the actor and recording takes for each step of all rows, for everybody who
does it."""
LEARNING = 3e-6
"""Seconds that learning takes for each sample and visit in a small network, about."""
WORTH_SHARE, WORTH_SECONDS = 0.15, 5.0
"""Workers are worth their start and memory if they save such a share, and so many seconds."""


@dataclass(frozen=True)
class Chosen:
    """Settings in which a collector and its number of workers are named, and why these."""

    config: Config
    because: str = ""
    backend: str = ""
    """Whose environment it is and why, if it is Gymnasium's own or EnvPool's."""


def choose(config: Config, make: Factory, render: bool = False) -> Chosen:
    """Settle whose environments are stepped, and by whom: as configured, or what looks faster;
    `render` says whether episodes are to be shown."""
    config, backend = settle_backend(config, make, render)
    make = stepped(config, make)
    _check(config)
    match config.collector:
        case "local":
            chosen = Chosen(config)
        case "processes":
            chosen = _processes(config, "")
        case _:
            chosen = _pick(config, make)
    return replace(chosen, backend=backend)


def settle_backend(config: Config, make: Factory, render: bool = False) -> tuple[Config, str]:
    """Settle whether EnvPool's environment is stepped; say so, and why."""
    if config.env_backend == "gymnasium":
        return config, "Gymnasium's environment" if envpool.is_gymnasiums(make) else ""
    lacking = envpool.lacks(make) or ("it shows nothing" if render else "")
    lacking = lacking or ("" if envpool.installed() else f"it is not installed ({envpool.INSTALL})")
    if config.env_backend == "prefer-envpool" and lacking:
        instead = config.model_copy(update={"env_backend": "gymnasium"})
        return instead, f"Gymnasium's environment, not EnvPool's: {lacking}"
    if render:
        raise ConfigError(
            "EnvPool's environment shows nothing: leave out --render (`surefoot video` films what "
            "was learned), or train with --env-backend gymnasium"
        )
    # A pool only comes back as a whole, whatever way fits Gymnasium's environment.
    settled = {"env_backend": "envpool", "restore": "fresh"}
    return config.model_copy(update=settled), "EnvPool's environment"


def stepped(config: Config, make: Factory) -> Factory:
    """Return what makes the environments that are stepped in training."""
    if config.env_backend != "envpool":
        return make
    return envpool.pooled(make, config.envs, pool_threads(config, make))


def pool_threads(config: Config, make: Factory) -> int:
    """Count the threads of a pool of such environments: its share of the cores."""
    seconds = envpool.estimated_seconds(make)
    apart = config.overlap and _learner_apart(config, seconds)
    return max(1, (_spare(config) if apart else cores()) // (config.n_proc or 1))


def most_threads(config: Config) -> int:
    """Count the cores that torch can have: all, but for one where others play meanwhile."""
    return max(1, cores() - config.overlap)


def require_cores(config: Config) -> None:
    """Refuse more threads of torch than there are cores for. A run that goes on elsewhere keeps
    its threads, since last bits depend on them."""
    if said := crowded(config):
        instead = ", or drop overlap" if config.overlap and config.threads <= cores() else ""
        raise ConfigError(f"{said}; lower it to {most_threads(config)}{instead}")


def crowded(config: Config) -> str:
    """Say so if torch has more threads than there are cores for."""
    if config.threads <= most_threads(config):
        return ""
    beside = ", one of which is for those who play (overlap)" if config.overlap else ""
    there_are = "is 1 core" if cores() == 1 else f"are {cores()} cores"
    return f"threads={config.threads} is too many where there {there_are}{beside}"


def _check(config: Config) -> None:
    """Refuse settings that contradict each other."""
    asked = _asked_for(config)
    if config.collector == "local" and asked:
        raise ConfigError(f"{asked} is for worker processes; drop it, or use --collector processes")
    named = channels(config.rewards)
    if named and config.env_backend == "envpool":
        raise ConfigError(
            f"rewards need {named[0]!r} of info['metrics'], which EnvPool has not; use "
            f"--env-backend gymnasium"
        )
    if config.overlap and config.min_inference_size is not None:
        raise ConfigError(
            f"min_inference_size={config.min_inference_size} has this process act, which overlap "
            f"leaves to workers; drop one of them"
        )
    for name in ("n_proc", "min_inference_size"):
        value = getattr(config, name)
        if value is not None and value > config.envs:
            raise ConfigError(f"{name}={value} exceeds envs={config.envs}; lower it or raise envs")


def _asked_for(config: Config) -> str:
    """Name a setting that only makes sense with workers, if one is not as by default."""
    for name in FOR_WORKERS:
        if (value := getattr(config, name)) != Config.model_fields[name].default:
            return f"{name}={value}"
    return ""


def _processes(config: Config, because: str) -> Chosen:
    apart = config.overlap and always_apart(config)
    free = 1 if config.pool_apart else _spare(config) if apart else cores()
    workers = config.n_proc or min(free, config.envs)
    return Chosen(config.model_copy(update={"collector": "processes", "n_proc": workers}), because)


def _pick(config: Config, make: Factory) -> Chosen:
    local = config.model_copy(update={"collector": "local"})
    if config.overlap:
        return _overlapping(config, make)
    if asked := _asked_for(config):
        return _processes(config, asked)
    if min(cores(), config.envs) == 1:
        return Chosen(local, "one core" if cores() == 1 else "one environment")
    if config.total_steps < SHORT_RUN:
        return Chosen(local, f"{config.total_steps:,} steps are soon made")
    if config.env_backend == "envpool":
        if config.total_steps >= POOL_STEPS:
            return _processes(config, "each has a part of the pool")
        return Chosen(local, f"{config.total_steps:,} steps are soon made")
    if make.divisible:
        return Chosen(local, "a vector environment steps all its rows itself")
    if not (timed := _timed(make, config.seed)):
        return Chosen(local, "the environment could not be timed")
    seconds, whole = timed
    if whole:
        return Chosen(local, "a vector environment steps all its rows itself")
    because = f"an environment step takes {_readable(seconds)}"
    if worthwhile(seconds, config.envs, config.total_steps, min(cores(), config.envs)):
        return _processes(config, because)
    return Chosen(local, f"{because}, too little for workers to be worth it")


def _overlapping(config: Config, make: Factory) -> Chosen:
    """Pick as many workers as there would be anyway, and at least one; but leave the learner cores
    that it needs to itself. A pool goes to one: its threads wait for no Python."""
    if config.n_proc is not None:
        return _processes(config, "overlap")
    if make.divisible:
        settled = {"collector": "processes", "n_proc": 1}
        return Chosen(config.model_copy(update=settled), "overlap")
    picked = _pick(config.model_copy(update={"overlap": False}), make)
    workers = picked.config.n_proc or 1
    because = f"overlap; {picked.because}" if picked.config.n_proc else "overlap"
    spare = _spare(config)
    if workers > spare and always_apart(config):
        several = (
            f"its {config.threads} threads" if config.threads > 1 else "no thread can be bound"
        )
        workers, because = spare, f"overlap; the learner keeps cores to itself: {several}"
    elif workers > spare and (timed := _timed(make, config.seed)):
        seconds, _ = timed
        if _learner_apart(config, seconds):
            because = f"overlap; a step takes {_readable(seconds)}, less than to learn from it"
            workers = spare
    settled = {"collector": "processes", "n_proc": workers}
    return Chosen(config.model_copy(update=settled), because)


def _spare(config: Config) -> int:
    """Count the cores that the learner can do without, and at least one."""
    return max(1, cores() - config.threads)


def always_apart(config: Config) -> bool:
    """Say whether a learner beside others who play keeps cores to itself all the time, whatever
    they have to do: several threads wait for each other whenever one of them has no core, and one
    can be given a core for the time of an update only where cores are whole."""
    return config.threads > 1 or not whole_cores()


def _learner_apart(config: Config, seconds: float) -> bool:
    """Say whether a learner keeps cores to itself beside those who take so many seconds for a step:
    as above, and where one thread has more to do than they on what it leaves."""
    learning = LEARNING * config.learning.visits(config.envs)
    return always_apart(config) or seconds / _spare(config) <= learning


def worthwhile(seconds: float, envs: int, total_steps: int, workers: int) -> bool:
    """Say whether so many workers save enough, where a step takes so many seconds."""
    alone = envs * seconds + TURN
    together = envs * seconds / workers + TURN
    saved = (alone - together) * total_steps / envs
    return together <= (1 - WORTH_SHARE) * alone and saved >= WORTH_SECONDS


def seconds_per_step(make: Factory, seed: int) -> tuple[float, bool]:
    """Time a step of one row under random actions, resets included; say if it is one of a vector
    that cannot be dealt out."""
    with closing(make_some(make, 1)) as env:
        rows, random = env.spec.rows, seeding.generator(seed, Purpose.CHECK)
        env.reset(EpisodeSeeds(seed), np.zeros(rows, np.int64))
        begun = time.perf_counter()
        for steps in count(1):
            env.step(random_action(env.spec, random, rows))
            gone = time.perf_counter() - begun
            if steps == TIMED_STEPS or gone > TIMED_SECONDS:
                whole = isinstance(env, NativeVector) and not make.divisible
                return gone / steps / rows, whole
    raise AssertionError


def _timed(make: Factory, seed: int) -> tuple[float, bool] | None:
    """Time a step as above, unless the environment fails."""
    try:
        return seconds_per_step(make, seed)
    except ConfigError:
        raise
    except Exception:  # whoever steps it next will meet it too, and say where
        return None


def _readable(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.0f} µs"
