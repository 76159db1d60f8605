"""A rollout in the making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Protocol

import numpy as np

from surefoot.collect.facts import Facts, Tally
from surefoot.collect.slab import Field, blank
from surefoot.core import tree
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Step
from surefoot.core.rollout import Rollout
from surefoot.core.spec import Space, Spec
from surefoot.core.tree import Array, Tree


class Info(Protocol):
    """What environments report about themselves in T steps of N rows, by name; NaN where a row has
    nothing to say."""

    def clear(self, rows: slice) -> None:
        """Forget what these rows reported."""

    def write(self, t: int, rows: slice, info: Mapping[str, Array]) -> None: ...

    def read(self) -> dict[str, Array]:
        """Return [T, N] each."""


class PrivateInfo:
    """Kept in arrays of its own."""

    def __init__(self, horizon: int, rows: int) -> None:
        self._shape = (horizon, rows)
        self._values: dict[str, Array] = {}

    def clear(self, rows: slice) -> None:
        for values in self._values.values():
            values[:, rows] = np.nan

    def write(self, t: int, rows: slice, info: Mapping[str, Array]) -> None:
        for name, values in info.items():
            if name not in self._values:
                self._values[name] = np.full(self._shape, np.nan)
            self._values[name][t, rows] = values

    def read(self) -> dict[str, Array]:
        return self._values


class Record:
    """T steps of N rows in the making, in arrays that are laid out as `layout` says: private, or
    shared by those who play. Rows that are stepped together are a range; each goes at its pace."""

    def __init__(self, arrays: Mapping[str, Tree], info: Info) -> None:
        self.obs, self.action, self._final_obs = (
            arrays[name] for name in ("obs", "action", "final_obs")
        )
        self.facts = Facts(*(arrays[field.name] for field in fields(Facts)))
        self.made: Array = arrays["made"]
        """How many steps of each row [N] are there, whole."""
        self.info = info
        self._counted: dict[int, tuple[int, Array | int]] = {}
        """By the first of rows that are stepped together: up to which step breaks were counted, and
        how many there were."""

    @classmethod
    def private(cls, spec: Spec, horizon: int) -> Record:
        """Make a record in memory of its own."""
        return cls(blank(layout(spec, horizon)), PrivateInfo(horizon, spec.rows))

    @property
    def horizon(self) -> int:
        return len(self.facts.reward)

    def begin(self, obs: Tree) -> None:
        """Take down what rows see at first; they have made no step."""
        tree.write(self.obs, 0, obs)
        self.made[:] = 0

    def add(self, rows: slice, step: Step) -> None:
        """Record the next step of some rows."""
        t = self._open(rows)
        tree.write(self.obs, (t + 1, rows), step.obs)
        if step.notable:
            self.facts.write((t, rows), step)
            ended = np.flatnonzero(step.ended)
            place = (self._breaks_before(t, rows)[ended], rows.start + ended)
            tree.write(self._final_obs, place, step.final_obs)
        else:
            self.facts.reward[t, rows] = step.reward
        if step.info:
            self.info.write(t, rows, step.info)
        self.made[rows] = t + 1

    def lose(self, rows: slice, episodes: int, obs: Tree) -> None:
        """Record that nobody made the next step of some rows, how many episodes of each that cost,
        and what they see instead."""
        t = self._open(rows)
        self.facts.lose((t, rows), episodes)
        tree.write(self.obs, (t + 1, rows), obs)
        self.made[rows] = t + 1

    def passed(self) -> Array:
        """Count the episodes of each row [N] that are over, or lost."""
        there = np.arange(self.horizon)[:, None] < self.made
        over: Array = ((self.facts.ended + self.facts.lost) * there).sum(0)
        return over

    def rollout(self, tally: Tally, channels: Sequence[str] = ()) -> Rollout:
        """Hand over everything, what rows reported under these names too; `tally` says where rows
        were before it, and moves on."""
        facts, reported = self.facts, self.info.read()
        episode_step, episodes = tally.add(facts)
        final_index = np.full(facts.reward.shape, -1, np.int32)
        final_index[facts.ended] = np.arange(np.count_nonzero(facts.ended))
        return Rollout(
            obs=self.obs,
            action=self.action,
            log_prob=None,
            reward=facts.reward,
            terminated=facts.terminated,
            truncated=facts.truncated,
            valid=facts.valid,
            episode_step=episode_step,
            final_obs=tree.index(self._final_obs, self._finals()),
            final_index=final_index,
            channels={
                name: reported.get(name, np.full_like(facts.reward, np.nan)) for name in channels
            },
            episodes=episodes,
            metrics=self._means(reported),
        )

    def _finals(self) -> tuple[Array, Array]:
        """Say where final observations are, in the order of (t, row)."""
        t, rows = np.nonzero(self.facts.ended)
        breaks = self.facts.breaks()
        return (np.cumsum(breaks, 0) - breaks)[t, rows], rows

    def copy(self) -> Record:
        """Copy what a rollout would share with those who play on."""
        arrays = {name: getattr(self, name) for name in ("obs", "action", "made")}
        copied = tree.map(np.copy, {**arrays, **vars(self.facts)})
        # A rollout takes the few of these that count anyway.
        return Record({**copied, "final_obs": self._final_obs}, self.info)

    def _open(self, rows: slice) -> int:
        """Say which step of these rows is next; before the first, wipe what was there."""
        t = int(self.made[rows.start])
        if t == 0:
            self.facts.clear(rows)
            self.info.clear(rows)
            self._counted.pop(rows.start, None)
        return t

    def _breaks_before(self, t: int, rows: slice) -> Array:
        """Count how many episodes of these rows ended or were lost in earlier steps. The counts are
        kept, so that long rollouts take no longer; not in what is shared, where somebody may have
        died between writing one and the other."""
        seen, before = self._counted.get(rows.start, (0, 0))
        counts: Array = before + self.facts.breaks((slice(seen, t), rows)).sum(0)
        self._counted[rows.start] = (t, counts)
        return counts

    def _means(self, reported: Mapping[str, Array]) -> Metrics:
        """Average what environments reported over the steps that count."""
        means = {}
        for name, found in sorted(reported.items()):
            values = found[self.facts.valid]
            present = values[~np.isnan(values)]
            if present.size:
                means[f"env/{name}"] = float(present.mean())
        return means


def layout(spec: Spec, horizon: int) -> dict[str, Tree]:
    """Lay out the arrays of a record."""
    axes = (horizon, spec.rows)
    facts = {"reward": "float64", "lost": "int64", "success": "float64"}
    facts |= dict.fromkeys(("terminated", "truncated", "valid"), "bool")
    return {
        "obs": tree.map(lambda space: _field(space, horizon + 1, spec.rows), spec.observation),
        "action": tree.map(
            lambda leaf: Field(leaf.shape, str(leaf.dtype)), spec.empty_actions(*axes)
        ),
        # That of a row's k-th break is at k, so few of its pages are ever touched.
        "final_obs": tree.map(lambda space: _field(space, *axes), spec.observation),
        "made": Field((spec.rows,), "int64"),
        **{name: Field(axes, dtype) for name, dtype in facts.items()},
    }


def _field(space: Space, *axes: int) -> Field:
    return Field((*axes, *space.shape), str(space.dtype))
