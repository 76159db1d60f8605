"""Play episodes with a frozen policy."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

import numpy as np

from surefoot.collect.facts import Facts, Tally
from surefoot.core import seeding, tree
from surefoot.core.errors import RunError
from surefoot.core.metrics import Averages, Metrics, mean, prefixed, present
from surefoot.core.protocols import Actor, VectorEnv
from surefoot.core.rollout import Episode
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.spec import Spec, differences
from surefoot.envs.make import Factory, make_some

ROWS = 16
"""Environments that are evaluated side by side at most."""
MAX_STEPS = 30_000
"""An episode that is longer than this is taken for one that never ends."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes that were played, and what they say."""

    episodes: list[Episode]
    step: int
    """The training step of the policy that played."""
    env: Metrics = field(default_factory=dict)
    """The mean of each metric of the environment over the steps of these episodes."""

    @property
    def returns(self) -> list[float]:
        return [episode.total for episode in self.episodes]

    @property
    def lengths(self) -> list[int]:
        return [episode.length for episode in self.episodes]

    @property
    def return_mean(self) -> float:
        return statistics.fmean(self.returns)

    @property
    def return_std(self) -> float:
        return statistics.pstdev(self.returns)

    @property
    def length_mean(self) -> float:
        return statistics.fmean(self.lengths)

    @property
    def success_rate(self) -> float | None:
        """Share of successes among the episodes that report `is_success`, if any does."""
        return mean(e.success for e in self.episodes if e.success is not None)

    def metrics(self) -> Metrics:
        """Return what a training reports of it."""
        figures = present(
            return_mean=self.return_mean,
            return_std=self.return_std,
            length_mean=self.length_mean,
            success_rate=self.success_rate,
        )
        return prefixed("evaluate", {**figures, **prefixed("env", self.env)})

    def summary(self) -> dict[str, float | int]:
        """Return every figure by name."""
        figures: dict[str, float | int] = {"step": self.step, "episodes": len(self.episodes)}
        for name, values in (("return", self.returns), ("length", self.lengths)):
            figures[f"{name}_mean"] = statistics.fmean(values)
            figures[f"{name}_std"] = statistics.pstdev(values)
            figures[f"{name}_min"] = min(values)
            figures[f"{name}_max"] = max(values)
        if self.success_rate is not None:
            figures["success_rate"] = self.success_rate
        return {**figures, **prefixed("env", self.env)}


def evaluate(
    actor: Actor,
    make: Factory,
    spec: Spec,
    episodes: int,
    seed: int,
    step: int,
    rows: int = ROWS,
) -> Evaluation:
    """Play whole episodes in environments built anew, which must be what was trained on."""
    env = make_some(make, min(episodes, rows))
    try:
        if different := differences(spec, env.spec):
            raise RunError(f"{make.name} is not what was trained on: {'; '.join(different)}")
        return play(actor, env, episodes, seed, step)
    finally:
        env.close()


def play(actor: Actor, env: VectorEnv, episodes: int, seed: int, step: int) -> Evaluation:
    """Play whole episodes, a fixed number per row, so that short ones are not over-represented.

    Seeds are addressed by (seed, step), so evaluating neither disturbs nor remembers anything.
    """
    rows = env.spec.rows
    quota = np.array([len(range(row, episodes, rows)) for row in range(rows)])
    done, averages = np.zeros(rows, np.int64), Averages()
    obs = env.reset(EpisodeSeeds(seed, Purpose.EVALUATION_RESET, step), done)
    memory = actor.memory(rows)
    steps: list[Facts] = []
    limit = MAX_STEPS * math.ceil(episodes / rows)
    for t in range(limit):
        if (done >= quota).all():
            _, every = Tally(rows).add(Facts.joined(steps))
            played = [episode for episode in every if episode.number < quota[episode.row]]
            played.sort(key=lambda e: (e.number, e.row))
            return Evaluation(played, step, averages.means())
        noise = actor.noise(seeding.generator(seed, Purpose.EVALUATION_ACTION, step, t), rows)
        action, memory = actor.act(tree.map(np.copy, obs), None, memory, noise)
        result, counted = env.step(action), done < quota
        averages.add({k: np.where(counted, x, np.nan) for k, x in result.info.items()})
        steps.append(Facts.of(result))
        done = done + result.ended
        obs = result.obs
    raise RunError(
        f"no end of {episodes} episodes within {limit:,} steps; give the environment a time limit "
        f"(gymnasium.wrappers.TimeLimit, or --env-args max_episode_steps=1000)"
    )
