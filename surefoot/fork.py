"""Start a new run from a checkpoint of another, with other settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from surefoot.collect.build import find_way
from surefoot.collect.choose import choose, require_cores
from surefoot.config import Config, Output, PolicyConfig, build, require_own
from surefoot.core import tree
from surefoot.core.best import Best
from surefoot.core.errors import ConfigError, InexactError
from surefoot.core.state import State
from surefoot.envs.names import reference
from surefoot.envs.names import settled as settled_arguments
from surefoot.learn.build import settle_compile
from surefoot.mirroring import require_free
from surefoot.notes import collector_notes, counted
from surefoot.resume import kind_of, left_behind, without_reached
from surefoot.run import Run
from surefoot.store.checkpoint import Checkpoint, naming
from surefoot.train import carry_out, prepared
from surefoot.training import Training
from surefoot.transforms import channels

SAME_TASK = ("env", "env_args", "score", "reset_every")
SAME_EPISODES = (*SAME_TASK, "env_backend", "envs", "seed", "restore")
"""Settings that a fork must share with its parent to compare scores, and to go on in the same
episodes."""


def fork(
    path: str | Path,
    out: str | Path | None = None,
    checkpoint: str | int = "last",
    env: str | Callable[..., Any] | None = None,
    metrics: str | Callable[..., Any] | None = None,
    output: Output = "auto",
    **settings: Any,
) -> Run:
    """Start a new run from a checkpoint of another, with other settings; it remembers its parent.

    Counters and curves go on from the checkpoint's step. The best is the fork's own.
    """
    parent = Run.open(path, env, metrics)
    found = parent.checkpoint(checkpoint)
    state = parent.read(found)
    given = {name: it for name, it in (("env", env), ("metrics", metrics)) if it is not None}
    names = {name: reference(it) for name, it in given.items()}
    inherited = parent.config.model_dump(mode="json", exclude={"mirror"})  # that is the parent's
    inherited |= left_behind(settings)
    config = build({"parent": {**inherited, **names}, "argument": settings})
    config = config.model_copy(update={"env_args": settled_arguments(config.env, config.env_args)})
    _require_same_networks(parent.config, config)
    require_own(settings, config.algo)
    if config.total_steps <= found.step:
        raise ConfigError(
            f"total_steps={config.total_steps} is spent at step {found.step:,}, where the fork "
            f"begins; give a larger --total-steps"
        )
    make = Run(parent.path, config, env, metrics).factory({})
    choice = choose(config, make)
    config = settle_compile(choice.config, found.step)
    require_cores(config)
    same_task, same_episodes = (
        all(getattr(config, name) == getattr(parent.config, name) for name in names)
        for names in (SAME_TASK, SAME_EPISODES)
    )
    require_free(config, Path(out) if out else None)
    kind = kind_of(state) if same_episodes else find_way(config, make).kind
    with prepared(config, make, kind) as training:
        shared = same_task and _shares_experience(parent.config, config)
        if not shared:  # what was played there is of no use here
            state = {**state, "learner": {**state["learner"], "experience": {}}}
        notes = _inherit(training, found, state, same_task, same_episodes)
        notes += [*collector_notes(choice), f"from here on: {counted(config, found.step)}"]
        if "stop_at" not in settings:
            config, reached = without_reached(config, training.recent.score)
            notes += reached
        lineage = {"id": parent.identity["id"], "step": found.step, "path": str(parent.path)}
        first = training.boundary(metrics_bytes=0)
        functions = {name: it for name, it in given.items() if not isinstance(it, str)}
        place = Path(out) if out else None
        run = Run.create(place, config, parent=lineage, first=first, **functions)
        config = run.config
        with run.lock():
            message = "\n".join([f"forked from {found.path}", *notes])
            changed = _changes(parent.config, config)
            opening = {"event": "fork", "parent": lineage, "changed": changed, "message": message}
            return carry_out(run, config, make, training, opening, output)


def _inherit(
    training: Training, found: Checkpoint, state: State, same_task: bool, same_episodes: bool
) -> list[str]:
    """Take over what a fork has in common with its parent; return what a person must know."""
    with naming(found.path):
        training.restore(found.step, state)
        training.best_return, training.best_evaluation = Best(), Best()
        training.metrics_bytes = 0
        if not same_task:
            training.recent = training.recent.emptied()
        try:
            if same_episodes and found.manifest.exact:
                training.restore_environments(state)
                return []
        except InexactError as error:
            training.renew_environments(state)
            return [f"{error}; every row begins a new episode"]
        training.renew_environments(state)
    return ["every row begins a new episode"]


def _shares_experience(parent: Config, child: Config) -> bool:
    """Say whether a child can learn from what its parent has kept; SAC keeps rewards as they were
    learned from."""
    before: Any = parent.learning
    same = child.algo == "ppo" or child.rewards == parent.rewards
    known = set(channels(child.rewards)) <= set(channels(parent.rewards))
    return same and known and child.learning.shares_experience(before)


def _require_same_networks(parent: Config, child: Config) -> None:
    if parent.algo != child.algo:
        raise ConfigError(
            f"algo is {parent.algo} in the parent and cannot be {child.algo} in a fork, which goes "
            f"on with the parent's networks"
        )
    kinds = [(one.ppo.objective, one.ppo.popart is not None) for one in (parent, child)]
    if child.algo == "ppo" and kinds[0] != kinds[1]:
        raise ConfigError(
            "ppo.objective and whether there is ppo.popart cannot change in a fork, which goes on "
            "with the parent's critic: its values would mean something else"
        )
    for name in PolicyConfig.model_fields:
        before, now = getattr(parent.policy, name), getattr(child.policy, name)
        if before != now and name != "log_std_init":
            raise ConfigError(
                f"policy.{name} is {before} in the parent and cannot be {now} in a fork, which "
                f"goes on with the parent's networks"
            )


def _changes(old: Config, new: Config) -> Mapping[str, Any]:
    """List the settings in which two configs differ, with both values."""
    before, after = (
        dict(tree.items(config.model_dump(mode="json"), separator=".")) for config in (old, new)
    )
    pairs = {name: [before.get(name), after.get(name)] for name in {**before, **after}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
