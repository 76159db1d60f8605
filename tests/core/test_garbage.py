"""What the collector of garbage has to look through."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.core import garbage


class Node:
    """Refers to itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_the_collector_passes_over_what_was_there_and_looks_at_it_again_afterwards() -> None:
    old = Node()
    gone = weakref.ref(old)
    with garbage.passed_over():
        young = weakref.ref(Node())
        del old
        gc.collect()
        assert young() is None
        assert gone() is not None
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_rests_while_much_is_made_and_is_as_it_was_afterwards(on: bool) -> None:
    if not on:
        gc.disable()
    try:
        with garbage.passed_over():
            with garbage.undisturbed():
                assert not gc.isenabled()
                made = [Node() for _ in range(1000)]
            assert gc.isenabled() == on
            assert not {id(node) for node in made} & {id(it) for it in gc.get_objects()}
    finally:
        gc.enable()


def test_garbage_that_was_there_does_not_stay() -> None:
    gone = weakref.ref(Node())
    with garbage.passed_over():
        assert gone() is None


def test_what_is_made_undisturbed_is_garbage_like_any_other_where_nothing_is_passed_over() -> None:
    gc.freeze()  # by somebody else, or by Python 3.12 at its start
    try:
        with garbage.undisturbed():
            made = Node()
        gone = weakref.ref(made)
        del made
        gc.collect()
        assert gone() is None
    finally:
        gc.unfreeze()


def test_the_outermost_of_several_runs_decides_how_long_things_are_passed_over() -> None:
    old = Node()
    gone = weakref.ref(old)
    with garbage.passed_over():
        with garbage.passed_over():
            pass
        del old
        gc.collect()
        assert gone() is not None
    gc.collect()
    assert gone() is None


def test_a_run_passes_over_what_it_is_built_of_and_leaves_the_collector_as_it_found_it(
    tmp_path: Path,
) -> None:
    before = gc.get_freeze_count()
    more = set()

    def look(info: dict[str, Any]) -> dict[str, float]:
        more.add(gc.get_freeze_count() > before)
        return {}

    settings: dict[str, Any] = {"total_steps": 512, "collector": "local", "output": "quiet"}
    surefoot.train("CartPole-v1", metrics=look, out=tmp_path / "run", **settings)
    assert True in more
    assert gc.isenabled()
    assert gc.get_freeze_count() <= before
