"""Discounted and average objectives, by hand and in tasks whose values are known."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from surefoot.collect.local import local_collector
from surefoot.core.errors import ConfigError
from surefoot.core.progress import Progress
from surefoot.core.tree import Array
from surefoot.envs.make import factory, make_vector
from surefoot.learn.objective import Average, Discounted, Seen
from surefoot.maths.gae import gae
from surefoot.policy.values import PopArt
from tests.toys import learner


class Cycle(gymnasium.Env[Array, int]):
    """Goes round through states for ever, each with its reward, whatever is done."""

    def __init__(self, rewards: tuple[float, ...] = (0.0, 2.0)) -> None:
        self._rewards, self._at = rewards, 0
        self.observation_space = gymnasium.spaces.Box(0, 1, (len(rewards),), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        self._at = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward = self._rewards[self._at]
        self._at = (self._at + 1) % len(self._rewards)
        return self._seen(), reward, False, False, {}

    def _seen(self) -> Array:
        return np.eye(len(self._rewards), dtype=np.float32)[self._at]


def seen(rewards: list[float], values: list[float], **more: Any) -> Seen:
    """One row that goes on after the last step; values are of all states and the next."""
    column = torch.tensor(rewards)[:, None]
    valued = torch.tensor(values)[:, None]
    flags = {name: torch.zeros_like(column, dtype=torch.bool) for name in ("terminated", "ended")}
    flags |= {"valid": torch.ones_like(column, dtype=torch.bool), **more}
    return Seen(column, valued[:-1], valued[1:], **flags)


def average(eta: float | None = None, centre: float = 0.0, **given: Any) -> Average:
    made = Average(**{"lam": 0.9, "rate": 0.5, "learned": False, "centring": 0.25, **given})
    made.restore({"eta": eta, "centre": centre})
    return made


def test_known_differential_values_leave_nothing_to_gain() -> None:
    # Round a cycle of rewards 0 and 2 the average is 1, and the second state is worth 1 more.
    data = seen([0.0, 2.0, 0.0, 2.0], [-0.5, 0.5, -0.5, 0.5, -0.5])
    advantage, target = average(eta=1.0).estimate(data)
    assert torch.allclose(advantage, torch.zeros(4, 1), atol=1e-6)
    assert torch.allclose(target, data.values, atol=1e-6)


def test_advantages_are_what_follows_above_the_average_by_hand() -> None:
    data = seen([3.0, 5.0], [1.0, 2.0, 4.0])
    advantage, target = average(eta=2.0, lam=0.5).estimate(data)
    later = 5 - 2 + 4 - 2
    assert advantage[:, 0].tolist() == [3 - 2 + 2 - 1 + 0.5 * later, later]
    assert target[:, 0].tolist() == [1 + 2 + 0.5 * later, 2 + later]


def test_the_average_is_that_of_rewards_or_what_values_got_wrong() -> None:
    data = seen([3.0, 5.0], [1.0, 2.0, 4.0])
    first = average()
    first.absorb(data)
    assert first.metrics()["ppo/eta"] == 4.0  # nothing was known
    by_mean, learned = average(eta=2.0), average(eta=2.0, learned=True)
    for one in (by_mean, learned):
        one.absorb(data)
    assert by_mean.metrics()["ppo/eta"] == 2 + 0.5 * (4 - 2)
    assert learned.metrics()["ppo/eta"] == 2 + 0.5 * ((3 - 2 + 2 - 1) + (5 - 2 + 4 - 2)) / 2


def test_a_share_of_the_mean_value_is_taken_out_of_targets() -> None:
    data = seen([1.0, 1.0], [10.0, 10.0, 10.0])
    one = average(eta=1.0)
    one.absorb(data)
    _, target = one.estimate(data)
    assert target[:, 0].tolist() == [7.5, 7.5]


def test_steps_that_do_not_count_are_left_out_of_the_average() -> None:
    data = seen([3.0, 99.0], [1.0, 2.0, 4.0], valid=torch.tensor([[True], [False]]))
    one = average()
    one.absorb(data)
    assert one.metrics() == {"ppo/eta": 3.0, "ppo/value_centre": 1.0}


def test_the_discounted_objective_is_gae() -> None:
    data = seen([3.0, 5.0], [1.0, 2.0, 4.0])
    plain = (data.rewards, data.values, data.next_values, data.terminated, data.ended)
    found, expected = Discounted(0.9, 0.8).estimate(data), gae(*plain, 0.9, 0.8)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_average_ppo_finds_average_and_differential_values_of_a_task_that_never_ends() -> None:
    vector = make_vector(factory(Cycle, {"rewards": (0.0, 0.0, 6.0)}), 4)
    collect = local_collector(vector, 12, seed=3)
    ppo = learner(
        collect.spec,
        {"hidden": ()},
        objective="average",
        learning_rate="0.03",
        minibatch_size=48,
        epochs=10,
        max_grad_norm=None,
        gae_lambda=0.5,
    )
    progress = Progress(100_000)
    for _ in range(120):
        rollout = collect.collect(ppo.actor())
        metrics = ppo.update(rollout, progress)
        progress = progress.after(rollout, metrics)
    values = ppo.policy.value(ppo.policy.prepare(torch.eye(3)))
    assert metrics["ppo/eta"] == pytest.approx(2.0)
    # h(0) = -2 + h(1), h(1) = -2 + h(2), h(2) = 4 + h(0); their mean is kept at 0
    assert values.tolist() == pytest.approx([-2.0, 0.0, 2.0], abs=0.05)


@pytest.mark.parametrize("reset_every", [5, 7, 12, None])
def test_values_stay_right_with_gamma_near_1_wherever_episodes_are_cut(
    reset_every: int | None,
) -> None:
    made = factory(Cycle, {"rewards": (1.0, 1.0)}, reset_every=reset_every)
    collect = local_collector(make_vector(made, 2), 7, seed=3)
    ppo = learner(collect.spec, {"hidden": ()}, gamma=0.999, minibatch_size=14)
    with torch.no_grad():  # one forever, discounted
        ppo.policy.last_of_critic.weight.zero_()
        ppo.policy.last_of_critic.bias.fill_(1000.0)
    for _ in range(4):
        rollout = collect.collect(ppo.actor())
        assert not rollout.terminated.any()
        assert rollout.truncated.any() == (reset_every in (5, 7)) or reset_every == 12
        ppo._experience.add(rollout)
        samples = ppo._estimated()
        assert samples.advantage.abs().max() < 1e-2
        assert torch.allclose(samples.target, torch.tensor(1000.0), atol=1e-2)


def test_popart_keeps_values_when_their_scale_moves() -> None:
    collect = local_collector(make_vector(factory(Cycle), 2), 8, seed=3)
    ppo = learner(collect.spec, popart=0.5)
    scale = ppo.policy.critic_scale
    assert isinstance(scale, PopArt)
    obs = torch.eye(2)
    before = ppo.policy.value(obs)
    for targets in ([900.0, 1100.0], [-5.0, 5.0], [2000.0, 2000.0]):
        scale.follow(torch.tensor(targets), ppo.policy.last_of_critic)
        torch.testing.assert_close(ppo.policy.value(obs), before, rtol=1e-4, atol=1e-3)


def test_popart_gives_the_critic_the_same_to_learn_however_large_rewards_are() -> None:
    losses = []
    for size in (100.0, 10_000.0):
        env = factory(Cycle, {"rewards": (0.0, size, -size)})
        collect = local_collector(make_vector(env, 4), 16, seed=3)
        ppo = learner(collect.spec, popart=1.0, gae_lambda=1.0)
        progress = Progress(10_000)
        for _ in range(5):
            rollout = collect.collect(ppo.actor())
            metrics = ppo.update(rollout, progress)
            progress = progress.after(rollout, metrics)
        losses.append(metrics["ppo/value_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_settings_of_one_objective_are_refused_with_the_other() -> None:
    spec = make_vector(factory(Cycle), 2).spec
    with pytest.raises(ConfigError, match=r"ppo.eta_rate=0.5 is for ppo.objective=average"):
        learner(spec, eta_rate=0.5)
    with pytest.raises(ConfigError, match=r"ppo.popart=0.1 is for ppo.objective=discounted"):
        learner(spec, objective="average", popart=0.1)
