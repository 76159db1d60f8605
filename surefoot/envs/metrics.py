"""Numbers that a function of the user's takes from every step, beside those in `info["metrics"]`.

The function's parameters are `info`, `env` or both; it returns a dict of numbers. For a vector of N
environments it gets the vector's infos and returns arrays [N].
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from surefoot.core.errors import ConfigError
from surefoot.core.tree import Array

PARAMETERS = {"info", "env"}
REMEDY = (
    "pass a function of `info`, `env` or both, or name one as module:function or file.py:function"
)


class MetricsFault(Exception):
    """The function raised, or returned what is no dict of numbers; `cause` is what it raised."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Measure:
    """A metrics function and where to find it: every process finds its own."""

    name: str
    find: Callable[[], Callable[..., Any]]

    def __post_init__(self) -> None:
        _require_parameters(self.name, self.find())

    def around(self, env: Any) -> Any:
        """Wrap an environment or a vector so that it reports the function's numbers too."""
        function = self.find()
        takes = PARAMETERS & inspect.signature(function).parameters.keys()
        wrapper = MeasuredVector if isinstance(env, GymnasiumVectorEnv) else Measured
        return wrapper(env, _Reading(self.name, function, takes))


class Measured(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps report more numbers."""

    def __init__(self, env: gymnasium.Env[Any, Any], reading: _Reading) -> None:
        super().__init__(env)
        self._reading = reading

    def step(self, action: Any) -> Any:
        returned = self.env.step(action)
        if type(returned) is not tuple or len(returned) != 5 or not _sound(returned[4]):
            return returned  # whoever steps this says what is wrong with it
        *result, info = returned
        numbers = self._reading(self.env, info, ())
        return (*result, {**info, "metrics": {**info.get("metrics", {}), **numbers}})


class MeasuredVector(VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector environment whose steps report more numbers.

    `ended` marks the rows that ended with the step before.
    """

    def __init__(self, env: GymnasiumVectorEnv[Any, Any, Any], reading: _Reading) -> None:
        super().__init__(env)
        self._reading = reading
        self.ended = np.zeros(env.num_envs, bool)

    def reset(self, **arguments: Any) -> Any:
        self.ended = np.zeros(self.num_envs, bool)
        return self.env.reset(**arguments)

    def step(self, actions: Any) -> Any:
        *result, terminated, truncated, infos = self.env.step(actions)
        ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        before, self.ended = self.ended, ended
        if _sound(infos):
            mode: Any = self.metadata.get("autoreset_mode")
            # What these rows report is of a reset: there was no step, or `final_info` has it.
            reset = {AutoresetMode.NEXT_STEP: before, AutoresetMode.SAME_STEP: ended}.get(mode)
            infos = self._read(infos, np.ones_like(ended) if reset is None else ~reset)
            # There the environment is in its next episode, and `info` alone is of the last step.
            if _sound(infos.get("final_info")) and self._reading.takes == {"info"}:
                infos = {**infos, "final_info": self._read(infos["final_info"], ended)}
        return *result, terminated, truncated, infos

    def _read(self, infos: dict[str, Any], rows: Array) -> dict[str, Any]:
        """Lay the function's numbers for these rows over those that are there."""
        if not rows.any():
            return infos
        numbers = self._reading(self.env, infos, rows.shape)
        masks = {f"_{name}": rows for name in numbers}
        return {**infos, "metrics": {**infos.get("metrics", {}), **masks, **numbers}}


@dataclass(frozen=True)
class _Reading:
    name: str
    function: Callable[..., Any]
    takes: set[str]

    def __call__(self, env: Any, info: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """Call the function; raise a MetricsFault unless it returns numbers of this shape."""
        given = {"info": info, "env": env}
        try:
            numbers: dict[str, Any] = self.function(**{name: given[name] for name in self.takes})
        except Exception as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise MetricsFault(f"the metrics function {self.name} raised {said}", error) from error
        if not isinstance(numbers, dict) or not all(isinstance(name, str) for name in numbers):
            self._refuse(f"returned {numbers!r:.200}, not a dict of numbers by name")
        for name, value in numbers.items():
            if not _is_numeric(value, shape):
                wanted = f"{shape[0]} numbers, one for each row" if shape else "a number"
                self._refuse(f"returned {name!r} = {value!r:.200}, not {wanted}")
        return numbers

    def _refuse(self, what: str) -> NoReturn:
        raise MetricsFault(f"the metrics function {self.name} {what}")


def _sound(info: Any) -> bool:
    return isinstance(info, dict) and isinstance(info.get("metrics", {}), dict)


def _is_numeric(value: Any, shape: tuple[int, ...]) -> bool:
    if not shape and type(value) is float:
        return True  # the usual case, on every step
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        return False
    fits = array.shape == shape if shape else array.size == 1
    return fits and array.dtype.kind in "fiub"


def _require_parameters(name: str, function: Callable[..., Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"metrics={name}: its parameters are unknown; {REMEDY}") from None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = {p.name for p in parameters if p.kind in named}
    needed = {p.name for p in parameters if p.default is p.empty}
    if not taken & PARAMETERS or needed - (PARAMETERS & taken):
        shown = ", ".join(str(parameter) for parameter in parameters)
        raise ConfigError(f"metrics={name} takes ({shown}); {REMEDY}")
