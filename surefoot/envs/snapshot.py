"""The state of an environment that offers `get_state()` and `set_state(state)`.

The state is a tree of arrays and JSON values. Our own wrappers, and those that `gymnasium.make`
puts around an environment, are looked through; any other must offer the two methods itself.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from surefoot.core.state import State
from surefoot.envs.metrics import Measured, MeasuredVector

METHODS = ("get_state", "set_state")
TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit, Measured, MeasuredVector)


def offered(env: Any) -> bool:
    """Say whether this environment can be put into an earlier state."""
    return _core(env) is not None


def take(env: Any) -> State:
    """Take down all there is to know of a running episode."""
    core = _core(env)
    assert core is not None
    ended = [wrapper.ended.tolist() for wrapper in _outside(env, MeasuredVector)]
    elapsed = [int(limit._elapsed_steps or 0) for limit in _outside(env, TimeLimit)]
    return {"state": copy.deepcopy(core.get_state()), "elapsed": elapsed, "ended": ended}


def put(env: Any, state: State) -> None:
    """Put an environment that was just reset into a state that was taken down."""
    core = _core(env)
    assert core is not None
    core.set_state(copy.deepcopy(state["state"]))
    for limit, steps in zip(_outside(env, TimeLimit), state["elapsed"], strict=True):
        limit._elapsed_steps = int(steps)
    # A run may go on with a metrics function that it did not have, or without the one it had.
    for wrapper, ended in zip(_outside(env, MeasuredVector), state.get("ended", []), strict=False):
        wrapper.ended = np.array(ended, bool)


def _core(env: Any) -> Any | None:
    """Find the outermost part that offers its state, behind transparent wrappers."""
    while not all(callable(getattr(env, name, None)) for name in METHODS):
        if not isinstance(env, TRANSPARENT):
            return None
        env = env.env
    return env


def _outside(env: Any, kind: type) -> list[Any]:
    """List the wrappers of a kind outside the part that offers its state."""
    core, found = _core(env), []
    while env is not core:
        if isinstance(env, kind):
            found.append(env)
        env = env.env
    return found
