"""Running normalization of observations; its statistics are buffers of the policy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.core import tree
from surefoot.core.spec import Box, Space
from surefoot.core.tree import Tree
from surefoot.maths import moments
from surefoot.maths.moments import Moments

CLIP = 10.0
"""Normalized observations are kept within this many deviations."""


class LeafNormalizer(nn.Module):
    """Mean and deviation of one array of numbers, in double precision."""

    total: Tensor
    mean: Tensor
    squares: Tensor
    deviation: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        for name, value in moments.empty(*shape)._asdict().items():
            self.register_buffer(name, value)
        self.register_buffer("deviation", torch.ones(shape, dtype=torch.float64))

    @property
    def primed(self) -> bool:
        return bool(self.total > 0)

    def forward(self, values: Tensor) -> Tensor:
        return ((values.double() - self.mean) / self.deviation).clamp(-CLIP, CLIP).float()

    def absorb(self, values: Tensor) -> None:
        merged = moments.absorb(Moments(self.total, self.mean, self.squares), values)
        self.total.copy_(merged.total)
        self.mean.copy_(merged.mean)
        self.squares.copy_(merged.squares)
        self.deviation.copy_(moments.deviation(merged))


class AsIs(nn.Module):
    """Leave a leaf alone: choices, and everything when normalization is off."""

    primed = True

    def forward(self, values: Tensor) -> Tensor:
        return values

    def absorb(self, values: Tensor) -> None:
        """Nothing to learn."""


class Normalizer(nn.Module):
    """Normalize the numeric leaves of a tree of observations."""

    def __init__(self, observation: Tree, enabled: bool) -> None:
        super().__init__()
        spaces = tree.leaves(observation)
        self.parts = nn.ModuleList(_part(space) if enabled else AsIs() for space in spaces)

    @property
    def primed(self) -> bool:
        """Say whether every part that keeps statistics has some."""
        return all(bool(part.primed) for part in self.parts)

    def forward(self, obs: Tree) -> Tree:
        scaled = (part(leaf) for part, leaf in zip(self.parts, tree.leaves(obs), strict=True))
        return tree.map(lambda _: next(scaled), obs)

    def absorb(self, obs: Tree) -> None:
        """Take [M, …] observations into the statistics."""
        for part, leaf in zip(self.parts, tree.leaves(obs), strict=True):
            part.absorb(leaf)  # type: ignore[operator]


def _part(space: Space) -> LeafNormalizer | AsIs:
    return LeafNormalizer(space.shape) if isinstance(space, Box) else AsIs()
