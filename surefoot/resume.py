"""Go on with a run: in its own directory, exactly; or in a new one, with other settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from surefoot.collect.build import find_way
from surefoot.config import Config, build
from surefoot.core.errors import CheckpointError, ConfigError, InexactError, RunError
from surefoot.core.state import State
from surefoot.envs.make import absolute, name_of
from surefoot.envs.probe import Kind
from surefoot.run import Run
from surefoot.store import loader
from surefoot.store.checkpoint import machine_differences
from surefoot.store.loader import Found
from surefoot.train import carry_out, prepared
from surefoot.training import Training

SAME_ENVIRONMENTS = ("env", "env_args", "envs", "seed", "restore")
"""Settings that a fork must share with its parent to go on in the same episodes."""


def resume(
    path: str | Path,
    env: str | Callable[..., Any] | None = None,
    checkpoint: int | None = None,
    total_steps: int | None = None,
    max_hours: float | None = None,
    stop_at: float | None = None,
    allow_inexact: bool = False,
) -> Run:
    """Go on with an interrupted run as if nothing had happened, or extend a finished one.

    `env` is its environment where that is a function nobody can import. `checkpoint` is the step
    to go back to; all that came after it is set aside. `max_hours` counts from now, and `stop_at`
    is for this time only.
    """
    run = Run.open(path, env)
    with run.lock():
        which = None if checkpoint is None else run.checkpoint(checkpoint).path
        found = loader.newest(run.store) if which is None else loader.at(run.store, which)
        config = _adjusted(run.config, found, total_steps)
        if _complete(run, config, found, stop_at):
            return run
        make = run.factory({})
        kind = _kind(found.state) if found.state else find_way(config, make).kind
        with prepared(config, make, kind) as training:
            notes = _restore(training, found, allow_inexact) if found.state else []
            opening = _opening(run, found, notes)
            _set_aside(run, found)
            if config != run.config:
                run.configure(config)
                opening["message"] += (
                    f"\nextended to {config.total_steps:,} steps; schedules follow the new total"
                )
            session = {"max_hours": max_hours, "stop_at": stop_at}
            given = {name: value for name, value in session.items() if value is not None}
            run.config = build({"run": config.model_dump(mode="json"), "argument": given})
            return carry_out(run, make, training, opening, training.metrics_bytes)


def fork(
    path: str | Path,
    out: str | Path | None = None,
    checkpoint: str | int = "last",
    env: str | Callable[..., Any] | None = None,
    **settings: Any,
) -> Run:
    """Start a new run from a checkpoint of another, with other settings; it remembers its parent.

    Counters and curves go on from the checkpoint's step.
    """
    parent = Run.open(path, env)
    found, state = parent.store.read(parent.checkpoint(checkpoint).path)
    name = {} if env is None else {"env": absolute(env) if isinstance(env, str) else name_of(env)}
    inherited = parent.config.model_dump(mode="json")
    config = build({"parent": {**inherited, **name}, "argument": settings})
    if config.total_steps <= found.step:
        raise ConfigError(
            f"total_steps={config.total_steps} is spent at step {found.step:,}, where the fork "
            f"begins; give a larger --total-steps"
        )
    make = Run(parent.path, config, env).factory({})
    same = all(getattr(config, name) == getattr(parent.config, name) for name in SAME_ENVIRONMENTS)
    goes_on = same and found.manifest.exact
    kind = _kind(state) if same else find_way(config, make).kind
    with prepared(config, make, kind) as training:
        notes = _restore_into(training, state, found.path, goes_on, allow_inexact=True)
        lineage = {"id": parent.identity["id"], "step": found.step, "path": str(parent.path)}
        function = None if env is None or isinstance(env, str) else env
        run = Run.create(Path(out) if out else None, config, function, lineage)
        changed = _changes(parent.config, config)
        message = f"forked from {found.path}" + "".join(f"\n{note}" for note in notes)
        opening = {"event": "fork", "parent": lineage, "changed": changed, "message": message}
        with run.lock():
            return carry_out(run, make, training, opening, save_first=True)


def _adjusted(config: Config, found: Found, total_steps: int | None) -> Config:
    if total_steps is None or total_steps == config.total_steps:
        return config
    if total_steps <= found.step:
        raise ConfigError(
            f"total_steps={total_steps}, but the run goes on from step {found.step:,}; give more"
        )
    return build({"run": config.model_dump(mode="json"), "argument": {"total_steps": total_steps}})


def _complete(run: Run, config: Config, found: Found, stop_at: float | None) -> bool:
    """Say whether there is nothing left to do."""
    ended = run.condition == "finished" and not found.passed and config == run.config
    return found.step >= config.total_steps or (ended and stop_at is None)


def _kind(state: State) -> Kind:
    kind: Kind = state.get("restore", "fresh")
    if kind not in get_args(Kind):
        raise CheckpointError(f"environments that come back by {kind!r:.40} are unknown")
    return kind


def _restore(training: Training, found: Found, allow_inexact: bool) -> list[str]:
    """Bring everything back; return what a person must know."""
    assert found.state is not None
    assert found.checkpoint is not None
    notes = _restore_into(training, found.state, found.checkpoint.path, True, allow_inexact)
    if changed := machine_differences(found.checkpoint):
        notes.append(f"not bit for bit as on the machine before: {'; '.join(changed)}")
    return notes


def _restore_into(
    training: Training, state: State, path: Path, goes_on: bool, allow_inexact: bool
) -> list[str]:
    try:
        training.restore(state)
        if not goes_on:
            training.collector.renew(state["collector"])
            return ["every row begins a new episode"]
        training.restore_environments(state)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except InexactError as error:
        if not allow_inexact:
            raise RunError(
                f"{error}: the environment does not repeat itself, so the run cannot go on "
                f"exactly. "
                f"Start new episodes instead with --allow-inexact; for the next run, "
                f"`surefoot check-env` tells more and --restore rebuild or fresh may help"
            ) from None
        training.collector.renew(state["collector"])
        return [f"not exact: {error}; every row begins a new episode"]
    return []


def _opening(run: Run, found: Found, notes: list[str]) -> dict[str, Any]:
    """Write down, for the journal and for people, from where the run goes on."""
    lines = [f"skipped {reason}" for reason in found.passed.values()]
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
    """Move newer and damaged checkpoints away, newest first, so that no name is used twice."""
    for path in found.passed:
        run.store.supersede(path)
    run.store.tidy()


def _changes(old: Config, new: Config) -> Mapping[str, Any]:
    """List the settings in which two configs differ, with both values."""
    before, after = (_flat(config.model_dump(mode="json")) for config in (old, new))
    return {name: [before[name], after[name]] for name in after if before[name] != after[name]}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = isinstance(value, dict) and name != "env_args"
        found |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found
