"""Finds out by trying which settings train fastest on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import yaml

from surefoot.collect.choose import (
    LEARNING,
    choose,
    most_threads,
    require_cores,
    seconds_per_step,
)
from surefoot.config import Config
from surefoot.core import hardware
from surefoot.core.errors import ConfigError
from surefoot.core.hardware import cores
from surefoot.envs import envpool
from surefoot.envs.make import Factory
from surefoot.learn.build import settle_compile
from surefoot.trials import Compiler, Trial, settled, tried

STARTING = 4.5
"""Seconds that a command takes before and after."""
ENOUGH = 15.5
"""Seconds for everything but compiling; what is given beyond is for that."""
CACHED = 9.0
"""Seconds in which a process has started and found its graph in torch's cache."""
ROLLOUT, UPDATE = 0.15, 1.0
"""Seconds that a rollout should take, and learning from it at most."""
WEIGHT = 5e-10
"""Seconds that a weight between hidden layers takes for each sample and visit, about."""
NOT_COMPILED = {
    "auto": "this run is too short to make up for compiling",
    "off": "compile is off in this run",
}
WORTH = 1.05
"""A way has to be this much faster than the best so far to be preferred."""

Refinements: TypeAlias = Callable[[dict[str, Any]], list[dict[str, Any]]]
"""Lists changes of settings that could make them faster."""


def to_yaml(settings: dict[str, Any]) -> str:
    """Write settings as a config file."""
    return yaml.safe_dump(settings, sort_keys=False)


def tune(
    config: Config,
    make: Factory,
    tell: Callable[[Trial], None] = lambda trial: None,
    budget: float = ENOUGH,
) -> Trial:
    """Try ways to train, and return the fastest; `tell` hears of each."""
    deadline = time.monotonic() + budget
    hardware.keep_memory()
    require_cores(choose(config, make).config)  # what makes no sense is refused before all else
    short = _shortened(config, make)
    # What helps a step that is not compiled may slow down one that is: where a run compiles,
    # threads are tried with that alone.
    compiles = settle_compile(config).compile == "on"
    more_threads = partial(_more_threads, config)
    with closing(Compiler(short, make, max(CACHED, budget - ENOUGH))) as compiler:
        compiler.wait(budget - ENOUGH)
        refinements = _nothing if compiles else more_threads
        best = _best(config, short, make, refinements, tell, deadline, compiler.needs)
        for change in [{}, *more_threads(best.settings)] if compiles else [{}]:
            _, named = settled(short, make, {**best.settings, "compile": "on", **change})
            trial = compiler.tried(named, deadline)
            if not compiles and not trial.failed:
                trial = replace(trial, remark=NOT_COMPILED[config.compile])
            tell(trial)
            if trial.failed:
                break
            best = trial if compiles and trial.beats(best, WORTH) else best
    return best


def _best(
    config: Config,
    short: Config,
    make: Factory,
    refinements: Refinements,
    tell: Callable[[Trial], None],
    deadline: float,
    reserved: Callable[[], float],
) -> Trial:
    """Try everything that needs no compiling, for which some seconds are reserved; `refinements`
    are tried once it is known who steps the environments."""
    best: Trial | None = None

    def attempt(change: dict[str, Any]) -> None:
        """Try what is best so far with a change."""
        nonlocal best
        settings = {**(best.settings if best else {}), **change}
        trial = tried(short, make, settings, deadline - reserved())
        tell(trial)
        if trial.beats(best or Trial({}), WORTH):
            best = trial

    for way in _ways_to_step(config, make):
        attempt({"n_proc": None, **way})
    attempt({"collector": "auto", "n_proc": None, "overlap": True})
    for change in refinements(best.settings if best else {}):
        attempt(change)
    for factor in (2, 4):
        attempt({"envs": factor * config.envs})
        if best and best.settings.get("envs") != factor * config.envs:
            break  # more of them would not be faster either
    if best is None:
        raise ConfigError(f"{make.name} could not be tried in this time; give --seconds more")
    return best


def _shortened(config: Config, make: Factory) -> Config:
    """Make rollouts short enough to try many ways: it does not change what a step costs."""
    seconds, _ = seconds_per_step(make, config.seed)
    visit = LEARNING + 2 * WEIGHT * config.policy.hidden_weights()  # of an actor and a critic
    rollout = ROLLOUT / max(seconds * config.envs, 1e-4)
    update = UPDATE / (visit * config.learning.visits(config.envs) * config.envs)
    most = max(1, int(min(rollout, update)))
    learning: dict[str, Any] = {config.algo: config.learning.shortened(config.envs, most)}
    plain = {"compile": "off", "restore": "fresh", "total_steps": 10**9}
    return config.model_copy(update={**learning, **plain})


def _ways_to_step(config: Config, make: Factory) -> Iterator[dict[str, Any]]:
    """List who could step whose environments."""
    base = {"env_backend": "gymnasium", "overlap": False}
    yield {"collector": "local", **base}
    for workers in sorted({2, cores() // 2, cores()}):
        if 1 < workers <= config.envs:
            yield {"collector": "processes", "n_proc": workers, **base}
    if envpool.installed() and not envpool.lacks(make):
        base["env_backend"] = "envpool"
        yield {"collector": "local", **base}
        if 1 < cores() <= config.envs:
            yield {"collector": "processes", "n_proc": cores(), **base}


def _more_threads(config: Config, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """List changes of these settings by which torch has all cores that it can have: beside those
    who play, if they do so meanwhile, and without overlap."""
    ways: list[dict[str, Any]] = [{}]
    if settings.get("overlap"):  # who plays beside several threads is chosen anew
        ways = [{"collector": "auto", "n_proc": None, "overlap": on} for on in (True, False)]
    threads = [most_threads(config.model_copy(update={**settings, **way})) for way in ways]
    return [{**way, "threads": most} for way, most in zip(ways, threads, strict=True) if most > 1]


def _nothing(settings: dict[str, Any]) -> list[dict[str, Any]]:
    return []
