"""Distributions over actions in closed form. Sampling turns noise into actions, so that the
caller owns the randomness. Leading axes are free, written … below."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from surefoot.policy.lean import SQUASHED_MOST

LEAST = -1e8
"""An option whose logits are below that does not exist."""
NODES = 16
"""Of the quadrature that finds the entropy of a squashed variable."""


class Distribution(Protocol):
    def sample(self, noise: Tensor) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor: ...

    def chances(self) -> Tensor:
        """Return how probable the options of all choices are, […, options]; none of numbers."""


class Categorical(NamedTuple):
    """D independent choices; a choice with fewer options than others has very low logits there."""

    logits: Tensor
    """[…, D, options]: normalized log-probabilities."""
    shape: tuple[int, ...]
    """Axes of one action, D numbers in all; empty for a single choice."""

    def sample(self, noise: Tensor) -> Tensor:
        """Gumbel-max: standard Gumbel noise makes the argmax a sample."""
        return self._shaped((self.logits + noise).argmax(-1))

    def mode(self) -> Tensor:
        return self._shaped(self.logits.argmax(-1))

    def log_prob(self, action: Tensor) -> Tensor:
        choices = action.reshape(*self.logits.shape[:-1], 1)
        return self.logits.gather(-1, choices).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        return -(self.logits.exp() * self.logits).sum((-1, -2))

    def chances(self) -> Tensor:
        logits = self.logits.flatten(-2)
        return logits[..., (logits > LEAST).flatten(0, -2).any(0)].exp()

    def _shaped(self, choices: Tensor) -> Tensor:
        return choices.reshape(*choices.shape[:-1], *self.shape)


class Gaussian(NamedTuple):
    """D independent normal variables."""

    mean: Tensor
    """[…, D]"""
    log_std: Tensor
    """[D] or […, D]"""
    shape: tuple[int, ...]
    """Axes of one action, D numbers in all."""

    def sample(self, noise: Tensor) -> Tensor:
        return self._shaped(self.mean + self.log_std.exp() * noise)

    def mode(self) -> Tensor:
        return self._shaped(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        scaled = (action.reshape(self.mean.shape) - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * (scaled.square() + math.log(2 * math.pi)) - self.log_std).sum(-1)

    def entropy(self) -> Tensor:
        spread = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        return spread.expand(self.mean.shape[:-1])

    def chances(self) -> Tensor:
        return self.mean[..., :0]

    def _shaped(self, action: Tensor) -> Tensor:
        return action.reshape(*action.shape[:-1], *self.shape)


class SquashedGaussian(NamedTuple):
    """D independent normal variables, each drawn together by tanh into its bounds.

    Probabilities are densities of the numbers between -1 and 1 that tanh gives.
    """

    mean: Tensor
    """[…, D]"""
    log_std: Tensor
    """[…, D]"""
    center: Tensor
    """[D]: the middle between the bounds."""
    reach: Tensor
    """[D]: how far bounds are from it."""
    shape: tuple[int, ...]
    """Axes of one action, D numbers in all."""

    def draw(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples between -1 and 1, […, D], and their log-probabilities."""
        wide = self.mean + self.log_std.exp() * noise
        constant = 0.5 * math.log(2 * math.pi)
        log_prob = -0.5 * noise.square() - constant - self.log_std - log_slope(wide)
        return torch.tanh(wide), log_prob.sum(-1)

    def sample(self, noise: Tensor) -> Tensor:
        return self._bounded(self.mean + self.log_std.exp() * noise)

    def mode(self) -> Tensor:
        return self._bounded(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        wide = torch.atanh(self.unit(action).clamp(-SQUASHED_MOST, SQUASHED_MOST))
        noise = (wide - self.mean) * torch.exp(-self.log_std)
        return self.draw(noise)[1]

    def entropy(self) -> Tensor:
        """That of the normal variables, and what the slope of tanh takes away on average."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        at, weight = (
            torch.as_tensor(x, dtype=self.mean.dtype, device=self.mean.device)
            for x in (nodes, weights / weights.sum())
        )
        wide = self.mean[..., None] + self.log_std.exp()[..., None] * at
        spread = self.log_std + 0.5 * math.log(2 * math.pi * math.e)
        return (spread + (log_slope(wide) * weight).sum(-1)).sum(-1)

    def chances(self) -> Tensor:
        return self.mean[..., :0]

    def unit(self, action: Tensor) -> Tensor:
        """See actions […, *shape] as numbers between -1 and 1, […, D]."""
        return (action.reshape(self.mean.shape) - self.center) / self.reach

    def _bounded(self, wide: Tensor) -> Tensor:
        action = self.center + self.reach * torch.tanh(wide)
        return action.reshape(*action.shape[:-1], *self.shape)


def log_slope(wide: Tensor) -> Tensor:
    """Logarithm of the derivative of tanh, exact where tanh itself is 1."""
    return 2 * (math.log(2) - wide - functional.softplus(-2 * wide))
