"""From a tree of observations to one vector of features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from surefoot.core import tree
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Box, Discrete, MultiDiscrete, Space
from surefoot.core.tree import Tree


class Flat(nn.Module):
    """Numbers as they are, in one vector."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = len(shape)
        self.size = math.prod(shape)

    def forward(self, values: Tensor) -> Tensor:
        return values.float().reshape(*values.shape[: values.ndim - self.axes], self.size)


class OneHot(nn.Module):
    """Choices as indicators: one group of `bins[i]` features per choice."""

    def __init__(self, shape: tuple[int, ...], bins: list[int]) -> None:
        super().__init__()
        self.flat = Flat(shape)
        self.bins = bins
        self.size = sum(bins)

    def forward(self, values: Tensor) -> Tensor:
        choices = self.flat(values).unbind(-1)
        # Not torch's one_hot, which looks at numbers, so that it cannot be compiled. What is no
        # choice at all is refused where environments are read.
        hot = [
            choice.unsqueeze(-1) == torch.arange(count, device=choice.device)
            for choice, count in zip(choices, self.bins, strict=True)
        ]
        return torch.cat(hot, -1).float()


class Encoder(nn.Module):
    """Encode every leaf and join the results; leading axes pass through."""

    def __init__(self, observation: Tree) -> None:
        super().__init__()
        parts = [_part(path, space) for path, space in tree.items(observation)]
        self.parts = nn.ModuleList(parts)
        self.size = sum(part.size for part in parts)

    def forward(self, obs: Tree) -> Tensor:
        features = [part(leaf) for part, leaf in zip(self.parts, tree.leaves(obs), strict=True)]
        return features[0] if len(features) == 1 else torch.cat(features, -1)


def _part(path: str, space: Space) -> Flat | OneHot:
    match space:
        case Box(shape=shape) if len(shape) == 3:
            raise ConfigError(
                f"observation {path or 'space'} {space} looks like an image, which has no encoder "
                f"yet; wrap the environment in gymnasium.wrappers.FlattenObservation"
            )
        case Box(shape=shape):
            return Flat(shape)
        case Discrete(n=n):
            return OneHot((), [n])
        case MultiDiscrete(shape=shape, bins=bins):
            return OneHot(shape, bins.reshape(-1).tolist())
