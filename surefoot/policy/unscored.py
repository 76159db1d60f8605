"""An actor whose learner does not ask how probable actions were."""

from __future__ import annotations

from surefoot.core.protocols import Actor
from surefoot.core.tree import Tree


class Unscored:
    """Acts as another does, and finds no log-probabilities."""

    def __init__(self, actor: Actor) -> None:
        self.noise, self.memory, self.act = actor.noise, actor.memory, actor.act
        self._light = actor.light

    def light(self) -> Unscored | None:
        light = self._light()
        return None if light is None else Unscored(light)

    def log_prob(self, obs: Tree, action: Tree) -> None:
        return None
