"""How environments come back to where they were when a checkpoint was taken: one type each."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from surefoot.core import fingerprint, tree
from surefoot.core.errors import EnvError, InexactError
from surefoot.core.protocols import Replayable, Snapshotted
from surefoot.core.rollout import Rollout
from surefoot.core.spec import Spec
from surefoot.core.state import Ragged, State
from surefoot.core.tree import Array, Tree

LONGEST_REPLAY = 100_000
"""An episode of more steps is cut at the next scheduled checkpoint rather than replayed."""


class Restoration(Protocol):
    """Knows what has to be kept of the environments, and how to use it."""

    def note(self, rollout: Rollout) -> None:
        """Take down what a rollout played."""

    def unsaveable(self) -> Array:
        """Mark the rows [N] whose episodes must be cut before a scheduled checkpoint."""

    def cut(self, rows: Array, obs: Tree) -> None:
        """Take note that these rows begin new episodes with these observations [N, …]."""

    @property
    def exact(self) -> bool:
        """Whether `state` leads back to exactly where the environments are."""

    def state(self) -> State: ...

    def restore(self, obs: Tree, state: State) -> Tree:
        """Lead environments that have just begun the recorded episodes, seeing `obs`, to where
        they were; return what rows see there."""


class Fresh:
    """Nothing is kept: all episodes are cut at every scheduled checkpoint."""

    def __init__(self, spec: Spec) -> None:
        self._begun = np.ones(spec.rows, bool)

    def note(self, rollout: Rollout) -> None:
        self._begun[:] = False

    def unsaveable(self) -> Array:
        # All of them or none: some vectors can only be built anew as a whole.
        return np.full(len(self._begun), not self._begun.all())

    def cut(self, rows: Array, obs: Tree) -> None:
        self._begun |= rows

    @property
    def exact(self) -> bool:
        return bool(self._begun.all())

    def state(self) -> State:
        return {}

    def restore(self, obs: Tree, state: State) -> Tree:
        self._begun[:] = True
        return obs


class Inexact:
    """Nothing could bring the environments back: after a restart every row begins a new episode,
    and no episode is cut for it."""

    exact = True

    def __init__(self, spec: Spec) -> None:
        self._rows = spec.rows

    def note(self, rollout: Rollout) -> None:
        """There is no use in taking anything down."""

    def unsaveable(self) -> Array:
        return np.zeros(self._rows, bool)

    def cut(self, rows: Array, obs: Tree) -> None:
        """There is nothing to begin anew."""

    def state(self) -> State:
        return {}

    def restore(self, obs: Tree, state: State) -> Tree:
        raise InexactError("the environment is not deterministic")


class Snapshots:
    """The environments' own states are kept."""

    exact = True

    def __init__(self, env: Snapshotted) -> None:
        self._env = env
        self._obs: Tree = env.spec.empty_observations(env.spec.rows)

    def note(self, rollout: Rollout) -> None:
        self._obs = tree.map(lambda leaf: leaf[-1].copy(), rollout.obs)

    def unsaveable(self) -> Array:
        return np.zeros(self._env.spec.rows, bool)

    def cut(self, rows: Array, obs: Tree) -> None:
        self._obs = obs

    def state(self) -> State:
        return {"obs": self._obs, "envs": self._env.snapshot()}

    def restore(self, obs: Tree, state: State) -> Tree:
        try:
            self._env.recall(state["envs"])
        except Exception as error:  # it is the environment's own code
            raise InexactError(f"set_state raised {type(error).__name__}: {error}") from error
        self._obs = tree.map(lambda old, kept: np.array(kept, old.dtype), obs, state["obs"])
        return tree.map(np.copy, self._obs)


class Replay:
    """The actions of every running episode are kept, with fingerprints of what they led to."""

    exact = True

    def __init__(self, env: Replayable) -> None:
        self._env = env
        self._logs = [Log(env.spec) for _ in range(env.spec.rows)]

    def note(self, rollout: Rollout) -> None:
        seen = fingerprint.of_observations(rollout.obs, 2)
        prints = seen[1:] + fingerprint.of_rewards(rollout.reward)
        breaks = rollout.ended | ~rollout.valid
        for row, log in enumerate(self._logs):
            ends = np.flatnonzero(breaks[:, row])
            start = int(ends[-1]) + 1 if len(ends) else 0
            if start or rollout.episode_step[0, row] == 0:
                log = self._logs[row] = Log(self._env.spec, seen[start, row])
            log.extend(tree.index(rollout.action, (slice(start, None), row)), prints[start:, row])

    def unsaveable(self) -> Array:
        return np.array([len(log) > LONGEST_REPLAY for log in self._logs])

    def cut(self, rows: Array, obs: Tree) -> None:
        seen = fingerprint.of_observations(obs, 1)
        for row in np.flatnonzero(rows).tolist():
            self._logs[row] = Log(self._env.spec, seen[row])

    def state(self) -> State:
        actions = [log.action for log in self._logs]
        return {
            "action": tree.map(lambda *leaves: Ragged(leaves), *actions),
            "prints": Ragged([log.prints for log in self._logs]),
        }

    def restore(self, obs: Tree, state: State) -> Tree:
        for row in range(len(self._logs)):
            action = tree.map(lambda leaf, row=row: leaf.parts[row], state["action"])
            log = self._logs[row] = Log.of(self._env.spec, action, state["prints"].parts[row])
            try:
                last, prints = self._env.replay(row, log.action)
            except EnvError as error:
                raise InexactError(f"playing row {row} again failed: {error}") from error
            self._compare(row, log.prints, prints)
            tree.write(obs, row, last)
        return obs

    def _compare(self, row: int, then: Array, now: Array) -> None:
        differs = then[: len(now)] != now
        if differs.any():
            raise InexactError(
                f"row {row} differs from what was recorded at step {int(differs.argmax())} of "
                f"{len(then) - 1}"
            )
        if len(now) < len(then):
            raise InexactError(
                f"row {row} ended at step {len(now)} of {len(then) - 1} recorded ones"
            )


class Log:
    """One row's running episode: actions, and a fingerprint of the first observation and of what
    every action led to. Arrays grow by doubling, so what was handed out never changes."""

    def __init__(self, spec: Spec, first: Array | None = None) -> None:
        self._action = spec.empty_actions(64)
        self._prints = np.zeros(65, np.uint64)
        self._length = 0
        if first is not None:
            self._prints[0] = first

    @classmethod
    def of(cls, spec: Spec, action: Tree, prints: Array) -> Log:
        """Make the log of these actions [L, …] and fingerprints [L+1]."""
        if prints.dtype != np.uint64:
            raise ValueError(f"fingerprints are {prints.dtype}")
        log = cls(spec, prints[0])
        log.extend(action, prints[1:])
        return log

    def __len__(self) -> int:
        return self._length

    @property
    def action(self) -> Tree:
        return tree.index(self._action, slice(0, self._length))

    @property
    def prints(self) -> Array:
        return self._prints[: self._length + 1]

    def extend(self, action: Tree, prints: Array) -> None:
        end = self._length + len(prints)
        if end > len(self._prints) - 1:
            self._action = tree.map(lambda leaf: _grown(leaf, 2 * end), self._action)
            self._prints = _grown(self._prints, 2 * end + 1)
        tree.write(self._action, slice(self._length, end), action)
        self._prints[self._length + 1 : end + 1] = prints
        self._length = end


def _grown(array: Array, length: int) -> Array:
    larger = np.zeros((length, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
