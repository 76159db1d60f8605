"""train(…) builds the parts; fit(parts) is the loop. Read this first, after core/protocols.py."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from surefoot.collect.build import build_collector, find_way
from surefoot.collect.choose import choose, require_cores
from surefoot.collect.viewer import Viewer, Watched
from surefoot.config import Config, Output, resolve
from surefoot.core import garbage, hardware, signals
from surefoot.core.episodes import RecentEpisodes
from surefoot.core.errors import ConfigError
from surefoot.core.events import Bulletin
from surefoot.core.laps import Laps
from surefoot.core.progress import Progress
from surefoot.core.protocols import Learner, Sink
from surefoot.core.spec import Spec
from surefoot.core.wishes import Wishes
from surefoot.ending import Ending, Interrupted, finished, interruptible, stopped
from surefoot.envs import envpool
from surefoot.envs.make import Factory, factory, make_some
from surefoot.envs.names import absolute, name_of, reference, settled
from surefoot.envs.probe import Kind
from surefoot.evaluate import Evaluation, evaluate
from surefoot.learn.build import build_learner, settle_compile
from surefoot.mirroring import AT_ONCE, build_mirror, finish, require_free
from surefoot.notes import crew, start_notes
from surefoot.ondemand import OnDemand
from surefoot.policy.device import threads
from surefoot.reporting import report
from surefoot.run import Run
from surefoot.saving import build_saver
from surefoot.schedules import Iterations, Steps
from surefoot.sinks.build import build_boards, require_boards
from surefoot.sinks.fanout import FanOut
from surefoot.sinks.jsonl import JsonLines
from surefoot.sinks.terminal import terminal
from surefoot.store.checkpoint import Boundary, require_saveable
from surefoot.store.mirror import Mirroring
from surefoot.store.saver import Saver
from surefoot.training import Training
from surefoot.video.aside import Cameras
from surefoot.video.shoot import PICTURES, natural_rate


@dataclass
class Parts:
    """Everything the loop works with."""

    config: Config
    training: Training
    evaluate: Callable[[Progress], Evaluation | None]
    log: JsonLines
    sink: Sink
    saver: Saver
    run: Run
    cameras: Cameras
    on_demand: OnDemand
    alert: Callable[[str], None]
    """Says what a signal leads to."""
    mirror: Mirroring
    started: float = field(default_factory=time.monotonic)


def train(
    env: str | Callable[..., Any],
    config: Config | None = None,
    out: str | Path | None = None,
    metrics: str | Callable[..., Any] | None = None,
    render: bool = False,
    output: Output = "auto",
    **settings: Any,
) -> Run:
    """Train an agent and return its run.

    `env` is a Gymnasium id, `module:factory`, or a function that returns an environment. `metrics`
    is a function of `info`, `env` or both that returns a dict of numbers, or `module:function`.
    `render` shows episodes of the first environment in a window; it changes nothing else, but that
    Gymnasium's environment is taken where EnvPool's, which shows nothing, would be preferred.
    `output` is what to print: `auto` (a dashboard on a terminal, else text), `quiet` or `json`.
    Settings are a whole `config`, used as it is, or keywords over the environment's preset.
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
    config = config.model_copy(update={"env_args": settled(name, config.env_args)})
    measure = config.metrics if metrics is None else metrics
    make = factory(env, config.env_args, measure, config.reset_every)
    choice = choose(config.model_copy(update={"metrics": reference(measure)}), make, render)
    config = settle_compile(choice.config)
    require_cores(config)
    require_free(config, Path(out) if out else None)
    way = find_way(config, make)
    with prepared(config, make, way.kind, render) as training:
        require_saveable(training.boundary(metrics_bytes=0))
        function, own = (None if isinstance(it, str) else it for it in (env, measure))
        run = Run.create(Path(out) if out else None, config, function, own)
        config = run.config
        with run.lock():
            notes = start_notes(choice, config, way)
            start: dict[str, Any] = {"event": "start", "restore": way.kind, "because": way.because}
            start["message"] = "\n".join(notes)
            start["config"] = config.model_dump(mode="json")
            return carry_out(run, config, make, training, start, output)


@contextmanager
def prepared(config: Config, make: Factory, kind: Kind, render: bool = False) -> Iterator[Training]:
    """Build who plays and who learns, on the threads that were asked for."""
    require_boards(config)
    if config.video_every is not None:
        natural_rate(make.with_arguments(PICTURES))  # says so if there are no pictures
    if config.evaluate_steps is not None:  # says so if episodes cannot be cut
        make_some(replace(make, reset_every=config.evaluate_steps), 1).close()
    hardware.keep_memory()
    with threads(config.threads):
        events = Bulletin()
        collector = build_collector(config, make, kind, events)
        try:
            if render:
                viewer = Viewer(make, config.seed, kind == "rebuild", events)
                collector = Watched(collector, viewer)
            learner = build_learner(config, collector.spec, events)
            progress, recent = Progress(config.total_steps), build_recent(config)
            yield Training(
                restore_by=kind,
                collector=collector,
                learner=learner,
                progress=progress,
                recent=recent,
                events=events,
                libraries=libraries(config),
            )
        except BaseException:
            with suppress(Exception):  # what is on its way is worse news
                collector.close()
            raise
        collector.close()


def carry_out(
    run: Run,
    config: Config,
    make: Factory,
    training: Training,
    opening: Mapping[str, Any],
    output: Output,
    take_over: bool = False,
) -> Run:
    """Train to the end in a run directory that is ours; write down how it began and ended."""
    log = JsonLines(run.path, training.metrics_bytes)
    title = f"surefoot · {config.env} · {config.algo} · seed {config.seed} · {run.path}"
    wishes = Wishes()
    view = terminal(output, title, config.recent_episodes, crew(config), wishes, config.algo)
    identity = run.identity["id"]
    boards = build_boards(config, identity, run.path, training.progress.steps, training.events)
    sink = FanOut([log, view, *boards])
    evaluate_now = _evaluator(config, make, training.collector.spec, training.learner)
    mirror = build_mirror(config, run, training.events, take_over)
    saver = build_saver(run, log.commit, sink.event, mirror)
    cameras = Cameras(make, config.env, config.seed, run.path / "videos", sink.event)
    on_demand = OnDemand(
        wishes=wishes,
        evaluate=evaluate_now,
        film=lambda at: film(run, cameras, at),
        saver=saver,
        score=config.score,
        tell=sink.event,
    )
    parts = Parts(
        config=config,
        training=training,
        evaluate=_when_due(config, evaluate_now),
        log=log,
        sink=sink,
        saver=saver,
        run=run,
        cameras=cameras,
        on_demand=on_demand,
        alert=view.alert,
        mirror=mirror,
    )
    patience = min(AT_ONCE, config.mirror_wait)
    try:
        with _breaking_off(sink):
            sink.event({**opening, "machine": hardware.described()})
            training.events.listen(sink.event)
            if log.missing:
                gap = f"metrics.jsonl lacks {log.missing:,} bytes that were there: a gap in curves"
                sink.event({"event": "metrics-missing", "message": gap})
            ending = fit(parts)
            cameras.wait()
            step, patience = training.progress.steps, config.mirror_wait
            sink.event({"event": ending.event, "reason": ending.reason, "step": step})
    finally:
        try:
            cameras.close()
            sink.close()
        finally:
            finish(mirror, config, run, output, patience)
            saver.tidy()  # of what had to stay until it was elsewhere
    return run


@contextmanager
def _breaking_off(sink: Sink) -> Iterator[None]:
    """Write down what a run breaks off by."""
    try:
        yield
    except Interrupted as stopped:
        sink.event({"event": "signal", "reason": signal.Signals(stopped.signal).name})
        raise
    except SystemExit as left:
        sink.event({"event": "signal", "reason": f"exit code {left.code}"})
        raise
    except BaseException as error:
        sink.event({"event": "fault", "error": f"{type(error).__name__}: {error}"})
        raise


def fit(parts: Parts) -> Ending:
    """Collect, update, report, save: until the budget is spent or something says stop."""
    training, saver = parts.training, parts.saver
    save_every = parts.config.checkpoint_iterations()
    filmed = _due(parts.config, parts.config.video_every)
    with (
        signals.held(parts.alert) as held,
        interruptible(held, parts.run, saver, parts.sink) as kept,
        garbage.passed_over(),
    ):
        laps = Laps()
        ending = finished(parts.config, training)  # it may have ended before it could say so
        if ending:
            saver.finish(training.boundary(parts.log.offset))
        while not ending:
            with held.abandonable():
                due = (training.progress.iterations + 1) % save_every == 0
                ahead = not due and training.progress.left > parts.config.iteration_steps()
                rollout = training.collector.collect(training.learner.actor(), ahead=ahead)
                laps.lap("collect")
                with training.collector.beside():
                    update = training.learner.update(rollout, training.progress)
                laps.lap("update")
                before, progress = training.progress, training.progress.after(rollout, update)
                evaluation = parts.evaluate(progress)
                if evaluation:
                    update |= evaluation.metrics()
                    if parts.config.score == "lta":
                        course = {"step": progress.steps, **vars(evaluation.course)}
                        parts.sink.event({"event": "course", **course})
                    laps.lap("evaluation")
            score = evaluation.score(parts.config.score) if evaluation else None
            training.note(progress, rollout, score)
            laps.lap("reporting")
            update |= parts.mirror.metrics()
            parts.sink.write(progress.steps, report(training, rollout, update, laps.take()))
            parts.sink.spread(progress.steps, training.learner.spread)
            laps.lap("reporting")
            ending = finished(parts.config, training) or stopped(parts.config, parts.started)
            if due or (ending and ending.finished):
                with held.abandonable():  # it may build environments, which may take long
                    training.collector.anchor()
            kept.boundary = training.boundary(parts.log.offset, score)
            saver.offer(kept.boundary, before, progress)
            laps.lap("saving")
            if filmed(progress):
                film(parts.run, parts.cameras, kept.boundary)
            parts.cameras.look()
            if not ending and parts.on_demand.wishes.pending:
                ending = parts.on_demand.grant(kept.boundary, held)
                laps.lap("on_demand")
            if ending:
                (saver.finish if ending.finished else saver.stop)(kept.boundary)
            elif due:
                saver.save(kept.boundary)
            laps.lap("saving")
    return ending


def build_recent(config: Config) -> RecentEpisodes:
    """Make what remembers the last episodes."""
    return RecentEpisodes(config.recent_episodes, config.score, config.stretches())


def libraries(config: Config) -> dict[str, str]:
    """Return the versions of packages that numbers of such runs depend on, beside those that all
    do."""
    return {"envpool": envpool.version()} if config.env_backend == "envpool" else {}


def _evaluator(
    config: Config, make: Factory, spec: Spec, learner: Learner
) -> Callable[[int], Evaluation]:
    """Make what evaluates the policy of a step; it neither disturbs nor remembers anything."""
    make = replace(make, reset_every=config.evaluate_steps or config.reset_every)
    episodes = config.evaluate_episodes
    return lambda step: evaluate(learner.player(), make, spec, episodes, config.seed, step)


def _when_due(
    config: Config, evaluate_now: Callable[[int], Evaluation]
) -> Callable[[Progress], Evaluation | None]:
    """Make what evaluates when it is time, and at the end."""
    if config.evaluate_every is None:
        return lambda progress: None
    due = _due(config, config.evaluate_every)
    return lambda p: evaluate_now(p.steps) if due(p) or p.done else None


def _due(config: Config, interval: Steps | Iterations | None) -> Callable[[Progress], bool]:
    """Make what says whether it is time."""
    if interval is None:
        return lambda progress: False
    every = interval.iterations(config.iteration_steps())
    return lambda progress: progress.iterations % every == 0


def film(run: Run, cameras: Cameras, boundary: Boundary) -> None:
    """Begin a film of the policy as it is at a boundary."""
    cameras.shoot(run.player_of(boundary.step, boundary.state))
