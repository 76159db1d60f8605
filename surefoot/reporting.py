"""The metrics of one iteration."""

from __future__ import annotations

from surefoot.core.metrics import Metrics, mean, prefixed, present
from surefoot.core.rollout import Rollout
from surefoot.training import Training

BESTS = {"return": "return", "lta": "lta_return"}
"""What the best of each kind of score is called in metrics."""


def report(
    training: Training, rollout: Rollout, update: Metrics, times: dict[str, float]
) -> Metrics:
    """Gather the metrics of one iteration."""
    steps = rollout.steps
    facts = present(
        episode_return_mean=mean(e.total for e in rollout.episodes),
        episode_length_mean=mean(e.length for e in rollout.episodes),
        reward_mean=float(rollout.reward[rollout.valid].mean()) if steps else None,
        steps=steps,
        episodes=len(rollout.episodes),
    )
    best = {BESTS[training.recent.kind]: training.best_return.score}
    return {
        **prefixed("rollout", facts),
        **training.recent.metrics(),
        **prefixed("best", present(**best)),
        **training.progress.metrics(),
        **update,
        **rollout.metrics,
        **prefixed("time", _split(rollout, update, times)),
    }


def _split(rollout: Rollout, update: Metrics, laps: dict[str, float]) -> Metrics:
    """Say where the time went since the last report; the parts add up to all of it."""
    collecting, compiling = laps.pop("collect"), update.get("time/compile", 0.0)
    speed = rollout.steps / (collecting + laps["update"] - compiling)
    learning = {**laps, "update": laps["update"] - compiling}
    copying = collecting - sum(rollout.seconds.values())
    return {**rollout.seconds, "copying": copying, **learning, "steps_per_second": speed}
