"""Go on with a run in its own directory, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from surefoot.collect.build import find_way
from surefoot.collect.choose import FOR_WORKERS, Chosen, choose, crowded, settle_backend
from surefoot.config import Config, Output, build
from surefoot.core.errors import CheckpointError, ConfigError, InexactError, RunError
from surefoot.core.state import State
from surefoot.elsewhere import fetch_to_go_on
from surefoot.envs.make import Factory
from surefoot.envs.probe import Kind
from surefoot.learn.build import settle_compile
from surefoot.mirroring import require_unleased
from surefoot.notes import collector_notes
from surefoot.policy.files import actor_file
from surefoot.run import Run
from surefoot.store import durable, loader
from surefoot.store.checkpoint import machine_differences, naming
from surefoot.store.loader import Found
from surefoot.store.places import is_url, settled
from surefoot.train import build_recent, carry_out, prepared
from surefoot.training import Training

FOR_STEPPING = ("collector", "n_proc", "step_timeout", "worker_restarts", "on_env_error")
FOR_WATCHING = ("tensorboard", "wandb", "video_every", "mirror", "mirror_keep", "mirror_wait")
"""Settings that a resume may change: they change no number."""
CROWD = {"envs", "threads", "overlap"}
"""Settings on which it depends who had best step the environments."""


def resume(
    path: str | Path,
    env: str | Callable[..., Any] | None = None,
    checkpoint: str | int | None = None,
    total_steps: int | None = None,
    max_hours: float | None = None,
    stop_at: float | None = None,
    allow_inexact: bool = False,
    metrics: str | Callable[..., Any] | None = None,
    render: bool = False,
    output: Output = "auto",
    out: str | Path | None = None,
    take_over: bool = False,
    **settings: Any,
) -> Run:
    """Go on with an interrupted run as if nothing had happened, or extend a finished one.

    `path` is a run's directory or the URL of its mirror, from which it is fetched into `out`, or
    `runs/NAME`; a directory is a mirror too where `out` is given. `take_over` goes on although
    another machine seems to.
    `env` and `metrics` are its environment and its metrics function where those are functions
    nobody can import; `metrics=""` goes on without. `checkpoint` is the step
    to go back to, or `best`; all that came after it is set aside. `max_hours` counts from now, and
    `stop_at` is for this time only. `allow_inexact` goes on from the very last that was saved,
    with new episodes where the old ones cannot be gone on with. `render` and `output` are as in
    `train`.
    `settings` are those that change no number, from now on: collector, n_proc, step_timeout,
    worker_restarts, on_env_error; tensorboard, wandb, video_every; mirror, mirror_keep,
    mirror_wait.
    """
    for name in settings:
        if name not in (*FOR_STEPPING, *FOR_WATCHING):
            raise ConfigError(f"resume cannot change {name!r}; `surefoot fork` can")
    watching, stepping = (
        {name: value for name, value in settings.items() if name in names and value is not None}
        for names in (FOR_WATCHING, FOR_STEPPING)
    )
    fetched = []
    if is_url(path) or out is not None:
        url = settled(str(path).rstrip("/"), "")
        path = fetch_to_go_on(url, out, checkpoint, allow_inexact, take_over)
        fetched = [f"fetched from {url} into {path}"]
    run = Run.open(path, env, metrics)
    if "mirror" in watching:
        watching["mirror"] = settled(watching["mirror"], run.name)
    with run.lock():
        found = _found(run, checkpoint, allow_inexact)
        config, extension = _extended(run.config, found, total_steps)
        if _complete(run, config, found) and stop_at is None:
            return run
        make = run.factory({})
        config = settle_compile(_with_workers(_changed(config, watching), make, stepping))
        config, backend = settle_backend(config, make, render)
        kind = find_way(config, make).kind if found.state is None else kind_of(found.state)
        with prepared(config, make, kind, render) as training:
            notes = [*_restore(training, found, allow_inexact), *extension]
            notes += collector_notes(Chosen(config, backend=backend))
            if slow := crowded(config):
                notes.append(f"{slow}: exact, but slow; `surefoot fork RUN --threads …` changes it")
            opening = _opening(run, found, fetched, notes)
            require_unleased(config, take_over)
            # A kill after any of these leaves a run that resumes: what is set aside goes newest
            # first, the settings alone decide how far to go, and metrics are cut last.
            _set_aside(run, found)
            if config != run.config:
                run.configure(config)
            given = {"max_hours": max_hours, "stop_at": stop_at}
            now = {name: value for name, value in given.items() if value is not None}
            now_config = _changed(config, now)
            return carry_out(run, now_config, make, training, opening, output, take_over)


def _with_workers(config: Config, make: Factory, settings: Mapping[str, Any]) -> Config:
    """Settle anew who steps the environments, if that is asked for."""
    if not settings:
        return config
    if settings.get("collector") == "local":
        for name in ("overlap", "min_inference_size"):
            if (value := getattr(config, name)) != Config.model_fields[name].default:
                raise ConfigError(
                    f"this run has {name}={value}, which needs workers, and numbers would change "
                    f"without; `surefoot fork RUN --collector local` turns it off"
                )
    before = {**dict(config), **left_behind(settings)}
    return choose(build({"run": before, "argument": settings}), make).config


def left_behind(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give those settings about workers their defaults that these make pointless: all of them
    without workers, whether there are some and how many where that is chosen anew or other cores or
    environments are left to them; and the way back of a pool where it is left."""
    names: set[str] = set()
    if settings.get("collector") == "local":
        names |= set(FOR_WORKERS)
    elif settings.get("collector") == "auto" or CROWD & settings.keys():
        names |= {"collector", "n_proc"}
    if "env_backend" in settings:
        names.add("restore")
    return {name: Config.model_fields[name].default for name in names}


def _found(run: Run, checkpoint: str | int | None, allow_inexact: bool) -> Found:
    """Find where to go on from; refuse to start over what was under way."""
    if checkpoint is not None:
        return loader.at(run.store, run.checkpoint(checkpoint).path, allow_inexact)
    found = loader.newest(run.store, allow_inexact)
    if found.checkpoint is None:
        if run.identity["parent"] is not None:
            raise RunError(f"{run.path} was interrupted before it was saved; fork again")
        if any(e.get("event") == "save" and e.get("exact") for e in run.journal()):
            raise RunError(
                f"{run.path} has no checkpoint, but its journal says that some were saved; bring "
                f"back {run.store.directory}, or start a new run with `surefoot train`"
            )
    return found


def _extended(config: Config, found: Found, total_steps: int | None) -> tuple[Config, list[str]]:
    """Settle how far the run is to go, and what a person must know of that."""
    if total_steps is None or total_steps == config.total_steps:
        return config, []
    if total_steps <= found.step:
        raise ConfigError(
            f"total_steps={total_steps}, but the run goes on from step {found.step:,}; give more"
        )
    changed = _changed(config, {"total_steps": total_steps})
    settled, reached = without_reached(changed, _score(config, found))
    how = "extended" if total_steps > config.total_steps else "shortened"
    return settled, [f"{how} to {total_steps:,} steps; schedules follow the new total", *reached]


def without_reached(config: Config, score: float | None) -> tuple[Config, list[str]]:
    """Drop a `stop_at` that has been reached: it cannot stop a run that is to go on."""
    if config.stop_at is None or score is None or score < config.stop_at:
        return config, []
    note = f"stop_at={config.stop_at} has been reached and does not count any more"
    return _changed(config, {"stop_at": None}), [note]


def _complete(run: Run, config: Config, found: Found) -> bool:
    """Say whether the run has gone as far as its settings say, and has said so."""
    score = _score(config, found)
    reached = config.stop_at is not None and score is not None and score >= config.stop_at
    done = found.step >= config.total_steps or reached
    return done and run.finished_at == found.step and not found.passed


def _score(config: Config, found: Found) -> float | None:
    """Read the score of the recent episodes out of a checkpoint."""
    recent = build_recent(config)
    if found.state is not None and found.checkpoint is not None:
        with naming(found.checkpoint.path):
            recent.restore(found.state["recent"])
    return recent.score


def _changed(config: Config, settings: Mapping[str, Any]) -> Config:
    return build({"run": config.model_dump(mode="json"), "argument": settings})


def kind_of(state: State) -> Kind:
    """Read how the environments of a checkpoint come back."""
    kind: Kind = state.get("restore", "fresh")
    if kind not in get_args(Kind):
        raise CheckpointError(f"environments that come back by {kind!r:.40} are unknown")
    return kind


def _restore(training: Training, found: Found, allow_inexact: bool) -> list[str]:
    """Bring everything back; return what a person must know."""
    if found.checkpoint is None or found.state is None:
        return []
    notes = []
    with naming(found.checkpoint.path):
        training.restore(found.step, found.state)
        try:
            if not found.checkpoint.manifest.exact:
                raise InexactError("it is a snapshot of the model")
            training.restore_environments(found.state)
        except InexactError as error:
            if not allow_inexact and training.restore_by != "inexact":
                raise RunError(
                    f"{error}: the environment does not repeat itself, so the run cannot go on "
                    f"exactly. Begin new episodes instead with --allow-inexact; for the next run, "
                    f"`surefoot check-env` tells more, and --restore rebuild or fresh may help"
                ) from None
            training.renew_environments(found.state)
            notes.append(f"not exact: {error}; every row begins a new episode")
    how, libraries = training.learner.how, training.libraries
    if changed := machine_differences(found.checkpoint, how, libraries):
        notes.append(f"not bit for bit as on the machine before: {'; '.join(changed)}")
    return notes


def _opening(run: Run, found: Found, fetched: list[str], notes: list[str]) -> dict[str, Any]:
    """Write down, for the journal and for people, from where the run goes on."""
    lines = [*fetched, *found.passed.values()]
    if found.checkpoint:
        lines.append(f"resumed at step {found.step:,} from {found.checkpoint.path}")
    else:
        lines.append(f"{run.path} has no checkpoint to go on from: starting at step 0")
    return {
        "event": "resume",
        "step": found.step,
        "passed": list(found.passed.values()),
        "notes": notes,
        "message": "\n".join([*lines, *notes]),
    }


def _set_aside(run: Run, found: Found) -> None:
    """Move newer and damaged checkpoints away, newest first, so that no name is used twice; the
    models of a timeline that is given up go."""
    sound = {checkpoint.path for checkpoint in run.checkpoints}
    for path in [*found.passed, *(path for path in run.store.paths() if path not in sound)]:
        if path.exists():
            run.store.supersede(path)
    run.store.tidy()
    for directory in (run.path, run.path / "models"):
        durable.sweep(directory)
    if found.passed:
        for name in ("final_actor", "final_critic", "best_return_pi_ckpt"):
            (run.path / "models" / f"{name}.pth").unlink(missing_ok=True)
    if found.state is not None:
        _bring_back_best(run, found.state)


def _bring_back_best(run: Run, state: State) -> None:
    """Write the model of the best recent return again, if it is gone and its checkpoint is not."""
    step, file = state["best"]["return"]["step"], run.path / "models" / "best_return_pi_ckpt.pth"
    kept = [checkpoint for checkpoint in run.checkpoints if checkpoint.step == step]
    if kept and not file.exists():
        durable.make_directory(file.parent)
        durable.write_file(file, actor_file(run.read(kept[0])["learner"]["policy"]))
