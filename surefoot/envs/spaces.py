"""Gymnasium spaces as ours: what to expect from an environment and what to send to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from surefoot.core import tree
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Box, Discrete, MultiDiscrete, Space
from surefoot.core.tree import Array, Tree

Reader: TypeAlias = Callable[[Any, Tree, Any], None]
"""Check what an environment returned and copy it to a place in a buffer: (raw, buffer, where)."""


class BadOutput(Exception):
    """What an environment returned is not what its space promises."""


def to_spec(space: Any, what: str) -> Tree:
    """Describe a Gymnasium space as a tree of our spaces."""
    match space:
        case spaces.Box():
            return Box(space.low, space.high, str(space.dtype))
        case spaces.Discrete():
            return Discrete(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            return MultiDiscrete(space.nvec.astype(np.int64), space.start.astype(np.int64))
        case spaces.MultiBinary():
            return MultiDiscrete(np.full(space.shape, 2), np.zeros(space.shape, np.int64))
        case spaces.Dict():
            return {key: to_spec(part, f"{what}/{key}") for key, part in space.items()}
        case spaces.Tuple():
            return {str(i): to_spec(part, f"{what}/{i}") for i, part in enumerate(space)}
        case _:
            raise ConfigError(
                f"{what} space {space} is not supported; "
                f"use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"
            )


def reader(spec: Tree, field: str) -> Reader:
    """Make the function that takes one row's value of this shape out of what came back."""
    if isinstance(spec, dict):
        return _dict_reader(
            {key: reader(part, f"{field}/{key}") for key, part in spec.items()}, field
        )
    return _leaf_reader(spec, field)


def _dict_reader(parts: dict[str, Reader], field: str) -> Reader:
    def read(raw: Any, buffer: Tree, where: Any) -> None:
        raw = tree.untupled(raw)
        if not isinstance(raw, dict) or raw.keys() != parts.keys():
            got = sorted(raw) if isinstance(raw, dict) else type(raw).__name__
            raise BadOutput(f"{field} is {got}, but the space has the keys {sorted(parts)}")
        for key, part in parts.items():
            part(raw[key], buffer[key], where)

    return read


def _leaf_reader(space: Space, field: str) -> Reader:
    dtype, shape, plain = np.dtype(space.dtype), space.shape, isinstance(space, Box)

    def read(raw: Any, buffer: Array, where: Any) -> None:
        if plain and type(raw) is np.ndarray and raw.dtype == dtype and raw.shape == shape:
            buffer[where] = raw  # what nearly every environment returns for one row
            return
        try:
            value = np.asarray(raw)
        except ValueError as error:
            raise BadOutput(f"{field} is not an array: {error}") from None
        expected = buffer[where].shape
        if value.shape != expected:
            raise BadOutput(f"{field} has shape {value.shape}, but the space has {expected}")
        if value.dtype != dtype and not np.can_cast(value.dtype, dtype, "same_kind"):
            raise BadOutput(f"{field} has dtype {value.dtype}, but the space has {dtype}")
        try:
            buffer[where] = space.from_env(value)
        except ValueError as error:
            raise BadOutput(f"{field} is {raw}, {error}") from None

    return read


def require_playable(spec: Tree, space: Any) -> None:
    """Refuse actions that no policy can choose yet."""
    match spec:
        case Discrete() | MultiDiscrete():
            return
        case Box(dtype=dtype) if np.issubdtype(np.dtype(dtype), np.floating):
            return
        case _:
            raise ConfigError(
                f"action space {space} is not supported yet; use Discrete, MultiDiscrete, "
                f"MultiBinary, or a Box of floating-point numbers"
            )


def nonfinite(buffer: Tree) -> tuple[str, int] | None:
    """Return the path and the row of the first NaN or infinity in [N, …] numbers, if any."""
    for path, leaf in tree.items(buffer):
        if not surely_finite(leaf):
            bad = ~np.isfinite(leaf).reshape(len(leaf), -1).all(1)
            if bad.any():
                return path, int(bad.argmax())
    return None


def surely_finite(leaf: Array) -> bool:
    """Look for NaN and infinity in a sum of squares, which is the quickest; it may be infinite
    though all numbers are not."""
    return leaf.dtype.kind != "f" or math.isfinite(np.vdot(leaf, leaf))  # vdot does not warn


def some(flags: Array) -> bool:
    """Say whether any is set; for few, numpy's own functions take three times as long."""
    return 1 in flags.tobytes()
