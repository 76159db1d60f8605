"""The last episodes of a run, whatever rollout they ended in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import numpy as np

from surefoot.core.metrics import Metrics, mean, prefixed, present
from surefoot.core.rollout import Episode
from surefoot.core.state import State

TYPES = {
    "row": np.int64,
    "number": np.int64,
    "total": np.float64,
    "length": np.int64,
    "terminated": np.bool_,
    "success": np.float64,
}


class RecentEpisodes:
    """A window over the last `size` whole episodes."""

    def __init__(self, size: int) -> None:
        self._episodes: deque[Episode] = deque(maxlen=size)

    def add(self, episodes: Iterable[Episode]) -> None:
        self._episodes.extend(episodes)

    @property
    def size(self) -> int:
        return self._episodes.maxlen or 0

    @property
    def score(self) -> float | None:
        """Mean return of a full window; None before there are enough episodes to trust it."""
        full = len(self._episodes) == self._episodes.maxlen
        return mean(e.total for e in self._episodes) if full else None

    def metrics(self) -> Metrics:
        """Summarize the window; success is what environments report, else termination."""
        reported = [e.success for e in self._episodes if e.success is not None]
        terminated = mean(float(e.terminated) for e in self._episodes)
        summary = present(
            return_mean=mean(e.total for e in self._episodes),
            length_mean=mean(e.length for e in self._episodes),
            terminated_rate=terminated,
            success_rate=mean(reported) if reported else terminated,
            success_reported=mean(float(e.success is not None) for e in self._episodes),
        )
        return prefixed("recent", summary)

    def state(self) -> State:
        """Return the window as columns; NaN stands for a success that was not reported."""
        return {
            name: np.array([getattr(episode, name) for episode in self._episodes], dtype)
            for name, dtype in TYPES.items()
        }

    def restore(self, state: State) -> None:
        self._episodes.clear()
        for values in zip(*(state[name].tolist() for name in TYPES), strict=True):
            facts = dict(zip(TYPES, values, strict=True))
            success = None if math.isnan(facts["success"]) else facts["success"]
            self._episodes.append(Episode(**{**facts, "success": success}))
