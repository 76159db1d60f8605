"""train(…) builds the parts; fit(parts) is the loop. Read this first, after core/protocols.py."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from surefoot.collect.build import build_collector
from surefoot.config import Config, resolve
from surefoot.core.episodes import RecentEpisodes
from surefoot.core.errors import ConfigError, EnvError, NonFiniteError, RunError
from surefoot.core.metrics import Metrics, mean, prefixed, present
from surefoot.core.progress import Progress
from surefoot.core.protocols import Collector, Learner, Sink, State
from surefoot.core.rollout import Rollout
from surefoot.envs.make import factory, name_of
from surefoot.learn.build import build_learner
from surefoot.run import Run
from surefoot.sinks.fanout import FanOut
from surefoot.sinks.jsonl import JsonLines
from surefoot.sinks.terminal import terminal
from surefoot.store.checkpoint import Checkpoint

BEST_WRITES = 20
"""How many times per run, at most, a new best is written to disk before the end."""


@dataclass
class Parts:
    """Everything the loop works with."""

    config: Config
    collector: Collector
    learner: Learner
    sink: Sink
    run: Run
    progress: Progress
    recent: RecentEpisodes
    started: float = field(default_factory=time.monotonic)

    def state(self) -> State:
        return {
            "spec": self.collector.spec.state(),
            "progress": vars(self.progress),
            "recent": self.recent.state(),
            "learner": self.learner.state(),
            "collector": self.collector.state(),
        }


def train(
    env: str | Callable[..., Any],
    config: Config | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Train an agent and return its run.

    `env` is a Gymnasium id, `module:factory`, or a function that returns an environment. Settings
    are a whole `config`, or keywords over the environment's preset.
    """
    if config is not None and settings:
        raise ConfigError("give either a config or single settings, not both")
    name = env if isinstance(env, str) else name_of(env)
    config = config.model_copy(update={"env": name}) if config else resolve(name, None, settings)
    with _threads(config.threads):
        return _train(config, env, Path(out) if out else None)


def _train(config: Config, env: str | Callable[..., Any], out: Path | None) -> Run:
    collector = build_collector(config, factory(env, config.env_args))
    try:
        learner = build_learner(config, collector.spec)
        path = out or _fresh_directory(config)
        run = Run.create(path, config, None if isinstance(env, str) else env)
        title = f"surefoot · {config.env} · {config.algo} · seed {config.seed} · {run.path}"
        with run.lock():
            sink = FanOut([JsonLines(run.path), terminal(title, config.recent_episodes)])
            parts = Parts(
                config=config,
                collector=collector,
                learner=learner,
                sink=sink,
                run=run,
                progress=Progress(config.total_steps),
                recent=RecentEpisodes(config.recent_episodes),
            )
            sink.event({"event": "start", "config": config.model_dump(mode="json")})
            try:
                reason = fit(parts)
                sink.event({"event": reason.event, "reason": reason.text, **reason.signal})
            except BaseException as error:
                sink.event({"event": "fault", "error": f"{type(error).__name__}: {error}"})
                raise
            finally:
                sink.close()
    finally:
        collector.close()
    if reason.signal:
        raise Interrupted(reason.signal["signal"], run)
    return run


def fit(parts: Parts) -> Ending:
    """Collect, update, report, save: until the budget is spent or something says stop."""
    keeper = Keeper(parts)
    with _signals() as caught:
        try:
            while True:
                begun = time.perf_counter()
                rollout = parts.collector.collect(parts.learner.actor())
                collected = time.perf_counter()
                update = parts.learner.update(rollout, parts.progress)
                updated = time.perf_counter()

                before, parts.progress = parts.progress, parts.progress.after(rollout, update)
                parts.recent.add(rollout.episodes)
                times = {"collect": collected - begun, "update": updated - collected}
                parts.sink.write(parts.progress.steps, report(parts, rollout, update, times))
                keeper.offer(before)
                if ending := _ending(parts, caught):
                    keeper.save_last()
                    return ending
        except EnvError:
            keeper.save_last()
            raise
        except NonFiniteError as error:
            path = parts.run.save_fault(parts.progress.steps, error.evidence)
            raise NonFiniteError(f"{error}\nwhat led to it is in {path}", error.evidence) from None
        finally:
            keeper.save_best()


def report(parts: Parts, rollout: Rollout, update: Metrics, times: dict[str, float]) -> Metrics:
    """Gather the metrics of one iteration."""
    steps = rollout.steps
    facts = present(
        episode_return_mean=mean(e.total for e in rollout.episodes),
        episode_length_mean=mean(e.length for e in rollout.episodes),
        reward_mean=float(rollout.reward[rollout.valid].mean()) if steps else None,
        steps=steps,
        episodes=len(rollout.episodes),
    )
    speed = {"steps_per_second": steps / sum(times.values())}
    return {
        **prefixed("rollout", facts),
        **parts.recent.metrics(),
        **parts.progress.metrics(),
        **update,
        **rollout.metrics,
        **prefixed("time", {**times, **speed}),
    }


@dataclass(frozen=True)
class Ending:
    """Why training ended."""

    event: str
    text: str
    signal: dict[str, int] = field(default_factory=dict)


class Interrupted(Exception):
    """A signal ended training; the run is saved."""

    def __init__(self, signal: int, run: Run) -> None:
        super().__init__(signal)
        self.signal, self.run = signal, run


def _ending(parts: Parts, caught: list[int]) -> Ending | None:
    config, score = parts.config, parts.recent.score
    hours = (time.monotonic() - parts.started) / 3600
    if caught:
        return Ending("signal", signal.Signals(caught[0]).name, {"signal": caught[0]})
    if config.stop_at is not None and score is not None and score >= config.stop_at:
        return Ending("finish", f"recent return {score:.2f} reached stop_at")
    if parts.progress.done:
        return Ending("finish", "budget spent")
    if config.max_hours is not None and hours >= config.max_hours:
        return Ending("stop", "max_hours reached")
    return None


class Keeper:
    """Keeps the best state of a run, in memory and now and then on disk, and the last one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._every = max(1, parts.config.total_steps // BEST_WRITES)
        self._score = float("-inf")
        self._unsaved: tuple[int, State] | None = None
        self._saved: Checkpoint | None = None

    def offer(self, before: Progress) -> None:
        """Take the state if its recent return is the best so far; of equals the later one."""
        parts = self._parts
        if parts.recent.score is not None and parts.recent.score >= self._score:
            self._score = parts.recent.score
            self._unsaved = (parts.progress.steps, parts.state())
        if parts.progress.due(self._every, before):
            self.save_best()

    def save_best(self) -> None:
        """Write the best state if it is not on disk yet; it replaces the one before."""
        if self._unsaved is not None:
            step, state = self._unsaved
            old, self._saved = self._saved, self._parts.run.save(step, state, self._score)
            self._unsaved = None
            if old is not None:
                self._parts.run.drop(old)

    def save_last(self) -> None:
        """Write the state after the last iteration, unless there was none or it is saved."""
        parts = self._parts
        self.save_best()
        saved = self._saved.step if self._saved is not None else 0
        if parts.progress.steps > saved:
            parts.run.save(parts.progress.steps, parts.state(), parts.recent.score)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM for the end of the iteration; a second one acts at once."""
    caught: list[int] = []

    def handle(number: int, _: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fresh_directory(config: Config) -> Path:
    """Make a directory named after the environment, seed and time."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in config.env.split(":")[-1])
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name.strip('_')}-seed{config.seed}-{stamp}"
    candidates = [base, *(base.with_name(f"{base.name}-{n}") for n in range(2, 1000))]
    for path in candidates:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise RunError(f"there are too many runs named {base}")
