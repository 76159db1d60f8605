"""Arrays by name over one block of shared memory that has no name of its own.

Nothing is left behind in the file system, whatever happens to the processes that use it: the block
lives as long as somebody has it open.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
from typing import Any, NamedTuple

import numpy as np

from surefoot.core import tree
from surefoot.core.spec import Space, Spec
from surefoot.core.tree import Array, Tree

ALIGNMENT = 64
"""Arrays begin on cache lines of their own."""
METRICS, NAME_BYTES = 256, 128
"""How many different metrics of environments travel, and the room for the name of each."""


class Field(NamedTuple):
    """What an array will look like."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def layout(spec: Spec, workers: int) -> dict[str, Tree]:
    """Lay out what workers and their parent exchange: one step of every row."""
    rows = spec.rows
    observation = tree.map(lambda leaf: Field(leaf.shape, str(leaf.dtype)), _observations(spec))
    return {
        "obs": observation,
        "final_obs": observation,
        "action": tree.map(
            lambda leaf: Field(leaf.shape, str(leaf.dtype)), spec.empty_actions(rows)
        ),
        "reward": Field((rows,), "float64"),
        "terminated": Field((rows,), "bool"),
        "truncated": Field((rows,), "bool"),
        "valid": Field((rows,), "bool"),
        "success": Field((rows,), "float64"),
        "metrics": Field((METRICS, rows), "float64"),
        "metric_count": Field((rows,), "int64"),
        "metric_names": Field((workers, METRICS, NAME_BYTES), "uint8"),
    }


def _observations(spec: Spec) -> Tree:
    def shaped(space: Space) -> Array:
        return np.broadcast_to(np.zeros((), space.dtype), (spec.rows, *space.shape))

    return tree.map(shaped, spec.observation)


def allocate(fields: dict[str, Tree]) -> int:
    """Get a block of memory for these arrays, all zero; return its descriptor."""
    descriptor = anonymous_file()
    resize(descriptor, fields)
    return descriptor


def resize(descriptor: int, fields: dict[str, Tree]) -> None:
    """Make room for these arrays in a block that has none yet."""
    os.ftruncate(descriptor, sum(_room(field) for field in tree.leaves(fields)))


def anonymous_file() -> int:
    """Open a file that is nowhere in the file system."""
    if sys.platform == "linux":
        return os.memfd_create("surefoot")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def attach(fields: dict[str, Tree], descriptor: int) -> dict[str, Any]:
    """See the block behind a descriptor as these arrays."""
    memory = mmap.mmap(descriptor, 0)
    start = 0

    def place(field: Field) -> Array:
        nonlocal start
        count = math.prod(field.shape)
        array: Array = np.frombuffer(memory, field.dtype, count, start).reshape(field.shape)
        start += _room(field)
        return array

    return {name: tree.map(place, part) for name, part in fields.items()}


def _room(field: Field) -> int:
    return -(-field.size // ALIGNMENT) * ALIGNMENT
