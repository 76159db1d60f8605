"""The last episodes of a run, whatever rollout they ended in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from surefoot.core.metrics import Metrics, mean, prefixed, present
from surefoot.core.rollout import Episode


class RecentEpisodes:
    """A window over the last `size` whole episodes."""

    def __init__(self, size: int) -> None:
        self._episodes: deque[Episode] = deque(maxlen=size)

    def add(self, episodes: Iterable[Episode]) -> None:
        self._episodes.extend(episodes)

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

    def state(self) -> dict[str, Any]:
        return {str(index): asdict(episode) for index, episode in enumerate(self._episodes)}

    def restore(self, state: dict[str, Any]) -> None:
        ordered = sorted(state.items(), key=lambda item: int(item[0]))
        self._episodes.clear()
        self.add(Episode(**fields) for _, fields in ordered)
