"""Small environments and helpers that several tests share."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from surefoot.collect.collector import StageCollector
from surefoot.collect.local import local_collector
from surefoot.config import Config, PolicyConfig, PPOConfig
from surefoot.envs.make import factory, make_vector
from surefoot.learn.build import build_learner
from surefoot.learn.ppo import PPO


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


ENVS = {
    "discrete": "CartPole-v1",
    "multi-discrete": Choices,
    "continuous": "Pendulum-v1",
}


def collector(
    env: Any, rows: int = 4, horizon: int = 16, seed: int = 3, **args: Any
) -> StageCollector:
    return local_collector(make_vector(factory(env, args), rows), horizon, seed)


def learner(spec: Any, policy: dict[str, Any] | None = None, seed: int = 3, **ppo: Any) -> PPO:
    settings = {"horizon": 16, "minibatch_size": 16, "epochs": 2, **ppo}
    config = Config(
        seed=seed,
        device="cpu",
        ppo=PPOConfig(**settings),
        policy=PolicyConfig(**{"hidden": (16, 16), **(policy or {})}),
    )
    return build_learner(config, spec)
