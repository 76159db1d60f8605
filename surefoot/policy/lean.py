"""Acting in numpy: a plain policy as a chain of array functions, which for few rows takes a
fraction of the time that torch modules take, and needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from surefoot.core import tree
from surefoot.core.repeated import Repeated
from surefoot.core.rollout import choices
from surefoot.core.tree import Array, Tree
from surefoot.policy.noise import gumbel, normal

Function: TypeAlias = Callable[[Array], Array]
"""From [B, *shape] to [B, *shape]; it leaves its argument as it is."""


LOG_STD_LEAST, LOG_STD_MOST = -20.0, 2.0
"""Where a deviation that depends on what is seen is kept."""
SQUASHED_MOST = 1 - 1e-6
"""How near a squashed number comes to its bounds before it is taken for one nearer to 0."""


@dataclass(frozen=True)
class Lean:
    """An actor: everything between an observation and an action."""

    features: Lone | Joined
    functions: Sequence[Function]
    """Applied to the features, one after another."""
    head: Choices | Normals | Squashed
    greedy: bool
    """Whether to take the most probable action, rather than one by chance."""

    def noise(self, random: np.random.Generator, *axes: int) -> Tree:
        return {} if self.greedy else self.head.noise(random, *axes)

    def memory(self, rows: int) -> Tree:
        return {}

    # As silent as torch: the update says which number is not finite, and what to do.
    @np.errstate(over="ignore", invalid="ignore")
    def act(self, obs: Tree, mask: Tree | None, memory: Tree, noise: Tree) -> tuple[Tree, Tree]:
        values = self._values(obs)
        chosen = self.head.mode(values) if self.greedy else self.head.sample(values, noise)
        return chosen, memory

    def light(self) -> Lean:
        return self

    @np.errstate(over="ignore", invalid="ignore")
    def log_prob(self, obs: Tree, action: Tree) -> Array:
        """Compute all log-probabilities in large batches."""
        pairs = choices(obs, action)
        parts = [self.head.log_prob(self._values(seen), taken) for seen, taken in pairs]
        return np.concatenate(parts).reshape(tree.leaves(action)[0].shape[:2])

    def _values(self, obs: Tree) -> Array:
        """Compute what the head makes a distribution of."""
        return _through(self.functions, self.features(obs))


@dataclass(frozen=True)
class Lone:
    """The features of an observation that is one array."""

    functions: Sequence[Function]
    """Applied one after another."""

    def __call__(self, obs: Tree) -> Array:
        (values,) = tree.leaves(obs)
        return _through(self.functions, values)


@dataclass(frozen=True)
class Joined:
    """The features of all arrays of an observation, side by side."""

    parts: Sequence[Lone]

    def __call__(self, obs: Tree) -> Array:
        pairs = zip(self.parts, tree.leaves(obs), strict=True)
        return np.concatenate([part(leaf) for part, leaf in pairs], -1)


@dataclass(frozen=True)
class Scaled:
    """A LeafNormalizer: in double precision, as there."""

    mean: Repeated
    deviation: Repeated
    least: Repeated
    most: Repeated

    def __call__(self, values: Array) -> Array:
        scaled, count = values.astype(np.float64), len(values)
        scaled -= self.mean.of(count)
        scaled /= self.deviation.of(count)
        np.maximum(scaled, self.least.of(count), out=scaled)
        np.minimum(scaled, self.most.of(count), out=scaled)
        return scaled.astype(np.float32)


@dataclass(frozen=True)
class Numbers:
    """A Flat."""

    axes: int
    size: int

    def __call__(self, values: Array) -> Array:
        flat = values.reshape(*values.shape[: values.ndim - self.axes], self.size)
        return flat.astype(np.float32, copy=False)


def floats(values: Array) -> Array:
    """A Flat of what is flat already."""
    return values.astype(np.float32, copy=False)


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
    bias: Repeated

    def __call__(self, values: Array) -> Array:
        result: Array = values.dot(self.weight)  # [B, inputs]: quicker than @ for few
        result += self.bias.of(len(result))
        return result


@dataclass(frozen=True)
class Elu:
    alpha: float

    def __call__(self, values: Array) -> Array:
        # Not expm1, which numpy does number by number: this is as exact, measured against 1.
        below = np.exp(np.minimum(values, 0)) - 1
        return relu(values) + self.alpha * below


@dataclass(frozen=True)
class LeakyRelu:
    slope: float

    def __call__(self, values: Array) -> Array:
        return relu(values) + self.slope * np.minimum(values, 0)


@dataclass(frozen=True)
class Choices:
    """A CategoricalHead whose last layer has a column for every slot."""

    affine: Affine
    axes: tuple[int, ...]
    """Choices and the most options that one of them has."""
    shape: tuple[int, ...]

    def noise(self, random: np.random.Generator, *axes: int) -> Array:
        return gumbel(random, *axes, *self.axes)

    def sample(self, values: Array, noise: Array) -> Array:
        """Gumbel-max, which logits need not be normalized for."""
        return self._best(self._logits(values) + noise)

    def mode(self, values: Array) -> Array:
        return self._best(self._logits(values))

    def log_prob(self, values: Array, action: Array) -> Array:
        logits = self._logits(values)
        logits = logits - logits.max(-1, keepdims=True)
        taken = np.take_along_axis(logits, action.reshape(*logits.shape[:-1], 1), -1)[..., 0]
        result: Array = (taken - np.log(np.exp(logits).sum(-1))).sum(-1)
        return result

    def _logits(self, values: Array) -> Array:
        return values.reshape(*values.shape[:-1], *self.axes)

    def _best(self, scores: Array) -> Array:
        best: Array = scores.argmax(-1)
        return best.reshape(*scores.shape[:-2], *self.shape)


@dataclass(frozen=True)
class Normals:
    """A GaussianHead."""

    affine: Affine
    deviation: Repeated
    shape: tuple[int, ...]

    def noise(self, random: np.random.Generator, *axes: int) -> Array:
        return normal(random, *axes, *self.deviation.row.shape)

    def sample(self, values: Array, noise: Array) -> Array:
        return self.mode(values + self.deviation.of(len(values)) * noise)

    def mode(self, values: Array) -> Array:
        flat = len(self.shape) == 1
        return values if flat else values.reshape(*values.shape[:-1], *self.shape)

    def log_prob(self, values: Array, action: Array) -> Array:
        deviation = self.deviation.row
        scaled = (action.reshape(values.shape) - values) / deviation
        constant = np.log(deviation) + np.float32(0.5 * math.log(2 * math.pi))
        result: Array = -0.5 * (scaled * scaled).sum(-1) - constant.sum()
        return result


@dataclass(frozen=True)
class Squashed:
    """A SquashedHead."""

    affine: Affine
    center: Array
    reach: Array
    shape: tuple[int, ...]

    def noise(self, random: np.random.Generator, *axes: int) -> Array:
        return normal(random, *axes, *self.center.shape)

    def sample(self, values: Array, noise: Array) -> Array:
        mean, log_std = self._split(values)
        return self._bounded(mean + np.exp(log_std) * noise)

    def mode(self, values: Array) -> Array:
        return self._bounded(self._split(values)[0])

    def log_prob(self, values: Array, action: Array) -> Array:
        mean, log_std = self._split(values)
        unit = (action.reshape(mean.shape) - self.center) / self.reach
        most = np.float32(SQUASHED_MOST)
        wide = np.arctanh(np.clip(unit, -most, most))
        scaled = (wide - mean) * np.exp(-log_std)
        slope = 2 * (np.float32(math.log(2)) - wide - np.logaddexp(np.float32(0), -2 * wide))
        constant = np.float32(0.5 * math.log(2 * math.pi))
        result: Array = (-0.5 * scaled * scaled - constant - log_std - slope).sum(-1)
        return result

    def _split(self, values: Array) -> tuple[Array, Array]:
        size = len(self.center)
        return values[..., :size], np.clip(values[..., size:], LOG_STD_LEAST, LOG_STD_MOST)

    def _bounded(self, wide: Array) -> Array:
        action: Array = self.center + self.reach * np.tanh(wide)
        return action.reshape(*action.shape[:-1], *self.shape)


def _through(functions: Sequence[Function], values: Array) -> Array:
    for function in functions:
        values = function(values)
    return values


def relu(values: Array) -> Array:
    return np.maximum(values, 0)


def silu(values: Array) -> Array:
    result: Array = values / (1 + np.exp(-values))
    return result
