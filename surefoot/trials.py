"""Training for a moment, to see how fast it is.

It is real training in small rollouts, so figures compare with each other; a run adds reporting and
saving, and its steps per second are somewhat lower.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from surefoot.collect.build import build_collector
from surefoot.collect.choose import FOR_WORKERS, choose, require_cores
from surefoot.config import Config
from surefoot.core import hardware
from surefoot.core.errors import ConfigError, SurefootError
from surefoot.core.progress import Progress
from surefoot.core.protocols import Collector, Learner
from surefoot.core.tree import Array
from surefoot.envs.make import Factory, ship, unship
from surefoot.learn.build import build_learner
from surefoot.policy.device import threads

TRIAL = 0.5
"""Seconds that one way is tried for, after its first rollout."""
WARMING_UP = 2
"""Iterations before those that count: the first may only prime normalizers, the next compiles."""
FOR_COMPILED = 2.5
"""Seconds that are left to trying what compiling brings."""
CHANGES = {
    "what is learned": ("envs", "env_backend", "overlap"),
    "last bits": ("threads", "compile"),
}
"""What depends on which settings of speed."""
ANY_TIME = 60.0
"""Seconds that a trial of what is compiled may take, unless who asked for it stops it sooner."""


class Speed(NamedTuple):
    """Steps per second."""

    training: float = 0.0
    collecting: float = 0.0
    """Of collecting alone, or of waiting for it."""


NONE = Speed()


@dataclass(frozen=True)
class Trial:
    """One way that was tried: settings over the given ones, and what came of it."""

    settings: dict[str, Any]
    speed: Speed = NONE
    failed: str = ""
    """Why there are no figures, if there are none."""
    remark: str = ""
    """Why it is not what to use though it may be fastest, if so."""

    @property
    def flags(self) -> str:
        """Write the settings as options of `train`."""
        given = {name: value for name, value in self.settings.items() if value is not None}
        return " ".join(_flag(name, value) for name, value in given.items())

    def consequences(self) -> list[str]:
        """Say which settings change more than speed."""
        changing = {
            what: [name for name in names if name in self.settings]
            for what, names in CHANGES.items()
        }
        return [
            f"These change {what}, not only how fast: {', '.join(names)}."
            for what, names in changing.items()
            if names
        ]

    def beats(self, other: Trial, margin: float) -> bool:
        """Say whether it is so many times as fast as another."""
        return not self.failed and self.speed.training > margin * other.speed.training


def tried(config: Config, make: Factory, settings: dict[str, Any], deadline: float) -> Trial:
    """Train for a moment with these settings."""
    if time.monotonic() > deadline - TRIAL:
        return Trial(settings, failed="no time left")
    try:
        changed, named = settled(config, make, settings)
        return Trial(named, _measured(changed, make, deadline))
    except SurefootError as error:
        return Trial(settings, failed=_first_line(error))


def settled(
    config: Config, make: Factory, settings: dict[str, Any]
) -> tuple[Config, dict[str, Any]]:
    """Settle what these settings come to, and name those that are neither usual nor given."""
    changed = choose(config.model_copy(update=settings), make).config
    require_cores(changed)
    names = dict.fromkeys(("collector", "n_proc", *settings))
    now = {name: getattr(changed, name) for name in names}
    usual = {n: (Config.model_fields[n].default, getattr(config, n)) for n in names}
    return changed, {n: v for n, v in now.items() if usual[n] != (v, v)}


def _measured(
    config: Config, make: Factory, deadline: float, learner: Learner | None = None
) -> Speed:
    """Train with a learner, or a new one."""
    with (
        threads(config.threads),
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
        return Speed(steps / (collecting + learning), steps / collecting)


def _iterate(collector: Collector, learner: Learner) -> Array:
    """Train for an iteration; return steps, seconds of collecting and seconds of learning."""
    begun, actor = time.perf_counter(), learner.actor()
    rollout = collector.collect(actor, ahead=True)
    collected = time.perf_counter()
    with collector.beside():
        learner.update(rollout, Progress(10**9))
    return np.array([rollout.steps, collected - begun, time.perf_counter() - collected])


class Answer(NamedTuple):
    """What a compiler says: that it is ready, how fast something was, or why it cannot go on."""

    speed: Speed = NONE
    failed: str = ""


LATE = Answer(failed="compiling takes longer, the first time; --seconds 60 would be enough")


class Compiler:
    """A process that compiles what updates do while other ways are tried, and then tries with it
    what is asked for. It has lowest priority, and disturbs the others little."""

    def __init__(self, config: Config, make: Factory, patience: float) -> None:
        """`patience` is in how many seconds it has to be ready."""
        context = multiprocessing.get_context("spawn")
        self._wire, theirs = context.Pipe()
        self._child: Any = None
        self._until = time.monotonic() + patience
        self._first: Answer | None = None
        """What it said when it was ready, or could not be."""
        try:
            arguments = (config.to_yaml(), ship(make), theirs)
        except ConfigError as error:  # such a function cannot be sent to a process
            self._first = Answer(failed=_first_line(error))
        else:
            self._child = context.Process(target=_compile, args=arguments, daemon=True)
            self._child.start()
        theirs.close()

    def wait(self, seconds: float) -> None:
        """Wait for it to be ready."""
        if self._first is None:
            self._first = self._answer(seconds)

    def needs(self) -> float:
        """Say how many seconds it still needs; none if it is late: then it would only disturb the
        others, and is stopped."""
        self.wait(0.0)
        if self._first is None and time.monotonic() >= self._until:
            self._first = LATE
            self.close()
        return 0.0 if self._first and self._first.failed else FOR_COMPILED

    def tried(self, named: dict[str, Any], deadline: float) -> Trial:
        """Try these settings."""
        self.wait(self._until - time.monotonic())
        if why := (self._first or LATE).failed:
            return Trial(named, failed=why)
        with suppress(OSError):
            self._wire.send(named)
        found = self._answer(deadline - time.monotonic()) or Answer(failed="no time left")
        return Trial(named, found.speed, found.failed)

    def _answer(self, seconds: float) -> Answer | None:
        """Wait so long for what it says."""
        try:
            answer: Answer | None = None
            if self._wire.poll(max(0.0, seconds)):
                answer = self._wire.recv()
            return answer
        except (EOFError, OSError):
            return Answer(failed="the process that compiles is gone")

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
            _serve(Config.from_yaml(written), unship(shipped), wire)
    except SurefootError as error:
        wire.send(Answer(failed=_first_line(error)))


def _serve(config: Config, make: Factory, wire: Any) -> None:
    """Compile, say so, and measure with the settings that are asked for."""
    alone = {name: Config.model_fields[name].default for name in (*FOR_WORKERS, "env_backend")}
    mine = config.model_copy(update={**alone, "collector": "local", "compile": "on"})
    failed: list[str] = []

    def hear(entry: Mapping[str, Any]) -> None:
        if entry["event"] == "not-compiled":
            failed.append(entry["message"])

    with threads(mine.threads), closing(build_collector(mine, make, "fresh")) as collector:
        learner = build_learner(mine, collector.spec, hear)
        for _ in range(WARMING_UP):
            _iterate(collector, learner)
    wire.send(Answer(failed=failed[0] if failed else ""))
    while True:
        asked = config.model_copy(update=wire.recv())
        usable = (asked.envs, asked.threads) == (mine.envs, mine.threads)
        reuse = learner if usable else None
        wire.send(Answer(_measured(asked, make, time.monotonic() + ANY_TIME, reuse)))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _flag(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"--no-{name.replace('_', '-')}"
    return f"{option} {value}"
