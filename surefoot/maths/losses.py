"""Terms of PPO and SAC, sample by sample, and weighted means; every tensor is [B]."""

from __future__ import annotations

import torch
from torch import Tensor

NO_DEVIATION = 1e-8
"""Added to a deviation that is divided by."""


def policy_loss(ratio: Tensor, advantage: Tensor, clip_range: Tensor) -> Tensor:
    """Clipped surrogate: -min(ratio · A, clip(ratio, 1 ± clip_range) · A)."""
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    return -torch.minimum(ratio * advantage, clipped * advantage)


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """Squared error (R - V)²."""
    return (target - value).square()


def plain_value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip_range: Tensor
) -> Tensor:
    """Stand in for `clipped_value_loss` where any move is allowed."""
    return value_loss(value, target)


def clipped_value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip_range: Tensor
) -> Tensor:
    """Take the larger of the squared errors with and without the value's move clipped."""
    clipped = old_value + torch.clamp(value - old_value, -clip_range, clip_range)
    return torch.maximum(value_loss(value, target), value_loss(clipped, target))


def kl_k1(log_ratio: Tensor) -> Tensor:
    """Estimate KL(old ‖ new) by -log ratio: unbiased, may be negative."""
    return -log_ratio


def kl_k3(log_ratio: Tensor) -> Tensor:
    """Estimate KL(old ‖ new) by ratio - 1 - log ratio: unbiased, never negative."""
    return torch.expm1(log_ratio) - log_ratio


def clipped(ratio: Tensor, clip_range: Tensor) -> Tensor:
    """Mark the samples whose ratio left the clip range, as 0 and 1."""
    return ((ratio - 1).abs() > clip_range).to(ratio.dtype)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Mean over the samples of weight 1."""
    return (values * weights).sum() / weights.sum()


def normalized(values: Tensor, weights: Tensor) -> Tensor:
    """Shift and scale to mean 0 and sample deviation 1 over the samples of weight 1.

    One sample alone has no deviation and becomes 0.
    """
    centered = (values - weighted_mean(values, weights)) * weights
    variance = centered.square().sum() / (weights.sum() - 1).clamp(min=1)
    return centered / (variance.sqrt() + NO_DEVIATION)


def unchanged(values: Tensor, weights: Tensor) -> Tensor:
    """Stand in for `normalized` where nothing is to be normalized."""
    return values


def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """1 - Var[target - value] / Var[target]: 1 is perfect, 0 no better than the mean."""
    return 1 - (targets - values).var(correction=0) / targets.var(correction=0)


def soft_value(value: Tensor, log_prob: Tensor, temperature: Tensor) -> Tensor:
    """What a policy is worth where its entropy counts: Q - alpha · log pi."""
    return value - temperature * log_prob


def critic_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """r + discount · soft value of what follows; a discount of 0 is a task that ended."""
    return reward + discount * next_value


def temperature_loss(log_temperature: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """-log alpha · (log pi + target): it rises while there is less entropy than aimed at."""
    return -log_temperature * (log_prob.detach() + target_entropy)
