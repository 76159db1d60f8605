"""One update gives the parameters that Stable-Baselines3 gives, from the same weights and data."""

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO as Peer
from stable_baselines3.common.vec_env import DummyVecEnv

from surefoot.core import seeding
from surefoot.core.progress import Progress
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import Purpose
from surefoot.envs.make import factory
from surefoot.learn.ppo import PPO
from tests.toys import ENVS, collector, learner

T, N, EPOCHS, MINIBATCH, SEED = 40, 4, 3, 32, 3
SETTINGS: dict[str, Any] = {
    "horizon": T,
    "minibatch_size": MINIBATCH,
    "epochs": EPOCHS,
    "learning_rate": 1e-3,
    "gamma": 0.97,
    "gae_lambda": 0.9,
    "entropy_coefficient": 0.01,
}
NAMES = {
    "actor.0": "mlp_extractor.policy_net.0",
    "actor.2": "mlp_extractor.policy_net.2",
    "head.linear": "action_net",
    "critic.0.0": "mlp_extractor.value_net.0",
    "critic.0.2": "mlp_extractor.value_net.2",
    "critic.1": "value_net",
}


def peer_names(ours: PPO) -> dict[str, str]:
    """Map our parameter names to theirs."""
    names = {}
    for name in dict(ours.policy.named_parameters()):
        place, _, kind = name.rpartition(".")
        names[name] = "log_std" if kind == "log_std" else f"{NAMES[place]}.{kind}"
    return names


def make_peer(env: Any, ours: PPO) -> Peer:
    peer = Peer(
        "MlpPolicy",
        DummyVecEnv([factory(env)] * N),
        n_steps=T,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        learning_rate=1e-3,
        gamma=0.97,
        gae_lambda=0.9,
        ent_coef=0.01,
        device="cpu",
        policy_kwargs={"net_arch": {"pi": [16, 16], "vf": [16, 16]}},
    )
    theirs = dict(peer.policy.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.policy.named_parameters():
            theirs[peer_names(ours)[name]].copy_(parameter)
    return peer


def fill(peer: Peer, rollout: Rollout, values: Any, next_values: Any) -> None:
    """Put our rollout into their buffer; they bootstrap a truncation by adding to its reward."""
    buffer = peer.rollout_buffer
    buffer.reset()
    only_truncated = rollout.truncated & ~rollout.terminated
    rewards = rollout.reward + np.where(only_truncated, 0.97 * next_values, 0.0)
    starts = rollout.episode_step == 0
    for t in range(T):
        action = rollout.action[t].reshape(N, -1).astype(np.float32)
        tensors = (torch.from_numpy(values[t]), torch.from_numpy(rollout.log_prob[t]))
        buffer.add(rollout.obs[t], action, rewards[t], starts[t], *tensors)
    ended = rollout.ended[-1]
    buffer.compute_returns_and_advantage(torch.from_numpy(next_values[-1]), ended)


@pytest.mark.parametrize("kind", ENVS)
def test_an_update_gives_the_same_parameters_as_stable_baselines3(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = collector(ENVS[kind], rows=N, horizon=T, seed=SEED)
    ours = learner(collect.spec, seed=SEED, **SETTINGS)
    rollout = collect.collect(ours.actor())
    assert rollout.ended.any() or kind == "continuous"
    peer = make_peer(ENVS[kind], ours)
    with torch.no_grad():
        value = lambda obs: ours.policy.value(ours.policy.prepare(torch.from_numpy(obs))).numpy()  # noqa: E731
        values = value(rollout.obs)
        next_values = values[1:].copy()
        if len(rollout.final_obs):
            finals = value(rollout.final_obs)
            next_values[rollout.ended] = finals[rollout.final_index[rollout.ended]]
    fill(peer, rollout, values[:-1], next_values)
    epochs = iter(range(EPOCHS))

    def our_order(count: int) -> Any:
        """They lay rows one after another, we lay time steps one after another."""
        order = seeding.generator(SEED, Purpose.SHUFFLE, 0, next(epochs)).permutation(count)
        return order % N * T + order // N

    monkeypatch.setattr(np.random, "permutation", our_order)
    peer._setup_learn(T * N)
    peer.train()
    monkeypatch.undo()
    metrics = ours.update(rollout, Progress(total_steps=10**9))

    theirs = dict(peer.policy.named_parameters())
    for name, parameter in ours.policy.named_parameters():
        difference = (parameter - theirs[peer_names(ours)[name]]).norm()
        assert difference <= 1e-5 * parameter.norm(), name
    assert metrics["update/optimizer_steps"] == EPOCHS * T * N // MINIBATCH
