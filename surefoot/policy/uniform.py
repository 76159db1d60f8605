"""Actions at random, all alike probable: what an off-policy learner begins with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.core.tree import Array, Tree


@dataclass(frozen=True)
class Uniform:
    """An actor that looks at nothing. `whole` says whether actions count options, from `low`."""

    low: Array
    high: Array
    """Itself never taken."""
    whole: bool

    def noise(self, random: np.random.Generator, *axes: int) -> Tree:
        return random.random((*axes, *self.low.shape), np.float32)

    def memory(self, rows: int) -> Tree:
        return {}

    def act(self, obs: Tree, mask: Tree | None, memory: Tree, noise: Tree) -> tuple[Tree, Tree]:
        action = self.low + (self.high - self.low) * noise
        return action.astype(np.int64 if self.whole else np.float32), memory

    def light(self) -> Uniform:
        return self

    def log_prob(self, obs: Tree, action: Tree) -> None:
        return None
