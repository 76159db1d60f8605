"""Shows what the first row does while it is trained, and never holds anybody up.

The episodes of row 0 are played again, at their natural pace, in a process with a window. While one
is shown, others go by unseen.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.collect.crew import Lost, Member
from surefoot.core import tree
from surefoot.core.errors import SurefootError
from surefoot.core.protocols import Actor, Collector
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.state import State
from surefoot.core.tree import Tree
from surefoot.envs.make import Factory, ship

FOREVER = 1e9
"""Seconds that an episode may take to be shown."""


class Viewer:
    """Follows row 0 and passes its whole episodes on to the process with the window."""

    def __init__(
        self,
        make: Factory,
        seed: int,
        rebuild: bool,
        tell: Callable[[Mapping[str, Any]], None],
    ) -> None:
        shown = replace(make, arguments={**make.arguments, "render_mode": "human"})
        shipped, self._seeds, self._tell = ship(shown), EpisodeSeeds(seed), tell
        self._actions: list[Tree] = []
        self._worker: Member | None = Member(FOREVER)
        self._poll = select.poll()
        self._poll.register(self._worker.done, select.POLLIN)
        self._worker.tell("open", sys.path, shipped, rebuild)
        self._busy = True

    def note(self, rollout: Rollout) -> None:
        """Take down what row 0 did; show its last whole episode, if nothing else is shown."""
        numbers = [episode.number for episode in rollout.episodes if episode.row == 0]
        for t in range(rollout.horizon):
            if rollout.episode_step[t, 0] != len(self._actions):
                self._actions = []  # another episode; or one that began before anybody looked
            if rollout.valid[t, 0] and rollout.episode_step[t, 0] == len(self._actions):
                self._actions.append(tree.map(lambda leaf, t=t: leaf[t, 0].copy(), rollout.action))
            if rollout.ended[t, 0]:
                number = numbers.pop(0)
                if len(self._actions) == rollout.episode_step[t, 0] + 1:
                    self._show(number, self._actions)
                self._actions = []

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _show(self, number: int, actions: list[Tree]) -> None:
        if self._worker is None or not self._idle(self._worker):
            return
        action = tree.map(lambda *leaves: np.stack(leaves), *actions)
        self._worker.tell("show", self._seeds(0, number), action)
        self._busy = True

    def _idle(self, worker: Member) -> bool:
        """Say whether nothing is shown; where nothing ever will be, say why and do without."""
        try:
            if self._busy and self._poll.poll(0):
                worker.answer()
                self._busy = False
            return not self._busy
        except (Lost, SurefootError) as error:
            message = f"nothing is shown any more: {error}; training goes on"
            self._tell({"event": "render-stopped", "message": message})
            self.close()
            return False


class Watched:
    """A collector whose first row is shown."""

    def __init__(self, collector: Collector, viewer: Viewer) -> None:
        self.spec = collector.spec
        self._collector, self._viewer = collector, viewer

    def collect(self, actor: Actor, ahead: bool = False) -> Rollout:
        rollout = self._collector.collect(actor, ahead=ahead)
        self._viewer.note(rollout)
        return rollout

    def beside(self) -> AbstractContextManager[None]:
        return self._collector.beside()

    def anchor(self) -> None:
        self._collector.anchor()

    @property
    def exact(self) -> bool:
        return self._collector.exact

    def state(self) -> State:
        return self._collector.state()

    def restore(self, state: State) -> None:
        self._collector.restore(state)

    def renew(self, state: State) -> None:
        self._collector.renew(state)

    def close(self) -> None:
        try:
            self._viewer.close()
        finally:
            self._collector.close()
