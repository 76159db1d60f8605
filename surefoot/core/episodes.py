"""The last episodes of a run, whatever rollout they ended in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

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


SCORES: dict[str, Callable[[Episode], float]] = {
    "return": lambda episode: episode.total,
    "lta": lambda episode: episode.lta,
}
"""What an episode is worth."""
SCORE_NAMES = {"return": "return", "lta": "long-term average"}
"""What that is called."""


class RecentEpisodes:
    """A window over the last `size` whole episodes, and what they are worth by `score`.

    In a task that never ends nor is cut there are none; its long-term average is that of the last
    rollouts.
    """

    def __init__(self, size: int, score: str = "return", stretches: int = 0) -> None:
        """`stretches` is how many rollouts stand for episodes where there are none."""
        self._episodes: deque[Episode] = deque(maxlen=size)
        self._of, self.kind = SCORES[score], score
        self._stretches: deque[tuple[float, int]] = deque(maxlen=stretches)
        """Rewards and steps of the last rollouts."""

    def add(self, episodes: Iterable[Episode], total: float = 0.0, steps: int = 0) -> None:
        """Take in the episodes that ended in a rollout, and its rewards and steps in all."""
        self._episodes.extend(episodes)
        if self._stretches.maxlen and steps:
            self._stretches.append((total, steps))

    def emptied(self) -> RecentEpisodes:
        """Return a window of this kind that has seen nothing."""
        sizes = (self._episodes.maxlen or 0, self._stretches.maxlen or 0)
        return RecentEpisodes(sizes[0], self.kind, sizes[1])

    @property
    def score(self) -> float | None:
        """Mean score of a full window; None before there are enough episodes to trust it."""
        if not self._episodes and len(self._stretches) == self._stretches.maxlen:
            return self._average()
        full = len(self._episodes) == self._episodes.maxlen
        return mean(self._of(e) for e in self._episodes) if full else None

    def _average(self) -> float | None:
        """Return what a step of the last rollouts gave."""
        steps = sum(count for _, count in self._stretches)
        return sum(total for total, _ in self._stretches) / steps if steps else None

    def metrics(self) -> Metrics:
        """Summarize the window; success is what environments report, else termination."""
        reported = [e.success for e in self._episodes if e.success is not None]
        terminated = mean(float(e.terminated) for e in self._episodes)
        summary = present(
            return_mean=mean(e.total for e in self._episodes),
            lta_return_mean=mean(e.lta for e in self._episodes)
            if self._episodes
            else self._average(),
            length_mean=mean(e.length for e in self._episodes),
            terminated_rate=terminated,
            success_rate=mean(reported) if reported else terminated,
            success_reported=mean(float(e.success is not None) for e in self._episodes),
        )
        return prefixed("recent", summary)

    def state(self) -> State:
        """Return the window as columns; NaN stands for a success that was not reported."""
        columns: State = {
            name: np.array([getattr(episode, name) for episode in self._episodes], dtype)
            for name, dtype in TYPES.items()
        }
        stretches = np.array(self._stretches, np.float64).reshape(-1, 2)
        return {**columns, **({"stretches": stretches} if len(stretches) else {})}

    def restore(self, state: State) -> None:
        self._episodes.clear()
        for values in zip(*(state[name].tolist() for name in TYPES), strict=True):
            facts = dict(zip(TYPES, values, strict=True))
            success = None if math.isnan(facts["success"]) else facts["success"]
            self._episodes.append(Episode(**{**facts, "success": success}))
        self._stretches.clear()
        for total, steps in np.array(state.get("stretches", np.zeros((0, 2)))).tolist():
            self._stretches.append((total, int(steps)))
