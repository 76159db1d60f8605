"""What each algorithm can be told. Every algorithm answers the same questions about its sizes."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from surefoot.core.errors import ConfigError
from surefoot.schedules import Adaptive, Constant, Model, Rate, Schedule

Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]


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
    objective: Literal["discounted", "average"] = "discounted"
    """What to make as large as possible: the discounted sum of rewards, or their average in a task
    that never ends, without gamma."""
    eta: Literal["mean", "learned"] = "mean"
    """How the average reward is found: from rewards, or from what the critic got wrong."""
    eta_rate: Fraction = 0.1
    """How far the average reward follows every rollout."""
    value_centring: Fraction = 0.1
    """Share of the mean value that is taken out in every update with the average objective, since
    values could drift away together."""
    popart: Annotated[float, Field(gt=0, le=1)] | None = None
    """Let the critic learn values with their mean and deviation taken out, of which this share
    follows every update; none: as they are."""
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
        self._check_objective()
        if 0 < self.buffer_steps < rows * self.horizon:
            raise ConfigError(
                f"ppo.buffer_steps={self.buffer_steps} has no room for one rollout of {rows} "
                f"rows × horizon {self.horizon} = {rows * self.horizon} steps; raise it, or leave "
                f"it at 0"
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

    def _check_objective(self) -> None:
        """Refuse settings of one objective with the other."""
        average = self.objective == "average"
        fields = type(self).model_fields
        for name in ("eta", "eta_rate", "value_centring"):
            if not average and getattr(self, name) != fields[name].default:
                value = getattr(self, name)
                raise ConfigError(
                    f"ppo.{name}={value} is for ppo.objective=average; drop it, or use "
                    f"--ppo.objective average"
                )
        if average and self.popart is not None:
            raise ConfigError(
                f"ppo.popart={self.popart} is for ppo.objective=discounted: average values are "
                f"centred already; drop one of them"
            )

    def shortened(self, rows: int, steps: int) -> PPOConfig:
        """Return settings for rollouts of so many steps of each row, if they are shorter."""
        horizon = min(self.horizon, max(steps, -(-self.minibatch_size // rows)))
        minibatch_size = min(self.minibatch_size, rows * horizon)
        return self.model_copy(update={"horizon": horizon, "minibatch_size": minibatch_size})

    def shares_experience(self, other: PPOConfig) -> bool:
        """Say whether what was kept with other settings can be learned from with these."""
        return True

    @property
    def optimizer_samples(self) -> int:
        """Samples of one optimizer step."""
        return self.minibatch_size

    def visits(self, rows: int) -> float:
        """Return how often a step is learned from."""
        return self.epochs * self.experience_steps(rows) / (rows * self.horizon)

    def optimizer_steps(self, done: int, total_steps: int, rows: int) -> int:
        """Return how many optimizer steps there are from one step on to another, more or less."""
        iterations = -(-(total_steps - done) // (rows * self.horizon))
        return iterations * math.prod(self.passes(rows).values())

    def passes(self, rows: int) -> dict[str, int]:
        """Count what an update goes through."""
        per_epoch = self.minibatches(self.experience_steps(rows))
        return {"minibatches per epoch": per_epoch, "epochs": self.epochs}

    def minibatches(self, samples: int) -> int:
        """Count the minibatches of so many samples; the last may be filled up."""
        return -(-samples // self.minibatch_size)


class SACConfig(Model):
    """Soft Actor-Critic."""

    horizon: PositiveInt = 8
    """Steps each row collects before the updates that they are worth."""
    batch_size: PositiveInt = 256
    """Transitions per update, drawn from the replay buffer."""
    updates_per_step: PositiveFloat = 1.0
    """Updates for each step that is collected."""
    learning_starts: NonNegativeInt = 1_000
    """Transitions to collect with actions at random before anything is learned."""
    learning_rate: Schedule = Constant(value=3e-4)
    """Step size of all networks and of the temperature: 3e-4, linear:1e-3:0 or cosine:1e-3:0."""
    value_learning_rate: Schedule | None = None
    """Learning rate of the critics alone; none: as the actor's."""
    gamma: Fraction = 0.99
    """Discount per step."""
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005
    """How far the target networks follow the critics in each update."""
    n_steps: PositiveInt = 1
    """Rewards that are added up before a target trusts the critics."""
    temperature: PositiveFloat | None = None
    """What a nat of entropy is worth in reward; none: learned, so that the entropy stays near
    target_entropy."""
    initial_temperature: PositiveFloat = 1.0
    """Where a temperature that is learned starts."""
    target_entropy: float | None = None
    """Entropy, in nats, that a learned temperature aims at; none: minus the number of action
    dimensions, or for choices half of the most there can be."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the gradients of actor and critics to this norm each; none: do not clip."""
    replay_steps: PositiveInt = 1_000_000
    """Transitions that the replay buffer holds, more or less; the oldest make room for new ones."""
    replay_folder: str | None = None
    """Keep the replay buffer in a file in this directory rather than in memory; it is gone when
    the run ends."""

    def shortened(self, rows: int, steps: int) -> SACConfig:
        """Return settings that learn from the first rollout; rollouts are short anyway."""
        most = max(self.batch_size, min(self.replay_steps, 100_000))
        return self.model_copy(update={"learning_starts": 0, "replay_steps": most})

    def shares_experience(self, other: SACConfig) -> bool:
        """Say whether what was kept with other settings can be learned from with these."""
        return (self.gamma, self.n_steps) == (other.gamma, other.n_steps)

    @property
    def optimizer_samples(self) -> int:
        """Samples of one optimizer step."""
        return self.batch_size

    def visits(self, rows: int) -> float:
        """Return how often a step is learned from."""
        return self.updates_per_step * self.batch_size

    def optimizer_steps(self, done: int, total_steps: int, rows: int) -> int:
        """Return how many optimizer steps there are from one step on to another, more or less."""
        return self.updates(*(max(steps, self.learning_starts) for steps in (done, total_steps)))

    def updates(self, before: int, after: int) -> int:
        """Return how many updates the steps between two counts are worth."""
        return math.floor(self.updates_per_step * after) - math.floor(
            self.updates_per_step * before
        )

    def passes(self, rows: int) -> dict[str, int]:
        """Count what an update goes through: nothing but its batches."""
        return {}

    def check(self, total_steps: int) -> None:
        """Refuse sizes with which nothing would ever be learned."""
        if self.learning_starts >= total_steps:
            raise ConfigError(
                f"sac.learning_starts={self.learning_starts} is not over when total_steps="
                f"{total_steps} are made, so nothing would be learned; lower it"
            )
        if self.learning_starts > self.replay_steps:
            raise ConfigError(
                f"sac.learning_starts={self.learning_starts} exceeds "
                f"sac.replay_steps={self.replay_steps}; lower it"
            )
        if self.batch_size > self.replay_steps:
            raise ConfigError(
                f"sac.batch_size={self.batch_size} exceeds sac.replay_steps={self.replay_steps}; "
                f"lower it"
            )
