"""The six protocols. One iteration, which is all of training, is:

    rollout = collector.collect(learner.actor())       # facts, [T, N]
    metrics = learner.update(rollout, progress)        # opinions, gradients
    progress = progress.after(rollout, metrics)        # counts

T is time, N rows: (environment, agent) pairs. A Tree is an array or a dict of trees; a State is a
tree of numpy arrays and JSON scalars, all that a checkpoint needs to hold. What `state` returns may
be kept: nothing changes it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from surefoot.core.metrics import Metrics
from surefoot.core.progress import Progress
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree


class Acting(Protocol):
    """A snapshot of weights and normalizer that chooses actions."""

    def noise(self, random: np.random.Generator, *axes: int) -> Tree:
        """Draw what `act` turns into choices, with these leading axes; empty if it needs none."""

    def memory(self, rows: int) -> Tree:
        """Return what rows remember at the start of an episode; an empty dict if nothing."""

    def act(self, obs: Tree, mask: Tree | None, memory: Tree, noise: Tree) -> tuple[Tree, Tree]:
        """Choose actions for [N, …] observations; return them and the memory that follows."""


class Actor(Acting, Protocol):
    """One that also knows how probable its choices were."""

    def light(self) -> Actor | None:
        """Return what does the same and is cheap to ship to a process without torch, if there is
        such a thing."""

    def log_prob(self, obs: Tree, action: Tree) -> Array | None:
        """Return the log-probabilities [T, N] of actions [T, N, …] that this snapshot chose when
        rows saw `obs` [T or more, N, …] and remembered nothing; None if its learner needs none."""


class Step(NamedTuple):
    """What one step of every row gave."""

    obs: Tree
    """[N, …]: what each row sees next; the first of a new episode where one ended."""
    reward: Array
    """[N]"""
    terminated: Array
    """[N]"""
    truncated: Array
    """[N]"""
    valid: Array
    """[N]: false where the action was not used because a library spent the step on a reset, and
    where the step was lost."""
    lost: Array
    """[N]: how many episodes were lost because whoever played the row is gone: nearly always 0."""
    final_obs: Tree
    """[K, …]: true last observations of the K rows that ended, in row order."""
    success: Array
    """[N]: what rows that ended reported as `is_success`; NaN for all others."""
    info: Mapping[str, Array]
    """[N] each: numbers from `info["metrics"]`; NaN where a row has none."""
    notable: bool
    """Whether any row ended, or has a step that does not count."""

    @property
    def ended(self) -> Array:
        """[N]: terminated or truncated."""
        ended: Array = self.terminated | self.truncated
        return ended


class VectorEnv(Protocol):
    """N rows stepped together. Ended rows go on in a new episode by themselves.

    What `reset` and `step` return may be overwritten by the next call.
    """

    spec: Spec

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        """Start row n in its episode number `episodes[n]`, in an environment that is new or built
        anew; return first observations [N, …]."""

    def step(self, action: Tree) -> Step:
        """Apply one action per row."""

    def restart(self, rows: Array) -> Tree:
        """Begin the next episode of the rows in this mask [N], in environments built anew;
        return what all rows see."""

    def close(self) -> None: ...


class Visible(VectorEnv, Protocol):
    """Rows that can be looked at."""

    @property
    def first(self) -> Any:
        """The environment of the first row."""

    def render(self) -> Any:
        """Return what the first row looks like: [height, width, 3], if it has pictures."""


class Replayable(VectorEnv, Protocol):
    """Rows whose episodes are a function of their seed and actions."""

    def replay(self, row: int, action: Tree) -> tuple[Tree, Array]:
        """Play the episode that a row has just begun again, with these actions [L, …]; return what
        the row sees at the end and fingerprints [L+1] of all it saw: fewer if it ended early."""


class Snapshotted(VectorEnv, Protocol):
    """Rows whose environments can be put into an earlier state."""

    def snapshot(self) -> State:
        """Take down the state of every environment."""

    def recall(self, state: State) -> None:
        """Put environments, which have just begun an episode, into the state they had."""


class Collector(Protocol):
    """Plays. Knows nothing of learning."""

    spec: Spec

    def collect(self, actor: Actor, ahead: bool = False) -> Rollout:
        """Play one rollout; it begins where the last one ended. `ahead` says that there will be
        another: it may be begun now, with this actor, and is what the next call returns."""

    def beside(self) -> AbstractContextManager[None]:
        """Return what to hold during an update, beside which a rollout may be played."""

    def anchor(self) -> None:
        """Make `state` one that restores exactly, if need be by cutting episodes short. Part of
        the run: it happens at every scheduled checkpoint, whether or not anybody resumes."""

    @property
    def exact(self) -> bool:
        """Whether `restore` would lead exactly to where the environments are now."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken; raise InexactError where that fails."""

    def renew(self, state: State) -> None:
        """Go on after the episodes that `state` was in, with every row's next one."""

    def close(self) -> None: ...


class Learner(Protocol):
    """Learns. Knows nothing of environments, files or terminals."""

    @property
    def how(self) -> str:
        """How updates are computed, which their last bits depend on; empty until that shows."""

    def actor(self) -> Actor:
        """Snapshot the policy as it is now, to explore with."""

    def player(self) -> Actor:
        """Snapshot the policy as it is now, to do its best with."""

    def update(self, rollout: Rollout, progress: Progress) -> Metrics:
        """Learn from a rollout; `progress` is the run's before it. Return what happened."""

    def spread(self) -> Mapping[str, Array]:
        """Return what of the last update is worth looking at number by number, by name."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


class Sink(Protocol):
    """Somewhere to show what happens."""

    def write(self, step: int, metrics: Metrics) -> None: ...

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        """Show how numbers are spread, by name; whoever does not need them does not ask."""

    def event(self, entry: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Kept(NamedTuple):
    """What a store has under a key."""

    size: int
    md5: str | None
    """In hexadecimal digits; None where it is not known without reading everything."""


class Store(Protocol):
    """Somewhere to keep files, by key: parts of a path with / between them.

    Raises Unreachable for what may go away by itself, Missing, or else StoreError with advice.
    """

    def put(self, key: str, file: Path) -> Kept:
        """Keep a file whole, or not at all, and make sure of it; what had the key is replaced."""

    def get(self, key: str, file: Path) -> None:
        """Write what is kept into a file."""

    def list(self, prefix: str = "") -> dict[str, Kept]:
        """Find everything whose key begins with these parts."""

    def delete(self, key: str) -> None:
        """Keep it no longer; it may be gone already."""

    def sweep(self) -> None:
        """Remove what puts that were broken off have left; for who alone writes there."""
