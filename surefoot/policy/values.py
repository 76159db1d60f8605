"""Between what a critic's network gives and values."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEAST = 1e-4
"""Deviation below which values are not spread any more."""


class PlainValues(nn.Module):
    """The network gives values."""

    def forward(self, given: Tensor) -> Tensor:
        return given

    def given(self, values: Tensor) -> Tensor:
        """Turn values into what the network should give for them."""
        return values

    def follow(self, targets: Tensor, head: nn.Linear) -> None:
        """Nothing to follow."""


class PopArt(nn.Module):
    """The network gives values with their mean and deviation taken out, so that it has the same to
    learn however large they are; when those move, its last layer is changed so that all values
    stay as they were (van Hasselt et al., 2016)."""

    figures: Tensor

    def __init__(self, share: float) -> None:
        """`share` is how much of each update's targets replaces what was known."""
        super().__init__()
        self._share = share
        # Mean, mean square and their weight, so that the first updates count in full.
        self.register_buffer("figures", torch.zeros(3, dtype=torch.float64))

    def forward(self, given: Tensor) -> Tensor:
        mean, deviation = self._moments()
        return (given * deviation + mean).to(given.dtype)

    def given(self, values: Tensor) -> Tensor:
        mean, deviation = self._moments()
        return ((values - mean) / deviation).to(values.dtype)

    @torch.no_grad()
    def follow(self, targets: Tensor, head: nn.Linear) -> None:
        """Take new targets into the statistics; keep what the network's values were."""
        mean, deviation = self._moments()
        wide = targets.double()
        new = torch.stack([wide.mean(), wide.square().mean(), torch.ones_like(wide.mean())])
        self.figures += self._share * (new - self.figures)
        new_mean, new_deviation = self._moments()
        head.weight.mul_(deviation / new_deviation)
        head.bias.mul_(deviation).add_(mean - new_mean).div_(new_deviation)

    def _moments(self) -> tuple[float, float]:
        mean, square, weight = self.figures.tolist()
        if not weight:
            return 0.0, 1.0
        mean, square = mean / weight, square / weight
        return mean, max(LEAST, max(0.0, square - mean**2) ** 0.5)
