"""What chance adds to a choice, drawn for many steps and rows in one call."""

from __future__ import annotations

import numpy as np

from surefoot.core.tree import Array


def gumbel(random: np.random.Generator, *shape: int) -> Array:
    """Draw what makes the largest of some logits a sample of their distribution."""
    return random.gumbel(size=shape).astype(np.float32)


def normal(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape, np.float32)
