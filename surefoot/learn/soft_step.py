"""One update of SAC as a function of tensors alone, so that it can be compiled whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from surefoot.core.tree import Tree
from surefoot.learn.optimizer import Adam, Flat
from surefoot.learn.step import NO_NORM
from surefoot.maths import losses
from surefoot.policy.distributions import Distribution
from surefoot.policy.soft import SoftActorCritic

TERMS = (
    "critic_loss_1",
    "critic_loss_2",
    "actor_loss",
    "temperature_loss",
    "alpha",
    "entropy",
    "q_mean_1",
    "q_mean_2",
    "target_mean",
    "td_error_abs",
)
NORMS = ("policy", "value", "temperature")
"""What an update measures, in the order of its result: terms, and norms of gradients."""
EPSILON = 1e-8
"""Adam's, as others have it in SAC."""


class Batch(NamedTuple):
    """Transitions as the networks take them; every tensor is [B, …]."""

    obs: Tree
    """Prepared by the policy, as is `next_obs`."""
    action: Tensor
    reward: Tensor
    next_obs: Tree
    discount: Tensor


class Luck(NamedTuple):
    """What samples of the policy are settled by, [B, D] each."""

    now: Tensor
    then: Tensor


class Method(nn.Module):
    """A method of a module as a module of its own, to be called with other parameters."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self._name = module, name

    def forward(self, *given: Any) -> Any:
        return getattr(self.module, self._name)(*given)


@dataclass(frozen=True)
class SoftStep:
    """What never changes in a run, and the update: critics first, then the actor by the new
    critics, then the temperature, and the targets follow."""

    policy: SoftActorCritic
    flat: Flat
    """The parameters of actor, critics and temperature, in this order."""
    target_entropy: float
    tau: float
    limits: tuple[float, float, float]
    """The largest norm of each gradient."""
    gradient: Callable[..., Callable[..., tuple[Tensor, Any]]]
    """Turns a function of a vector into one that returns its gradient and what else it gives."""
    how: ClassVar[str] = "torch"
    compile_seconds: ClassVar[float] = 0.0

    def __call__(
        self,
        vector: Tensor,
        adam: Adam,
        target: Tensor,
        batch: Batch,
        luck: Luck,
        rates: Tensor,
        bias: Tensor,
    ) -> tuple[Tensor, Adam, Tensor, Tensor]:
        """Return parameters, Adam's memory and targets that follow on a batch, and what was
        measured: TERMS, NORMS. What it is given stays as it is."""
        actor, critic, temperature = (vector[part] for part in self.flat.parts)
        alpha, features = temperature.exp(), self.policy.encoder(batch.obs)
        aim = self._aim(actor, target, alpha, batch, luck.then)
        to_critic, values = self.gradient(self._critic_loss)(critic, features, batch.action, aim)
        critic, of_critic, critic_norm = self._moved(1, critic, to_critic, adam, rates, bias)
        to_actor, said = self.gradient(self._actor_loss)(actor, critic, alpha, features, luck.now)
        log_prob, actor_loss = said.unbind()
        actor, of_actor, actor_norm = self._moved(0, actor, to_actor, adam, rates, bias)
        to_heat, heat_loss = self.gradient(self._temperature_loss)(temperature, log_prob)
        temperature, of_heat, heat_norm = self._moved(2, temperature, to_heat, adam, rates, bias)
        errors = aim - values
        terms = [
            *losses.value_loss(values, aim).mean(-1).unbind(),
            actor_loss.mean(),
            heat_loss,
            alpha.squeeze(),
            -log_prob.mean(),
            *values.mean(-1).unbind(),
            aim.mean(),
            errors.abs().mean(),
        ]
        measured = torch.stack([*terms, actor_norm, critic_norm, heat_norm])
        memory = [torch.cat(parts) for parts in zip(of_actor, of_critic, of_heat, strict=True)]
        followed = torch.lerp(target, critic, self.tau)
        return torch.cat([actor, critic, temperature]), Adam(*memory), followed, measured

    def _aim(
        self, actor: Tensor, target: Tensor, alpha: Tensor, batch: Batch, luck: Tensor
    ) -> Tensor:
        """Return what the critics should say, [B], by the targets and the actor as it is."""
        features = self.policy.encoder(batch.next_obs)
        distribution = self._distribution(actor, features)
        value, log_prob = self._judged("expected", target, features, distribution, luck)
        after = losses.soft_value(value, log_prob, alpha)
        return losses.critic_target(batch.reward, batch.discount, after).detach()

    def _critic_loss(
        self, critic: Tensor, features: Tensor, action: Tensor, aim: Tensor
    ) -> tuple[Tensor, Tensor]:
        values = self._judged("taken", critic, features, action)
        return 0.5 * losses.value_loss(values, aim).mean(-1).sum(), values.detach()

    def _actor_loss(
        self, actor: Tensor, critic: Tensor, alpha: Tensor, features: Tensor, luck: Tensor
    ) -> tuple[Tensor, Tensor]:
        distribution = self._distribution(actor, features)
        value, log_prob = self._judged("expected", critic, features, distribution, luck)
        loss = -losses.soft_value(value, log_prob, alpha)
        return loss.mean(), torch.stack([log_prob, loss]).detach()

    def _temperature_loss(self, temperature: Tensor, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        loss = losses.temperature_loss(temperature, log_prob, self.target_entropy).mean()
        return loss, loss.detach()

    def _distribution(self, actor: Tensor, features: Tensor) -> Distribution:
        """Ask the actor with these parameters."""
        parameters = self.flat.unpack_part("policy", actor)
        distribution: Distribution = functional_call(self.policy, parameters, (features,))
        return distribution

    def _judged(self, method: str, critic: Tensor, *given: Any) -> Any:
        """Ask the critics with these parameters."""
        named = self.flat.unpack_part("value", critic)
        parameters = {f"module.{name.removeprefix('critic.')}": p for name, p in named.items()}
        return functional_call(Method(self.policy.critic, method), parameters, given)

    def _moved(
        self,
        number: int,
        parameters: Tensor,
        gradient: Tensor,
        adam: Adam,
        rates: Tensor,
        bias: Tensor,
    ) -> tuple[Tensor, Adam, Tensor]:
        """Take Adam's step with one network; return also the norm its gradient had."""
        norm = torch.linalg.vector_norm(gradient)
        limit = (self.limits[number] / (norm + NO_NORM)).clamp(max=1.0)
        memory = adam.of(self.flat.parts[number])
        after, memory = memory.step(parameters, gradient * limit, rates[number], bias, EPSILON)
        return after, memory, norm
