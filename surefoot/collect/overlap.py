"""Plays a rollout while the learner still learns from the one before."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
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
    """Keep this thread off a core that the Python of workers, of which these are the process ids,
    keeps to meanwhile.

    All threads of a pool wait for that Python after each step, so that there is a core without
    work; but a kernel would rather leave the learner where it was, queued behind the Python, than
    move it there.
    """
    assert sys.platform == "linux"
    everything = os.sched_getaffinity(0)
    theirs = {secrets.choice(sorted(everything))}  # other runs on this machine rarely choose alike
    try:
        _bind((0,), everything - theirs)
        _bind(workers(), theirs)
        yield
    finally:
        _bind((0, *workers()), everything)  # workers too: they may make a new pool, for all cores


def _bind(processes: Iterable[int], cores: set[int]) -> None:
    """Bind the first thread of each process, which runs Python; 0 is this thread."""
    assert sys.platform == "linux"
    for process in processes:
        with suppress(OSError):  # it is gone, or nobody may: it is slower, no more
            os.sched_setaffinity(process, cores)


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
