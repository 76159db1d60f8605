"""What a learner makes of raw rewards. Rollouts keep the raw ones, and so do all scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from surefoot.core.errors import EnvError
from surefoot.core.metrics import Metrics, prefixed
from surefoot.core.rollout import Rollout
from surefoot.core.state import State
from surefoot.core.tree import Array
from surefoot.maths import moments
from surefoot.maths.moments import Moments

CLIP = 10.0
"""Scaled rewards are kept within this many deviations of the return."""
SMALL = 1e-8
"""Added to a variance before it divides."""


class Transform(Protocol):
    """One step on the way from raw rewards to those that are learned from; all are [T, N]."""

    def absorb(self, reward: Array, rollout: Rollout) -> None:
        """Take the rewards of a new rollout, as they come here, into the statistics."""

    def of(self, reward: Array, rollout: Rollout) -> Array:
        """Transform rewards, by the statistics as they are now."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


class Stateless:
    """Needs to remember nothing."""

    def absorb(self, reward: Array, rollout: Rollout) -> None:
        """Nothing to learn."""

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Nothing was kept."""


class TimeScaled(Stateless):
    """Divided by the number of steps since the reset, this one included."""

    def of(self, reward: Array, rollout: Rollout) -> Array:
        scaled: Array = reward / (rollout.episode_step + 1)
        return scaled


class PerHorizon(Stateless):
    """Divided by the steps of a row in a rollout."""

    def of(self, reward: Array, rollout: Rollout) -> Array:
        return reward / rollout.horizon


class Times(Stateless):
    """Times a constant."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def of(self, reward: Array, rollout: Rollout) -> Array:
        return reward * self._factor


class Within(Stateless):
    """Within bounds."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def of(self, reward: Array, rollout: Rollout) -> Array:
        return np.clip(reward, self._low, self._high)


class Plus(Stateless):
    """Plus a channel times a weight, or a channel instead."""

    def __init__(self, name: str, weight: float, keeps: bool) -> None:
        """`keeps` says whether the reward counts too."""
        self._name, self._weight, self._keeps = name, weight, float(keeps)

    def of(self, reward: Array, rollout: Rollout) -> Array:
        found = rollout.channels[self._name]
        lacking = np.isnan(found) & rollout.valid
        if lacking.any():
            t, row = (int(place[0]) for place in np.nonzero(lacking))
            raise EnvError(
                f"rewards need {self._name!r}, but row {row} does not report it in "
                f"info['metrics'] at step {t} of a rollout; have the environment report it at "
                f"every step"
            )
        there = np.where(rollout.valid, found, 0.0)
        added: Array = self._keeps * reward + self._weight * there
        return added


class Improvement:
    """By how much rewards are more than in the step before, or 0; so is the first of an episode."""

    def __init__(self, rows: int) -> None:
        self._before = np.zeros(rows)
        self._last = np.zeros(rows)
        self._newest: Rollout | None = None

    def absorb(self, reward: Array, rollout: Rollout) -> None:
        self._before, self._newest = self._last, rollout
        self._last = reward[-1].copy()

    def of(self, reward: Array, rollout: Rollout) -> Array:
        # What came before an older rollout is not known any more: its first step is no better.
        first = self._before if rollout is self._newest else reward[0]
        before = np.concatenate([first[None], reward[:-1]])
        better: Array = np.maximum(0.0, reward - before)
        return np.where(rollout.episode_step == 0, 0.0, better)

    def state(self) -> State:
        return {"last": self._last.copy()}

    def restore(self, state: State) -> None:
        last = np.array(state["last"]) if state else self._last
        # A fork with other rows begins new episodes.
        self._last = last if last.shape == self._last.shape else self._last


class Returns:
    """Each row's discounted return so far."""

    def __init__(self, rows: int, gamma: float) -> None:
        self._gamma = gamma
        self.running = np.zeros(rows)

    def follow(self, reward: Array, rollout: Rollout) -> Array:
        """Go on through a rollout; return [T, N] of what there was after each step."""
        returns = np.empty_like(reward)
        running = self.running
        for t in range(rollout.horizon):
            running = np.where(rollout.episode_step[t] == 0, 0.0, running * self._gamma)
            returns[t] = running = running + reward[t]
        self.running = running
        return returns

    def restore(self, found: Array) -> None:
        # A fork with other rows begins new episodes, and their returns with them.
        self.running = np.array(found) if found.shape == self.running.shape else self.running


class Scaled:
    """Divided by the running deviation of each row's discounted return, over the whole run."""

    def __init__(self, rows: int, gamma: float) -> None:
        self._returns = Returns(rows, gamma)
        self._moments = moments.empty()

    def absorb(self, reward: Array, rollout: Rollout) -> None:
        returns = self._returns.follow(reward, rollout)
        self._moments = moments.absorb(self._moments, torch.from_numpy(returns[rollout.valid]))

    def of(self, reward: Array, rollout: Rollout) -> Array:
        scaled = torch.from_numpy(reward) / moments.deviation(self._moments)
        clipped: Array = scaled.clamp(-CLIP, CLIP).numpy()
        return clipped

    def state(self) -> State:
        kept = {name: value.numpy().copy() for name, value in self._moments._asdict().items()}
        return {"returns": self._returns.running.copy(), **kept}

    def restore(self, state: State) -> None:
        if state:  # none of a parent that did not scale; a fork then starts here
            self._returns.restore(np.array(state["returns"]))
            kept = (torch.from_numpy(np.array(state[name])) for name in Moments._fields)
            self._moments = Moments(*kept)


class MovingScaled:
    """Divided by the deviation of each row's discounted return, as it was lately: a share of every
    rollout's replaces what was known."""

    def __init__(self, rows: int, gamma: float, share: float) -> None:
        self._returns, self._share = Returns(rows, gamma), share
        self._mean = self._square = self._weight = 0.0

    def absorb(self, reward: Array, rollout: Rollout) -> None:
        returns = self._returns.follow(reward, rollout)[rollout.valid]
        if not returns.size:
            return
        old = 1.0 - self._share
        self._mean = old * self._mean + self._share * float(returns.mean())
        self._square = old * self._square + self._share * float(np.square(returns).mean())
        self._weight = old * self._weight + self._share

    def of(self, reward: Array, rollout: Rollout) -> Array:
        return reward / self._deviation()

    def _deviation(self) -> float:
        if not self._weight:
            return 1.0
        mean, square = self._mean / self._weight, self._square / self._weight
        return float(np.sqrt(max(0.0, square - mean**2) + SMALL))

    def state(self) -> State:
        figures = np.array([self._mean, self._square, self._weight])
        return {"returns": self._returns.running.copy(), "figures": figures}

    def restore(self, state: State) -> None:
        if state:
            self._returns.restore(np.array(state["returns"]))
            self._mean, self._square, self._weight = np.array(state["figures"]).tolist()


class Rewards:
    """Transforms one after another."""

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        self._transforms = list(transforms)

    def absorb(self, rollout: Rollout) -> None:
        """Take a new rollout into the statistics."""
        reward = rollout.reward
        for transform in self._transforms:
            transform.absorb(reward, rollout)
            reward = transform.of(reward, rollout)

    def of(self, rollout: Rollout) -> Array:
        """Return [T, N] rewards to learn from, by the statistics as they are now."""
        reward = rollout.reward
        for transform in self._transforms:
            reward = transform.of(reward, rollout)
        return reward.astype(np.float32)

    def metrics(self, rollout: Rollout) -> Metrics:
        """Compare what is learned from with what there was."""
        if not self._transforms:
            return {}
        raw, seen = rollout.reward[rollout.valid], self.of(rollout)[rollout.valid]
        if not raw.size:
            return {}
        figures = {"raw_mean": raw.mean(), "raw_std": raw.std()}
        figures |= {"learned_mean": seen.mean(), "learned_std": seen.std()}
        return prefixed("reward", {name: float(value) for name, value in figures.items()})

    def state(self) -> State:
        return {key: one.state() for key, one in self._named()}

    def restore(self, state: State) -> None:
        if "returns" in state:  # of a time when there was one transform
            state = {"0-Scaled": state}
        for key, one in self._named():
            one.restore(state.get(key, {}))

    def _named(self) -> list[tuple[str, Transform]]:
        """Name each by its place and kind: a fork may have others."""
        stack = enumerate(self._transforms)
        return [(f"{place}-{type(one).__name__}", one) for place, one in stack]
