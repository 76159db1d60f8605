"""Running mean and variance that stay exact however the data arrives (Chan et al., 1979)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """How many samples, their mean, and the sum of squared deviations from it; float64."""

    total: Tensor
    mean: Tensor
    squares: Tensor


def empty(*shape: int) -> Moments:
    """Moments of no samples yet."""
    zeros = [torch.zeros(axes, dtype=torch.float64) for axes in ((), shape, shape)]
    return Moments(*zeros)


def absorb(moments: Moments, samples: Tensor) -> Moments:
    """Merge in [M, …] samples."""
    if len(samples) == 0:
        return moments
    samples = samples.double()
    mean = samples.mean(0)
    squares = (samples - mean).square().sum(0)
    total = moments.total + len(samples)
    delta = mean - moments.mean
    return Moments(
        total,
        moments.mean + delta * (len(samples) / total),
        moments.squares + squares + delta.square() * (moments.total * len(samples) / total),
    )


def deviation(moments: Moments, epsilon: float = 1e-8) -> Tensor:
    """Standard deviation, kept off 0; 1 before there are samples."""
    variance = moments.squares / moments.total.clamp(min=1)
    return torch.where(moments.total > 0, (variance + epsilon).sqrt(), 1.0)
