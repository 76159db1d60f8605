"""One update of SAC gives what Stable-Baselines3 gives, from the same weights, batch and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import SAC as Peer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from surefoot.core import seeding
from surefoot.core.progress import Progress
from surefoot.core.seeding import Purpose
from surefoot.learn.sac import SAC
from tests.toys import collector, soft_learner

ROWS, HORIZON, BATCH, SEED = 4, 32, 64, 3


def pairs(ours: SAC, peer: Peer) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """Put our parameters beside theirs, by name."""
    mine, actor, found = dict(ours.policy.named_parameters()), peer.actor, []
    for kind in ("weight", "bias"):
        mean, log_std = mine[f"head.linear.{kind}"].chunk(2)
        found += [("mean", mean, getattr(actor.mu, kind))]
        found += [("log_std", log_std, getattr(actor.log_std, kind))]
        for layer in (0, 2):
            theirs = getattr(actor.latent_pi[layer], kind)
            found += [(f"actor {layer}", mine[f"actor.{layer}.{kind}"], theirs)]
        for net, theirs in enumerate(peer.critic.q_networks):
            found += [
                (
                    f"critic {net} {i}",
                    mine[f"critic.nets.{net}.{i}.{kind}"],
                    getattr(theirs[i], kind),
                )
                for i in (0, 2, 4)
            ]
    return found


def targets(ours: SAC, peer: Peer) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    named = ours._optimizer.flat.unpack_part("value", ours._target)
    theirs = dict(peer.critic_target.named_parameters())
    return [
        (name, value, theirs[name.replace("critic.nets.", "qf")]) for name, value in named.items()
    ]


def test_an_update_gives_the_same_parameters_as_stable_baselines3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collect = collector("Pendulum-v1", rows=ROWS, horizon=HORIZON, seed=SEED)
    settings: dict[str, Any] = {"learning_rate": 1e-3, "gamma": 0.97, "tau": 0.02}
    updates = {"updates_per_step": 1 / (ROWS * HORIZON), "batch_size": BATCH}
    ours = soft_learner(collect.spec, {"hidden": (32, 16)}, SEED, **settings, **updates)
    arch = {"net_arch": [32, 16]}
    peer = Peer("MlpPolicy", "Pendulum-v1", policy_kwargs=arch, device="cpu", **settings)
    with torch.no_grad():
        for _, mine, theirs in (*pairs(ours, peer), *targets(ours, peer)):
            theirs.copy_(mine)
    peer.actor.action_dist.epsilon = 0.0  # theirs keeps logarithms finite by a bias, ours exactly
    rollout = collect.collect(ours.actor())
    metrics = ours.update(rollout, Progress(10**9))
    assert metrics["update/optimizer_steps"] == 1
    drawn = ours._replay.draw(seeding.generator(SEED, Purpose.REPLAY, 0), 1, BATCH)
    tensors = drawn.map(lambda leaf: torch.from_numpy(leaf[0]))
    batch = ReplayBufferSamples(
        tensors.obs,
        tensors.action / 2,
        tensors.next_obs,
        (tensors.discount == 0).float()[:, None],
        tensors.reward[:, None],
    )
    shape = (2, 1, BATCH, 1)
    random = seeding.generator(SEED, Purpose.UPDATE, 0).standard_normal(shape, np.float32)
    noise = iter(torch.from_numpy(random[:, 0]))
    monkeypatch.setattr(peer.replay_buffer, "sample", lambda *_, **__: batch)
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *_, **__: next(noise))
    said: dict[str, float] = {}
    peer._setup_learn(10)
    monkeypatch.setattr(peer.logger, "record", lambda name, value, **_: said.update({name: value}))
    peer.train(1, BATCH)
    for name, mine, theirs in (*pairs(ours, peer), *targets(ours, peer)):
        assert (mine - theirs).norm() <= 1e-5 * mine.norm() + 1e-7, name
    torch.testing.assert_close(ours._temperature, peer.log_ent_coef.detach(), rtol=1e-5, atol=0)
    critics = 0.5 * (metrics["sac/critic_loss_1"] + metrics["sac/critic_loss_2"])
    assert critics == pytest.approx(said["train/critic_loss"], rel=1e-5)
    assert metrics["sac/actor_loss"] == pytest.approx(said["train/actor_loss"], rel=1e-5)
    assert metrics["sac/alpha"] == pytest.approx(said["train/ent_coef"], rel=1e-5)
