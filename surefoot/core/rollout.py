"""What a collector hands to a learner: facts, with the time axis intact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surefoot.core import tree
from surefoot.core.metrics import Metrics
from surefoot.core.tree import Array, Tree

NOT_KEPT = ("episodes", "metrics", "seconds")
"""What was reported when a rollout was new, and is not needed to use it again."""

CHUNK = 4096
"""Samples per batched pass over a rollout: so few that what layers return stays in a cache."""


@dataclass(frozen=True)
class Episode:
    """One whole episode of one row, in raw rewards."""

    row: int
    number: int
    total: float
    """The episode's return: the sum of its rewards."""
    length: int
    terminated: bool
    success: float | None
    """What the environment reported as `is_success` at the end, if it did."""

    @property
    def lta(self) -> float:
        """The long-term average: what a step gave."""
        return self.total / self.length


@dataclass(frozen=True)
class Rollout:
    """T steps of N rows. A valid step is followed by a valid step of its episode, or is ended,
    or is the last; so whoever works backwards along T may ignore `valid` until the end."""

    obs: Tree
    """[T+1, N, …]: what each row saw before step t; obs[T] is what it sees next."""
    action: Tree
    """[T, N, …]: as sampled, before any clipping to the environment's bounds."""
    log_prob: Array | None
    """[T, N]: of `action` under the policy that chose it; None where no learner needs it."""
    reward: Array
    """[T, N]: raw."""
    terminated: Array
    """[T, N]: the task ended with this step."""
    truncated: Array
    """[T, N]: somebody stopped watching after this step."""
    valid: Array
    """[T, N]: false where the row has nothing to say."""
    episode_step: Array
    """[T, N]: steps of the episode before this one."""
    final_obs: Tree
    """[K, …]: the true last observations of the K episodes that ended here."""
    final_index: Array
    """[T, N]: k where a step ended its episode, else -1."""
    channels: dict[str, Array] = field(default_factory=dict)
    """[T, N] each: numbers that environments reported and a learner needs, by name; NaN where a
    row reported none."""
    episodes: list[Episode] = field(default_factory=list)
    metrics: Metrics = field(default_factory=dict)
    """`env/…`: the numbers environments reported, averaged over the rollout."""
    seconds: Metrics = field(default_factory=dict)
    """Where the time went until it was there: environment, acting, waiting."""

    @property
    def ended(self) -> Array:
        """[T, N]: terminated or truncated."""
        ended: Array = self.terminated | self.truncated
        return ended

    @property
    def horizon(self) -> int:
        return int(self.reward.shape[0])

    @property
    def steps(self) -> int:
        """Count the valid steps: what every budget counts."""
        return int(np.count_nonzero(self.valid))

    def seen(self) -> Tree:
        """Return what rows saw before every valid step, [B, …]."""
        return tree.map(lambda leaf: leaf[:-1][self.valid], self.obs)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays a learner needs to use this rollout again, as a State tree."""
        names = [name for name in self.__dataclass_fields__ if name not in NOT_KEPT]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Rollout:
        """Rebuild what `arrays` returned; episodes and metrics were reported when it was new."""
        return cls(**{"log_prob": None, **arrays})


def choices(obs: Tree, action: Tree, size: int = CHUNK) -> Iterator[tuple[Tree, Tree]]:
    """Yield what rows saw and did, [B, …] each and up to so many at once, in the order of (t, row);
    of [T or more, N, …] and [T, N, …]."""
    horizon, rows = tree.leaves(action)[0].shape[:2]
    seen, done = (
        tree.map(lambda leaf: leaf[:horizon].reshape(-1, *leaf.shape[2:]), part)
        for part in (obs, action)
    )
    for start in range(0, horizon * rows, size):
        some = slice(start, start + size)
        yield tree.index(seen, some), tree.index(done, some)
