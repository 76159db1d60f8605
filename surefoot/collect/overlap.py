"""Plays a rollout while the learner still learns from the one before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np

from surefoot.collect.collector import Stage, StageCollector, judged
from surefoot.collect.restoration import Restoration
from surefoot.core.protocols import Actor
from surefoot.core.rollout import Rollout
from surefoot.core.state import State


class Anywhere:
    """Lets the learner and workers use all cores alike."""

    def part(self) -> None:
        """Both are at work from now on."""

    def join(self) -> None:
        """One of them waits for the other."""


class Apart(Anywhere):
    """Keeps the learner off the core that a worker's Python keeps to.

    For a pool with a thread on every core, which all wait for that Python after each step. A core
    is free then, but a kernel would rather leave the learner where it was last, queued behind the
    Python, than move it.
    """

    def __init__(self, workers: Callable[[], Iterable[int]]) -> None:
        """`workers` tells their process ids."""
        self._workers, self._all = workers, os.sched_getaffinity(0)
        # Another run on this machine has another process id.
        self._theirs = {sorted(self._all)[os.getpid() % len(self._all)]}

    def part(self) -> None:
        self._bind(self._all - self._theirs, self._theirs)

    def join(self) -> None:
        self._bind(self._all, self._all)  # workers too: they may make a new pool, for all cores

    def _bind(self, ours: set[int], theirs: set[int]) -> None:
        """Bind this thread, and the one of each worker that runs Python."""
        with suppress(OSError):  # a worker is gone, or nobody may: it is slower, no more
            os.sched_setaffinity(0, ours)
            for pid in self._workers():
                os.sched_setaffinity(pid, theirs)


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
        cores: Anywhere | None = None,
    ) -> None:
        super().__init__(stage, seed, restoration, channels)
        self._cores = cores or Anywhere()

    def collect(self, actor: Actor, ahead: bool = False) -> Rollout:
        self._cores.join()
        acting, self._under_way = self._under_way, None
        if acting is None:
            self._begin(actor)
            acting = actor
        rollout = self._end()
        if ahead:  # first of all: from now on somebody would wait
            self._begin(actor)
            self._under_way = actor
            self._cores.part()
        return judged(rollout, acting)

    def anchor(self) -> None:
        self._cores.join()
        if self._under_way is not None:  # the run ends sooner than anybody knew
            self._under_way = None
            record = self._stage.finish().record
            everyone = np.ones(self.spec.rows, bool)
            self._skip(record.passed() + 1, self._stage.restart(everyone))
        super().anchor()

    def close(self) -> None:
        self._cores.join()
        super().close()

    @property
    def exact(self) -> bool:
        return self._under_way is None and super().exact

    def state(self) -> State:
        return super().state() if self._under_way is None else self._counts({})
