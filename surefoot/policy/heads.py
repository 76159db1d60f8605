"""The last layer of an actor: from features to a distribution over one kind of action."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.core.spec import Box
from surefoot.core.tree import Array
from surefoot.nets.mlp import linear
from surefoot.policy.distributions import Categorical, Gaussian, SquashedGaussian
from surefoot.policy.lean import LOG_STD_LEAST, LOG_STD_MOST
from surefoot.policy.noise import gumbel, normal

IMPOSSIBLE = -1e9
"""Logit of an option that does not exist: probability 0, and finite in every product."""


class CategoricalHead(nn.Module):
    """One or several independent choices, each with its own number of options."""

    slots: Tensor

    def __init__(
        self, features: int, bins: list[int], shape: tuple[int, ...], random: torch.Generator
    ) -> None:
        super().__init__()
        self.bins, self.shape = bins, shape
        self.linear = linear(features, sum(bins), 0.01, random)
        # Column `sum(bins)` stands for options that do not exist where choices differ in number.
        slots = torch.full((len(bins), max(bins)), sum(bins))
        for row, (n, end) in enumerate(zip(bins, np.cumsum(bins).tolist(), strict=True)):
            slots[row, :n] = torch.arange(end - n, end)
        self.register_buffer("slots", slots, persistent=False)

    def forward(self, features: Tensor) -> Categorical:
        logits = self.linear(features)
        if len(self.bins) == 1:
            padded = logits.unsqueeze(-2)
        else:
            padded = nn.functional.pad(logits, (0, 1), value=IMPOSSIBLE)[..., self.slots]
        return Categorical(padded.log_softmax(-1), self.shape)

    def noise(self, random: np.random.Generator, *axes: int) -> Array:
        return gumbel(random, *axes, *self.slots.shape)


class GaussianHead(nn.Module):
    """Numbers with a standard deviation that is learned and the same in every state."""

    def __init__(
        self, features: int, shape: tuple[int, ...], log_std: float, random: torch.Generator
    ) -> None:
        super().__init__()
        self.shape = shape
        self.linear = linear(features, math.prod(shape), 0.01, random)
        self.log_std = nn.Parameter(torch.full((math.prod(shape),), log_std))

    def forward(self, features: Tensor) -> Gaussian:
        return Gaussian(self.linear(features), self.log_std, self.shape)

    def noise(self, random: np.random.Generator, *axes: int) -> Array:
        return normal(random, *axes, *self.log_std.shape)


class SquashedHead(nn.Module):
    """Numbers within bounds, with a standard deviation that depends on what is seen."""

    center: Tensor
    reach: Tensor

    def __init__(self, features: int, space: Box, log_std: float, random: torch.Generator) -> None:
        super().__init__()
        self.shape = space.shape
        self.linear = linear(features, 2 * space.size, 0.01, random)
        nn.init.constant_(self.linear.bias[space.size :], log_std)
        low, high = (torch.as_tensor(b, dtype=torch.float32).reshape(-1) for b in bounds(space))
        self.register_buffer("center", (low + high) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)

    def forward(self, features: Tensor) -> SquashedGaussian:
        mean, log_std = self.linear(features).chunk(2, -1)
        log_std = log_std.clamp(LOG_STD_LEAST, LOG_STD_MOST)
        return SquashedGaussian(mean, log_std, self.center, self.reach, self.shape)

    def noise(self, random: np.random.Generator, *axes: int) -> Array:
        return normal(random, *axes, *self.center.shape)


def bounds(space: Box) -> tuple[Array, Array]:
    """Return where numbers may be; a number that may not move is left some room."""
    fixed = space.high <= space.low
    return space.low - fixed, space.high + fixed
