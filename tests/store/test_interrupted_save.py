"""A save that is interrupted at any of its steps leaves the old checkpoint or the new one."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.core.state import Appended, Piece, State, differences
from surefoot.store import loader
from surefoot.store.checkpoint import Boundary, Checkpoints
from surefoot.store.retention import Keeper

CALLS = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir")


def state(step: int) -> State:
    log = Appended([Piece({"step": np.array(k)}) for k in (step - 1, step)])
    return {"weights": np.arange(1000) + step, "step": step, "log": log}


def boundary(step: int) -> Boundary:
    return Boundary(step, state(step), True, score=1.0, best=step)


class Crash(BaseException):
    pass


class Power:
    """Counts the calls of a save and fails before one of them. What was written but not flushed
    by then is lost, as when the power fails."""

    def __init__(self, calls: int, patch: pytest.MonkeyPatch) -> None:
        self.left, self.names, self.unflushed = calls, {}, set()  # type: ignore[var-annotated]
        for name in CALLS:
            patch.setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if self.left == 0:
                raise Crash
            self.left -= 1
            result = function(*given, **named)
            if name == "open":
                self.names[result] = str(given[0])
            elif name == "write":
                self.unflushed.add(self.names[given[0]])
            elif name == "fsync":
                self.unflushed.discard(self.names[given[0]])
            elif name == "rename":
                moved = {f for f in self.unflushed if f.startswith(str(given[0]))}
                self.unflushed -= moved
                self.unflushed |= {f.replace(str(given[0]), str(given[1]), 1) for f in moved}
            return result

        return call

    def fail(self) -> None:
        for file in self.unflushed:
            if Path(file).exists():
                Path(file).write_bytes(b"")


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A run with as many checkpoints as are kept, so that the next save also removes one."""
    run = tmp_path / "before"
    (run / "checkpoints").mkdir(parents=True)
    keeper = Keeper(Checkpoints(run), keep=2)
    for step in (10, 20):
        keeper.save(boundary(step))
    return run


def interrupted(before: Path, run: Path, calls: int) -> bool:
    """Save once more, with the power failing before so many calls are made; say if it did."""
    shutil.copytree(before, run)
    with pytest.MonkeyPatch.context() as patch:
        power = Power(calls, patch)
        try:
            keeper = Keeper(Checkpoints(run), keep=2)
            keeper.offer(boundary(25))
            keeper.save(boundary(30))
        except Crash:
            failed = True
        else:
            failed = False
    power.fail()
    return failed


def test_every_prefix_of_a_saves_calls_leaves_the_old_checkpoint_or_the_new_one(
    before: Path, tmp_path: Path
) -> None:
    seen = []
    for calls in range(1000):
        run = tmp_path / f"run-{calls}"
        failed = interrupted(before, run, calls)
        kept = Checkpoints(run)
        found = loader.newest(kept)
        assert found.state is not None
        assert found.passed == {}
        assert differences(found.state, state(found.step)) == []
        seen.append(found.step)
        keeper = Keeper(kept, keep=2)  # and the next save finds nothing in its way
        keeper.save(boundary(40))
        assert loader.newest(kept).step == 40
        assert not list(kept.directory.glob(".staging*"))
        shutil.rmtree(run)
        if not failed:
            break
    assert seen == sorted(seen)
    assert set(seen) == {20, 25, 30}
    assert len(seen) > 40


def test_a_run_loses_nothing_when_a_file_cannot_be_written(before: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(before, run)
    kept = Checkpoints(run)
    with pytest.MonkeyPatch.context() as patch:
        full = OSError(28, "No space left on device")
        write = os.write
        patch.setattr(
            os,
            "write",
            lambda f, data: (_ for _ in ()).throw(full) if len(data) > 500 else write(f, data),
        )
        with pytest.raises(OSError, match="No space left"):
            Keeper(kept, keep=2).save(boundary(30))
    assert loader.newest(kept).step == 20
    assert not list(kept.directory.glob(".staging*"))
