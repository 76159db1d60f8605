"""Five tiny tasks with known answers: a correct PPO finds each value to 2 % and each best action.

Each isolates one thing a trainer can get wrong, so the first that fails says where to look. Run
this file to see the table; try the environments on any other trainer, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from surefoot.collect.local import local_collector
from surefoot.config import Config, PolicyConfig, PPOConfig
from surefoot.core.progress import Progress
from surefoot.envs.make import factory, make_vector
from surefoot.learn.build import build_learner
from surefoot.schedules import Linear

GAMMA = 0.9


class Tiny(gymnasium.Env[Any, Any]):
    """A task whose observation is one number."""

    observation_space = Box(-2, 2, (1,), np.float32)
    action_space = Discrete(2)
    state = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.state = self.first()
        return self.seen(), {}

    def first(self) -> float:
        return 0.0

    def seen(self) -> Any:
        return np.array([self.state], np.float32)


class ConstantReward(Tiny):
    """One step, reward 1: the critic must learn a constant."""

    def step(self, action: Any) -> Any:
        return self.seen(), 1.0, True, False, {}


class RewardByObservation(Tiny):
    """One step, the reward is what was seen: the critic must look at the observation."""

    def first(self) -> float:
        return float(self.np_random.choice([-1, 1]))

    def step(self, action: Any) -> Any:
        return self.seen(), self.state, True, False, {}


class DelayedReward(Tiny):
    """Two steps, the reward comes with the second: values must be discounted backwards."""

    def step(self, action: Any) -> Any:
        self.state += 1
        return self.seen(), float(self.state == 2), self.state == 2, False, {}


class TwoSteps(Tiny):
    """Action 1 leads to where action 0 pays 2; action 0 leads to where everything pays 0.5."""

    def step(self, action: Any) -> Any:
        if self.state == 0:
            self.state = 1.0 if action == 1 else -1.0
            return self.seen(), 0.0, False, False, {}
        reward = 0.5 if self.state < 0 else 2.0 * float(action == 0)
        return self.seen(), reward, True, False, {}


class NeverEnding(Tiny):
    """Reward 1 for ever, but an observer leaves after 7 steps: truncation must bootstrap."""

    steps = 0

    def first(self) -> float:
        self.steps = 0
        return 0.0

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.seen(), 1.0, False, self.steps == 7, {}


@dataclass(frozen=True)
class Probe:
    env: type[Tiny]
    values: dict[float, float]
    """What each observation is worth under the best policy."""
    actions: dict[float, int]
    """The best action, where there is one."""


PROBES = [
    Probe(ConstantReward, {0.0: 1.0}, {}),
    Probe(RewardByObservation, {-1.0: -1.0, 1.0: 1.0}, {}),
    Probe(DelayedReward, {0.0: GAMMA, 1.0: 1.0}, {}),
    Probe(TwoSteps, {0.0: 2 * GAMMA, 1.0: 2.0}, {0.0: 1, 1.0: 0}),
    Probe(NeverEnding, {0.0: 1 / (1 - GAMMA)}, {}),
]


def learn(probe: Probe) -> tuple[dict[float, float], dict[float, int]]:
    """Train on a probe for a few seconds; return the values and actions that were learned."""
    config = Config(
        envs=8,
        seed=1,
        total_steps=15_360,
        ppo=PPOConfig(
            horizon=32,
            minibatch_size=128,
            gamma=GAMMA,
            epochs=8,
            learning_rate=Linear(start=1e-2, end=0),
        ),
        policy=PolicyConfig(hidden=(32,)),
    )
    collector = local_collector(make_vector(factory(probe.env), 8), config.ppo.horizon, config.seed)
    learner = build_learner(config, collector.spec)
    progress = Progress(config.total_steps)
    while not progress.done:
        rollout = collector.collect(learner.actor())
        progress = progress.after(rollout, learner.update(rollout, progress))
    states = list(probe.values)
    with torch.no_grad():
        obs = learner.policy.prepare(torch.tensor([[state] for state in states]))
        distribution, values = learner.policy(obs)
    values = dict(zip(states, values.tolist(), strict=True))
    actions = dict(zip(states, distribution.mode().tolist(), strict=True))
    return values, {state: actions[state] for state in probe.actions}


if __name__ == "__main__":
    for probe in PROBES:
        values, actions = learn(probe)
        print(f"{probe.env.__name__:<20} learned {values} {actions}")
        print(f"{'':<20} exactly {probe.values} {probe.actions}")
