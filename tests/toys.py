"""Helpers that several tests share."""

from __future__ import annotations

from typing import Any

from surefoot.collect.collector import StageCollector
from surefoot.collect.local import local_collector
from surefoot.config import Config, PolicyConfig, PPOConfig, SACConfig
from surefoot.core.rollout import Rollout
from surefoot.envs.make import factory, make_vector
from surefoot.learn.build import build_ppo, build_sac
from surefoot.learn.experience import Samples
from surefoot.learn.lean import LeanStep
from surefoot.learn.ppo import PPO
from surefoot.learn.sac import SAC
from surefoot.learn.step import MinibatchStep
from tests.counter import Choices

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
    return build_ppo(config, spec)


def soft_learner(
    spec: Any,
    policy: dict[str, Any] | None = None,
    seed: int = 3,
    save_replay: bool = True,
    **sac: Any,
) -> SAC:
    settings = {"batch_size": 16, "learning_starts": 0, "replay_steps": 1000, **sac}
    config = Config(
        algo="sac",
        seed=seed,
        device="cpu",
        save_replay=save_replay,
        sac=SACConfig(**settings),
        policy=PolicyConfig(**{"hidden": (16, 16), **(policy or {})}),
    )
    return build_sac(config, spec)


def in_torch(ppo: PPO) -> MinibatchStep:
    """Return the optimizer step in torch of a learner that is not compiled."""
    step: Any = ppo._step
    plain: MinibatchStep = step.plain if isinstance(step, LeanStep) else step
    return plain


def estimated(ppo: PPO, rollout: Rollout) -> Samples:
    """Estimate advantages and targets of one rollout."""
    return ppo._samples(rollout, *ppo._valued(rollout))
