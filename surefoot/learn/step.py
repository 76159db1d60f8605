"""One optimizer step of PPO as a function of tensors alone, so that it can be compiled whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from surefoot.learn.experience import Minibatch, Samples
from surefoot.learn.optimizer import Adam, Flat
from surefoot.maths import losses
from surefoot.policy.actor_critic import ActorCritic

OBJECTIVE = ("policy_loss", "value_loss", "entropy")
WATCHED = ("approx_kl", "approx_kl_k1", "clip_fraction", "ratio")
TERMS = (*OBJECTIVE, *WATCHED)
"""What a step measures per sample, in the order of its result."""
NORMS = ("policy", "value")
"""Gradient norms that a step measures, after the terms."""
NO_NORM = 1e-6
"""Added to a norm that is divided by."""
ValueLoss: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From values, values before the update, targets and the clip range to losses, [B] each."""


class Knobs(NamedTuple):
    """The scheduled settings of one update."""

    clip_range: Tensor
    entropy_coefficient: Tensor
    value_clip_range: Tensor
    """Infinite where values are not clipped."""
    rates: Tensor
    """Of each network."""


class Step(Protocol):
    """An optimizer step, however it is run."""

    @property
    def how(self) -> str:
        """Who computes it: numpy, torch, or what torch compiled; empty until that shows."""

    @property
    def compile_seconds(self) -> float:
        """How long compiling took, if that has happened."""

    def __call__(
        self, vector: Tensor, adam: Adam, minibatch: Minibatch, knobs: Knobs, bias: Tensor, /
    ) -> tuple[Tensor, Adam, Tensor]:
        """Return the parameters and Adam's memory that follow on a minibatch, and what was
        measured: the number of samples, TERMS, NORMS. What it is given stays as it is."""


@dataclass(frozen=True)
class MinibatchStep:
    """What never changes in a run, and the step."""

    policy: ActorCritic
    flat: Flat
    normalize: Callable[[Tensor, Tensor], Tensor]
    """What to do to the advantages of a minibatch, given its weights."""
    value_loss: ValueLoss
    value_coefficient: float
    max_grad_norm: float
    together: bool
    """Whether one learning rate serves all networks, and one norm limits their gradients; or each
    has its own."""
    microbatch_size: int
    gradient: Callable[..., Callable[..., tuple[Tensor, Tensor]]]
    """Turns a function of a vector into one that returns its gradient and what else it gives."""
    how: ClassVar[str] = "torch"
    compile_seconds: ClassVar[float] = 0.0

    def __call__(
        self, vector: Tensor, adam: Adam, minibatch: Minibatch, knobs: Knobs, bias: Tensor
    ) -> tuple[Tensor, Adam, Tensor]:
        batch = minibatch.samples()
        total = batch.weight.sum()
        batch = batch._replace(
            advantage=self.normalize(batch.advantage, batch.weight), weight=batch.weight / total
        )
        gradient, terms = self._gradient(vector, batch, knobs)
        norms = self.flat.norms(gradient)
        rate = knobs.rates[0] if self.together else self.flat.spread(knobs.rates)
        vector, adam = adam.step(vector, gradient * self._limit(norms), rate, bias)
        return vector, adam, torch.cat([total.reshape(1), terms, norms])

    def terms(self, vector: Tensor, batch: Samples, knobs: Knobs) -> tuple[Tensor, Tensor]:
        """Return each sample's terms, [terms, B]: of the objective, and those only watched."""
        parameters = self.flat.unpack(vector)
        distribution, value = torch.func.functional_call(self.policy, parameters, (batch.obs,))
        log_ratio = distribution.log_prob(batch.action) - batch.log_prob
        ratio = log_ratio.exp()
        objective = [
            losses.policy_loss(ratio, batch.advantage, knobs.clip_range),
            self.value_loss(value, batch.value, batch.target, knobs.value_clip_range),
            distribution.entropy(),
        ]
        seen, log_seen = ratio.detach(), log_ratio.detach()
        watched = [
            losses.kl_k3(log_seen),
            losses.kl_k1(log_seen),
            losses.clipped(seen, knobs.clip_range),
            seen,
        ]
        return torch.stack(objective), torch.stack(watched)

    def _gradient(self, vector: Tensor, batch: Samples, knobs: Knobs) -> tuple[Tensor, Tensor]:
        """Return the gradient of the loss and the mean terms of a minibatch, part by part."""
        differentiate = self.gradient(self._loss)
        starts = range(0, batch.size, self.microbatch_size)
        parts = [slice(start, start + self.microbatch_size) for start in starts]
        gradient, terms = differentiate(vector, batch.at(parts[0]), knobs)
        for part in parts[1:]:
            more = differentiate(vector, batch.at(part), knobs)
            gradient, terms = gradient + more[0], terms + more[1]
        return gradient, terms

    def _loss(self, vector: Tensor, batch: Samples, knobs: Knobs) -> tuple[Tensor, Tensor]:
        objective, watched = self.terms(vector, batch, knobs)
        measured = objective @ batch.weight
        policy_loss, value_loss, entropy = measured.unbind()
        loss = (
            policy_loss + self.value_coefficient * value_loss - knobs.entropy_coefficient * entropy
        )
        return loss, torch.cat([measured.detach(), watched @ batch.weight])

    def _limit(self, norms: Tensor) -> Tensor | float:
        """Return what to multiply the gradient of each parameter by."""
        if math.isinf(self.max_grad_norm):
            return 1.0
        whole = torch.linalg.vector_norm(norms) if self.together else norms
        shares = (self.max_grad_norm / (whole + NO_NORM)).clamp(max=1.0)
        return shares if self.together else self.flat.spread(shares)
