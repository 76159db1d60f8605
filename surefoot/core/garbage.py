"""Python's collector of garbage. Now and then it looks through all objects for those that only
refer to each other: 0.2 s, where torch and its compiler are loaded, which are here to stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_passing_over = False
"""Whether `passed_over` is under way. The number of frozen objects does not tell: Python 3.12 has
some from the start."""


@contextmanager
def passed_over() -> Iterator[None]:
    """Let the collector pass over what is there now, while the outermost of these lasts."""
    global _passing_over
    if _passing_over:
        yield
        return
    gc.collect()  # or garbage would stay
    gc.freeze()
    _passing_over = True
    try:
        yield
    finally:
        _passing_over = False
        gc.unfreeze()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the collector rest while much is made that stays; it passes over that too afterwards, if
    it passes over anything."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        if _passing_over:
            gc.collect()
            gc.freeze()
