"""The state of an environment that offers `get_state()` and `set_state(state)`.

The state is a tree of arrays and JSON values. Wrappers of Gymnasium's own that `gymnasium.make`
puts around an environment are looked through; any other must offer the two methods itself.
"""

from __future__ import annotations

import copy
from typing import Any

from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from surefoot.core.state import State

METHODS = ("get_state", "set_state")
TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit)


def offered(env: Any) -> bool:
    """Say whether this environment can be put into an earlier state."""
    return _core(env) is not None


def take(env: Any) -> State:
    """Take down all there is to know of a running episode."""
    core = _core(env)
    assert core is not None
    return {"state": copy.deepcopy(core.get_state()), "elapsed": _elapsed(env)}


def put(env: Any, state: State) -> None:
    """Put an environment that was just reset into a state that was taken down."""
    core = _core(env)
    assert core is not None
    core.set_state(copy.deepcopy(state["state"]))
    limits = _limits(env)
    for limit, steps in zip(limits, state["elapsed"], strict=True):
        limit._elapsed_steps = int(steps)  # type: ignore[assignment]


def _core(env: Any) -> Any | None:
    """Find the outermost part that offers its state, behind transparent wrappers."""
    while not all(callable(getattr(env, name, None)) for name in METHODS):
        if not isinstance(env, TRANSPARENT):
            return None
        env = env.env
    return env


def _limits(env: Any) -> list[TimeLimit[Any, Any]]:
    """List the time limits outside the part that offers its state."""
    core, found = _core(env), []
    while env is not core:
        if isinstance(env, TimeLimit):
            found.append(env)
        env = env.env
    return found


def _elapsed(env: Any) -> list[int]:
    return [int(limit._elapsed_steps or 0) for limit in _limits(env)]
