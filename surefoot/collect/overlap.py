"""Plays a rollout while the learner still learns from the one before."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from surefoot.collect.collector import Stage, StageCollector, judged
from surefoot.collect.restoration import Restoration
from surefoot.core.protocols import Actor
from surefoot.core.rollout import Rollout
from surefoot.core.state import State

Beside: TypeAlias = Callable[[], AbstractContextManager[None]]
"""What is held while the learner works beside a rollout that is played."""


@contextmanager
def apart(workers: Callable[[], Iterable[int]]) -> Iterator[None]:
    """Give this thread a core to itself; workers, of which these are the process ids, share the
    others meanwhile, and have all of them back afterwards.

    A kernel would let this thread and theirs queue for one core while another has nothing to do.
    """
    assert sys.platform == "linux"
    everything, here = os.sched_getaffinity(0), set(_threads("self"))
    own = {secrets.choice(sorted(everything))}  # lest all runs on a machine choose alike
    theirs: dict[int, set[int]] = {}
    try:
        _bind(0, own)
        for thread in _all_threads(workers()):
            with suppress(OSError):
                theirs[thread] = os.sched_getaffinity(thread)
                _bind(thread, theirs[thread] - own or everything - own)
        yield
    finally:
        _bind(0, everything)
        begun = {*_threads("self"), *_all_threads(workers())} - here
        for thread, cores in {**dict.fromkeys(begun, everything), **theirs}.items():
            _bind(thread, cores)


def _bind(thread: int, cores: set[int]) -> None:
    """Bind a thread to cores; 0 is this thread."""
    assert sys.platform == "linux"
    with suppress(OSError):  # it is gone, or nobody may: it is slower, no more
        os.sched_setaffinity(thread, cores)


def _all_threads(processes: Iterable[int]) -> Iterator[int]:
    """Find the threads of these processes, and of those that they have started."""
    for process in processes:
        for thread in _threads(process):
            yield thread
            with suppress(OSError):  # it is gone, or the kernel does not tell
                started = Path(f"/proc/{process}/task/{thread}/children").read_text()
                yield from _all_threads(map(int, started.split()))


def _threads(process: int | str) -> list[int]:
    with suppress(OSError):  # it is gone
        return [int(thread) for thread in os.listdir(f"/proc/{process}/task")]
    return []


class OverlapCollector(StageCollector):
    """Rollouts are begun `ahead`, on a stage that plays by itself; each is one update behind the
    policy that learns from it. While one is under way there is no state to go on from exactly."""

    _under_way: Actor | None = None
    """Who plays the rollout that was begun ahead, if one was."""

    def __init__(
        self,
        stage: Stage,
        seed: int,
        restoration: Restoration,
        channels: Sequence[str] = (),
        beside: Beside = nullcontext,
    ) -> None:
        super().__init__(stage, seed, restoration, channels)
        self._beside = beside

    def collect(self, actor: Actor, ahead: bool = False) -> Rollout:
        acting, self._under_way = self._under_way, None
        if acting is None:
            self._begin(actor)
            acting = actor
        rollout = self._end()
        if ahead:  # first of all: from now on somebody would wait
            self._begin(actor)
            self._under_way = actor
        return judged(rollout, acting)

    def beside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._under_way is None else self._beside()

    def anchor(self) -> None:
        if self._under_way is not None:  # the run ends sooner than anybody knew
            self._under_way = None
            record = self._stage.finish().record
            everyone = np.ones(self.spec.rows, bool)
            self._skip(record.passed() + 1, self._stage.restart(everyone))
        super().anchor()

    @property
    def exact(self) -> bool:
        return self._under_way is None and super().exact

    def state(self) -> State:
        return super().state() if self._under_way is None else self._counts({})
