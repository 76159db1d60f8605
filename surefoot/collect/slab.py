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
from surefoot.core.tree import Array, Tree

ALIGNMENT = 64
"""Arrays begin on cache lines of their own."""


class Field(NamedTuple):
    """What an array will look like."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def blank(fields: dict[str, Tree]) -> dict[str, Any]:
    """Make these arrays in this process's own memory, all zero."""
    arrays: dict[str, Any] = tree.map(lambda f: np.zeros(f.shape, f.dtype), fields)
    return arrays


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


def write_letter(descriptor: int, words: bytes) -> None:
    """Leave words behind a descriptor; whoever reads them needs another sign that they are whole.

    Unlike a pipe or socket, this never waits for the reader.
    """
    os.pwrite(descriptor, len(words).to_bytes(8, "little"), 0)
    left, start = memoryview(words), 8
    while left:
        written = os.pwrite(descriptor, left, start)
        left, start = left[written:], start + written


def read_letter(descriptor: int) -> bytes:
    """Read what was left there last."""
    size, words = int.from_bytes(os.pread(descriptor, 8, 0), "little"), bytearray()
    while len(words) < size:
        words += os.pread(descriptor, size - len(words), 8 + len(words))
    return bytes(words)


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
