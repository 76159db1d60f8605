"""Train in an environment of your own; also from the command line:

surefoot check-env examples/own_environment.py:make_env
surefoot train     examples/own_environment.py:make_env --total-steps 40000
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

import surefoot


class Thermostat(gymnasium.Env[Any, Any]):
    """Keep a room at its target temperature with a heater that also cools."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.error = float(self.np_random.uniform(-2, 2))
        self.outside = float(self.np_random.uniform(-0.3, 0.3))
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        power = float(action[0])
        self.error += 0.5 * power + self.outside + 0.05 * float(self.np_random.standard_normal())
        comfort, energy = -abs(self.error), -0.1 * abs(power)
        info = {"metrics": {"comfort": comfort, "energy": energy}}
        return self._obs(), comfort + energy, abs(self.error) > 10, False, info

    def _obs(self) -> Any:
        return np.array([self.error, self.outside], np.float32)


def make_env(steps: int = 50) -> gymnasium.Env[Any, Any]:
    """Time limits truncate: the value of what would have followed is still counted."""
    return TimeLimit(Thermostat(), steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--total-steps", type=int, default=40_000)
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    config = surefoot.Config(
        total_steps=options.total_steps,
        envs=8,
        ppo=surefoot.PPOConfig(horizon=64, minibatch_size=64, gamma=0.95),
    )
    run = surefoot.train(make_env, config, out=options.out)
    print(run.evaluate(episodes=20).summary())
