"""Generalized advantage estimation (Schulman et al., 2016)."""

from __future__ import annotations

import torch
from torch import Tensor


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Return advantages and value targets; every tensor is [T, N].

    `next_values[t]` is the value of what really followed step t: of the final observation where
    the episode ended, else of the next one, also after the last step of the rollout. Termination
    is worth nothing more; truncation and the end of the rollout bootstrap.
    """
    deltas = rewards + gamma * next_values * ~terminated - values
    carries = gamma * lam * (~ended).to(deltas.dtype)
    running = torch.zeros_like(deltas[0])
    advantages = []
    for delta, carry in zip(deltas.flip(0).unbind(), carries.flip(0).unbind(), strict=True):
        running = torch.addcmul(delta, carry, running)
        advantages.append(running)
    stacked = torch.stack(advantages[::-1])
    return stacked, stacked + values
