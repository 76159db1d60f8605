"""Python's collector of garbage. Now and then it looks through all objects for those that only
refer to each other: 0.2 s, where torch and its compiler are loaded, which are here to stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def passed_over() -> Iterator[None]:
    """Let the collector pass over what is there now, for as long as this lasts; nothing changes if
    somebody else lets it pass over things already."""
    if gc.get_freeze_count():
        yield
        return
    gc.collect()  # or garbage would stay
    gc.freeze()
    try:
        yield
    finally:
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
        if gc.get_freeze_count():
            gc.collect()
            gc.freeze()
