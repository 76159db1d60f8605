"""A ring of transitions to draw from, as large as memory or a file."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from surefoot.core import hardware, tree
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Spec
from surefoot.core.state import Appended, Piece, State
from surefoot.core.tree import Array
from surefoot.learn.transitions import Transitions, require_like

CHUNK, CHUNK_BYTES = 4096, 1 << 20
"""Transitions that are saved as one piece, and how many bytes of them are enough."""
SHARE = 0.8
"""Of the memory or disk that is free, what a buffer may take."""
Allocate: TypeAlias = Callable[[tuple[int, ...], np.dtype], Array]


class Replay:
    """The newest transitions, in chunks: the oldest chunk goes when a new one needs its place, so
    there are `capacity` of them, and up to a chunk more.

    A chunk that is full never changes, so it is saved once. Where transitions lie in memory does
    not matter: they are drawn by their age.
    """

    def __init__(self, like: Transitions, capacity: int, chunk: int, allocate: Allocate) -> None:
        """`like` is a transition without a batch axis, in the types to keep."""
        self._like, self._allocate = like, allocate
        self._chunk, self._chunks = chunk, chunks_for(capacity, chunk)
        count = self._chunks * chunk
        self.transition_bytes = _bytes(like)
        self._ring = like.map(lambda leaf: allocate((count, *leaf.shape), leaf.dtype))
        self._full: deque[Piece] = deque()
        """Chunks that are full, oldest first."""
        self._first = 0
        """Where the oldest chunk lies."""
        self._filled = 0
        """Of the newest chunk."""

    def __len__(self) -> int:
        return len(self._full) * self._chunk + self._filled

    def add(self, new: Transitions) -> None:
        """Take in [B, …] transitions, the oldest first."""
        count, start = len(new.reward), 0
        while start < count:
            size = min(count - start, self._chunk - self._filled)
            if self._filled == 0:
                self._make_room()
            where = self._places(len(self._full), slice(self._filled, self._filled + size))
            some = slice(start, start + size)
            for place, values in zip(self._ring, new, strict=True):
                tree.write(place, where, tree.index(values, some))
            self._filled += size
            start += size
            if self._filled == self._chunk:
                self._full.append(Piece(self._view(len(self._full))))
                self._filled = 0

    def draw(self, random: np.random.Generator, *axes: int) -> Transitions:
        """Return transitions by chance, with these leading axes; one may come twice."""
        age = random.integers(0, len(self), axes)
        places = (self._first * self._chunk + age) % (self._chunks * self._chunk)
        return self._ring.map(lambda leaf: leaf.take(places, 0))

    def state(self) -> State:
        newest = self._places(len(self._full), slice(0, self._filled))
        rest = self._ring.map(lambda leaf: leaf[newest].copy())
        return {"chunks": Appended(list(self._full)), "rest": rest._asdict()}

    def restore(self, state: State) -> None:
        self._full.clear()
        self._first = self._filled = 0
        for piece in state["chunks"].pieces:
            whole = self._take(piece.arrays) == self._chunk
            if whole and self._filled == 0:
                self._full[-1] = piece  # it is on disk, and need not be written again
                piece.arrays.update(self._view(len(self._full) - 1))
        self._take(state["rest"])

    def _take(self, arrays: State) -> int:
        """Take in what was saved, if it is of the right kind; return how many there were."""
        found = Transitions(**arrays)
        count = len(found.reward)
        require_like(found, self._like, (count,))
        self.add(found)
        return count

    def _make_room(self) -> None:
        """Let the oldest chunk go if its place is needed; who still holds it gets a copy."""
        if len(self._full) == self._chunks:
            oldest = self._full.popleft()
            oldest.arrays.update(tree.map(self._copied, oldest.arrays))
            self._first = (self._first + 1) % self._chunks

    def _copied(self, leaf: Array) -> Array:
        copy = self._allocate(leaf.shape, leaf.dtype)
        copy[:] = leaf
        return copy

    def _places(self, number: int, some: slice) -> slice:
        """Return where some of the transitions of a chunk lie."""
        start = (self._first + number) % self._chunks * self._chunk
        return slice(start + some.start, start + some.stop)

    def _view(self, number: int) -> State:
        """See a chunk as arrays by name."""
        where = self._places(number, slice(0, self._chunk))
        return self._ring.map(lambda leaf: leaf[where])._asdict()


def blank(spec: Spec) -> Transitions:
    """Return a transition of zeros, in the environment's types."""
    obs, number = spec.empty_observations(), np.zeros((), np.float32)
    return Transitions(obs, spec.empty_actions(), number, obs, number)


def build_replay(spec: Spec, capacity: int, most: int, folder: str | None) -> tuple[Replay, str]:
    """Make a buffer of so many transitions, or of the most there will ever be; return what to tell
    people about it. One that cannot be had is an error."""
    like = blank(spec)
    size = _bytes(like)
    chunk = max(1, min(CHUNK, max(64, CHUNK_BYTES // size), -(-capacity // 8)))
    count = min(capacity, most)
    need, have = chunks_for(count, chunk) * chunk * size, _free(folder)
    where = f"a file in {folder}" if folder else "memory"
    if need > SHARE * have:
        instead = "" if folder else ", or keep it in a file with sac.replay_folder"
        raise ConfigError(
            f"sac.replay_steps={capacity} needs {_readable(need)} of {where} for {count:,} "
            f"transitions of {size:,} bytes, and {_readable(have)} are free; lower it{instead}"
        )
    allocate = _in_file(Path(folder)) if folder else _in_memory
    try:
        replay = Replay(like, count, chunk, allocate)
    except OSError as error:
        raise ConfigError(
            f"sac.replay_folder={folder!r}: {error.strerror}; name a directory to write to"
        ) from None
    all_there_will_be = ", as many as the run makes" if most < capacity else ""
    told = (
        f"replay buffer: {count:,} transitions of {size:,} bytes{all_there_will_be}: "
        f"{_readable(count * size)} in {where}"
    )
    return replay, told


def chunks_for(capacity: int, chunk: int) -> int:
    """Count the chunks of a ring that always has room for so many transitions."""
    return -(-capacity // chunk) + 1


def _bytes(one: Transitions) -> int:
    return sum(leaf.nbytes for part in one for leaf in tree.leaves(part))


def _in_memory(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    return np.zeros(shape, dtype)


def _in_file(folder: Path) -> Allocate:
    def allocate(shape: tuple[int, ...], dtype: np.dtype) -> Array:
        with tempfile.TemporaryFile(dir=folder, prefix="replay-") as file:  # it has no name
            # Where the disk is full, that shows now and not when a page is written.
            os.posix_fallocate(file.fileno(), 0, max(1, math.prod(shape) * dtype.itemsize))
            return np.memmap(file, dtype, "r+", shape=shape)

    return allocate


def _free(folder: str | None) -> int:
    """Count the bytes that are free where a buffer is to be."""
    if folder is None:
        return hardware.free_memory()
    try:
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise ConfigError(
            f"sac.replay_folder={folder!r}: {error.strerror}; name a directory that is there"
        ) from None


def _readable(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
