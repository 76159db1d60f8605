"""The last rollouts, first in first out, and shuffled minibatches of their samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from surefoot.core import seeding, tree
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import Purpose
from surefoot.core.state import Appended, Piece, State
from surefoot.core.tree import Tree


class Experience:
    """Whole rollouts, as many of the newest as fit into `capacity` steps, and always one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: deque[tuple[Rollout, Piece]] = deque()

    @property
    def rollouts(self) -> list[Rollout]:
        """Oldest first."""
        return [rollout for rollout, _ in self._kept]

    def add(self, rollout: Rollout) -> None:
        self._kept.append((rollout, Piece(rollout.arrays())))
        while len(self._kept) > 1 and self._size() > self._capacity:
            self._kept.popleft()

    def _size(self) -> int:
        return sum(rollout.reward.size for rollout in self.rollouts)

    def state(self) -> State:
        """Keep what the next update will still learn from, once it has added its own rollout."""
        kept, size = list(self._kept), self._size()
        while kept and size + kept[-1][0].reward.size > self._capacity:
            size -= kept.pop(0)[0].reward.size
        return {"rollouts": Appended([piece for _, piece in kept])}

    def restore(self, state: State) -> None:
        pieces = state["rollouts"].pieces
        self._kept = deque((Rollout.from_arrays(piece.arrays), piece) for piece in pieces)


class Samples(NamedTuple):
    """Steps out of their order in time; every tensor is [B, …]."""

    obs: Tree
    """Prepared by the policy as it is in this update."""
    action: Tree
    log_prob: Tensor
    """Of the action under the policy that chose it."""
    value: Tensor
    """By the critic before this update."""
    advantage: Tensor
    target: Tensor
    weight: Tensor
    """1, or 0 for a sample that only fills up a minibatch."""

    @property
    def size(self) -> int:
        return len(self.weight)

    def at(self, where: slice | int) -> Samples:
        return self.map(lambda leaf: leaf[where])

    def map(self, function: Callable[[Any], Any]) -> Samples:
        """Apply a function to every tensor."""
        return Samples(*[tree.map(function, part) for part in self])

    @staticmethod
    def join(parts: list[Samples]) -> Samples:
        if len(parts) == 1:
            return parts[0]
        columns = zip(*parts, strict=True)
        return Samples(*(tree.map(lambda *leaves: torch.cat(leaves), *c) for c in columns))


class Minibatch(NamedTuple):
    """Samples in as few tensors as can be: every one that a step is handed costs time."""

    obs: Tree
    action: Tree
    numbers: Tensor
    """[B, …]: the parts of samples that are one number each, in their order."""

    def samples(self) -> Samples:
        return Samples(self.obs, self.action, *self.numbers.unbind(1))


class Deck:
    """Samples to deal out in minibatches of one size, again and again into the same memory: to make
    tensors anew takes longer than to fill them."""

    def __init__(self, samples: Samples, size: int) -> None:
        obs, action, *numbers = samples
        self._size, rows = samples.size, -(-samples.size // size) * size
        self._parts = (obs, action, torch.stack(numbers, 1))
        self._dealt = Minibatch(*(tree.map(lambda leaf: _room(leaf, rows), p) for p in self._parts))
        self._order = np.zeros(rows, np.int64)
        pieces = (_pieces(part, size) for part in self._dealt)
        self._minibatches = list(starmap(Minibatch, zip(*pieces, strict=True)))

    def deal(self, seed: int, iteration: int, epoch: int) -> Sequence[Minibatch]:
        """Deal out all samples in a fresh order; the last minibatch is filled up with samples of
        weight 0. Minibatches that were dealt before are gone."""
        random = seeding.generator(seed, Purpose.SHUFFLE, iteration, epoch)
        self._order[: self._size] = random.permutation(self._size)
        weight = self._dealt.samples().weight
        index = torch.from_numpy(self._order).to(weight.device)
        for part, dealt in zip(self._parts, self._dealt, strict=True):
            tree.map(lambda leaf, out: torch.index_select(leaf, 0, index, out=out), part, dealt)
        weight[self._size :] = 0.0
        return self._minibatches


def _room(like: Tensor, rows: int) -> Tensor:
    return like.new_empty(rows, *like.shape[1:])


def _pieces(part: Tree, size: int) -> Sequence[Tree]:
    """Cut a tree [B, …] into trees of this size."""
    if not isinstance(part, dict):
        pieces: Sequence[Tensor] = part.unflatten(0, (-1, size)).unbind()  # half the time of split
        return pieces
    columns = (_pieces(leaf, size) for leaf in part.values())
    return [dict(zip(part, row, strict=True)) for row in zip(*columns, strict=True)]
