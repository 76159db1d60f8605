"""Where a spec and settings become a policy, and a policy an actor."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from surefoot.config import Config, PolicyConfig
from surefoot.core import seeding
from surefoot.core.errors import ConfigError
from surefoot.core.protocols import Actor
from surefoot.core.seeding import Purpose
from surefoot.core.spec import Box, Discrete, MultiDiscrete, Spec
from surefoot.core.tree import Tree
from surefoot.nets.encoder import Encoder
from surefoot.nets.mlp import linear, mlp
from surefoot.policy.actor import Choice, PolicyActor
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.heads import CategoricalHead, GaussianHead, SquashedHead
from surefoot.policy.normalizer import Normalizer
from surefoot.policy.soft import BoundedCritics, ChoiceCritics, SoftActorCritic
from surefoot.policy.translate import knows, to_lean
from surefoot.policy.uniform import Uniform
from surefoot.policy.values import PlainValues, PopArt

Policy: TypeAlias = ActorCritic | SoftActorCritic
CRITICS = 2
COMBINATIONS = 256
"""Combinations of choices that critics value all at once, at most."""


def build_policy(spec: Spec, config: Config) -> Policy:
    """Make the networks of `config.algo` for these observations and actions."""
    if config.algo == "sac":
        return build_soft_actor_critic(spec, config.policy, config.seed)
    return build_actor_critic(spec, config.policy, config.seed, config.ppo.popart)


def build_actor_critic(
    spec: Spec, config: PolicyConfig, seed: int, popart: float | None = None
) -> ActorCritic:
    """Make an actor and a critic for these observations and actions. `popart` is how much of each
    update's targets goes into the scale of values, if they have one."""
    config.check()
    random = torch.Generator().manual_seed(seeding.integer(seed, Purpose.WEIGHTS))
    encoder = Encoder(spec.observation)
    sizes = config.value_hidden if config.value_hidden is not None else config.hidden
    hidden = config.hidden[-1] if config.hidden else encoder.size
    value_hidden = sizes[-1] if sizes else encoder.size
    trunk: nn.Module = nn.Identity()
    actor: nn.Module = nn.Identity()
    critic: list[nn.Module] = []
    if config.shared_trunk:
        trunk = mlp(encoder.size, config.hidden, config.activation, random)
    else:
        actor = mlp(encoder.size, config.hidden, config.activation, random)
        critic = [mlp(encoder.size, sizes, config.activation, random)]
    head = _head(spec.action, hidden, config, random)
    critic.append(linear(value_hidden, 1, 1.0, random))
    normalizer = Normalizer(spec.observation, config.normalize_observations)
    scale = PlainValues() if popart is None else PopArt(popart)
    return ActorCritic(normalizer, encoder, trunk, actor, head, nn.Sequential(*critic), scale)


def build_soft_actor_critic(spec: Spec, config: PolicyConfig, seed: int) -> SoftActorCritic:
    """Make an actor and twin critics for actions that SAC can choose."""
    if config.shared_trunk:
        raise ConfigError("policy.shared_trunk is for PPO; SAC's networks are apart")
    random = torch.Generator().manual_seed(seeding.integer(seed, Purpose.WEIGHTS))
    encoder = Encoder(spec.observation)
    sizes = config.value_hidden if config.value_hidden is not None else config.hidden
    actor = mlp(encoder.size, config.hidden, config.activation, random)
    features = config.hidden[-1] if config.hidden else encoder.size

    def nets(inputs: int, outputs: int) -> list[nn.Module]:
        last = sizes[-1] if sizes else inputs
        hidden = (mlp(inputs, sizes, config.activation, random) for _ in range(CRITICS))
        return [nn.Sequential(*net, linear(last, outputs, 1.0, random)) for net in hidden]

    normalizer = Normalizer(spec.observation, config.normalize_observations)
    match _bounded_action(spec):
        case Box() as space:
            squashed = SquashedHead(features, space, config.log_std_init, random)
            bounded = BoundedCritics(
                nets(encoder.size + space.size, 1), squashed.center, squashed.reach
            )
            return SoftActorCritic(normalizer, encoder, actor, squashed, bounded)
        case Discrete() | MultiDiscrete() as space:
            head = _head(space, features, config, random)
            assert isinstance(head, CategoricalHead)
            choices = ChoiceCritics(nets(encoder.size, math.prod(head.bins)), head.bins)
            return SoftActorCritic(normalizer, encoder, actor, head, choices)


def build_uniform(spec: Spec) -> Uniform:
    """Make an actor that takes every action alike."""
    match _bounded_action(spec):
        case Box(low=low, high=high):
            return Uniform(low.astype(np.float64), high.astype(np.float64), whole=False)
        case Discrete(n=n):
            return Uniform(np.array(0.0), np.array(float(n)), whole=True)
        case MultiDiscrete(bins=bins):
            return Uniform(np.zeros(bins.shape), bins.astype(np.float64), whole=True)


def _bounded_action(spec: Spec) -> Box | Discrete | MultiDiscrete:
    """Return the action space if SAC can choose from it."""
    match spec.action:
        case Box(low=low, high=high) as space if space.size > 0:
            with np.errstate(over="ignore", invalid="ignore"):
                finite = np.isfinite((high - low).astype(np.float32)).all()
            if not finite:
                raise ConfigError(
                    f"action space {space} has numbers without bounds, into which SAC draws its "
                    f"actions; give the environment's action_space a finite low and high (and drop "
                    f"gymnasium.wrappers.ClipAction, which takes them away), or use --algo ppo"
                )
            return space
        case Discrete() as space:
            return space
        case MultiDiscrete(bins=bins) as space:
            if (count := math.prod(bins.reshape(-1).tolist())) > COMBINATIONS:
                raise ConfigError(
                    f"action space {space} has {count:,} combinations, and SAC values up to "
                    f"{COMBINATIONS} one by one; use --algo ppo, or fewer options"
                )
            return space
        case action:
            raise ConfigError(
                f"action space {action} has no SAC policy; use a Box with bounds, Discrete, "
                f"MultiDiscrete or MultiBinary"
            )


def build_actor(policy: Policy, choice: Choice) -> Actor:
    """Snapshot a policy to act with: in numpy where all its parts are known there, or in torch."""
    return to_lean(policy, choice) if knows(policy, choice) else PolicyActor(policy, choice)


def _head(
    action: Tree, features: int, config: PolicyConfig, random: torch.Generator
) -> CategoricalHead | GaussianHead:
    match action:
        case Discrete(n=n):
            return CategoricalHead(features, [n], (), random)
        case MultiDiscrete(bins=bins, shape=shape):
            return CategoricalHead(features, bins.reshape(-1).tolist(), shape, random)
        case Box(shape=shape) if math.prod(shape) > 0:
            return GaussianHead(features, shape, config.log_std_init, random)
        case _:
            raise ConfigError(
                f"action space {action} has no policy yet; "
                f"use Discrete, MultiDiscrete, MultiBinary or Box"
            )
