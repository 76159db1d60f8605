"""Trees: an array is a tree, and so is a dict of trees. Observations and actions are trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Tree: TypeAlias = Any
"""A leaf (array, tensor, space, …) or a dict of trees; the leaf type is the caller's business."""


def map(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply `function` to the leaves at the same place of one or more trees of one structure."""
    if isinstance(tree, dict):
        return {key: map(function, tree[key], *(other[key] for other in rest)) for key in tree}
    return function(tree, *rest)


def leaves(tree: Tree) -> list[Any]:
    """List the leaves, in the order of the dicts."""
    return [leaf for _, leaf in items(tree)] if isinstance(tree, dict) else [tree]


def untupled(raw: Any) -> Any:
    """Turn tuples into dicts with the keys "0", "1", …: trees know dicts alone."""
    if isinstance(raw, tuple):
        return {str(index): untupled(part) for index, part in enumerate(raw)}
    return {key: untupled(part) for key, part in raw.items()} if isinstance(raw, dict) else raw


def items(tree: Tree, prefix: str = "", separator: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) pairs; the path joins keys and is empty for a lone leaf."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            path = f"{prefix}{separator}{key}" if prefix else str(key)
            yield from items(value, path, separator)
    else:
        yield prefix, tree


def index(tree: Tree, where: Any) -> Tree:
    """Index every leaf the same way."""
    if isinstance(tree, dict):
        return {key: index(part, where) for key, part in tree.items()}
    return tree[where]


def write(target: Tree, where: Any, source: Tree) -> None:
    """Copy `source` into `target[where]`, leaf by leaf."""
    if isinstance(target, dict):
        for key in target:
            write(target[key], where, source[key])
    else:
        target[where] = source
