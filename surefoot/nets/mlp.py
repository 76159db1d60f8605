"""Fully connected layers with orthogonal weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
}


def linear(inputs: int, outputs: int, gain: float, random: torch.Generator) -> nn.Linear:
    """Make a linear layer with orthogonal weights and zero bias, without the global generator."""
    with torch.random.fork_rng(devices=()):  # weights that are overwritten below
        layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=random)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(
    inputs: int, hidden: Sequence[int], activation: str, random: torch.Generator
) -> nn.Sequential:
    """Stack hidden layers, each followed by the activation; no layer at all is the identity."""
    layers: list[nn.Module] = []
    for size_in, size_out in zip([inputs, *hidden], hidden, strict=False):
        layers += [linear(size_in, size_out, math.sqrt(2), random), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers)
