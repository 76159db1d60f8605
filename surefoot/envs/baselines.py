"""Rules for queueing networks that need no training, as actors: what a policy is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from surefoot.core.errors import ConfigError, nearest
from surefoot.core.tree import Array, Tree
from surefoot.envs.queueing import ID, Plan, QueueNetworkVector

Rule: TypeAlias = Callable[[Plan, Array, Array, Array], Array]
"""From queues [N, S], capacities [N, M] and chance [N, M] to the weight [N, M] of each lane."""
CHANCE = 1e-9
"""Weight of chance among equals."""


class Baseline:
    """Each link serves what a rule weighs most, if it weighs anything; of equals a random one."""

    def __init__(self, env: QueueNetworkVector, rule: Rule) -> None:
        self._env, self._rule = env, rule

    def noise(self, random: np.random.Generator, *axes: int) -> Tree:
        return random.random((*axes, len(self._env.plan.lanes)))

    def memory(self, rows: int) -> Tree:
        return {}

    def act(self, obs: Tree, mask: Tree | None, memory: Tree, noise: Tree) -> tuple[Tree, Tree]:
        plan = self._env.plan
        queues, capacities = self._env.understood(obs)
        weights = self._rule(plan, queues, capacities, noise)
        weights = np.where(weights > 0, weights + CHANCE * noise, 0.0)
        most = np.zeros((len(queues), plan.links))
        chosen = np.zeros((len(queues), plan.links), np.int64)
        for lane, link in enumerate(plan.link.tolist()):
            better = weights[:, lane] > most[:, link]
            most[better, link] = weights[better, lane]
            chosen[better, link] = plan.number[lane]
        return self._env.as_action(chosen), memory


def _pressure(plan: Plan, waiting: Array) -> Array:
    """Return by how much each lane's queue exceeds the one it leads to, [N, M]."""
    ahead = np.where(plan.leaving, 0.0, waiting[:, plan.target])
    pressure: Array = waiting[:, plan.source] - ahead
    return pressure


def back_pressure(plan: Plan, queues: Array, capacities: Array, chance: Array) -> Array:
    """The queue's excess over the next one, times what can be sent (Tassiulas, Ephremides 1992)."""
    return _pressure(plan, queues) * capacities


def max_weight(plan: Plan, queues: Array, capacities: Array, chance: Array) -> Array:
    """The same, with what the packets cost."""
    return _pressure(plan, queues * plan.costs) * capacities


def longest_queue(plan: Plan, queues: Array, capacities: Array, chance: Array) -> Array:
    """The packets that wait."""
    waiting: Array = queues[:, plan.source]
    return waiting


def at_random(plan: Plan, queues: Array, capacities: Array, chance: Array) -> Array:
    return chance


RULES: dict[str, Rule] = {
    "back_pressure": back_pressure,
    "max_weight": max_weight,
    "longest_queue": longest_queue,
    "random": at_random,
}


def build_baseline(env: Any, name: str) -> Baseline:
    """Make the actor of a rule for an environment."""
    network = getattr(env, "unwrapped", env)
    if not isinstance(network, QueueNetworkVector):
        raise ConfigError(f"baselines are rules for {ID}")
    if name not in RULES:
        hint = nearest(name, RULES) or f"; choose one of {', '.join(RULES)}"
        raise ConfigError(f"there is no baseline {name!r}{hint}")
    return Baseline(network, RULES[name])
