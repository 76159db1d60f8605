"""Acting in numpy: a plain policy as a chain of array functions, which for few rows takes a
fraction of the time that torch modules take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor, nn

from surefoot.core import tree
from surefoot.core.rollout import Rollout
from surefoot.core.tree import Array, Tree
from surefoot.nets.encoder import Encoder, Flat, OneHot
from surefoot.policy.actor import Choice, Greedy, PolicyActor, Sample
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.device import to_array
from surefoot.policy.heads import IMPOSSIBLE, CategoricalHead, GaussianHead
from surefoot.policy.normalizer import CLIP, AsIs, LeafNormalizer, Normalizer

Function: TypeAlias = Callable[[Array], Array]
"""From […, *shape] to […, *shape]; it leaves its argument as it is."""


class LeanActor:
    """A copy of the acting half of a policy that `knows` accepts, and a way to choose."""

    def __init__(self, policy: ActorCritic, choice: Choice) -> None:
        self._torch = PolicyActor(policy, choice)
        self._scales = [SCALES[type(part)](part) for part in policy.normalizer.parts]
        self._features = [FEATURES[type(part)](part) for part in policy.encoder.parts]
        head = HEADS[type(policy.head)](policy.head)
        layers = [*_layers(policy.trunk), *_layers(policy.actor)]
        functions = [LAYERS[type(layer)](layer) for layer in layers]
        self._functions: list[Function] = [*functions, head.affine]
        self._take = TAKES[type(choice)](head)

    def noise(self, random: np.random.Generator, *axes: int) -> Tree:
        return self._torch.noise(random, *axes)

    def memory(self, rows: int) -> Tree:
        return self._torch.memory(rows)

    # As silent as torch: the update says which number is not finite, and what to do.
    @np.errstate(over="ignore", invalid="ignore")
    def act(self, obs: Tree, mask: Tree | None, memory: Tree, noise: Tree) -> tuple[Tree, Tree]:
        parts = zip(self._features, self._scales, tree.leaves(obs), strict=True)
        features = [feature(scale(leaf)) for feature, scale, leaf in parts]
        values = features[0] if len(features) == 1 else np.concatenate(features, -1)
        for function in self._functions:
            values = function(values)
        return self._take(values, noise), memory

    def log_prob(self, rollout: Rollout) -> Array:
        return self._torch.log_prob(rollout)


def knows(policy: ActorCritic, choice: Choice) -> bool:
    """Say whether all that acts is of a kind found below; a subclass or hook may do anything."""
    return (
        type(policy) is ActorCritic
        and type(policy.normalizer) is Normalizer
        and type(policy.encoder) is Encoder
        and type(policy.head) in HEADS
        and type(policy.head.linear) is nn.Linear
        and type(choice) in TAKES
        and all(type(part) in SCALES for part in policy.normalizer.parts)
        and all(type(part) in FEATURES for part in policy.encoder.parts)
        and all(type(layer) in LAYERS for layer in _layers(policy.trunk))
        and all(type(layer) in LAYERS for layer in _layers(policy.actor))
        and not any(m._forward_hooks or m._forward_pre_hooks for m in policy.modules())
    )


@dataclass(frozen=True)
class Scaled:
    """A LeafNormalizer: in double precision, as there."""

    mean: Array
    deviation: Array

    def __call__(self, values: Array) -> Array:
        scaled = values - self.mean
        scaled /= self.deviation
        np.maximum(scaled, -CLIP, out=scaled)
        np.minimum(scaled, CLIP, out=scaled)
        return scaled.astype(np.float32)


@dataclass(frozen=True)
class Numbers:
    """A Flat."""

    axes: int
    size: int

    def __call__(self, values: Array) -> Array:
        flat = values.reshape(*values.shape[: values.ndim - self.axes], self.size)
        return flat.astype(np.float32, copy=False)


@dataclass(frozen=True)
class Indicators:
    """A OneHot: feature i says whether choice `choice[i]` is option `option[i]`."""

    axes: int
    size: int
    choice: Array
    option: Array

    def __call__(self, values: Array) -> Array:
        flat = values.reshape(*values.shape[: values.ndim - self.axes], self.size)
        hot: Array = flat.take(self.choice, -1) == self.option
        return hot.astype(np.float32)


@dataclass(frozen=True)
class Affine:
    """A linear layer."""

    weight: Array
    """[inputs, outputs]"""
    bias: Array

    def __call__(self, values: Array) -> Array:
        result: Array = values @ self.weight
        result += self.bias
        return result


@dataclass(frozen=True)
class Elu:
    alpha: float

    def __call__(self, values: Array) -> Array:
        # Not expm1, which numpy does number by number: this is as exact, measured against 1.
        below = np.exp(np.minimum(values, 0)) - 1
        return _relu(values) + self.alpha * below


@dataclass(frozen=True)
class LeakyRelu:
    slope: float

    def __call__(self, values: Array) -> Array:
        return _relu(values) + self.slope * np.minimum(values, 0)


@dataclass(frozen=True)
class Choices:
    """A CategoricalHead whose last layer has a column for every slot."""

    affine: Affine
    axes: tuple[int, ...]
    """Choices and the most options that one of them has."""
    shape: tuple[int, ...]

    def sample(self, values: Array, noise: Array) -> Array:
        """Gumbel-max, which logits need not be normalized for."""
        return self._best(self._logits(values) + noise)

    def mode(self, values: Array, noise: Tree) -> Array:
        return self._best(self._logits(values))

    def _logits(self, values: Array) -> Array:
        return values.reshape(*values.shape[:-1], *self.axes)

    def _best(self, scores: Array) -> Array:
        best: Array = scores.argmax(-1)
        return best.reshape(*scores.shape[:-2], *self.shape)


@dataclass(frozen=True)
class Normals:
    """A GaussianHead."""

    affine: Affine
    deviation: Array
    shape: tuple[int, ...]

    def sample(self, values: Array, noise: Array) -> Array:
        return self.mode(values + self.deviation * noise, noise)

    def mode(self, values: Array, noise: Tree) -> Array:
        return values.reshape(*values.shape[:-1], *self.shape)


def _layers(module: nn.Module) -> list[nn.Module]:
    """List what a network does one after another; a layer that comes twice is listed twice."""
    if type(module) is nn.Sequential:
        return [layer for child in module for layer in _layers(child)]
    return [] if type(module) is nn.Identity else [module]


def _scaled(part: LeafNormalizer) -> Scaled:
    return Scaled(_copy(part.mean), _copy(part.deviation))


def _indicators(part: OneHot) -> Indicators:
    choice = np.repeat(np.arange(len(part.bins)), part.bins)
    option = np.concatenate([np.arange(n) for n in part.bins])
    return Indicators(part.flat.axes, part.flat.size, choice, option)


def _affine(layer: nn.Linear) -> Affine:
    bias = np.zeros(layer.out_features, np.float32) if layer.bias is None else _copy(layer.bias)
    return Affine(_copy(layer.weight.T), bias)


def _choices(head: CategoricalHead) -> Choices:
    weight, bias = _affine(head.linear).weight, _affine(head.linear).bias
    slots = to_array(head.slots)
    padded = Affine(
        np.pad(weight, ((0, 0), (0, 1)))[:, slots.reshape(-1)].copy(),
        np.append(bias, np.float32(IMPOSSIBLE))[slots.reshape(-1)],
    )
    return Choices(padded, slots.shape, head.shape)


def _normals(head: GaussianHead) -> Normals:
    return Normals(_affine(head.linear), np.exp(to_array(head.log_std)), head.shape)


def _copy(tensor: Tensor) -> Array:
    """Copy to a contiguous array; without a copy the policy's training would go on in it."""
    return to_array(tensor).copy()


def _as_is(values: Array) -> Array:
    return values


def _relu(values: Array) -> Array:
    return np.maximum(values, 0)


def _silu(values: Array) -> Array:
    result: Array = values / (1 + np.exp(-values))
    return result


SCALES: dict[type, Callable[[Any], Function]] = {
    AsIs: lambda part: _as_is,
    LeafNormalizer: _scaled,
}
FEATURES: dict[type, Callable[[Any], Function]] = {
    Flat: lambda part: Numbers(part.axes, part.size),
    OneHot: _indicators,
}
LAYERS: dict[type, Callable[[Any], Function]] = {
    nn.Linear: _affine,
    nn.Tanh: lambda layer: np.tanh,
    nn.ReLU: lambda layer: _relu,
    nn.ELU: lambda layer: Elu(layer.alpha),
    nn.SiLU: lambda layer: _silu,
    nn.LeakyReLU: lambda layer: LeakyRelu(layer.negative_slope),
}
"""GELU is not here: it needs the error function, which numpy lacks."""
HEADS: dict[type, Callable[[Any], Choices | Normals]] = {
    CategoricalHead: _choices,
    GaussianHead: _normals,
}
TAKES: dict[type, Callable[[Choices | Normals], Callable[[Array, Tree], Array]]] = {
    Sample: lambda head: head.sample,
    Greedy: lambda head: head.mode,
}
