"""Addressed randomness: every random number is a function of (run seed, purpose, counters).

There is no generator to save or to share, so the order in which things happen cannot change
what they draw, and a resumed run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a random number is for. The values are part of a run's identity: never renumber."""

    WEIGHTS = 1
    ACTION = 2
    SHUFFLE = 3
    RESET = 4
    EVALUATION_RESET = 5
    EVALUATION_ACTION = 6
    CHECK = 7
    REPLAY = 8
    UPDATE = 9


def generator(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """Return the generator at this address, at its beginning."""
    return np.random.Generator(np.random.Philox(_address(seed, purpose, *counters)))


def integer(seed: int, purpose: Purpose, *counters: int) -> int:
    """Return the 32-bit integer at this address, for whoever takes a seed."""
    return int(_address(seed, purpose, *counters).generate_state(1)[0])


def _address(seed: int, purpose: Purpose, *counters: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), *counters))


@dataclass(frozen=True)
class EpisodeSeeds:
    """The reset seed of every row's k-th episode."""

    seed: int
    purpose: Purpose = Purpose.RESET
    counter: int = 0

    def __call__(self, row: int, episode: int) -> int:
        return integer(self.seed, self.purpose, self.counter, row, episode)
