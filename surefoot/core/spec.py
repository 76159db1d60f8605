"""What an environment looks like from outside: its observations, its actions, its rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from surefoot.core import tree
from surefoot.core.repeated import Repeated
from surefoot.core.tree import Array, Tree


@dataclass(frozen=True, eq=False)
class Box:
    """Numbers in an array; bounds may be infinite."""

    low: Array
    high: Array
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def size(self) -> int:
        return self.low.size

    def to_env(self, action: Array) -> Array:
        """Clip to the bounds, which a policy's samples may leave."""
        low, high = self.low, self.high
        if action.ndim == low.ndim + 1:  # [B, …]
            low, high = self._low.of(len(action)), self._high.of(len(action))
        clipped: Array = np.minimum(np.maximum(action, low), high)
        return clipped.astype(self.dtype, copy=False)

    @cached_property
    def _low(self) -> Repeated:
        return Repeated(self.low)

    @cached_property
    def _high(self) -> Repeated:
        return Repeated(self.high)

    def from_env(self, values: Array) -> Array:
        return values

    def __str__(self) -> str:
        low, high = (self.low.min(), self.high.max()) if self.low.size else (0, 0)
        return f"Box({self.shape}, {self.dtype}, {low:g} to {high:g})"


@dataclass(frozen=True, eq=False)
class Discrete:
    """One of n choices. Rollouts hold the index 0 … n-1; the environment sees index + start."""

    n: int
    start: int = 0

    @property
    def size(self) -> int:
        return self.n

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> str:
        return "int64"

    def to_env(self, action: Array) -> Array:
        return action + self.start

    def from_env(self, values: Array) -> Array:
        return _indices(values - self.start, self.n, self)

    def __str__(self) -> str:
        return (
            f"Discrete({self.n})" if self.start == 0 else f"Discrete({self.n}, from {self.start})"
        )


@dataclass(frozen=True, eq=False)
class MultiDiscrete:
    """Several choices at once; `bins` counts the options of each and keeps the space's shape."""

    bins: Array
    start: Array

    @property
    def size(self) -> int:
        return int(self.bins.sum())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bins.shape

    @property
    def dtype(self) -> str:
        return "int64"

    def to_env(self, action: Array) -> Array:
        return action + self.start

    def from_env(self, values: Array) -> Array:
        return _indices(values - self.start, self.bins, self)

    def __str__(self) -> str:
        return f"MultiDiscrete({self.bins.tolist()})"


def _indices(indices: Array, count: int | Array, space: Discrete | MultiDiscrete) -> Array:
    if (indices < 0).any() or (indices >= count).any():
        raise ValueError(f"outside its space {space}")
    return indices


Space: TypeAlias = Box | Discrete | MultiDiscrete
KINDS: dict[str, type[Space]] = {kind.__name__: kind for kind in (Box, Discrete, MultiDiscrete)}


@dataclass(frozen=True)
class Spec:
    """Trees of spaces for one row, and how many rows there are."""

    observation: Tree
    action: Tree
    rows: int

    def empty_observations(self, *axes: int) -> Tree:
        """Allocate zeroed observations with these leading axes."""
        return tree.map(
            lambda space: np.zeros((*axes, *space.shape), space.dtype), self.observation
        )

    def empty_actions(self, *axes: int) -> Tree:
        """Allocate zeroed actions with these leading axes, in the types that policies choose."""

        def empty(space: Space) -> Array:
            dtype = np.float32 if isinstance(space, Box) else np.int64
            return np.zeros((*axes, *space.shape), dtype)

        return tree.map(empty, self.action)

    def to_env(self, action: Tree) -> Tree:
        """Turn a policy's actions, with any leading axes, into what environments take."""
        return tree.map(lambda space, leaf: space.to_env(leaf), self.action, action)

    @property
    def size(self) -> int:
        """Count the numbers and options of one observation and one action."""
        spaces = [*tree.leaves(self.observation), *tree.leaves(self.action)]
        return sum(space.size for space in spaces)

    def state(self) -> dict[str, Any]:
        """Describe the spaces as arrays and JSON scalars."""
        describe = {"observation": self.observation, "action": self.action}
        return {"rows": self.rows, **{name: tree.map(_to_state, t) for name, t in describe.items()}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Spec:
        """Rebuild what `state` described."""
        return cls(_from_state(state["observation"]), _from_state(state["action"]), state["rows"])


def differences(trained: Spec, environment: Spec) -> list[str]:
    """Name the places where the spaces of two specs differ, with both spaces."""
    found = []
    for name in ("observation", "action"):
        mine, other = (dict(tree.items(getattr(s, name))) for s in (trained, environment))
        for path in sorted(mine.keys() | other.keys()):
            a, b = mine.get(path), other.get(path)
            if a is None or b is None or not _same(a, b):
                place = f"{name}{'/' + path if path else ''}"
                bounds = " with other bounds" if str(a) == str(b) else ""
                found.append(
                    f"{place} is {a or 'absent'} in the checkpoint, {b or 'absent'}{bounds} in the "
                    f"environment"
                )
    return found


def _same(one: Space, other: Space) -> bool:
    if type(one) is not type(other):
        return False
    pairs = ((getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return all(np.array_equal(a, b) for a, b in pairs)


def _to_state(space: Space) -> dict[str, Any]:
    values = {field.name: getattr(space, field.name) for field in fields(space)}
    return {"kind": type(space).__name__, **values}


def _from_state(state: dict[str, Any]) -> Tree:
    if "kind" in state and isinstance(state["kind"], str):
        space = KINDS[state["kind"]](**{k: v for k, v in state.items() if k != "kind"})
        _require_sound(space)
        return space
    return {key: _from_state(value) for key, value in state.items()}


def _require_sound(space: Space) -> None:
    """Refuse what no environment could have."""
    match space:
        case Box(low=low, high=high, dtype=dtype):
            sound = low.shape == high.shape and np.dtype(dtype).kind in "biuf"
        case Discrete(n=n, start=start):
            sound = type(n) is int and type(start) is int and n > 0
        case MultiDiscrete(bins=bins, start=start):
            whole = bins.dtype == start.dtype == np.int64
            sound = whole and bins.shape == start.shape and bool((bins > 0).all())
    if not sound:
        raise ValueError(f"{type(space).__name__} is not sound")
