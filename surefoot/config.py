"""Every knob, frozen and validated; YAML in and out.

A docstring under a field is its help on the command line and in `surefoot config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)
from tyro.conf import Positional, arg

from surefoot.core.errors import ConfigError, nearest
from surefoot.schedules import Adaptive, Constant, Interval, Model, Rate, Schedule, Steps

Output: TypeAlias = Literal["auto", "quiet", "json"]
"""What standard output gets: what suits it, nothing, or JSON lines. No setting of a run."""
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class PolicyConfig(Model):
    """What the networks look like."""

    hidden: tuple[PositiveInt, ...] = (64, 64)
    """Sizes of the hidden layers."""
    value_hidden: tuple[PositiveInt, ...] | None = None
    """Sizes of the critic's hidden layers; none: as the actor's."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu"] = "tanh"
    """Nonlinearity between layers."""
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

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        if self.shared_trunk and self.value_hidden is not None:
            raise ConfigError(
                "policy.value_hidden has no meaning with policy.shared_trunk; drop one of them"
            )


class PPOConfig(Model):
    """Proximal Policy Optimization."""

    horizon: PositiveInt = 256
    """Steps each row collects before an update."""
    minibatch_size: PositiveInt = 64
    """Samples per optimizer step."""
    microbatch_size: PositiveInt | None = None
    """Split a minibatch that does not fit memory into passes of this size; none: do not."""
    epochs: PositiveInt = 10
    """Passes over the experience per update."""
    learning_rate: Rate = Constant(value=3e-4)
    """Step size: 3e-4, linear:1e-3:0, cosine:1e-3:0, or adaptive:3e-4:0.01 (start, target KL)."""
    value_learning_rate: Schedule | None = None
    """Learning rate of an optimizer for the critic alone; none: one optimizer for both."""
    gamma: Fraction = 0.99
    """Discount per step."""
    gae_lambda: Fraction = 0.95
    """Bias against variance of the advantage: 0 trusts the critic, 1 the returns."""
    clip_range: Schedule = Constant(value=0.2)
    """How far the probability ratio may leave 1 and still be rewarded."""
    value_clip_range: Schedule | None = None
    """How far a value may move per update before its loss is clipped; none: any distance."""
    value_coefficient: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    entropy_coefficient: Schedule = Constant(value=0.0)
    """Weight of the entropy bonus; may be a schedule."""
    max_grad_norm: PositiveFloat | None = 0.5
    """Clip each optimizer's gradients to this global norm; none: do not clip."""
    advantages: Literal["minibatch", "rollout", "off"] = "minibatch"
    """Normalize advantages over each minibatch, over all experience, or not at all."""
    target_kl: PositiveFloat | None = None
    """Stop an update after an epoch whose mean KL exceeds this; none: never."""
    normalize_returns: bool = False
    """Divide rewards by the running deviation of the discounted return, for learning only."""
    buffer_steps: NonNegativeInt = 0
    """Learn from the last rollouts that fit into this many steps (0: the newest rollout only)."""

    @property
    def watches_kl(self) -> bool:
        """Whether anything depends on how far the policy moved."""
        return self.target_kl is not None or isinstance(self.learning_rate, Adaptive)

    def experience_steps(self, rows: int) -> int:
        """Return how many steps an update learns from once the buffer is full."""
        rollout = rows * self.horizon
        return max(rollout, self.buffer_steps // rollout * rollout)

    def check(self, rows: int) -> None:
        """Refuse a minibatch that no update could fill, and a part larger than the whole."""
        steps = self.experience_steps(rows)
        if self.microbatch_size is not None and self.microbatch_size > self.minibatch_size:
            raise ConfigError(
                f"ppo.microbatch_size={self.microbatch_size} exceeds "
                f"ppo.minibatch_size={self.minibatch_size}; lower it"
            )
        if self.minibatch_size > steps:
            rollout = f"{rows} rows × horizon {self.horizon} = {rows * self.horizon} steps"
            raise ConfigError(
                f"ppo.minibatch_size={self.minibatch_size} exceeds what an update learns from "
                f"(rollouts of {rollout}); lower it, or raise ppo.horizon or envs"
            )
        if self.watches_kl and self.epochs == 1 and self.minibatch_size == steps:
            raise ConfigError(
                "ppo.epochs=1 with one minibatch takes one step per update, before which the KL is "
                "0; raise ppo.epochs or drop the adaptive rate and ppo.target_kl"
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
    C++; prefer-envpool takes EnvPool's where it is installed and has all that is asked for."""
    metrics: str = ""
    """Function of info, env or both that returns more metrics, as package.module:function or
    path/to/file.py:function; empty: what environments put into info["metrics"] alone."""
    algo: Literal["ppo"] = "ppo"
    """Learning algorithm; the group of settings with its name applies."""
    collector: Literal["auto", "local", "processes"] = "auto"
    """Who steps the environments: this process, or worker processes. auto times the environment and
    picks what is faster; the choice changes no number."""
    n_proc: PositiveInt | None = None
    """Worker processes; none: one per core."""
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
    """Compile the optimizer step as one graph, which makes it up to twice as fast after ten seconds
    or more. auto does where that saves time, by the number of samples and weights; last bits
    differ."""
    threads: PositiveInt = 1
    """CPU threads for torch; results are bit-identical only at the same number. What numpy does,
    acting and small optimizer steps, is on one thread."""
    stop_at: float | None = None
    """Finish early once the mean return of the recent episodes reaches this; none: do not."""
    max_hours: PositiveFloat | None = None
    """Stop after this many hours; none: do not."""
    recent_episodes: PositiveInt = 100
    """How many of the last episodes the `recent/` metrics cover."""
    checkpoint_every: Interval | None = None
    """Save after this many steps, or iterations as 200it; none: 20 times a run, but every 2,500
    steps at most and every 500,000 at least."""
    keep: PositiveInt = 3
    """How many of the last checkpoints stay, besides the best and those pinned."""
    restore: Literal["auto", "snapshot", "replay", "rebuild", "fresh", "inexact"] = "auto"
    """How environments come back after a restart: by their own get_state and set_state; by playing
    their episode again; the same in an object built anew for every episode; by cutting episodes at
    every checkpoint; or not at all. auto finds out by a short probe."""
    on_save_error: Literal["stop", "continue"] = "stop"
    """What to do when a checkpoint cannot be written: stop, or go on and try again at the next."""
    evaluate_every: Interval | None = None
    """Evaluate after this many steps, or iterations as 50it; none: never."""
    evaluate_episodes: PositiveInt = 10
    """Episodes per evaluation during training."""
    num_checkpoints: NonNegativeInt = 3
    """How many policies to leave in models/ on the way, at evenly spaced moments."""
    tensorboard: bool = True
    """Write metrics, histograms and settings for TensorBoard into the run's directory."""
    wandb: WandbConfig = WandbConfig()
    """Weights & Biases."""
    video_every: Interval | None = None
    """Film an episode after this many steps, or iterations as 50it, in a process beside the
    training; none: never."""
    hall_of_fame: NonNegativeInt = 5
    """How many of the best models over all runs beside this one to keep; 0: leave it alone."""
    inference_rows: PositiveInt | None = None
    """Rows per call of the policy while collecting; none: all of them, or half of more than 32."""
    ppo: PPOConfig = PPOConfig()
    """Settings of PPO."""
    policy: PolicyConfig = PolicyConfig()
    """Settings of the networks."""

    def inference_width(self) -> int:
        """Return how many rows the policy is asked for at once, whoever collects."""
        whole = self.envs if self.envs <= 32 else -(-self.envs // 2)
        return self.inference_rows or whole

    def iteration_steps(self) -> int:
        """Return how many steps one iteration takes, if all of them are valid."""
        return self.envs * self.ppo.horizon

    def optimizer_steps(self) -> int:
        """Return how many optimizer steps a whole run takes, more or less."""
        iterations = -(-self.total_steps // self.iteration_steps())
        samples = self.ppo.experience_steps(self.envs)
        return iterations * self.ppo.epochs * -(-samples // self.ppo.minibatch_size)

    def checkpoint_iterations(self) -> int:
        """Return after how many iterations a checkpoint is due."""
        default = Steps(count=min(max(self.total_steps // 20, 2_500), 500_000))
        return (self.checkpoint_every or default).iterations(self.iteration_steps())

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
    return build({**layers(env, file), "argument": {**(overrides or {}), "env": env}})


def layers(env: str, file: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return what the environment's preset and the config file say, in rising order of rank."""
    found = {}
    preset = Path(__file__).parent / "presets" / f"{env}.yaml"
    if "/" not in env and "\\" not in env and preset.is_file():
        found["preset"] = _mapping(yaml.safe_load(preset.read_text()), f"the preset of {env}")
    if file is not None:
        found[str(file)] = _read(file)
    return found


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
