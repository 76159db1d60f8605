"""Play episodes with a frozen policy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from surefoot.collect.facts import Facts, Tally
from surefoot.core import seeding, tree
from surefoot.core.episodes import SCORES
from surefoot.core.errors import RunError
from surefoot.core.metrics import Averages, Metrics, mean, prefixed, present
from surefoot.core.protocols import Acting, Actor, VectorEnv, Visible
from surefoot.core.rollout import Episode
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.spec import Spec, differences
from surefoot.core.tree import Array
from surefoot.envs.baselines import build_baseline
from surefoot.envs.make import Factory, factory, make_some
from surefoot.envs.queueing import ID

ROWS = 16
"""Environments that are evaluated side by side at most."""
MAX_STEPS = 30_000
"""An episode that is longer than this is taken for one that never ends, unless it is known where it
is cut."""
POINTS = 200
"""Moments of an evaluation at which its average so far is kept, at most."""


@dataclass(frozen=True)
class Course:
    """The average reward so far, over the rows that evaluate side by side, at some steps."""

    time: list[int] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, reward: Array, playing: Array) -> Course:
        """Follow the first episode of every row; `playing` [T, N] says which steps are theirs."""
        steps = np.cumsum(playing, axis=0)
        so_far = np.cumsum(np.where(playing, reward, 0.0), axis=0) / np.maximum(steps, 1)
        longest = int(playing.any(1).sum())
        at = np.unique(np.linspace(0, longest - 1, min(longest, POINTS)).astype(int))
        picked = so_far[at]
        return cls((at + 1).tolist(), picked.mean(1).tolist(), picked.std(1).tolist())


@dataclass(frozen=True)
class Evaluation:
    """The episodes that were played, and what they say."""

    episodes: list[Episode]
    step: int
    """The training step of the policy that played."""
    env: Metrics = field(default_factory=dict)
    """The mean of each metric of the environment over the steps of these episodes."""
    course: Course = field(default_factory=Course)
    """How the long-term average came about."""

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
    def lta_returns(self) -> list[float]:
        """The long-term average of each: its return divided by its length."""
        return [episode.lta for episode in self.episodes]

    @property
    def lta_return_mean(self) -> float:
        return statistics.fmean(self.lta_returns)

    def scores(self, kind: str) -> list[float]:
        """Return what `score` says that counts, of each episode."""
        return [SCORES[kind](episode) for episode in self.episodes]

    def score(self, kind: str) -> float:
        """Return the mean of what `score` says that counts."""
        return statistics.fmean(self.scores(kind))

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
            lta_return_mean=self.lta_return_mean,
            length_mean=self.length_mean,
            success_rate=self.success_rate,
        )
        return prefixed("eval", {**figures, **prefixed("env", self.env)})

    def summary(self) -> dict[str, float | int]:
        """Return every figure by name."""
        figures: dict[str, float | int] = {"step": self.step, "episodes": len(self.episodes)}
        lengths: list[float] = [*self.lengths]
        columns = {"return": self.returns, "lta_return": self.lta_returns, "length": lengths}
        for name, values in columns.items():
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
        return play(actor, env, episodes, seed, step, make.reset_every or MAX_STEPS)
    finally:
        env.close()


def evaluate_baseline(
    rule: str, env_args: Mapping[str, Any], episodes: int, steps: int, seed: int, rows: int = ROWS
) -> Evaluation:
    """Play episodes of so many steps in a queueing network by a rule that needs no training."""
    make = factory(ID, env_args, reset_every=steps)
    env = cast(Visible, make_some(make, min(episodes, rows)))
    try:
        return play(build_baseline(env.first, rule), env, episodes, seed, 0, steps)
    finally:
        env.close()


def play(
    actor: Acting, env: VectorEnv, episodes: int, seed: int, step: int, longest: int = MAX_STEPS
) -> Evaluation:
    """Play whole episodes, a fixed number per row, so that short ones are not over-represented.

    Seeds are addressed by (seed, step), so evaluating neither disturbs nor remembers anything.
    """
    rows = env.spec.rows
    quota = np.array([len(range(row, episodes, rows)) for row in range(rows)])
    done, averages = np.zeros(rows, np.int64), Averages()
    obs = env.reset(EpisodeSeeds(seed, Purpose.EVALUATION_RESET, step), done)
    memory = actor.memory(rows)
    steps: list[Facts] = []
    limit = longest * math.ceil(episodes / rows) + 1
    for t in range(limit):
        if (done >= quota).all():
            facts = Facts.joined(steps)
            _, every = Tally(rows).add(facts)
            played = [episode for episode in every if episode.number < quota[episode.row]]
            played.sort(key=lambda e: (e.number, e.row))
            ended = facts.ended
            first = facts.valid & (np.cumsum(ended, axis=0) - ended == 0)
            asked = quota > 0
            course = Course.of(facts.reward[:, asked], first[:, asked])
            return Evaluation(played, step, averages.means(), course)
        noise = actor.noise(seeding.generator(seed, Purpose.EVALUATION_ACTION, step, t), rows)
        action, memory = actor.act(tree.map(np.copy, obs), None, memory, noise)
        result, counted = env.step(action), done < quota
        averages.add({k: np.where(counted, x, np.nan) for k, x in result.info.items()})
        steps.append(Facts.of(result))
        done = done + result.ended
        obs = result.obs
    raise RunError(
        f"no end of {episodes} episodes within {limit:,} steps; say where to cut them with "
        f"--reset-every or --evaluate-steps in training, --steps with eval, or give the "
        f"environment a time limit"
    )
