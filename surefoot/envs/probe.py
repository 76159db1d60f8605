"""Find out how an environment can be brought back to where it was, by playing it a little.

The probe is bounded by steps, never by time, so that the same run gets the same answer on any
machine. It plays random actions in an object that has episodes behind it and in new ones, and
compares every bit of what they return.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from surefoot.core import seeding, tree
from surefoot.core.errors import ConfigError
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.spec import Box, Discrete, Space, Spec
from surefoot.core.tree import Array, Tree
from surefoot.envs import snapshot
from surefoot.envs.gymnasium import Env
from surefoot.envs.make import Factory
from surefoot.envs.spaces import to_spec
from surefoot.envs.vector import NativeVector

Kind: TypeAlias = Literal["snapshot", "replay", "rebuild", "fresh", "inexact"]
EPISODES, EPISODE_STEPS = 8, 400
"""Histories are compared over this many episodes: what survives a reset may show in few of them."""
STEPS = 3_000
"""What each part of a probe may play."""


@dataclass(frozen=True)
class Way:
    """How environments come back after a restart, and what the probe saw."""

    kind: Kind
    because: str


def settle(
    wanted: Kind | None, make: Factory, seed: int, beat: Callable[[], None] = lambda: None
) -> Way:
    """Take the way that is wanted, if it can be gone, or find one; `beat` is called on the way, for
    whoever has to see that it goes on."""
    return find(make, seed, beat=beat) if wanted is None else require(wanted, make, seed, beat)


def find(
    make: Factory, seed: int, steps: int = STEPS, beat: Callable[[], None] = lambda: None
) -> Way:
    """Find the first way that works: snapshot, replay, replay in rebuilt ones, fresh episodes; or
    that none does."""
    with closing(make()) as env:
        offered, native = snapshot.offered(env), isinstance(env, GymnasiumVectorEnv)
    try:
        probe = _VectorProbe(make, seed, beat) if native else _Probe(make, seed, steps, beat)
        fault = probe.snapshot_fault() if offered else None
        if offered and fault is None:
            return Way("snapshot", "get_state and set_state lead back to where it was")
        refused = f"; its set_state was not used: {fault}" if offered else ""
        if isinstance(probe, _VectorProbe):
            return Way("fresh", f"a vector environment without exact get_state, set_state{refused}")
        return _replayed(probe, refused)
    except Exception as error:  # training will meet it too, and say where
        kind: Kind = "fresh" if native else "replay"
        return Way(kind, f"the probe failed: {type(error).__name__}: {error}")


def _replayed(probe: _Probe, refused: str) -> Way:
    leak = probe.reuse_differs()
    if leak is None:
        return Way("replay", f"seed and actions repeat an episode{refused}")
    if (step := probe.rebuild_differs()) is not None:
        why = f"two new environments with one seed differ at step {step}"
        return Way("inexact", f"it is not deterministic: {why}{refused}")
    return Way("rebuild", f"after other episodes it differs at step {leak}{refused}")


def require(kind: Kind, make: Factory, seed: int, beat: Callable[[], None] = lambda: None) -> Way:
    """Take the way the user asks for, if it can be gone at all."""
    with closing(make()) as env:
        offered, native = snapshot.offered(env), isinstance(env, GymnasiumVectorEnv)
    if kind in ("replay", "rebuild") and native:
        raise ConfigError(
            f"restore={kind!r}, but {make.name} is a vector environment, whose rows cannot be "
            f"played one by one; use fresh, or snapshot if it has get_state and set_state"
        )
    if kind == "snapshot":
        if not offered:
            raise ConfigError(
                f"restore='snapshot', but {make.name} has no get_state() and set_state(state), or "
                f"is wrapped in something that has not"
            )
        probe = _VectorProbe(make, seed, beat) if native else _Probe(make, seed, STEPS, beat)
        try:
            fault = probe.snapshot_fault()
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault is not None:
            raise ConfigError(f"restore='snapshot', but {make.name} does not come back: {fault}")
    return Way(kind, "set in the configuration")


class _Probe:
    """Plays single environments with addressed actions and compares histories."""

    def __init__(self, make: Factory, seed: int, steps: int, beat: Callable[[], None]) -> None:
        self._make, self._seed, self._left, self._beat = make, seed, steps, beat

    def snapshot_fault(self) -> str | None:
        """Say what is wrong with get_state and set_state, if anything is: a new environment put
        into the state of a used one must go on like it, through the next episode too."""
        with closing(self._make()) as used:
            for episode in range(4):
                list(islice(self._played(used, episode), 1 + 7 * episode))  # go into the episode
                with closing(self._make()) as new:
                    new.reset(seed=self._seed)
                    try:
                        snapshot.put(new, _as_stored(snapshot.take(used)))
                    except Exception as error:
                        return f"{type(error).__name__}: {error}"
                    rest, again = (self._rest(env, episode) for env in (used, new))
                if (step := _first_difference(rest, again)) is not None:
                    return f"it differs {step + 1} steps later"
        return None

    def reuse_differs(self) -> int | None:
        """Return the step at which an episode in a used environment differs from a new one's."""
        with closing(self._make()) as used:
            for episode in range(EPISODES):
                history = self._history(used, episode)
                if not episode:
                    continue  # it was new until now
                if (step := _first_difference(self._anew(episode), history)) is not None:
                    return step
                if self._left <= 0:
                    break
        return None

    def rebuild_differs(self) -> int | None:
        """Return the step at which two new environments differ."""
        self._left = STEPS
        for episode in range(EPISODES):
            step = _first_difference(self._anew(episode), self._anew(episode))
            if step is not None:
                return step
            if self._left <= 0:
                break
        return None

    def _anew(self, episode: int) -> list[Any]:
        with closing(self._make()) as env:
            return self._history(env, episode)

    def _history(self, env: Env, episode: int) -> list[Any]:
        history = list(islice(self._played(env, episode), EPISODE_STEPS))
        self._left -= len(history)
        return history

    def _rest(self, env: Env, episode: int) -> list[Any]:
        """Go on to the end of the episode, and play another one."""
        rest = list(islice(self._steps(env, 2, episode), EPISODE_STEPS // 4))
        return [*rest, *islice(self._played(env, 100 + episode), EPISODE_STEPS // 4)]

    def _played(self, env: Env, episode: int) -> Iterator[Any]:
        """Play one episode with addressed actions; yield all that is seen."""
        obs, _ = env.reset(seed=seeding.integer(self._seed, Purpose.CHECK, 3, episode))
        yield _bytes(obs), 0.0, False, False
        yield from self._steps(env, 1, episode)

    def _steps(self, env: Env, *counters: int) -> Iterator[Any]:
        """Go on with random actions to the end of the episode; yield all that is seen."""
        random = seeding.generator(self._seed, Purpose.CHECK, *counters)
        action = to_spec(env.action_space, "action")
        spec = Spec(action, action, 1)
        ended = False
        while not ended:
            self._beat()
            taken = tree.index(spec.to_env(random_action(spec, random, 1)), 0)
            obs, reward, terminated, truncated, _ = env.step(taken)
            yield _bytes(obs), np.asarray(reward).item(), bool(terminated), bool(truncated)
            ended = terminated or truncated


class _VectorProbe:
    """Plays whole vector environments."""

    def __init__(self, make: Factory, seed: int, beat: Callable[[], None]) -> None:
        self._make, self._seed, self._beat = make, seed, beat

    def snapshot_fault(self) -> str | None:
        """Say what is wrong with get_state and set_state, if anything is."""
        with closing(self._begun()) as used, closing(self._begun()) as new:
            self._play(used, 4, EPISODE_STEPS // 4)
            try:
                new.recall(_as_stored(used.snapshot()))
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            histories = [self._play(env, 5, EPISODE_STEPS) for env in (used, new)]
        step = _first_difference(*histories)
        return None if step is None else f"it differs {step + 1} steps later"

    def _begun(self) -> NativeVector:
        env = self._make()
        vector = NativeVector(self._make.name, env, self._make, reset_every=self._make.reset_every)
        vector.reset(EpisodeSeeds(self._seed, Purpose.CHECK), np.zeros(env.num_envs, np.int64))
        return vector

    def _play(self, env: NativeVector, counter: int, steps: int) -> list[Any]:
        random = seeding.generator(self._seed, Purpose.CHECK, counter)
        seen = []
        for _ in range(steps):
            self._beat()
            step = env.step(random_action(env.spec, random, env.spec.rows))
            facts = (step.reward, step.terminated, step.truncated, step.valid)
            seen.append([_bytes(step.obs), *map(_bytes, facts)])
        return seen


def random_action(spec: Spec, random: np.random.Generator, *axes: int) -> Tree:
    """Draw actions with these leading axes, as a policy might choose them."""

    def draw(space: Space) -> Array:
        match space:
            case Discrete(n=n):
                return random.integers(n, size=axes)
            case Box(low=low, high=high, shape=shape):
                bounded = np.isfinite(low) & np.isfinite(high)
                wide = random.standard_normal((*axes, *shape))
                ends = np.where(bounded, low, 0), np.where(bounded, high, 1)
                inside = random.uniform(*ends, (*axes, *shape))
                return np.where(bounded, inside, wide).astype(space.dtype)
            case _:
                return random.integers(space.bins, size=(*axes, *space.shape))

    return tree.map(draw, spec.action)


def _first_difference(one: list[Any], other: list[Any]) -> int | None:
    pairs = enumerate(zip_longest(one, other))
    return next((step for step, (a, b) in pairs if a != b), None)


def _bytes(obs: Any) -> bytes:
    if isinstance(obs, dict):
        return b"".join(_bytes(part) for part in obs.values())
    if isinstance(obs, tuple):
        return b"".join(_bytes(part) for part in obs)
    return np.asarray(obs).tobytes()


def _as_stored(state: Any) -> Any:
    """Turn a state into what a checkpoint would give back; raise where it could not hold it."""
    if isinstance(state, dict):
        if not all(isinstance(key, str) for key in state):
            raise TypeError("keys must be strings")
        return {key: _as_stored(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [_as_stored(value) for value in state]
    if isinstance(state, np.ndarray):
        if state.dtype.kind not in "biuf":
            raise TypeError(f"an array of {state.dtype} cannot be saved")
        return state.copy()
    return json.loads(json.dumps(state, allow_nan=False))
