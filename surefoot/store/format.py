"""States as bytes: arrays as safetensors, the rest as JSON. Nothing is ever unpickled.

Whoever wrote the bytes may be hostile. So JSON is read strictly and only up to a number of entries
that bounds the memory it can take, and every name is looked up, never followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from surefoot.core.errors import CheckpointError
from surefoot.core.state import Appended, Piece, Ragged, State
from surefoot.core.tree import Array

TENSOR_KEY, RAGGED_KEY, PIECES_KEY, STATE_KEY = "$tensor", "$ragged", "$pieces", "state"
"""In the JSON, an object with this one key stands for a tensor, for several in one (with their
lengths in a second), or for data in segments."""
JSON_BYTES, JSON_ENTRIES = 4 << 20, 50_000
"""The most that one JSON text may hold. An entry takes some 100 bytes once it is read."""


def encode(state: State, keep: Callable[[Piece], str]) -> tuple[bytes, bytes]:
    """Return a state as tensors and JSON; `keep` stores a piece elsewhere and returns its name."""
    tensors: dict[str, Array] = {}
    content = _split(state, "", tensors, keep)
    return _pack(tensors), to_json(content)


def decode(tensors: bytes, content: bytes, fetch: Callable[[list[str]], Sequence[Piece]]) -> State:
    """Return the state that `encode` was given; `fetch` finds the pieces of these names."""
    try:
        state = _join(from_json(content, "state.json"), _unpack(tensors)[0], fetch)
    except RecursionError:
        raise CheckpointError("state.json is nested too deeply") from None
    if not isinstance(state, dict):
        raise CheckpointError("state.json is not an object")
    return state


def encode_piece(piece: Piece) -> bytes:
    """Return a piece as one safetensors file, with its JSON in the header."""
    tensors: dict[str, Array] = {}
    content = to_json(_split(piece.arrays, "", tensors, _no_piece)).decode()
    return _pack(tensors, {STATE_KEY: content})


def decode_piece(content: bytes) -> Piece:
    """Return the piece that `encode_piece` was given."""
    tensors, header = _unpack(content)
    said = header.get("__metadata__", {})
    if not isinstance(said, dict) or not isinstance(said.get(STATE_KEY), str):
        raise CheckpointError("a segment does not say what is in it")
    arrays = from_json(said[STATE_KEY].encode(), "a segment's header")
    return Piece(_join(arrays, tensors, _no_fetch))


def _pack(tensors: Mapping[str, Array], said: dict[str, str] | None = None) -> bytes:
    dense = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in tensors.items()}
    try:
        content = save(dense, said)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"a state holds arrays of numbers alone: {error}") from None
    header = content[8 : 8 + int.from_bytes(content[:8], "little")]
    _require_readable(header, "arrays")
    return content


def _unpack(content: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read safetensors, whose header is checked first; return it too."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise CheckpointError("the tensors have no whole header")
    header = from_json(content[8 : 8 + length], "the tensors' header")
    if not isinstance(header, dict):
        raise CheckpointError("the tensors' header is not an object")
    try:
        return load(content), header
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise CheckpointError(f"the tensors cannot be read: {error}") from None


def to_json(content: Any) -> bytes:
    """Write strict JSON in ASCII that `from_json` will accept."""
    try:
        text = json.dumps(content, allow_nan=False).encode("ascii")
    except (TypeError, ValueError) as error:
        raise ValueError(f"a state holds arrays and finite JSON values alone: {error}") from None
    _require_readable(text, "values")
    return text


def _require_readable(text: bytes, what: str) -> None:
    """Refuse to write what `from_json` would refuse to read."""
    if len(text) > JSON_BYTES or _entries(text) > JSON_ENTRIES:
        raise ValueError(
            f"a state has too many {what}: {_entries(text):,} entries in {len(text):,} bytes of "
            f"JSON, where {JSON_ENTRIES:,} in {JSON_BYTES:,} are the most; use few large arrays"
        )


def from_json(text: bytes, what: str) -> Any:
    """Read strict JSON: ASCII, no duplicate keys, no NaN, no more than a bounded size."""
    if len(text) > JSON_BYTES or _entries(text) > JSON_ENTRIES:
        raise CheckpointError(
            f"{what} is too large: {len(text):,} bytes, {_entries(text):,} entries"
        )
    if not text.isascii():
        raise CheckpointError(f"{what} is not JSON in ASCII")
    try:
        return json.loads(text.decode("ascii"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not JSON as surefoot writes it: {error}") from None


def _entries(text: bytes) -> int:
    """Count what can open or separate a value: at least as many as there are values."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number")


def _split(tree: Any, path: str, tensors: dict[str, Array], keep: Callable[[Piece], str]) -> Any:
    """Move arrays out of a state tree into `tensors`, leaving their names."""
    if isinstance(tree, dict):
        if tree.keys() in ({TENSOR_KEY}, {RAGGED_KEY}, {PIECES_KEY}):
            raise ValueError(f"a state may not have the key {next(iter(tree))} alone")
        return {k: _split(v, f"{path}/{_quoted(k)}", tensors, keep) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [_split(v, f"{path}/{index}", tensors, keep) for index, v in enumerate(tree)]
    if isinstance(tree, np.ndarray):
        tensors[path[1:]] = tree
        return {TENSOR_KEY: path[1:]}
    if isinstance(tree, Ragged):
        name = path[1:]
        tensors[f"{name}/parts"] = np.concatenate(tree.parts)
        tensors[f"{name}/lengths"] = np.array([len(part) for part in tree.parts], np.int64)
        return {RAGGED_KEY: name}
    if isinstance(tree, Appended):
        return {PIECES_KEY: [keep(piece) for piece in tree.pieces]}
    return tree.item() if isinstance(tree, np.generic) else tree


def _join(
    content: Any, tensors: Mapping[str, Array], fetch: Callable[[list[str]], Sequence[Piece]]
) -> Any:
    if isinstance(content, list):
        return [_join(value, tensors, fetch) for value in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {TENSOR_KEY}:
        return _named(content[TENSOR_KEY], "", tensors)
    if content.keys() == {RAGGED_KEY}:
        parts, lengths = (
            _named(content[RAGGED_KEY], end, tensors) for end in ("/parts", "/lengths")
        )
        if lengths.dtype != np.int64 or (lengths < 0).any() or lengths.sum() != len(parts):
            raise CheckpointError("state.json names arrays whose lengths do not add up")
        return Ragged(np.split(parts, lengths.cumsum()[:-1]))
    if content.keys() == {PIECES_KEY}:
        names = content[PIECES_KEY]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise CheckpointError("state.json names segments that are no names")
        return Appended(fetch(names))
    return {key: _join(value, tensors, fetch) for key, value in content.items()}


def _named(name: Any, end: str, tensors: Mapping[str, Array]) -> Array:
    if not isinstance(name, str) or name + end not in tensors:
        raise CheckpointError(f"state.json names a tensor that is not there: {name!r:.100}")
    return tensors[name + end]


def _no_piece(piece: Piece) -> str:
    raise ValueError("a piece may not hold data that grows")


def _no_fetch(names: list[str]) -> Sequence[Piece]:
    raise CheckpointError("a segment names other segments")


def _quoted(key: str) -> str:
    """Write a key as a part of a tensor's name, which is ASCII and has its own slashes."""
    return quote(key, safe=" !#$&'()*+,;=:@[]{}<>|^~?")
