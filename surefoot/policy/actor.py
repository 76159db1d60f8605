"""Actors: snapshots of a policy that choose actions, as numpy in and out."""

from __future__ import annotations

import copy
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.core import tree
from surefoot.core.rollout import choices
from surefoot.core.tree import Array, Tree
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.device import to_array, to_tensors
from surefoot.policy.distributions import Distribution
from surefoot.policy.heads import CategoricalHead, GaussianHead, SquashedHead
from surefoot.policy.soft import SoftActorCritic

Head: TypeAlias = CategoricalHead | GaussianHead | SquashedHead


class Choice(Protocol):
    """How an action is taken from a distribution."""

    def noise(self, head: Head, random: np.random.Generator, *axes: int) -> Tree: ...

    def take(self, distribution: Distribution, noise: Tree) -> Tensor: ...


class Sample:
    """As the distribution says, by chance."""

    def noise(self, head: Head, random: np.random.Generator, *axes: int) -> Tree:
        return head.noise(random, *axes)

    def take(self, distribution: Distribution, noise: Tree) -> Tensor:
        return distribution.sample(noise)


class Greedy:
    """The most probable action, every time."""

    def noise(self, *_: object) -> Tree:
        return {}

    def take(self, distribution: Distribution, noise: Tree) -> Tensor:
        return distribution.mode()


class PolicyActor:
    """A copy of a policy's acting half, and a way to choose."""

    def __init__(self, policy: ActorCritic | SoftActorCritic, choice: Choice) -> None:
        # The memo stands in for the critic, which acting does not need.
        self._policy = copy.deepcopy(policy, {id(policy.critic): nn.Identity()})
        self._choice = choice
        self._device = next(policy.parameters()).device

    def noise(self, random: np.random.Generator, *axes: int) -> Tree:
        return self._choice.noise(self._policy.head, random, *axes)

    def memory(self, rows: int) -> Tree:
        return {}

    def act(self, obs: Tree, mask: Tree | None, memory: Tree, noise: Tree) -> tuple[Tree, Tree]:
        with torch.inference_mode():
            distribution = self._distribution(obs)
            return to_array(
                self._choice.take(distribution, to_tensors(noise, self._device))
            ), memory

    def light(self) -> None:
        return None

    def log_prob(self, obs: Tree, action: Tree) -> Array:
        """Compute all log-probabilities in a few large batches: the numbers acting would give."""
        with torch.inference_mode():
            parts = [
                self._distribution(seen).log_prob(to_tensors(taken, self._device))
                for seen, taken in choices(obs, action)
            ]
            return to_array(torch.cat(parts)).reshape(tree.leaves(action)[0].shape[:2])

    def _distribution(self, obs: Tree) -> Distribution:
        return self._policy.distribution(self._policy.prepare(to_tensors(obs, self._device)))
