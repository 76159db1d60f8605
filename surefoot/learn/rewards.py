"""What a learner makes of raw rewards. Rollouts keep the raw ones, and so do all scores."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from surefoot.core.rollout import Rollout
from surefoot.core.state import State
from surefoot.maths import moments
from surefoot.maths.moments import Moments

CLIP = 10.0
"""Scaled rewards are kept within this many deviations of the return."""


class Rewards(Protocol):
    """A view of rewards with statistics of its own."""

    def absorb(self, rollout: Rollout) -> None:
        """Take a new rollout into the statistics."""

    def of(self, rollout: Rollout) -> Tensor:
        """Return [T, N] rewards to learn from, by the statistics as they are now."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


class RawRewards:
    """Rewards as they came."""

    def absorb(self, rollout: Rollout) -> None:
        """Nothing to learn."""

    def of(self, rollout: Rollout) -> Tensor:
        return torch.from_numpy(rollout.reward.astype(np.float32))

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Nothing was kept."""


class ScaledRewards:
    """Rewards divided by the running deviation of each row's discounted return."""

    def __init__(self, rows: int, gamma: float) -> None:
        self._gamma = gamma
        self._returns = np.zeros(rows)
        self._moments = moments.empty()

    def absorb(self, rollout: Rollout) -> None:
        returns = np.empty_like(rollout.reward)
        running = self._returns
        for t in range(rollout.horizon):
            running = np.where(rollout.episode_step[t] == 0, 0.0, running * self._gamma)
            returns[t] = running = running + rollout.reward[t]
        self._returns = running
        self._moments = moments.absorb(self._moments, torch.from_numpy(returns[rollout.valid]))

    def of(self, rollout: Rollout) -> Tensor:
        rewards = torch.from_numpy(rollout.reward) / moments.deviation(self._moments)
        return rewards.clamp(-CLIP, CLIP).float()

    def state(self) -> State:
        kept = {name: value.numpy().copy() for name, value in self._moments._asdict().items()}
        return {"returns": self._returns.copy(), **kept}

    def restore(self, state: State) -> None:
        if state:  # none of a parent that did not scale; a fork then starts here
            returns = np.array(state["returns"])
            # A fork with other rows begins new episodes, and their returns with them.
            self._returns = returns if returns.shape == self._returns.shape else self._returns
            kept = (torch.from_numpy(np.array(state[name])) for name in Moments._fields)
            self._moments = Moments(*kept)
