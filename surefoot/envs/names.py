"""From names to what they refer to."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from surefoot.core.errors import ConfigError, nearest
from surefoot.envs import queueing


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
        try:
            made = load_env_creator(place) if isinstance(place, str) else place
        except (ImportError, AttributeError):  # single ones may do all the same
            return None
        native = getattr(made, "metadata", {}).get("seed_for_each_row", False)
        return RegisteredVector(self.spec.id, made, self.spec.kwargs) if native else None


@dataclass(frozen=True)
class RegisteredVector:
    """Makes a vector of a registered environment that has one of its own."""

    name: str
    kind: Any
    defaults: Mapping[str, Any]

    def __call__(self, rows: int = 1, **arguments: Any) -> Any:
        known = list(inspect.signature(self.kind).parameters)[1:]
        for name in arguments:
            if name not in known:
                hint = nearest(name, known) or f"; it takes {', '.join(known)}"
                raise ConfigError(f"{self.name} takes no argument {name!r}{hint}")
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


def registered(name: str) -> Registered:
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
            return registered(name)
        if function is None:
            public = [word for word in vars(module) if not word.startswith("_")]
            raise ConfigError(f"{place} has no {name!r}{nearest(name, public)}")
        if not callable(function):
            kind = type(function).__name__
            raise ConfigError(f"{self.reference} is a {kind}, not a function")
        return function  # type: ignore[no-any-return]


def identity(env: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments in a form that is equal where the environment is."""
    queueing.register_envs()
    if env not in gymnasium.registry:
        return arguments
    vector = registered(env).as_vector()
    return arguments if vector is None else vector.identity(arguments)


def settled(env: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that mean the same everywhere, if the environment can say so."""
    queueing.register_envs()
    vector = registered(env).as_vector() if env in gymnasium.registry else None
    return dict(arguments) if vector is None else vector.settled(arguments)


def absolute(env: str) -> str:
    """Give a `path/to/file.py:factory` its full path, so that it can be found from anywhere."""
    place, _, name = env.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else env


def reference(thing: str | Callable[..., Any]) -> str:
    """Write down how a run remembers a function: by its full name, or only as `<name>`."""
    return absolute(thing) if isinstance(thing, str) else name_of(thing)


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
        raise ConfigError(f"importing {name} failed: {said(error)}") from error


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
        raise ConfigError(f"importing {path} failed: {said(error)}") from error
    return module


def said(error: Exception) -> str:
    """Say what was raised, and where: the user's own line is what they need to see."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
