"""Data that only grows, in files named by what is in them; each is written once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import overload
from weakref import WeakKeyDictionary

from surefoot.core.errors import CheckpointError
from surefoot.core.state import Piece
from surefoot.store import durable, format

NAME = re.compile(r"[0-9a-f]{64}")


class Segments:
    """A directory of pieces: `<sha256>.safetensors`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: WeakKeyDictionary[Piece, tuple[str, int]] = WeakKeyDictionary()

    def keep(self, piece: Piece) -> tuple[str, int]:
        """Write a piece unless it is there already; return its name and size."""
        known = self._names.get(piece)
        if known is None or not self._path(known[0]).is_file():
            content = format.encode_piece(piece)
            known = hashlib.sha256(content).hexdigest(), len(content)
            durable.make_directory(self._directory)
            path = self._path(known[0])
            if not path.is_file() or path.read_bytes() != content:  # it may be damaged
                durable.write_file(path, content)
            self._names[piece] = known
        return known

    def fetch(self, name: str, size: int) -> Piece:
        """Read a piece, whose name is its hash."""
        content = self.verified(name, size)
        piece = format.decode_piece(content)
        self._names[piece] = name, len(content)
        return piece

    def verified(self, name: str, size: int) -> bytes:
        """Read the bytes of a piece, which must be what its name says."""
        if not NAME.fullmatch(name):
            raise CheckpointError(f"{name!r:.100} is no name of a segment")
        content = durable.read_file(self._path(name), size)
        if hashlib.sha256(content).hexdigest() != name:
            raise CheckpointError(f"segment {name[:12]}… is not as written")
        return content

    def retain(self, names: Set[str]) -> None:
        """Delete every segment that nothing names any more, and what writers left unfinished."""
        durable.sweep(self._directory)
        for path in self._directory.glob("*.safetensors"):
            if path.stem not in names:
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.safetensors"


class Stored(Sequence[Piece]):
    """Pieces on disk, which may be more than fits into memory: verified at once, but each is read
    when somebody asks for it."""

    def __init__(self, segments: Segments, sizes: Mapping[str, int], names: Sequence[str]) -> None:
        self._segments, self._sizes, self._names = segments, sizes, names
        for name, size in sizes.items():
            format.decode_piece(segments.verified(name, size))

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> Piece: ...

    @overload
    def __getitem__(self, index: slice) -> list[Piece]: ...

    def __getitem__(self, index: int | slice) -> Piece | list[Piece]:
        if isinstance(index, slice):
            return [self._fetched(name) for name in self._names[index]]
        return self._fetched(self._names[index])

    def _fetched(self, name: str) -> Piece:
        return self._segments.fetch(name, self._sizes[name])
