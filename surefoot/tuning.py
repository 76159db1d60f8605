"""Finds out by trying which settings train fastest on this machine.

What is tried is real training in small rollouts, so figures of one table compare with each other;
a run adds reporting and saving, and its steps per second are somewhat lower.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import yaml
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from surefoot.collect.build import build_collector
from surefoot.collect.choose import choose, cores, seconds_per_step
from surefoot.config import Config
from surefoot.core.errors import ConfigError, SurefootError
from surefoot.core.progress import Progress
from surefoot.core.protocols import Collector, Learner
from surefoot.core.tree import Array
from surefoot.envs import envpool
from surefoot.envs.make import Factory, ship, unship
from surefoot.learn.build import build_learner

BUDGET = 17.0
"""Seconds for everything; starting and ending take some more."""
FOR_COMPILING = 6.0
"""Seconds of these that are left to trying what compiling brings."""
TRIAL = 0.7
"""Seconds that one way is tried for, after its first rollout."""
ROLLOUT = 0.25
"""Seconds that a rollout should take."""
WORTH = 1.05
"""A way has to be this much faster than the best so far to be preferred."""


@dataclass(frozen=True)
class Trial:
    """One way that was tried: settings over the given ones, and what came of it."""

    settings: dict[str, Any]
    training: float = 0.0
    """Steps per second."""
    collecting: float = 0.0
    """Steps per second of collecting alone, or of waiting for it."""
    failed: str = ""
    """Why there are no figures, if there are none."""

    @property
    def flags(self) -> str:
        """Write the settings as options of `train`."""
        return " ".join(_flag(name, value) for name, value in self.settings.items())

    def to_yaml(self) -> str:
        """Write the settings as a config file."""
        return yaml.safe_dump(self.settings, sort_keys=False)


def tune(
    config: Config,
    make: Factory,
    tell: Callable[[Trial], None] = lambda trial: None,
    budget: float = BUDGET,
) -> Trial:
    """Try ways to train, and return the fastest; `tell` hears of each."""
    deadline = time.monotonic() + budget
    choose(config, make)  # refuses what makes no sense, before anything is tried
    short = _shortened(config, make)
    best: Trial | None = None

    def attempt(settings: dict[str, Any]) -> None:
        nonlocal best
        trial = _tried(short, make, settings, deadline - FOR_COMPILING)
        tell(trial)
        if not trial.failed and (best is None or trial.training > WORTH * best.training):
            best = trial

    for settings in _ways_to_step(config, make):
        attempt(settings)
    for change in _refinements(config):
        attempt({**(best.settings if best else {}), **change})
    if best is None:
        raise ConfigError(f"{make.name} could not be tried within {budget:g} s")
    compiled = _compiled(short, make, best.settings, deadline)
    tell(compiled)
    return compiled if compiled.training > WORTH * best.training else best


def _shortened(config: Config, make: Factory) -> Config:
    """Make rollouts short enough to try many ways: it does not change what a step costs."""
    seconds = seconds_per_step(make, config.seed) or 0.0
    most = max(1, int(ROLLOUT / max(seconds * config.envs, 1e-4)))
    horizon = min(config.ppo.horizon, max(most, -(-config.ppo.minibatch_size // config.envs)))
    steps = config.envs * horizon
    ppo = config.ppo.model_copy(
        update={"horizon": horizon, "minibatch_size": min(config.ppo.minibatch_size, steps)}
    )
    settled = {"ppo": ppo, "compile": "off", "restore": "fresh", "total_steps": 10**9}
    return config.model_copy(update=settled)


def _ways_to_step(config: Config, make: Factory) -> Iterator[dict[str, Any]]:
    """List who could step whose environments."""
    base = {"env_backend": "gymnasium", "overlap": False}
    yield {"collector": "local", **base}
    for workers in sorted({2, cores() // 2, cores()}):
        if 1 < workers <= config.envs:
            yield {"collector": "processes", "n_proc": workers, **base}
    if envpool.installed() and not envpool.lacks(make):
        yield {"collector": "local", **base, "env_backend": "envpool"}


def _refinements(config: Config) -> Iterator[dict[str, Any]]:
    """List what could be changed about the best of those, one after another."""
    yield {"collector": "auto", "overlap": True}
    if cores() > 1:
        yield {"threads": cores()}
    for factor in (2, 4):
        yield {"envs": factor * config.envs}


def _tried(config: Config, make: Factory, settings: dict[str, Any], deadline: float) -> Trial:
    """Train for a moment with these settings."""
    if time.monotonic() > deadline - TRIAL:
        return Trial(settings, failed="no time left")
    try:
        settled = choose(config.model_copy(update=settings), make).config
        names = dict.fromkeys(("collector", "n_proc", *settings))
        changed = {name: getattr(settled, name) for name in names}
        chosen = {n: v for n, v in changed.items() if v != Config.model_fields[n].default}
        return Trial(chosen, *_measured(settled, make, deadline))
    except SurefootError as error:
        return Trial(settings, failed=str(error).splitlines()[0])


def _measured(config: Config, make: Factory, deadline: float) -> tuple[float, float]:
    """Return steps per second of training, and of collecting."""
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        with (
            threadpool_limits(limits=1, user_api="blas"),
            closing(build_collector(config, make, "fresh")) as collector,
        ):
            learner = build_learner(config, collector.spec)
            _iterate(collector, learner)  # the first one warms up, and may only prime normalizers
            counted = _iterate(collector, learner)
            while counted[1:].sum() < TRIAL and time.monotonic() < deadline:
                counted += _iterate(collector, learner)
            steps, collecting, learning = counted.tolist()
            return steps / (collecting + learning), steps / collecting
    finally:
        torch.set_num_threads(threads)


def _iterate(collector: Collector, learner: Learner) -> Array:
    """Train for an iteration; return steps, seconds of collecting and seconds of learning."""
    begun, actor = time.perf_counter(), learner.actor()
    rollout = collector.collect(actor)
    collector.ahead(actor)
    collected = time.perf_counter()
    learner.update(rollout, Progress(10**9))
    return np.array([rollout.steps, collected - begun, time.perf_counter() - collected])


def _compiled(config: Config, make: Factory, settings: dict[str, Any], deadline: float) -> Trial:
    """Try the best way compiled, in a process that can be ended when time is up."""
    named = {**settings, "compile": "on"}
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with suppress(ConfigError):
        arguments = (config.model_copy(update=named).to_yaml(), ship(make), theirs)
        child = context.Process(target=_measure_here, args=arguments, daemon=True)
        child.start()
        theirs.close()
        try:
            if ours.poll(max(0.0, deadline - time.monotonic())):
                return Trial(named, *ours.recv())
        except EOFError:
            return Trial(named, failed="it could not be tried")
        finally:
            child.kill()
            child.join()
    return Trial(named, failed="no time left; `compile: auto` decides by sizes")


def _measure_here(config: str, shipped: bytes, wire: Any) -> None:
    wire.send(_measured(Config.from_yaml(config), unship(shipped), time.monotonic() + 60.0))


def _flag(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"--no-{name.replace('_', '-')}"
    return f"{option} {value}"
