"""Small environments that worker processes can load without loading torch."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete


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


class Unbounded(Counter):
    """Takes any number."""

    def __init__(self) -> None:
        super().__init__(action=Box(-np.inf, np.inf, (1,)))


class Loop(gymnasium.Env[Any, Any]):
    """Two states, three choices: the third changes the state. It never ends, but is cut off."""

    REWARD = np.array([[0.0, 0.5, -0.5], [1.0, -1.0, 0.2]])

    def __init__(self) -> None:
        self.observation_space, self.action_space = Discrete(2), Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state, self.steps = int(self.np_random.integers(2)), 0
        return self.state, {}

    def step(self, action: Any) -> Any:
        reward = float(self.REWARD[self.state, action])
        self.state = 1 - self.state if action == 2 else self.state
        self.steps += 1
        return self.state, reward, False, self.steps == 7, {}


class Dent(gymnasium.Env[Any, Any]):
    """One state; the nearer an action is to 0.5, the better. It never ends, but is cut off."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (1,)), Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = -float((action[0] - 0.5) ** 2)
        return np.zeros(1, np.float32), reward, False, self.steps == 7, {}


class Slow(Counter):
    """Takes its time."""

    def step(self, action: Any) -> Any:
        time.sleep(0.003)
        return super().step(action)


class Walk(gymnasium.Env[Any, Any]):
    """A random walk with noise of its own; `leak` survives resets, `chance` has no seed."""

    lives = 0

    def __init__(self, leak: bool = False, chance: bool = False) -> None:
        self.observation_space = Dict({"z": Box(-1e6, 1e6, (3,), np.float64), "a": Discrete(5)})
        self.action_space = Box(-1, 1, (2,))
        self.leak, self.chance = leak, chance
        self.drift = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = self.np_random.standard_normal(3) + self.drift
        self.steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.position = self.position + self.np_random.standard_normal(3) * 0.1 + action.sum()
        self.steps += 1
        if self.leak:
            self.drift += 0.25
        if self.chance:
            Walk.lives += 1
            self.position[0] += Walk.lives
        return self._obs(), float(self.position.sum()), self.np_random.random() < 0.02, False, {}

    def _obs(self) -> Any:
        return {"z": self.position.copy(), "a": self.steps % 5}


class Saved(Walk):
    """The same, and offers its state."""

    def get_state(self) -> Any:
        random = self.np_random.bit_generator.state
        return {"position": self.position, "steps": self.steps, "random": random}

    def set_state(self, state: Any) -> None:
        self.position, self.steps = state["position"], state["steps"]
        self.np_random.bit_generator.state = state["random"]


def cartpole_vector() -> Any:
    """A vector environment that can only come back by fresh episodes."""
    return gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
