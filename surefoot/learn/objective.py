"""What a critic is to expect, and how good a step was by it: discounted, or on average."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from surefoot.core.errors import ConfigError
from surefoot.core.metrics import Metrics
from surefoot.core.state import State
from surefoot.maths.gae import gae


class Seen(NamedTuple):
    """What is known of a rollout, each [T, N]."""

    rewards: Tensor
    values: Tensor
    next_values: Tensor
    """Of what really followed each step."""
    terminated: Tensor
    ended: Tensor
    valid: Tensor


class Objective(Protocol):
    """From values to advantages and the targets of values."""

    def absorb(self, seen: Seen) -> None:
        """Take a new rollout into the statistics."""

    def estimate(self, seen: Seen) -> tuple[Tensor, Tensor]:
        """Return advantages and value targets, [T, N]."""

    def metrics(self) -> Metrics: ...

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


class Discounted:
    """The sum of what follows, each step counting gamma times the one before."""

    def __init__(self, gamma: float, lam: float) -> None:
        self._gamma, self._lam = gamma, lam

    def absorb(self, seen: Seen) -> None:
        """Nothing to learn."""

    def estimate(self, seen: Seen) -> tuple[Tensor, Tensor]:
        flags = (seen.terminated, seen.ended)
        return gae(seen.rewards, seen.values, seen.next_values, *flags, self._gamma, self._lam)

    def metrics(self) -> Metrics:
        return {}

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Nothing was kept."""


class Average:
    """By how much more than the average reward eta follows, in all. That leaves open what values
    are counted from: a share of their mean is taken out of the targets of every update, so that
    they stay around 0."""

    def __init__(self, lam: float, rate: float, learned: bool, centring: float) -> None:
        """`rate` is how far eta follows each rollout: its mean reward, or with `learned` the mean
        difference between what followed its steps and what was expected."""
        self._lam, self._rate, self._learned, self._centring = lam, rate, learned, centring
        self._eta: float | None = None
        self._centre = 0.0

    def absorb(self, seen: Seen) -> None:
        if bool(seen.terminated.any()):
            raise ConfigError(
                "ppo.objective=average is for tasks that never end, but an episode terminated: "
                "what comes after has no value to compare with; use --ppo.objective discounted, or "
                "an environment that truncates"
            )
        if not bool(seen.valid.any()):
            return
        reward = float(seen.rewards[seen.valid].mean())
        if self._eta is None:
            self._eta = reward
        else:
            error = reward - self._eta
            if self._learned:
                following = seen.next_values - seen.values
                error += float(following[seen.valid].mean())
            self._eta += self._rate * error
        self._centre = float(seen.values[seen.valid].mean())

    def estimate(self, seen: Seen) -> tuple[Tensor, Tensor]:
        above = seen.rewards - (self._eta or 0.0)
        flags = (seen.terminated, seen.ended)
        advantage, target = gae(above, seen.values, seen.next_values, *flags, 1.0, self._lam)
        return advantage, target - self._centring * self._centre

    def metrics(self) -> Metrics:
        return {"ppo/eta": self._eta or 0.0, "ppo/value_centre": self._centre}

    def state(self) -> State:
        return {"eta": self._eta, "centre": self._centre}

    def restore(self, state: State) -> None:
        if state:  # none of a parent that discounted; a fork then starts here
            self._eta = None if state["eta"] is None else float(state["eta"])
            self._centre = float(state["centre"])
