"""Shows episodes in a window, in a process of its own."""

from __future__ import annotations

import time
from typing import Any

from surefoot.core.spec import Spec
from surefoot.core.tree import Tree
from surefoot.envs.make import Factory
from surefoot.envs.spaces import to_spec

FRAMES_PER_SECOND = 30.0
"""Where the environment does not say."""


class Screen:
    """An environment with a window, in which episodes are played again as fast as in life; with
    `rebuild` it is built anew for each, where something would survive a reset."""

    def __init__(self, make: Factory, rebuild: bool) -> None:
        self._make, self._rebuild, self._used = make, rebuild, False
        self._env: Any = make()
        action = to_spec(self._env.action_space, "action")
        self._spec = Spec(action, action, 1)
        rate = self._env.metadata.get("render_fps") or FRAMES_PER_SECOND
        self._seconds = 1.0 / float(rate)

    def show(self, seed: int, action: Tree) -> None:
        """Play the episode of this seed with these actions [L, …]."""
        if self._rebuild and self._used:
            self._env.close()
            self._env = self._make()
        self._used = True
        self._env.reset(seed=seed)  # in the mode "human" environments draw themselves
        for taken in self._spec.to_env(action):
            due = time.monotonic() + self._seconds
            *_, terminated, truncated, _ = self._env.step(taken)
            time.sleep(max(0.0, due - time.monotonic()))  # those with a clock have waited already
            if terminated or truncated:
                return
