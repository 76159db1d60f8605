"""Where a spec and settings become a policy, and a policy an actor."""

from __future__ import annotations

import math

import torch
from torch import nn

from surefoot.config import PolicyConfig
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
from surefoot.policy.heads import CategoricalHead, GaussianHead
from surefoot.policy.normalizer import Normalizer
from surefoot.policy.translate import knows, to_lean


def build_actor_critic(spec: Spec, config: PolicyConfig, seed: int) -> ActorCritic:
    """Make an actor and a critic for these observations and actions."""
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
    return ActorCritic(normalizer, encoder, trunk, actor, head, nn.Sequential(*critic))


def build_actor(policy: ActorCritic, choice: Choice) -> Actor:
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
