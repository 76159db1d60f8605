"""Plays a rollout while the learner still learns from the one before."""

from __future__ import annotations

import numpy as np

from surefoot.collect.collector import StageCollector
from surefoot.core.protocols import Actor
from surefoot.core.rollout import Rollout
from surefoot.core.state import State


class OverlapCollector(StageCollector):
    """Rollouts are begun `ahead`, on a stage that plays by itself; each is one update behind the
    policy that learns from it. While one is under way there is no state to go on from exactly."""

    _under_way = False

    def collect(self, actor: Actor) -> Rollout:
        if not self._under_way:
            self._begin(actor)
        self._under_way = False
        return self._end()

    def ahead(self, actor: Actor) -> None:
        self._begin(actor)
        self._under_way = True

    def anchor(self) -> None:
        if self._under_way:  # the run ends sooner than anybody knew
            self._under_way = False
            record = self._stage.finish().record
            everyone = np.ones(self.spec.rows, bool)
            self._skip(record.passed() + 1, self._stage.restart(everyone))
        super().anchor()

    @property
    def exact(self) -> bool:
        return not self._under_way and super().exact

    def state(self) -> State:
        return self._counts({}) if self._under_way else super().state()
