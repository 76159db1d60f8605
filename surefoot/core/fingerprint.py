"""Fingerprints: one number per observation or reward that differs when any bit does."""

from __future__ import annotations

from functools import cache

import numpy as np

from surefoot.core import tree
from surefoot.core.tree import Array, Tree


def of_observations(obs: Tree, axes: int) -> Array:
    """Return a 64-bit number for every place of the leading `axes`."""
    leaves = tree.leaves(obs)
    total = np.zeros(leaves[0].shape[:axes], np.uint64)
    for index, leaf in enumerate(leaves):
        words = _words(leaf, axes)
        total += (words * _weights(index, words.shape[-1])).sum(-1, dtype=np.uint64)
    return total


def of_rewards(reward: Array) -> Array:
    """Return a 64-bit number for every reward, to be added to an observation's."""
    bits = np.ascontiguousarray(reward, np.float64).view(np.uint64)
    numbers: Array = bits * np.uint64(0x9E3779B97F4A7C15)
    return numbers


def _words(leaf: Array, axes: int) -> Array:
    """See what is behind the leading axes as unsigned integers."""
    lead = leaf.shape[:axes]
    flat = np.ascontiguousarray(leaf).reshape(*lead, -1)
    size = flat.dtype.itemsize
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size]
    return flat.view(kind).astype(np.uint64)


@cache
def _weights(leaf: int, count: int) -> Array:
    """Odd multipliers: a change of one word, whatever it is, then changes the sum."""
    random = np.random.Generator(np.random.Philox([20_011, leaf]))
    return random.integers(2**64, size=count, dtype=np.uint64) | np.uint64(1)
