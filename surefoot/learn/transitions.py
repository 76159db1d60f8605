"""From rollouts to transitions of one or several steps, which need no order in time any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from surefoot.core import tree
from surefoot.core.rollout import Rollout
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree


class Transitions(NamedTuple):
    """What rows saw, did and got, and what they saw then; every leaf is [B, …]."""

    obs: Tree
    action: Tree
    reward: Tree
    """The rewards of one or several steps, discounted and added up."""
    next_obs: Tree
    """What was seen after them: the true last observation where the episode ended."""
    discount: Tree
    """What a value of `next_obs` counts for: 0 where the task ended."""

    def map(self, function: Callable[..., Any], *others: Transitions) -> Transitions:
        """Apply a function to the leaves at the same place."""
        parts = zip(self, *others, strict=True)
        return Transitions(*(tree.map(function, *part) for part in parts))


class Steps(NamedTuple):
    """Steps in their order in time; every leaf is [L, N, …]."""

    obs: Tree
    action: Tree
    reward: Array
    next_obs: Tree
    terminated: Array
    stop: Array
    """Whether nothing that follows belongs to the step."""
    waiting: Array
    """Whether the step has not become a transition yet, but will."""
    number: Array
    """How many steps of its episode were before it."""

    @classmethod
    def of(cls, rollout: Rollout) -> Steps:
        next_obs = tree.map(lambda leaf: leaf[1:].copy(), rollout.obs)
        finals = tree.index(rollout.final_obs, rollout.final_index[rollout.ended])
        tree.write(next_obs, rollout.ended, finals)
        return cls(
            obs=tree.map(lambda leaf: leaf[:-1], rollout.obs),
            action=rollout.action,
            reward=rollout.reward.astype(np.float32),
            next_obs=next_obs,
            terminated=rollout.terminated,
            stop=rollout.ended,
            waiting=rollout.valid,
            number=rollout.episode_step.astype(np.int64),
        )

    def then(self, later: Steps) -> Steps:
        """Join what comes after; where it is not what followed, nothing reaches over the gap."""
        follows = later.waiting[0] & (later.number[0] == self.number[-1] + 1)
        stop = self.stop.copy()
        stop[-1] |= ~follows
        pairs = zip(self._replace(stop=stop), later, strict=True)
        return Steps(*(tree.map(lambda *leaves: np.concatenate(leaves), *pair) for pair in pairs))

    def last(self, count: int) -> Steps:
        return Steps(*(tree.map(lambda leaf: leaf[len(leaf) - count :], part) for part in self))


def blank_steps(spec: Spec) -> Steps:
    """Return a step of zeros, in the types that are kept."""
    obs, flag = spec.empty_observations(), np.zeros((), bool)
    number = np.zeros((), np.float32)
    return Steps(obs, spec.empty_actions(), number, obs, flag, flag, flag, np.zeros((), np.int64))


def require_like(found: Tree, like: Tree, axes: tuple[int, ...]) -> None:
    """Refuse arrays that are not of these types and shapes behind these axes."""
    for name, part, expected in zip(like._fields, found, like, strict=True):
        mine, theirs = dict(tree.items(part)), dict(tree.items(expected))
        if mine.keys() != theirs.keys():
            raise ValueError(f"{name} has other parts than this environment")
        for path, leaf in mine.items():
            one = theirs[path]
            if leaf.dtype != one.dtype or leaf.shape != (*axes, *one.shape):
                raise ValueError(f"{name} {path} is {leaf.dtype}{list(leaf.shape)}")


class Trail:
    """Makes transitions of n steps. The last steps of a rollout wait for the next one."""

    def __init__(self, n_steps: int, gamma: float, spec: Spec) -> None:
        self._n, self._gamma, self._spec = n_steps, gamma, spec
        self._kept: Steps | None = None

    def add(self, rollout: Rollout) -> Transitions:
        """Return the transitions that are complete now, in the order of (t, row)."""
        new = Steps.of(rollout)
        steps = new if self._kept is None else self._kept.then(new)
        made, complete = n_step_transitions(steps, self._n, self._gamma)
        ready = steps.waiting & complete
        count = min(self._n - 1, len(ready))
        left = steps._replace(waiting=steps.waiting & ~complete)
        self._kept = left.last(count) if count else None
        return made.map(lambda leaf: leaf[ready])

    def state(self) -> State:
        return {} if self._kept is None else self._kept._asdict()

    def restore(self, state: State) -> None:
        self._kept = None
        if state:
            kept, rows = Steps(**state), self._spec.rows
            length, width = np.shape(kept.reward)[:2]
            require_like(kept, blank_steps(self._spec), (length, width))
            if width == rows:  # a fork with other rows begins new episodes
                self._kept = kept


def n_step_transitions(steps: Steps, n: int, gamma: float) -> tuple[Transitions, Array]:
    """Return what begins at each step [L, N, …], and whether all of it is there.

    Rewards are added up over n steps, or up to the end of the episode.
    """
    length = len(steps.reward)
    reward, going = steps.reward.copy(), ~steps.stop
    discount = (gamma * ~steps.terminated).astype(np.float32)
    until = np.arange(length)[:, None].repeat(reward.shape[1], 1)
    for k in range(1, n):
        here, there = slice(0, max(0, length - k)), slice(k, None)
        on = going[here]
        reward[here] += np.where(on, np.float32(gamma**k) * steps.reward[there], 0)
        kept = np.float32(gamma ** (k + 1)) * ~steps.terminated[there]
        discount[here] = np.where(on, kept, discount[here])
        until[here] += on
        going[here] = on & ~steps.stop[there]
    complete = ~going
    complete[: max(0, length - n + 1)] = True
    columns = np.arange(reward.shape[1])
    next_obs = tree.index(steps.next_obs, (until, columns))
    return Transitions(steps.obs, steps.action, reward, next_obs, discount), complete
