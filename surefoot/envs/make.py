"""From a name or a function to environments."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.wrappers import TimeLimit

from surefoot.core.errors import ConfigError
from surefoot.core.protocols import VectorEnv
from surefoot.core.tree import Array
from surefoot.envs.gymnasium import GymnasiumVector
from surefoot.envs.metrics import REMEDY, Measure
from surefoot.envs.names import Imported, absolute, name_of, registered, said
from surefoot.envs.vector import NativeVector


@dataclass(frozen=True)
class Factory:
    """Makes an environment, as often as asked."""

    name: str
    """What messages and run directories call it."""
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    metrics: Measure | None = None
    """The function that takes more numbers from every step, if there is one."""
    divisible: bool = False
    """Whether it makes a vector with as many environments as the argument `rows` says."""
    reset_every: int | None = None
    """Steps after which an episode is cut, if nothing else ends it."""

    def sized(self, rows: int) -> Factory:
        """Return what makes so many rows, if that can be said."""
        return replace(self, arguments={**self.arguments, "rows": rows}) if self.divisible else self

    def with_arguments(self, more: Mapping[str, Any]) -> Factory:
        return replace(self, arguments={**self.arguments, **more})

    def __call__(self) -> Any:
        """Build one Gymnasium environment or vector environment."""
        given = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        try:
            env = self.function(**self.arguments)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.name}({given}) failed: {said(error)}") from error
        if not isinstance(env, gymnasium.Env | GymnasiumVectorEnv):
            raise ConfigError(
                f"{self.name} returned a {type(env).__name__}; it must return a gymnasium.Env "
                f"or a gymnasium.vector.VectorEnv"
            )
        for space in ("observation_space", "action_space"):
            if not hasattr(env, space):
                raise ConfigError(f"{self.name} made a {type(env).__name__} without {space}")
        if self.reset_every is not None and isinstance(env, gymnasium.Env):
            env = TimeLimit(env, self.reset_every)
        return env if self.metrics is None else self.metrics.around(env)


def factory(
    env: str | Callable[..., Any],
    arguments: Mapping[str, Any] | None = None,
    metrics: str | Callable[..., Any] = "",
    reset_every: int | None = None,
) -> Factory:
    """Find what makes the environment: a function, a Gymnasium id, or `module:factory`; and what
    takes more numbers from it, if anything does. `reset_every` is the number of steps after which
    episodes are cut."""
    return replace(_found(env, arguments or {}, measure(metrics)), reset_every=reset_every)


def _found(
    env: str | Callable[..., Any], arguments: Mapping[str, Any], measured: Measure | None
) -> Factory:
    if callable(env):
        return Factory(name_of(env), env, arguments, measured)
    if not env:
        raise ConfigError("no environment given: name a Gymnasium id or module:factory")
    if ":" not in env:
        found = registered(env)
        vector = found.as_vector()
        return Factory(env, vector or found, arguments, measured, divisible=vector is not None)
    imported = Imported(absolute(env))
    imported.find()  # raises where it leads nowhere
    return Factory(env, imported, arguments, measured)


def measure(metrics: str | Callable[..., Any]) -> Measure | None:
    """Find a metrics function: given, or `module:function`; none if the name is empty."""
    if metrics == "":
        return None
    if not isinstance(metrics, str):
        if not callable(metrics):
            raise ConfigError(f"metrics={metrics!r}: {REMEDY}")
        return Measure(name_of(metrics), lambda: metrics)
    if ":" not in metrics:
        raise ConfigError(f"metrics={metrics!r}: {REMEDY}")
    imported = Imported(absolute(metrics))
    try:
        imported.find()
    except ConfigError as error:
        raise ConfigError(f"metrics={metrics!r}: {error}") from error.__cause__
    return Measure(metrics, imported.find)


def ship(make: Factory) -> bytes:
    """Pack a factory for a process with the same Python path and working directory."""
    try:
        return pickle.dumps((make.name, cloudpickle.dumps(make)))
    except Exception as error:
        raise ConfigError(
            f"{make.name} cannot be sent to a worker process: {_unpicklable(make)}{error}; "
            f"make that inside the function, or use --collector local"
        ) from error


def unship(packed: bytes) -> Factory:
    """Unpack a factory in the process that is to use it."""
    name, content = pickle.loads(packed)
    try:
        make: Factory = pickle.loads(content)
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be used in a worker process: {said(error)}; name it as "
            f"module:function or file.py:function, or use --collector local"
        ) from error
    return make


def _unpicklable(make: Factory) -> str:
    """Name the variable that cannot be sent, where it can be told."""
    used = dict(make.arguments)
    for function in (make.function, make.metrics and make.metrics.find()):
        if inspect.isfunction(function):
            found = inspect.getclosurevars(function)
            used |= {**found.globals, **found.nonlocals}
    for name, value in used.items():
        try:
            cloudpickle.dumps(value)
        except Exception:
            return f"its {name!r} is a {type(value).__name__}: "
    return ""


def make_vector(
    make: Factory,
    rows: int,
    rebuild: bool = False,
    first_row: int = 0,
    trail: Array | None = None,
) -> VectorEnv:
    """Build the environments and lay them out as exactly this many rows."""
    if trail is not None:
        trail[0] += 1
    make = make.sized(rows)
    first = make()
    if isinstance(first, GymnasiumVectorEnv) and first.num_envs != rows:
        raise ConfigError(
            f"envs={rows}, but {make.name} makes a vector of {first.num_envs} environments; "
            f"set envs to {first.num_envs}"
        )
    return lay_out(make, first, rows, rebuild, first_row, trail)


def make_some(make: Factory, rows: int) -> VectorEnv:
    """Build this many rows, or as many as a vector environment has."""
    make = make.sized(rows)
    return lay_out(make, make(), rows)


def lay_out(
    make: Factory,
    first: Any,
    rows: int,
    rebuild: bool = False,
    first_row: int = 0,
    trail: Array | None = None,
) -> VectorEnv:
    """Lay out rows, of which the first environment, or the whole vector, is built already."""
    if isinstance(first, GymnasiumVectorEnv):
        return NativeVector(make.name, first, make, first_row, trail, make.reset_every)
    envs = [first]
    for _ in range(rows - 1):
        if trail is not None:
            trail[0] += 1
        envs.append(make())
    for row, env in enumerate(envs):
        spaces = (env.observation_space, env.action_space)
        if spaces != (first.observation_space, first.action_space):
            raise ConfigError(f"{make.name} made different spaces for row 0 and row {row}")
    return GymnasiumVector(make.name, envs, make, rebuild, first_row, trail)
