"""Data that only grows, in files named by what is in them; each is written once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Set
from pathlib import Path
from weakref import WeakKeyDictionary

from surefoot.core.errors import CheckpointError
from surefoot.core.state import Piece
from surefoot.store import durable, format

NAME = re.compile(r"[0-9a-f]{64}")


class Segments:
    """A directory of pieces: `<sha256>.safetensors`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: WeakKeyDictionary[Piece, str] = WeakKeyDictionary()

    def keep(self, piece: Piece) -> str:
        """Write a piece unless it is there already; return its name."""
        name = self._names.get(piece)
        if name is None or not self._path(name).is_file():
            content = format.encode_piece(piece)
            name = hashlib.sha256(content).hexdigest()
            self._directory.mkdir(exist_ok=True)
            if not self._path(name).is_file():
                durable.write_file(self._path(name), content)
            self._names[piece] = name
        return name

    def fetch(self, name: str) -> Piece:
        """Read a piece, whose name is its hash."""
        if not NAME.fullmatch(name):
            raise CheckpointError(f"{name!r:.100} is no name of a segment")
        content = durable.read_file(self._path(name), format.TENSOR_BYTES)
        if hashlib.sha256(content).hexdigest() != name:
            raise CheckpointError(f"segment {name[:12]}… is not as written")
        piece = format.decode_piece(content)
        self._names[piece] = name
        return piece

    def retain(self, names: Set[str]) -> None:
        """Delete every segment that nothing names any more."""
        for path in self._directory.glob("*.safetensors"):
            if path.stem not in names:
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.safetensors"
