"""State: what a checkpoint holds. A tree of dicts and lists with arrays and JSON scalars, and data
that only grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from surefoot.core.tree import Array

State: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Piece:
    """Some arrays by name that never change again."""

    arrays: State


@dataclass(frozen=True, eq=False)
class Appended:
    """A leaf that grows at its end, and may be dropped from its beginning, piece by piece.

    A store writes each piece once, however many checkpoints hold it.
    """

    pieces: Sequence[Piece]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Arrays that differ in the length of their first axis alone; a store keeps them as one."""

    parts: Sequence[Array]


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Name the places where two states are not the same, bit for bit."""
    if type(one) is not type(other):
        return [f"{path}: a {type(one).__name__} against a {type(other).__name__}"]
    if isinstance(one, dict):
        keys = sorted(one.keys() | other.keys())
        pairs = [(f"{path}/{key}" if path else key, one.get(key), other.get(key)) for key in keys]
        return [found for key, a, b in pairs for found in differences(a, b, key)]
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{path}: {len(one)} entries against {len(other)}"]
        both = enumerate(zip(one, other, strict=True))
        return [found for i, (a, b) in both for found in differences(a, b, f"{path}/{i}")]
    if isinstance(one, Appended):
        mine, theirs = ([piece.arrays for piece in side.pieces] for side in (one, other))
        return differences(mine, theirs, path)
    if isinstance(one, Ragged):
        return differences(list(one.parts), list(other.parts), path)
    if isinstance(one, np.ndarray):
        return _array_differences(one, other, path)
    return [] if one == other else [f"{path}: {one!r} against {other!r}"]


def _array_differences(one: Any, other: Any, path: str) -> list[str]:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return [f"{path}: {one.dtype}{one.shape} against {other.dtype}{other.shape}"]
    if one.tobytes() == other.tobytes():
        return []
    unequal = int((one != other).sum())
    return [f"{path}: {unequal} of {one.size} numbers differ"]
