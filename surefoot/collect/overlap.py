"""Plays a rollout while the learner still learns from the one before."""

from __future__ import annotations

import numpy as np

from surefoot.collect.collector import StageCollector, judged
from surefoot.core.protocols import Actor
from surefoot.core.rollout import Rollout
from surefoot.core.state import State


class OverlapCollector(StageCollector):
    """Rollouts are begun `ahead`, on a stage that plays by itself; each is one update behind the
    policy that learns from it. While one is under way there is no state to go on from exactly."""

    _under_way: Actor | None = None
    """Who plays the rollout that was begun ahead, if one was."""

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
