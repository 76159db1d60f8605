"""Values of many observations: those of whole chunks by code that is compiled, if updates are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from surefoot.core import tree
from surefoot.core.rollout import CHUNK
from surefoot.core.tree import Tree
from surefoot.learn.optimizer import Flat
from surefoot.policy.actor_critic import ActorCritic


class Critic(Protocol):
    """What a critic's network gives [B] for prepared observations, however it is run."""

    @property
    def compile_seconds(self) -> float:
        """How long compiling took, if that has happened."""

    def __call__(self, vector: Tensor, prepared: Tree, /) -> Tensor: ...


@dataclass(frozen=True)
class PlainCritic:
    """Asks the policy, whose parameters are those of the vector anyway."""

    policy: ActorCritic
    how: ClassVar[str] = "torch"
    compile_seconds: ClassVar[float] = 0.0

    def __call__(self, vector: Tensor, prepared: Tree) -> Tensor:
        return self.policy.raw_value(prepared)


def as_function(policy: ActorCritic, flat: Flat) -> Callable[[Tensor, Tree], Tensor]:
    """Make the same as a function of tensors alone, for a compiler that leaves out the actor."""

    def critic(vector: Tensor, prepared: Tree) -> Tensor:
        _, given = torch.func.functional_call(policy, flat.unpack(vector), (prepared,))
        result: Tensor = given
        return result

    return critic


class Valuing:
    """Values observations by the parameters as they are now."""

    def __init__(self, policy: ActorCritic, flat: Flat, critic: Critic) -> None:
        """`critic` is asked for CHUNK observations at once, no more and no less."""
        self._policy, self._flat, self._critic = policy, flat, critic

    @property
    def compile_seconds(self) -> float:
        return self._critic.compile_seconds

    def __call__(self, prepared: Tree) -> Tensor:
        """Return the values [B] of prepared observations [B, …]."""
        if len(tree.leaves(prepared)[0]) != CHUNK:
            return self._policy.value(prepared)
        value: Tensor = self._policy.critic_scale(self._critic(self._flat.vector, prepared))
        return value
