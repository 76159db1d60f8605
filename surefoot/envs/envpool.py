"""EnvPool: many well-known environments in C++, stepped side by side by threads.

It goes on after an end like Gymnasium's vectors with next-step autoreset: the step after it returns
the first observation of the next episode and does not count. A fall at the very moment of the time
limit is reported as truncated alone. Only the first episode of a row has a seed of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from surefoot.core.errors import ConfigError
from surefoot.core.tree import Array
from surefoot.envs.make import Factory
from surefoot.envs.names import Imported, Registered
from surefoot.envs.spaces import some

REMEDY = "use --env-backend gymnasium"
INSTALL = "pip install 'surefoot[envpool]'"
USUAL = ("classic_control", "box2d", "mujoco.gym", "toy_text")
"""Families of environments that load quickly."""
SIMPLE, PHYSICAL = 8e-6, 80e-6
"""Seconds that a step takes where a few formulas give it, and where bodies touch, very roughly."""
FORMULAS = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")


POOL = Imported(f"{__name__}:Pool")


def installed() -> bool:
    return importlib.util.find_spec("envpool") is not None


def loaded(name: str) -> Any:
    """Import EnvPool, with the usual environments alone where that is enough: the others draw with
    matplotlib, which takes every worker another 1.5 s and 100 MB."""
    entry = "envpool.entry"  # which imports all families
    if "envpool" not in sys.modules:
        sys.modules[entry] = ModuleType(entry)
        try:
            importlib.import_module("envpool")
        finally:
            del sys.modules[entry]
        with suppress(ImportError):
            for family in USUAL:
                importlib.import_module(f"envpool.{family}.registration")
    library = sys.modules["envpool"]
    if name not in library.list_all_envs():
        importlib.import_module(entry)
    return library


def version() -> str:
    """Say which EnvPool is installed."""
    try:
        return metadata.version("envpool")
    except metadata.PackageNotFoundError:  # it was built in place
        return "unknown"


def is_gymnasiums(make: Factory) -> bool:
    """Say whether this is one of Gymnasium's own, of which EnvPool may have a version too."""
    return _entry_point(make).startswith("gymnasium.envs.")


def lacks(make: Factory) -> str:
    """Say what this environment asks for that EnvPool does not have; empty if nothing."""
    if not isinstance(make.function, Registered):
        return f"{make.name} is not one of Gymnasium's own environments"
    if make.arguments:
        return f"it takes no environment arguments ({', '.join(make.arguments)})"
    if make.metrics is not None:
        return f"it has no info for the metrics function {make.metrics.name}"
    return ""


def estimated_seconds(make: Factory) -> float:
    """Estimate what a step of one row takes a thread. Timing it would mean to load EnvPool, which
    takes a process that has no other use for it a second and 130 MB."""
    return SIMPLE if _entry_point(make).startswith(FORMULAS) else PHYSICAL


def _entry_point(make: Factory) -> str:
    """Say where what is registered is defined; empty for anything else."""
    return str(make.function.spec.entry_point) if isinstance(make.function, Registered) else ""


def pooled(make: Factory, rows: int, threads: int) -> Factory:
    """Turn what makes one of Gymnasium's environments into what makes a pool of so many."""
    if reason := lacks(make):
        raise ConfigError(f"EnvPool cannot be used: {reason}; {REMEDY}")
    if not installed():
        raise ConfigError(f"EnvPool is not installed: {INSTALL}, or {REMEDY}")
    arguments = {"name": make.name, "rows": rows, "threads": threads, "limit": make.reset_every}
    return Factory(f"{make.name} (EnvPool)", POOL, arguments, divisible=True)


def threads_of(make: Factory) -> int:
    """Count the threads that step what this makes: a pool's, or the one that asks."""
    return int(make.arguments["threads"]) if make.function == POOL else 1


class Pool(GymnasiumVectorEnv[Any, Any, Any]):
    """A pool of environments, with the spaces that Gymnasium's have; it is made at `reset`, since
    EnvPool takes seeds only then."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "seed_for_each_row": True}

    def __init__(self, name: str, rows: int, threads: int, limit: int | None = None) -> None:
        """`limit` is the number of steps after which an episode is cut, if it is less than what
        Gymnasium has."""
        self._library = loaded(name)
        if name not in self._library.list_all_envs():
            raise ConfigError(f"EnvPool has no {name}; {REMEDY}")
        self._name, self._threads = name, threads
        self._pool: Any = None
        self._step: Callable[[Array], tuple[Array, Array, Array, Array]] | None = None
        self.num_envs = rows
        single = gymnasium.make(name, disable_env_checker=True)
        limits = (limit, single.spec.max_episode_steps if single.spec else None)
        given = [steps for steps in limits if steps is not None]
        self._limit = {"max_episode_steps": min(given)} if given else {}
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(single.observation_space, rows)
        self.action_space = batch_space(single.action_space, rows)
        single.close()
        with _quietly():
            self._require_same(self._library.make_spec(name))

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        self.close()
        seeds = [int(each) % 2**31 for each in seed]  # it takes no larger ones
        sizes = {"num_envs": self.num_envs, "num_threads": self._threads}
        with _quietly():
            make = self._library.make_gymnasium
            self._pool = make(
                self._name, seed=seeds, **sizes, **_bound(self._threads), **self._limit
            )
            self._step = direct(self._pool) or wrapped(self._pool)
            obs, _ = self._pool.reset()
        return obs, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        assert self._step is not None
        return *self._step(actions), {}

    def close(self, **_: Any) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = self._step = None

    def _require_same(self, spec: Any) -> None:
        """Refuse an environment that has the name alone in common with Gymnasium's."""
        theirs = {
            "observation": (self.single_observation_space, spec.gymnasium_observation_space),
            "action": (self.single_action_space, spec.gymnasium_action_space),
        }
        for what, (ours, pools) in theirs.items():
            same = type(ours) is type(pools) and ours.shape == pools.shape
            if not same or np.dtype(ours.dtype).kind != np.dtype(pools.dtype).kind:
                raise ConfigError(
                    f"{self._name} has {what}s {pools} in EnvPool and {ours} in Gymnasium; {REMEDY}"
                )


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out warnings about the spaces EnvPool makes, which nobody here can mend."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="gymnasium")
        yield


def _bound(threads: int) -> dict[str, int]:
    """Bind threads to cores, where a pool has one for each of the machine's, all free to be used:
    left to itself, a kernel lets them queue for one core while another has nothing to do."""
    free = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    every = threads == os.cpu_count() and free == set(range(threads))
    return {"thread_affinity_offset": 0} if every else {}


def wrapped(pool: Any) -> Callable[[Array], tuple[Array, Array, Array, Array]]:
    """Return what steps a pool, as documented."""

    def step(actions: Array) -> tuple[Array, Array, Array, Array]:
        obs, reward, terminated, truncated, _ = pool.step(actions)
        return obs, reward, terminated, truncated

    return step


def direct(pool: Any) -> Callable[[Array], tuple[Array, Array, Array, Array]] | None:
    """Return what does the same without EnvPool's Python code, which takes 0.1 ms a step; None if
    its C++ code is not as known here."""
    try:
        states, actions = list(pool._state_keys), list(pool._action_keys)
        places = [states.index(name) for name in ("obs", "reward", "done", "trunc")]
        dtype = pool._spec._action_spec[-1][0]
        send, receive = pool._send, pool._recv
    except (AttributeError, ValueError, LookupError):
        return None
    if actions != ["env_id", "players.env_id", "action"]:
        return None
    rows = np.arange(len(pool), dtype=np.int32)

    def step(actions: Array) -> tuple[Array, Array, Array, Array]:
        send([rows, rows, np.ascontiguousarray(actions, dtype)])
        state = receive()
        obs, reward, done, truncated = [state[place] for place in places]
        if some(truncated):
            done = done & ~truncated
        return obs, reward, done, truncated

    return step
