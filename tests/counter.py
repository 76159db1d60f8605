"""Small environments that worker processes can load without loading torch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps in the observation; ends after `length`, terminated or truncated."""

    def __init__(self, length: int = 5, truncate: bool = False, action: Any = None) -> None:
        self.observation_space = Box(-1000, 1000, (2,), np.float32)
        self.action_space = action or Discrete(2)
        self.length, self.truncate = length, truncate
        self.steps = 0
        self.mark = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.steps = 0
        self.mark = float(self.np_random.uniform(0, 1))
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"refused {action!r}"
        self.steps += 1
        end = self.steps == self.length
        info = {"metrics": {"steps": self.steps}, "is_success": end and self.length > 3}
        return (
            self._obs(),
            float(self.steps),
            end and not self.truncate,
            end and self.truncate,
            info,
        )

    def _obs(self) -> Any:
        return np.array([self.steps, self.mark], np.float32)


class Choices(Counter):
    """MultiDiscrete with differing bins, rewarded for one combination."""

    def __init__(self) -> None:
        super().__init__(length=6, truncate=True, action=MultiDiscrete([3, 2, 4]))
