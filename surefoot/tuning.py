"""Finds out by trying which settings train fastest on this machine.

What is tried is real training in small rollouts, so figures of one table compare with each other;
a run adds reporting and saving, and its steps per second are somewhat lower.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
import yaml
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from surefoot.collect.build import build_collector
from surefoot.collect.choose import (
    FOR_WORKERS,
    LEARNING,
    choose,
    most_threads,
    require_cores,
    seconds_per_step,
)
from surefoot.config import Config
from surefoot.core import hardware
from surefoot.core.errors import ConfigError, SurefootError
from surefoot.core.hardware import cores
from surefoot.core.progress import Progress
from surefoot.core.protocols import Collector, Learner
from surefoot.core.tree import Array
from surefoot.envs import envpool
from surefoot.envs.make import Factory, ship, unship
from surefoot.learn.build import build_learner, settle_compile

STARTING = 4.5
"""Seconds that a command takes before and after."""
ENOUGH = 15.5
"""Seconds for everything but compiling; what is given beyond is for that."""
CACHED = 9.0
"""Seconds in which a process has started and found its graph in torch's cache."""
FOR_COMPILED = 2.5
"""Seconds that are left to trying what compiling brings."""
TRIAL = 0.5
"""Seconds that one way is tried for, after its first rollout."""
ROLLOUT, UPDATE = 0.15, 1.0
"""Seconds that a rollout should take, and learning from it at most."""
WEIGHT = 5e-10
"""Seconds that a weight between hidden layers takes for each sample and visit, about."""
WARMING_UP = 2
"""Iterations before those that count: the first may only prime normalizers, the next compiles."""
NOT_COMPILED = {
    "auto": "this run is too short to make up for compiling",
    "off": "compile is off in this run",
}
WORTH = 1.05
"""A way has to be this much faster than the best so far to be preferred."""

Refinements: TypeAlias = Callable[[dict[str, Any]], list[dict[str, Any]]]
"""Lists changes of settings that could make them faster."""


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
    remark: str = ""
    """Why it is not what to use though it may be fastest, if so."""

    @property
    def flags(self) -> str:
        """Write the settings as options of `train`."""
        given = {name: value for name, value in self.settings.items() if value is not None}
        return " ".join(_flag(name, value) for name, value in given.items())


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
        for change in ({}, *more_threads(best.settings)) if compiles else ({},):
            _, named = _settled(short, make, {**best.settings, "compile": "on", **change})
            trial = compiler.tried(named, deadline)
            tell(
                trial
                if compiles or trial.failed
                else replace(trial, remark=NOT_COMPILED[config.compile])
            )
            if trial.failed:
                break
            best = trial if compiles and trial.training > WORTH * best.training else best
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
        trial = _tried(short, make, settings, deadline - reserved())
        tell(trial)
        if not trial.failed and (best is None or trial.training > WORTH * best.training):
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
    networks = (config.policy.hidden, config.policy.value_hidden or config.policy.hidden)
    weights = sum(one * other for sizes in networks for one, other in pairwise(sizes))
    visit = LEARNING + WEIGHT * weights
    rollout = ROLLOUT / max(seconds * config.envs, 1e-4)
    update = UPDATE / (visit * config.learning.visits(config.envs) * config.envs)
    most = max(1, int(min(rollout, update)))
    learning: dict[str, Any] = {config.algo: config.learning.shortened(config.envs, most)}
    settled = {**learning, "compile": "off", "restore": "fresh", "total_steps": 10**9}
    return config.model_copy(update=settled)


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


def _tried(config: Config, make: Factory, settings: dict[str, Any], deadline: float) -> Trial:
    """Train for a moment with these settings."""
    if time.monotonic() > deadline - TRIAL:
        return Trial(settings, failed="no time left")
    try:
        settled, named = _settled(config, make, settings)
        return Trial(named, *_measured(settled, make, deadline))
    except SurefootError as error:
        return Trial(settings, failed=str(error).splitlines()[0])


def _settled(
    config: Config, make: Factory, settings: dict[str, Any]
) -> tuple[Config, dict[str, Any]]:
    """Settle what these settings come to, and name those that are neither usual nor given."""
    settled = choose(config.model_copy(update=settings), make).config
    require_cores(settled)
    names = dict.fromkeys(("collector", "n_proc", *settings))
    changed = {name: getattr(settled, name) for name in names}
    usual = {n: (Config.model_fields[n].default, getattr(config, n)) for n in names}
    return settled, {n: v for n, v in changed.items() if usual[n] != (v, v)}


def _measured(
    config: Config, make: Factory, deadline: float, learner: Learner | None = None
) -> tuple[float, float]:
    """Return steps per second of training, and of collecting."""
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        with (
            threadpool_limits(limits=1, user_api="blas"),
            closing(build_collector(config, make, "fresh")) as collector,
        ):
            learner = learner or build_learner(config, collector.spec)
            for _ in range(WARMING_UP):
                _iterate(collector, learner)
                if time.monotonic() > deadline:
                    raise SurefootError("no time left")
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
    rollout = collector.collect(actor, ahead=True)
    collected = time.perf_counter()
    with collector.beside():
        learner.update(rollout, Progress(10**9))
    return np.array([rollout.steps, collected - begun, time.perf_counter() - collected])


class Compiler:
    """A process that compiles what updates do while other ways are tried, and then tries with it
    what is asked for. It has lowest priority, and disturbs the others little."""

    def __init__(self, config: Config, make: Factory, patience: float) -> None:
        """`patience` is in how many seconds it has to be ready."""
        context = multiprocessing.get_context("spawn")
        self._wire, theirs = context.Pipe()
        self._child: Any = None
        self._until, self._ready = time.monotonic() + patience, False
        with suppress(ConfigError):  # what cannot be sent is told of below
            arguments = (config.to_yaml(), ship(make), theirs)
            self._child = context.Process(target=_compile, args=arguments, daemon=True)
            self._child.start()
        theirs.close()

    def wait(self, seconds: float) -> None:
        """Wait for it to be ready."""
        with suppress(EOFError, OSError):
            if self._child and not self._ready and self._wire.poll(max(0.0, seconds)):
                self._ready = self._wire.recv() is None

    def needs(self) -> float:
        """Say how many seconds it still needs; none if it is late: then it would only disturb the
        others, and is stopped."""
        self.wait(0.0)
        if self._ready or time.monotonic() < self._until:
            return FOR_COMPILED
        self.close()
        return 0.0

    def tried(self, named: dict[str, Any], deadline: float) -> Trial:
        """Try these settings."""
        self.wait(self._until - time.monotonic())
        if not self._ready:
            late = "compiling takes longer, the first time; --seconds 60 would be enough"
            return Trial(named, failed=late if self._child else "it could not be tried")
        try:
            self._wire.send(named)
            if self._wire.poll(max(0.0, deadline - time.monotonic())):
                found = self._wire.recv()
                failed = isinstance(found, str)
                return Trial(named, failed=found) if failed else Trial(named, *found)
        except (EOFError, OSError):
            return Trial(named, failed="it could not be tried")
        return Trial(named, failed="no time left")

    def close(self) -> None:
        """Stop it, and the compilers that it may have started."""
        if self._child and self._child.is_alive():
            with suppress(ProcessLookupError):  # it has not begun
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.kill()
            self._child.join()


def _compile(written: str, shipped: bytes, wire: Any) -> None:
    os.setpgid(0, 0)  # Ctrl-C is the parent's business, which stops the whole group
    os.nice(19)
    hardware.keep_memory()  # as in a run
    with suppress(ImportError):  # torch shows progress with it, where it is installed
        from tqdm import tqdm  # type: ignore[import-untyped]

        tqdm.set_lock(threading.RLock())  # one for processes would be left behind
    try:
        with suppress(EOFError):  # nobody asks any more
            _compiled(Config.from_yaml(written), unship(shipped), wire)
    except SurefootError as error:
        wire.send(str(error).splitlines()[0])


def _compiled(config: Config, make: Factory, wire: Any) -> None:
    """Compile, say so, and measure with the settings that are asked for."""
    alone = {name: Config.model_fields[name].default for name in (*FOR_WORKERS, "env_backend")}
    mine = config.model_copy(update={**alone, "collector": "local", "compile": "on"})
    torch.set_num_threads(mine.threads)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        closing(build_collector(mine, make, "fresh")) as collector,
    ):
        learner = build_learner(mine, collector.spec)
        for _ in range(WARMING_UP):
            _iterate(collector, learner)
    wire.send(None)
    while True:
        asked = config.model_copy(update=wire.recv())
        usable = (asked.envs, asked.threads) == (mine.envs, mine.threads)
        wire.send(_measured(asked, make, time.monotonic() + 60.0, learner if usable else None))


def _flag(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"--no-{name.replace('_', '-')}"
    return f"{option} {value}"
