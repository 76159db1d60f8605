"""Every knob, frozen and validated; YAML in and out.

A docstring under a field is its help on the command line and in `surefoot config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from tyro.conf import Positional, arg

from surefoot.algorithms import PPOConfig as PPOConfig
from surefoot.algorithms import SACConfig as SACConfig
from surefoot.core.errors import ConfigError, nearest
from surefoot.schedules import Interval, Model, Steps
from surefoot.transforms import Transforms

Output: TypeAlias = Literal["auto", "quiet", "json"]
"""What standard output gets: what suits it, nothing, or JSON lines. No setting of a run."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "sac": {"policy": {"hidden": (256, 256), "activation": "relu"}},
}
"""What is another default with an algorithm."""
RARELY = 10
"""Iterations between two checkpoints, at least, where each of them costs more than to write it."""
STRETCHES, STRETCH_STEPS = 20, 1_000
"""Where no episode ever ends, so many rollouts stand for episodes, or as many as make so many steps
of a row."""


class PolicyConfig(Model):
    """What the networks look like."""

    hidden: tuple[PositiveInt, ...] = (64, 64)
    """Sizes of the hidden layers; with SAC 256 256 unless you say otherwise."""
    value_hidden: tuple[PositiveInt, ...] | None = None
    """Sizes of the critic's hidden layers; none: as the actor's."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu"] = "tanh"
    """Nonlinearity between layers; with SAC relu unless you say otherwise."""
    shared_trunk: bool = False
    """Let actor and critic share their hidden layers, each with a linear head of its own."""
    log_std_init: float = 0.0
    """Continuous actions: logarithm of the standard deviation at the start."""
    normalize_observations: bool = False
    """Scale observations by their running mean and deviation, which travel with the policy."""

    @property
    def plain(self) -> bool:
        """Whether a policy can act in numpy, which lacks the error function."""
        return self.activation != "gelu"

    def hidden_weights(self) -> int:
        """Count the weights between hidden layers of the larger network."""
        networks = (self.hidden, self.value_hidden or ())
        return max(sum(one * other for one, other in pairwise(sizes)) for sizes in networks)

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        if self.shared_trunk and self.value_hidden is not None:
            raise ConfigError(
                "policy.value_hidden has no meaning with policy.shared_trunk; drop one of them"
            )


class WandbConfig(Model):
    """Where to show a run in Weights & Biases (the extra `wandb`). Keys are `wandb login`'s."""

    mode: Literal["off", "online", "offline"] = "off"
    """online: show the run there; offline: keep what `wandb sync` will send; off: neither."""
    project: str = "surefoot"
    """Project that the run is in."""
    entity: str | None = None
    """User or team; none: the user's own."""
    group: str | None = None
    """Group of runs that this one belongs to."""
    tags: tuple[str, ...] = ()
    """Words to find the run by."""


class Config(Model):
    """A whole training run."""

    env: Annotated[Positional[str], arg(metavar="ENV")] = ""
    """Gymnasium id, package.module:factory, or path/to/file.py:factory."""
    total_steps: PositiveInt = 1_000_000
    """Budget in steps; one step is one transition of one row."""
    seed: NonNegativeInt = 0
    """Seed of everything random in the run."""
    envs: PositiveInt = 8
    """Environments stepped side by side."""
    env_args: dict[str, Any] = {}
    """Arguments for the environment, KEY=VALUE …; values are read as YAML."""
    env_backend: Literal["gymnasium", "envpool", "prefer-envpool"] = "gymnasium"
    """Whose implementation of a Gymnasium id is stepped in training: Gymnasium's, or EnvPool's in
    C++; prefer-envpool, for ids that EnvPool has, takes EnvPool's where it is installed, and no
    environment arguments, metrics function or --render are asked for, which it lacks."""
    reset_every: PositiveInt | None = None
    """Cut every episode after this many steps of its row, as a time limit does, in training and in
    evaluations; none: episodes end where the environment ends them, if anywhere."""
    rewards: Transforms = ()
    """What rewards are turned into for learning, one after another, while scores stay raw:
    time_scaled, normalized, per_horizon, scale:0.01, floor:-100, clip:-10:10, no_state_penalty,
    add:NAME:WEIGHT, replace:NAME."""
    score: Literal["return", "lta"] = "return"
    """What best models, stop_at and the hall of fame compare: the return of an episode, or its
    long-term average: the return divided by the length."""
    metrics: str = ""
    """Function of info, env or both that returns more metrics, as package.module:function or
    path/to/file.py:function; empty: what environments put into info["metrics"] alone."""
    algo: Literal["ppo", "sac"] = "ppo"
    """Learning algorithm; the group of settings with its name applies."""
    collector: Literal["auto", "local", "processes"] = "auto"
    """Who steps the environments: this process, or worker processes. auto times the environment and
    picks what is faster; the choice changes no number."""
    n_proc: PositiveInt | None = None
    """Worker processes; none: one per core; with overlap one for a whole pool of EnvPool's, and
    with collector auto no more than leave the learner what it needs."""
    min_inference_size: PositiveInt | None = None
    """Let every row go at its own pace, and ask the policy as soon as this many wait for it: faster
    where steps take unequal times, but not the same numbers every time. none: rows in lanes."""
    overlap: bool = False
    """Let worker processes play the next rollout while this one learns: faster, but each rollout is
    played by the policy before the last update. Runs resume from scheduled checkpoints."""
    step_timeout: PositiveFloat = 60.0
    """Seconds that one call into an environment may take in a worker before it is replaced; the
    first ones, which build it, may take 60 at least."""
    worker_restarts: NonNegativeInt = 20
    """Workers that may be lost and replaced within ten minutes before the run gives up."""
    on_env_error: Literal["stop", "restart"] = "stop"
    """What to do when an environment raises or returns nonsense: stop, or replace the worker."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks live; auto takes a GPU if there is one."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the optimizer step, and the critic, as graphs, which makes them up to twice as fast
    after twenty seconds or more. auto does where that saves time, by the number of samples and
    weights; last bits differ."""
    threads: PositiveInt = 1
    """CPU threads for torch: at most as many as there are cores, with overlap one fewer. Results
    are bit-identical only at the same number. What numpy does, acting and small optimizer steps, is
    on one thread."""
    stop_at: float | None = None
    """Finish early once the mean score of the recent episodes reaches this; none: do not."""
    max_hours: PositiveFloat | None = None
    """Stop after this many hours; none: do not."""
    recent_episodes: PositiveInt = 100
    """How many of the last episodes the `recent/` metrics cover."""
    checkpoint_every: Interval | None = None
    """Save after this many steps, or iterations as 200it; none: 20 times a run, but every 2,500
    steps at most and every 500,000 at least, and with overlap or EnvPool every 10 iterations at
    most."""
    save_replay: bool = True
    """Save SAC's replay buffer with every checkpoint, each transition once. Without it a resume
    starts with an empty buffer, and is not exact."""
    keep: PositiveInt = 3
    """How many of the last checkpoints stay, besides the best and those pinned."""
    restore: Literal["auto", "snapshot", "replay", "rebuild", "fresh", "inexact"] = "auto"
    """How environments come back after a restart: by their own get_state and set_state; by playing
    their episode again; the same in an object built anew for every episode; by cutting episodes at
    every checkpoint; or not at all. auto finds out by a short probe."""
    on_save_error: Literal["stop", "continue"] = "stop"
    """What to do when a checkpoint cannot be written: stop, or go on and try again at the next."""
    evaluate_every: Interval | None = None
    """Evaluate after this many steps, or iterations as 50it, and at the end; none: never."""
    evaluate_episodes: PositiveInt = 10
    """Episodes per evaluation during training."""
    evaluate_steps: PositiveInt | None = None
    """Cut episodes of evaluations after this many steps; none: as reset_every says."""
    num_checkpoints: NonNegativeInt = 3
    """How many policies to leave in models/ on the way, at evenly spaced moments."""
    tensorboard: bool = True
    """Write metrics, histograms and settings for TensorBoard into the run's directory."""
    wandb: WandbConfig = WandbConfig()
    """Weights & Biases."""
    video_every: Interval | None = None
    """Film an episode after this many steps, or iterations as 50it, in a process beside the
    training; none: never."""
    mirror: str = ""
    """Where else to keep the run while it trains, so that it can go on from there: a directory,
    gdrive://folder/run, s3://bucket/run or whatever fsspec reaches; with a / at the end, under
    the run's name. Empty: nowhere."""
    mirror_keep: PositiveInt = 3
    """How many of the last checkpoints stay there, besides the best and those pinned."""
    mirror_wait: NonNegativeFloat = 600.0
    """Seconds that the end of a run waits at most until everything is there."""
    hall_of_fame: NonNegativeInt = 5
    """How many of the best models over all runs beside this one to keep; 0: leave it alone."""
    inference_rows: PositiveInt | None = None
    """Rows per call of the policy while collecting; none: all of them, or half of more than 32
    (all with overlap and EnvPool, where by default one worker plays them)."""
    ppo: PPOConfig = PPOConfig()
    """Settings of PPO."""
    sac: SACConfig = SACConfig()
    """Settings of SAC."""
    policy: PolicyConfig = PolicyConfig()
    """Settings of the networks."""

    @model_validator(mode="before")
    @classmethod
    def _as_the_algorithm_has_it(cls, given: Any) -> Any:
        """Lay what is given over the defaults of the algorithm."""
        if not isinstance(given, Mapping):
            return given
        return _merge(DEFAULTS.get(str(given.get("algo", "ppo")), {}), given)

    @property
    def learning(self) -> PPOConfig | SACConfig:
        """The settings of the algorithm."""
        return self.sac if self.algo == "sac" else self.ppo

    @property
    def pool_apart(self) -> bool:
        """Whether a pool of EnvPool's plays while the learner learns: best in one worker."""
        return self.overlap and self.env_backend == "envpool"

    def inference_width(self) -> int:
        """Return how many rows the policy is asked for at once, whoever collects: all, or of many
        the half that each of two workers or lanes would have."""
        whole = self.envs if self.envs <= 32 or self.pool_apart else -(-self.envs // 2)
        return self.inference_rows or whole

    def iteration_steps(self) -> int:
        """Return how many steps one iteration takes, if all of them are valid."""
        return self.envs * self.learning.horizon

    def optimizer_steps(self, done: int = 0) -> int:
        """Return how many optimizer steps a run takes from a step on, more or less."""
        return self.learning.optimizer_steps(done, self.total_steps, self.envs)

    def counts(self, done: int = 0) -> dict[str, int]:
        """Count what a run comes to from a step on, by the words that are used for it."""
        batch = self.iteration_steps()
        counts = {
            "rows": self.envs,
            "steps per row and rollout": self.learning.horizon,
            "batch": batch,
            "minibatch": self.learning.optimizer_samples,
            **self.learning.passes(self.envs),
            "rollouts": -(-(self.total_steps - done) // batch),
            "optimizer steps": self.optimizer_steps(done),
        }
        if self.reset_every is not None:
            counts["resets of a row"] = self.row_steps(done) // self.reset_every
        return counts

    def row_steps(self, done: int = 0) -> int:
        """Count the steps of one row from a step of the run on."""
        return (self.total_steps - done) // self.envs

    def stretches(self) -> int:
        """Count the rollouts whose average stands for episodes, where none ever ends."""
        ends = self.reset_every is not None and self.reset_every <= self.row_steps()
        if self.score != "lta" or ends:
            return 0
        return max(STRETCHES, STRETCH_STEPS // self.learning.horizon)

    def checkpoint_iterations(self) -> int:
        """Return after how many iterations a checkpoint is due."""
        step = self.iteration_steps()
        if self.checkpoint_every is not None:
            return self.checkpoint_every.iterations(step)
        usual = Steps(count=min(max(self.total_steps // 20, 2_500), 500_000)).iterations(step)
        # There, nobody plays ahead of a checkpoint, or episodes are cut at it.
        return max(usual, RARELY) if self.overlap or self.restore == "fresh" else usual

    def to_yaml(self) -> str:
        """Write every setting, so that `Config.from_yaml` gives an equal config."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    @classmethod
    def from_yaml(cls, text: str) -> Config:
        return build({"file": _mapping(yaml.safe_load(text), "the configuration")})


def resolve(
    env: str, file: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Settle every setting: defaults, then the preset, then the file, then `overrides`."""
    said = overrides or {}
    require_own(said, said.get("algo") or layers("", file).get(str(file), {}).get("algo", "ppo"))
    return build({**layers(env, file, said.get("algo")), "argument": {**said, "env": env}})


def layers(
    env: str, file: Path | None = None, algo: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return what the environment's preset and the config file say, in rising order of rank. The
    preset is that of an algorithm: the given one, or the file's, or PPO."""
    written = {str(file): _read(file)} if file is not None else {}
    algo = str(algo or written.get(str(file), {}).get("algo", "ppo"))
    preset = Path(__file__).parent / "presets" / algo / f"{env.replace('/', '-')}.yaml"
    found = {}
    if algo in DEFAULTS and "\\" not in env and preset.is_file():
        found["preset"] = _mapping(yaml.safe_load(preset.read_text()), f"the preset of {env}")
    return {**found, **written}


def require_own(settings: Mapping[str, Any], algo: str) -> None:
    """Refuse what somebody asked for that means nothing to this algorithm."""
    for other in DEFAULTS:
        asked = settings.get(other)
        if other != algo and isinstance(asked, Mapping) and asked:
            raise ConfigError(
                f"{other}.{next(iter(asked))} means nothing with algo={algo}; drop it, or use "
                f"--algo {other}"
            )


def build(sources: Mapping[str, Mapping[str, Any]]) -> Config:
    """Merge settings from several sources, later ones winning, and validate the result."""
    merged: dict[str, Any] = {}
    for settings in sources.values():
        merged = _merge(merged, settings)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(explain(error, sources)) from None


def group(path: tuple[str, ...]) -> type[Model] | None:
    """Return the model at this place of `Config`, or None where there is none."""
    model: Any = Config
    for name in path:
        known = model.model_fields if isinstance(model, type) and issubclass(model, Model) else {}
        model = known[name].annotation if name in known else None
    return model if isinstance(model, type) and issubclass(model, Model) else None


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one mapping of settings over another; groups of settings merge, values replace."""
    merged = dict(below)
    for name, value in above.items():
        settings = value.model_dump(exclude_unset=True) if isinstance(value, Model) else value
        if isinstance(settings, Mapping) and group((name,)):
            merged[name] = _merge(merged.get(name) or {}, settings)
        else:
            merged[name] = value
    return merged


def explain(error: ValidationError, sources: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Say in a line each which settings are wrong, what they were, and what would be right."""
    lines = [_explain(problem, sources or {}) for problem in error.errors()]
    return "\n".join(dict.fromkeys(lines))


def annotated(config: Config, sources: Mapping[str, Mapping[str, Any]]) -> str:
    """Write every setting as YAML, with its help and the source that settled it as comments."""
    return "\n".join(_lines(config, config.model_dump(mode="json"), sources, ""))


def _lines(
    model: Model, values: Mapping[str, Any], sources: Mapping[str, Any], indent: str
) -> list[str]:
    lines = []
    for name, field in type(model).model_fields.items():
        below = {source: said[name] for source, said in sources.items() if name in (said or {})}
        setting = getattr(model, name)
        lines.append(f"{indent}# {' '.join((field.description or '').split())}")
        if isinstance(setting, Model) and group((name,)):
            lines += [f"{indent}{name}:", *_lines(setting, values[name], below, indent + "  ")]
        else:
            written = yaml.safe_dump(values[name], default_flow_style=True, width=1000)
            value = written.removesuffix("\n").removesuffix("\n...")
            lines.append(f"{indent}{name}: {value}  # from {next(reversed(below), 'default')}")
    return lines


def _explain(problem: Any, sources: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"] if not str(part)[:1].isupper()]
    name = ".".join(path)
    source = next((key for key in reversed(list(sources)) if _says(sources[key], path)), "argument")
    where = "" if source in ("argument", "flag") else f" (in {source})"
    if problem["type"] == "extra_forbidden":
        model = group(tuple(path[:-1]))
        known = list(model.model_fields) if model else []
        hint = nearest(path[-1], known) or f"; known are {', '.join(known)}"
        return f"unknown setting {name!r}{where}{hint}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{name}={problem['input']!r}{where}: {message[0].lower()}{message[1:]}"


def _says(settings: Any, path: list[str]) -> bool:
    for name in path:
        if not isinstance(settings, Mapping) or name not in settings:
            return False
        settings = settings[name]
    return True


def _read(file: Path) -> dict[str, Any]:
    try:
        return _mapping(yaml.safe_load(file.read_text(encoding="utf-8")), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file {file}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from None


def _mapping(content: Any, what: str) -> dict[str, Any]:
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{what} must be a mapping of settings, not a {type(content).__name__}")
    return content
