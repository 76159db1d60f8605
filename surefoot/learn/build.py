"""Where settings become a learner."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from surefoot import transforms
from surefoot.algorithms import PPOConfig, SACConfig
from surefoot.config import Config
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Discrete, MultiDiscrete, Spec
from surefoot.core.tree import Tree
from surefoot.learn import lean, rewards
from surefoot.learn.compiled import (
    Compiled,
    Function,
    differentiated,
    differentiated_in_graph,
    worthwhile,
)
from surefoot.learn.experience import Experience
from surefoot.learn.objective import Average, Discounted, Objective
from surefoot.learn.optimizer import Flat, Optimizer
from surefoot.learn.ppo import ADVANTAGES, PPO
from surefoot.learn.rates import build_rate
from surefoot.learn.replay import build_replay
from surefoot.learn.rewards import Rewards
from surefoot.learn.sac import SAC
from surefoot.learn.soft_step import SoftStep
from surefoot.learn.step import MinibatchStep, Step
from surefoot.learn.transitions import Trail
from surefoot.learn.valuing import PlainCritic, Valuing, as_function
from surefoot.maths import losses
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.build import build_actor_critic, build_soft_actor_critic, build_uniform
from surefoot.policy.device import pick
from surefoot.policy.soft import SoftActorCritic
from surefoot.schedules import Constant

CHOICE_ENTROPY = 0.5
"""Of the most entropy that choices can have, what a temperature aims at."""


Tell: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Takes events."""


def build_learner(config: Config, spec: Spec, tell: Tell = lambda entry: None) -> PPO | SAC:
    """Make the learner that `config.algo` names."""
    build = build_sac if config.algo == "sac" else build_ppo
    return build(config, spec, tell)


def build_ppo(config: Config, spec: Spec, tell: Tell = lambda entry: None) -> PPO:
    ppo = config.ppo
    ppo.check(spec.rows)
    if config.policy.normalize_observations and config.total_steps <= spec.rows * ppo.horizon:
        raise ConfigError(
            f"total_steps={config.total_steps} ends with the first rollout, which only primes "
            f"policy.normalize_observations; raise it, or lower ppo.horizon"
        )
    policy = build_actor_critic(spec, config.policy, config.seed, ppo.popart)
    policy = policy.to(pick(config.device))
    optimizer, tell = _optimizer(policy, ppo), _once(tell)
    return PPO(
        policy=policy,
        optimizer=optimizer,
        step=_step(policy, optimizer, config, tell),
        value=_valuing(policy, optimizer, config, tell),
        rewards=build_rewards(config, spec.rows),
        objective=_objective(ppo),
        config=ppo,
        experience=Experience(ppo.experience_steps(spec.rows)),
        seed=config.seed,
    )


def build_sac(config: Config, spec: Spec, tell: Tell = lambda entry: None) -> SAC:
    sac, device = config.sac, pick(config.device)
    sac.check(config.total_steps)
    policy = build_soft_actor_critic(spec, config.policy, config.seed).to(device)
    heat = sac.initial_temperature if sac.temperature is None else sac.temperature
    temperature = nn.Parameter(torch.full((1,), math.log(heat), device=device))
    optimizer = _soft_optimizer(policy, temperature, sac)
    limit = math.inf if sac.max_grad_norm is None else sac.max_grad_norm
    plain = SoftStep(
        policy=policy,
        flat=optimizer.flat,
        target_entropy=_target_entropy(spec.action, sac),
        tau=sac.tau,
        limits=(limit, limit, math.inf),
        gradient=differentiated,
    )
    most = config.total_steps + config.iteration_steps()
    replay, told = build_replay(spec, sac.replay_steps, most, sac.replay_folder)
    kept = "" if config.save_replay else "; it is not saved, so a resume will not be exact"
    tell({"event": "replay", "message": told + kept})
    return SAC(
        policy=policy,
        beginner=build_uniform(spec),
        optimizer=optimizer,
        step=_compiled(plain, plain, tell) if config.compile == "on" else plain,
        trail=Trail(sac.n_steps, sac.gamma, spec),
        replay=replay,
        rewards=build_rewards(config, spec.rows),
        config=sac,
        seed=config.seed,
        keeps_replay=config.save_replay,
        tell=tell,
    )


def build_rewards(config: Config, rows: int) -> Rewards:
    """Make what turns raw rewards into those that are learned from."""
    gamma = config.learning.gamma
    stack = [_transform(one, rows, gamma) for one in config.rewards]
    if config.algo == "ppo" and config.ppo.normalize_returns:
        stack.append(rewards.Scaled(rows, gamma))
    return Rewards(stack)


def _transform(one: transforms.Transform, rows: int, gamma: float) -> rewards.Transform:
    match one:
        case transforms.TimeScaled():
            return rewards.TimeScaled()
        case transforms.Normalized(share=share):
            return rewards.MovingScaled(rows, gamma, share)
        case transforms.PerHorizon():
            return rewards.PerHorizon()
        case transforms.Scale(factor=factor):
            return rewards.Times(factor)
        case transforms.Floor(low=low):
            return rewards.Within(low, math.inf)
        case transforms.Clip(low=low, high=high):
            return rewards.Within(low, high)
        case transforms.NoStatePenalty():
            return rewards.Improvement(rows)
        case transforms.Add(name=name, weight=weight):
            return rewards.Plus(name, weight, keeps=True)
        case transforms.Replace(name=name):
            return rewards.Plus(name, 1.0, keeps=False)


def _objective(ppo: PPOConfig) -> Objective:
    if ppo.objective == "discounted":
        return Discounted(ppo.gamma, ppo.gae_lambda)
    learned = ppo.eta == "learned"
    return Average(ppo.gae_lambda, ppo.eta_rate, learned, ppo.value_centring)


def settle_compile(config: Config, done: int = 0) -> Config:
    """Settle whether updates are compiled: as configured, or what saves time by sizes alone, where
    so many steps are done already."""
    if config.compile != "auto":
        return config
    on = pick(config.device).type == "cpu" and worthwhile(config, done)
    return config.model_copy(update={"compile": "on" if on else "off"})


def _step(policy: ActorCritic, optimizer: Optimizer, config: Config, tell: Tell) -> Step:
    """Choose how steps are computed: compiled, or else in numpy, or else in torch."""
    plain = _in_torch(policy, optimizer, config.ppo)
    known = lean.knows(plain, config.ppo.minibatch_size)
    step: Step = lean.LeanStep(plain) if known else plain
    return _compiled(plain, step, tell) if config.compile == "on" else step


def _compiled(step: MinibatchStep | SoftStep, otherwise: Function, tell: Tell) -> Compiled:
    return Compiled(replace(step, gradient=differentiated_in_graph), otherwise, tell)


def _valuing(policy: ActorCritic, optimizer: Optimizer, config: Config, tell: Tell) -> Valuing:
    """Choose how whole chunks are valued: compiled, if steps are, or else in torch."""
    flat, plain = optimizer.flat, PlainCritic(policy)
    if config.compile != "on":
        return Valuing(policy, flat, plain)
    return Valuing(policy, flat, Compiled(as_function(policy, flat), plain, tell))


def _once(tell: Tell) -> Tell:
    """Pass on one event only: what keeps steps from being compiled keeps the pass over a rollout
    from it too, in other words perhaps."""
    told: list[Mapping[str, Any]] = []

    def once(entry: Mapping[str, Any]) -> None:
        if not told:
            told.append(entry)
            tell(entry)

    return once


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


def _soft_optimizer(
    policy: SoftActorCritic, temperature: nn.Parameter, sac: SACConfig
) -> Optimizer:
    """Make the optimizer of actor, critics and temperature. One that is fixed has a rate of 0."""
    flat = Flat(
        {
            "policy": policy.policy_parameters(),
            "value": policy.value_parameters(),
            "temperature": {"log_temperature": temperature},
        }
    )
    rates = {"learning_rate": build_rate(sac.learning_rate)}
    rate_of = dict.fromkeys(flat.names, "learning_rate")
    if sac.value_learning_rate is not None:
        rates["value_learning_rate"] = build_rate(sac.value_learning_rate)
        rate_of["value"] = "value_learning_rate"
    if sac.temperature is not None:
        rates["temperature_learning_rate"] = build_rate(Constant(value=0.0))
        rate_of["temperature"] = "temperature_learning_rate"
    return Optimizer(flat, rates, rate_of)


def _target_entropy(action: Tree, sac: SACConfig) -> float:
    """Settle what entropy a temperature aims at."""
    if sac.target_entropy is not None:
        return sac.target_entropy
    match action:
        case Discrete(n=n):
            return CHOICE_ENTROPY * math.log(n)
        case MultiDiscrete(bins=bins):
            return CHOICE_ENTROPY * float(np.log(bins).sum())
        case space:
            return -float(space.size)
