"""From a policy in torch to the same in numpy, where all its parts are known there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from surefoot.core.repeated import Repeated
from surefoot.core.tree import Array
from surefoot.nets.encoder import Encoder, Flat, OneHot
from surefoot.policy.actor import Choice, Greedy, Sample
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.device import to_array
from surefoot.policy.heads import IMPOSSIBLE, CategoricalHead, GaussianHead, SquashedHead
from surefoot.policy.lean import (
    Affine,
    Choices,
    Elu,
    Function,
    Indicators,
    Joined,
    LeakyRelu,
    Lean,
    Lone,
    Normals,
    Numbers,
    Scaled,
    Squashed,
    floats,
    relu,
    silu,
)
from surefoot.policy.normalizer import CLIP, AsIs, LeafNormalizer, Normalizer
from surefoot.policy.soft import SoftActorCritic


def knows(policy: ActorCritic | SoftActorCritic, choice: Choice) -> bool:
    """Say whether all that acts is of a kind found below; a subclass or hook may do anything."""
    return (
        type(policy) in (ActorCritic, SoftActorCritic)
        and type(policy.normalizer) is Normalizer
        and type(policy.encoder) is Encoder
        and type(policy.head) in HEADS
        and type(policy.head.linear) is nn.Linear
        and type(choice) in GREEDY
        and all(type(part) in SCALES for part in policy.normalizer.parts)
        and all(type(part) in FEATURES for part in policy.encoder.parts)
        and all(type(layer) in LAYERS for layer in layers_of(policy.trunk))
        and all(type(layer) in LAYERS for layer in layers_of(policy.actor))
        and not any(m._forward_hooks or m._forward_pre_hooks for m in policy.modules())
    )


def to_lean(policy: ActorCritic | SoftActorCritic, choice: Choice) -> Lean:
    """Copy the acting half of a policy that `knows` accepts."""
    head = HEADS[type(policy.head)](policy.head)
    layers = [*layers_of(policy.trunk), *layers_of(policy.actor)]
    pairs = zip(policy.normalizer.parts, policy.encoder.parts, strict=True)
    parts = [
        Lone([*SCALES[type(scale)](scale), FEATURES[type(feature)](feature)])
        for scale, feature in pairs
    ]
    return Lean(
        features=parts[0] if len(parts) == 1 else Joined(parts),
        functions=[*(LAYERS[type(layer)](layer) for layer in layers), head.affine],
        head=head,
        greedy=GREEDY[type(choice)],
    )


def layers_of(module: nn.Module) -> list[nn.Module]:
    """List what a network does one after another; a layer that comes twice is listed twice."""
    if type(module) is nn.Sequential:
        return [layer for child in module for layer in layers_of(child)]
    return [] if type(module) is nn.Identity else [module]


def _scaled(part: LeafNormalizer) -> list[Function]:
    mean, deviation = _copy(part.mean), _copy(part.deviation)
    bounds = (np.full(mean.shape, bound) for bound in (-CLIP, CLIP))
    return [Scaled(*map(Repeated, (mean, deviation, *bounds)))]


def _indicators(part: OneHot) -> Indicators:
    choice = np.repeat(np.arange(len(part.bins)), part.bins)
    option = np.concatenate([np.arange(n) for n in part.bins])
    return Indicators(part.flat.axes, part.flat.size, choice, option)


def _affine(layer: nn.Linear) -> Affine:
    bias = np.zeros(layer.out_features, np.float32) if layer.bias is None else _copy(layer.bias)
    return Affine(_copy(layer.weight.T), Repeated(bias))


def _choices(head: CategoricalHead) -> Choices:
    weight, bias = _affine(head.linear).weight, _affine(head.linear).bias.row
    slots = to_array(head.slots)
    padded = Affine(
        np.pad(weight, ((0, 0), (0, 1)))[:, slots.reshape(-1)].copy(),
        Repeated(np.append(bias, np.float32(IMPOSSIBLE))[slots.reshape(-1)]),
    )
    return Choices(padded, slots.shape, head.shape)


def _normals(head: GaussianHead) -> Normals:
    return Normals(_affine(head.linear), Repeated(np.exp(to_array(head.log_std))), head.shape)


def _squashed(head: SquashedHead) -> Squashed:
    return Squashed(_affine(head.linear), _copy(head.center), _copy(head.reach), head.shape)


def _copy(tensor: Tensor) -> Array:
    """Copy to a contiguous array; without a copy the policy's training would go on in it."""
    return to_array(tensor).copy()


SCALES: dict[type, Callable[[Any], list[Function]]] = {
    AsIs: lambda part: [],
    LeafNormalizer: _scaled,
}
FEATURES: dict[type, Callable[[Any], Function]] = {
    Flat: lambda part: floats if part.axes == 1 else Numbers(part.axes, part.size),
    OneHot: _indicators,
}
LAYERS: dict[type, Callable[[Any], Function]] = {
    nn.Linear: _affine,
    nn.Tanh: lambda layer: np.tanh,
    nn.ReLU: lambda layer: relu,
    nn.ELU: lambda layer: Elu(layer.alpha),
    nn.SiLU: lambda layer: silu,
    nn.LeakyReLU: lambda layer: LeakyRelu(layer.negative_slope),
}
"""GELU is not here: it needs the error function, which numpy lacks."""
HEADS: dict[type, Callable[[Any], Choices | Normals | Squashed]] = {
    CategoricalHead: _choices,
    GaussianHead: _normals,
    SquashedHead: _squashed,
}
GREEDY: dict[type, bool] = {Sample: False, Greedy: True}
