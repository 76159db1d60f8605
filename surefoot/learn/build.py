"""Where settings become a learner."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from surefoot.config import Config, PPOConfig
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Spec
from surefoot.learn import lean
from surefoot.learn.compiled import Compiled, differentiated, worthwhile
from surefoot.learn.experience import Experience
from surefoot.learn.optimizer import Flat, Optimizer
from surefoot.learn.ppo import ADVANTAGES, PPO
from surefoot.learn.rates import build_rate
from surefoot.learn.rewards import RawRewards, Rewards, ScaledRewards
from surefoot.learn.step import MinibatchStep, Step
from surefoot.maths import losses
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.build import build_actor_critic
from surefoot.policy.device import pick


def build_learner(
    config: Config,
    spec: Spec,
    tell: Callable[[Mapping[str, Any]], None] = lambda entry: None,
) -> PPO:
    """Make the learner that `config.algo` names; `tell` takes events."""
    ppo = config.ppo
    ppo.check(spec.rows)
    if config.policy.normalize_observations and config.total_steps <= spec.rows * ppo.horizon:
        raise ConfigError(
            f"total_steps={config.total_steps} ends with the first rollout, which only primes "
            f"policy.normalize_observations; raise it, or lower ppo.horizon"
        )
    policy = build_actor_critic(spec, config.policy, config.seed).to(pick(config.device))
    optimizer = _optimizer(policy, ppo)
    step = _step(policy, optimizer, config, tell)
    rewards: Rewards = (
        ScaledRewards(spec.rows, ppo.gamma) if ppo.normalize_returns else RawRewards()
    )
    experience = Experience(ppo.experience_steps(spec.rows))
    return PPO(policy, optimizer, step, rewards, ppo, experience, config.seed)


def settle_compile(config: Config) -> Config:
    """Settle whether updates are compiled: as configured, or what saves time by sizes alone."""
    if config.compile != "auto":
        return config
    on = pick(config.device).type == "cpu" and worthwhile(config)
    return config.model_copy(update={"compile": "on" if on else "off"})


def _step(
    policy: ActorCritic,
    optimizer: Optimizer,
    config: Config,
    tell: Callable[[Mapping[str, Any]], None],
) -> Step:
    """Choose how steps are computed: compiled, or else in numpy, or else in torch."""
    plain = _in_torch(policy, optimizer, config.ppo)
    known = lean.knows(plain, config.ppo.minibatch_size)
    step: Step = lean.LeanStep(plain) if known else plain
    return Compiled(plain, step, tell) if config.compile == "on" else step


def _in_torch(policy: ActorCritic, optimizer: Optimizer, ppo: PPOConfig) -> MinibatchStep:
    _, normalize = ADVANTAGES[ppo.advantages]
    clipped = ppo.value_clip_range is not None
    return MinibatchStep(
        policy=policy,
        flat=optimizer.flat,
        normalize=normalize,
        value_loss=losses.clipped_value_loss if clipped else losses.plain_value_loss,
        value_coefficient=ppo.value_coefficient,
        max_grad_norm=math.inf if ppo.max_grad_norm is None else ppo.max_grad_norm,
        together=len(optimizer.rates) == 1,
        microbatch_size=ppo.microbatch_size or ppo.minibatch_size,
        gradient=differentiated,
    )


def _optimizer(policy: ActorCritic, ppo: PPOConfig) -> Optimizer:
    """Make the optimizer, with one learning rate or two; they are named like their metrics."""
    flat = Flat({"policy": policy.policy_parameters(), "value": policy.value_parameters()})
    rates = {"learning_rate": build_rate(ppo.learning_rate)}
    rate_of = dict.fromkeys(flat.names, "learning_rate")
    if ppo.value_learning_rate is not None:
        rates["value_learning_rate"] = build_rate(ppo.value_learning_rate)
        rate_of["value"] = "value_learning_rate"
    return Optimizer(flat, rates, rate_of)
