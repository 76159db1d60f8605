"""train(…) builds the parts; fit(parts) is the loop. Read this first, after core/protocols.py."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from surefoot.collect.build import build_collector
from surefoot.config import Config, resolve
from surefoot.core import signals
from surefoot.core.episodes import RecentEpisodes
from surefoot.core.errors import ConfigError, NonFiniteError
from surefoot.core.metrics import Metrics, mean, prefixed, present
from surefoot.core.progress import Progress
from surefoot.core.protocols import Collector, Learner, Sink
from surefoot.core.rollout import Rollout
from surefoot.envs.make import absolute, factory, name_of
from surefoot.learn.build import build_learner
from surefoot.run import Run
from surefoot.sinks.fanout import FanOut
from surefoot.sinks.jsonl import JsonLines
from surefoot.sinks.terminal import terminal
from surefoot.store.retention import Boundary, Keeper

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

    def boundary(self) -> Boundary:
        """Take down all state as it is between two iterations: what may be saved."""
        state = {
            "spec": self.collector.spec.state(),
            "progress": vars(self.progress),
            "recent": self.recent.state(),
            "learner": self.learner.state(),
            "collector": self.collector.state(),
        }
        return Boundary(self.progress.steps, self.recent.score, state)


def train(
    env: str | Callable[..., Any],
    config: Config | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Train an agent and return its run.

    `env` is a Gymnasium id, `module:factory`, or a function that returns an environment. Settings
    are a whole `config`, used as it is, or keywords over the environment's preset.
    """
    if config is not None and settings:
        raise ConfigError("give either a config or single settings, not both")
    if not isinstance(env, str) and not callable(env):
        raise ConfigError(f"env={env!r}: pass an id or a function that makes the environment")
    if config is not None and not isinstance(config, Config):
        raise ConfigError(f"config={config!r}: pass a surefoot.Config, or settings as keywords")
    env = absolute(env) if isinstance(env, str) else env
    name = env if isinstance(env, str) else name_of(env)
    config = config.model_copy(update={"env": name}) if config else resolve(name, None, settings)
    with _threads(config.threads):
        return _train(config, env, Path(out) if out else None)


def _train(config: Config, env: str | Callable[..., Any], out: Path | None) -> Run:
    collector = build_collector(config, factory(env, config.env_args))
    try:
        learner = build_learner(config, collector.spec)
        run = Run.create(out, config, None if isinstance(env, str) else env)
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
                ending = fit(parts)
                sink.event({"event": ending.event, "reason": ending.reason})
            except Interrupted as stopped:
                sink.event({"event": "signal", "reason": signal.Signals(stopped.signal).name})
                raise
            except BaseException as error:
                sink.event({"event": "fault", "error": f"{type(error).__name__}: {error}"})
                raise
            finally:
                sink.close()
    finally:
        collector.close()
    return run


def fit(parts: Parts) -> Ending:
    """Collect, update, report, save: until the budget is spent or something says stop."""
    keeper = Keeper(parts.run.checkpoints_directory)
    write_every = max(1, parts.config.total_steps // BEST_WRITES)
    boundary = parts.boundary()
    with signals.held() as caught:
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
                boundary = parts.boundary()
                keeper.offer(boundary)
                if parts.progress.due(write_every, before):
                    keeper.save_best()
                if ending := _ending(parts):
                    keeper.save_last(boundary)
                    return ending
                if caught:
                    keeper.save_last(boundary)
                    raise Interrupted(caught[0], parts.run)
        except NonFiniteError as error:
            keeper.save_last(boundary)
            path = parts.run.save_fault(parts.progress.steps, error.evidence)
            raise NonFiniteError(f"{error}\nwhat led to it is in {path}", error.evidence) from None
        except Interrupted:
            raise
        except KeyboardInterrupt:
            keeper.save_best()
            raise Interrupted(caught[0] if caught else signal.SIGINT, parts.run) from None
        except BaseException:
            keeper.save_last(boundary)
            raise


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
    reason: str


class Interrupted(KeyboardInterrupt):
    """A signal ended training; the run is saved."""

    def __init__(self, signal: int, run: Run) -> None:
        super().__init__(f"stopped by signal {signal}; the run is saved in {run.path}")
        self.signal, self.run = signal, run


def _ending(parts: Parts) -> Ending | None:
    config, score = parts.config, parts.recent.score
    hours = (time.monotonic() - parts.started) / 3600
    if config.stop_at is not None and score is not None and score >= config.stop_at:
        return Ending("finish", f"recent return {score:.2f} reached stop_at")
    if parts.progress.done:
        return Ending("finish", "budget spent")
    if config.max_hours is not None and hours >= config.max_hours:
        return Ending("stop", "max_hours reached")
    return None


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
