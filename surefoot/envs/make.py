"""From a name or a function to environments."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.wrappers import TimeLimit

from surefoot.core.errors import ConfigError, nearest
from surefoot.core.protocols import VectorEnv
from surefoot.core.tree import Array
from surefoot.envs import queueing
from surefoot.envs.gymnasium import GymnasiumVector
from surefoot.envs.metrics import REMEDY, Measure
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
            raise ConfigError(f"{self.name}({given}) failed: {_said(error)}") from error
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
        found = _registered(env)
        vector = found.as_vector()
        return Factory(env, vector or found, arguments, measured, divisible=vector is not None)
    imported = Imported(absolute(env))
    imported.find()  # raises where it leads nowhere
    return Factory(env, imported, arguments, measured)


@dataclass(frozen=True)
class Registered:
    """Makes a registered environment, in a process that does not know its id too."""

    spec: EnvSpec

    def __call__(self, **arguments: Any) -> Any:
        name = self.spec.id
        try:
            # Our own loop checks every value, so Gymnasium's checker would do it twice.
            return gymnasium.make(self.spec, disable_env_checker=True, **arguments)
        except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
            raise ConfigError(f"{name} needs a package that is missing: {error}") from None
        except TypeError as error:
            raise ConfigError(f"{name} does not take these arguments: {error}") from None
        except gymnasium.error.Error as error:
            raise ConfigError(f"{name}: {error}") from None

    def as_vector(self) -> RegisteredVector | None:
        """Return what makes the environment's own vector, if there is one whose rows are like
        single ones: to step it instead changes no number."""
        place = self.spec.vector_entry_point
        made = load_env_creator(place) if isinstance(place, str) else place
        native = getattr(made, "metadata", {}).get("seed_for_each_row", False)
        return RegisteredVector(self.spec.id, made, self.spec.kwargs) if native else None


@dataclass(frozen=True)
class RegisteredVector:
    """Makes a vector of a registered environment that has one of its own."""

    name: str
    kind: Any
    defaults: Mapping[str, Any]

    def __call__(self, rows: int = 1, **arguments: Any) -> Any:
        try:
            return self.kind(num_envs=rows, **{**self.defaults, **arguments})
        except TypeError as error:
            raise ConfigError(f"{self.name} does not take these arguments: {error}") from None

    def identity(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments in a form that is equal where the environment is."""
        told = getattr(self.kind, "identity", lambda given: given)
        same: Mapping[str, Any] = told({**self.defaults, **arguments})
        return same

    def settled(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that mean the same everywhere."""
        told = getattr(self.kind, "settled", dict)
        same: dict[str, Any] = told(arguments)
        return same


@dataclass(frozen=True)
class Imported:
    """Calls what `module:name` or `file.py:name` refers to; every process imports it itself."""

    reference: str

    def __call__(self, **arguments: Any) -> Any:
        return self.find()(**arguments)

    def find(self) -> Callable[..., Any]:
        """Import it; the name may also be of an environment that the module registers."""
        place, _, name = self.reference.rpartition(":")
        module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
        function = getattr(module, name, None)
        if function is None and name in gymnasium.registry:
            return _registered(name)
        if function is None:
            public = [word for word in vars(module) if not word.startswith("_")]
            raise ConfigError(f"{place} has no {name!r}{nearest(name, public)}")
        if not callable(function):
            kind = type(function).__name__
            raise ConfigError(f"{self.reference} is a {kind}, not a function")
        return function  # type: ignore[no-any-return]


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
            f"{name} cannot be used in a worker process: {_said(error)}; name it as "
            f"module:function or file.py:function, or use --collector local"
        ) from error
    return make


def identity(env: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments in a form that is equal where the environment is."""
    queueing.register_envs()
    if env not in gymnasium.registry:
        return arguments
    vector = _registered(env).as_vector()
    return arguments if vector is None else vector.identity(arguments)


def settled(env: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that mean the same everywhere, if the environment can say so."""
    queueing.register_envs()
    vector = _registered(env).as_vector() if env in gymnasium.registry else None
    return dict(arguments) if vector is None else vector.settled(arguments)


def absolute(env: str) -> str:
    """Give a `path/to/file.py:factory` its full path, so that it can be found from anywhere."""
    place, _, name = env.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else env


def reference(thing: str | Callable[..., Any]) -> str:
    """Write down how a run remembers a function: by its full name, or only as `<name>`."""
    return absolute(thing) if isinstance(thing, str) else name_of(thing)


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


def name_of(function: Callable[..., Any]) -> str:
    """Name a function `module:name` if it can be imported so, else `<name>`."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    if module != "__main__" and found is function:
        return f"{module}:{name}"
    name = name or type(function).__name__
    return name if name.startswith("<") else f"<{name}>"


def _from_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"importing {name} failed: {error}; is it on the Python path?") from None
    except Exception as error:
        raise ConfigError(f"importing {name} failed: {_said(error)}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"the file {path} does not exist")
    name = f"surefoot_file_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"importing {path} failed: {_said(error)}") from error
    return module


def _said(error: Exception) -> str:
    """Say what was raised, and where: the user's own line is what they need to see."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


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


def _registered(name: str) -> Registered:
    """Find what makes a registered environment."""
    queueing.register_envs()
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        if isinstance(error, gymnasium.error.UnregisteredEnv):
            hint = nearest(name, gymnasium.registry) or "; see gymnasium.pprint_registry()"
            raise ConfigError(f"there is no environment {name!r}{hint}") from None
        raise ConfigError(f"environment {name!r}: {error}") from None
    place, _, attribute = str(spec.entry_point).partition(":")
    # In another process `__main__` is another module, so take along what it refers to.
    own = getattr(sys.modules["__main__"], attribute, None) if place == "__main__" else None
    return Registered(spec if own is None else replace(spec, entry_point=own))
