"""SAC: known soft values of tiny tasks, when it learns, what it reports, and what it remembers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.core.errors import NonFiniteError
from surefoot.core.progress import Progress
from surefoot.core.state import differences
from surefoot.learn.sac import SAC
from surefoot.policy.uniform import Uniform
from tests.counter import Choices, Dent, Loop
from tests.toys import collector, soft_learner

ENVS = {"discrete": "CartPole-v1", "multi-discrete": Choices, "continuous": "Pendulum-v1"}


def trained(sac: SAC, collect: Any, iterations: int) -> SAC:
    progress = Progress(total_steps=10**6)
    for _ in range(iterations):
        rollout = collect.collect(sac.actor())
        progress = progress.after(rollout, sac.update(rollout, progress))
    return sac


def test_choices_reach_the_soft_values_and_the_policy_of_a_tiny_task() -> None:
    alpha, gamma = 0.3, 0.8
    reward, value = Loop.REWARD, np.zeros(2)
    follows = np.array([[0, 0, 1], [1, 1, 0]])
    for _ in range(200):  # soft value iteration
        q = reward + gamma * value[follows]
        value = alpha * np.log(np.exp(q / alpha).sum(1))
    collect = collector(Loop, rows=8, horizon=8)
    settings = {"gamma": gamma, "temperature": alpha, "batch_size": 64, "tau": 0.05}
    sac = soft_learner(collect.spec, {"hidden": (32,)}, learning_rate=3e-3, **settings)
    trained(sac, collect, 20)
    features = torch.eye(2)
    with torch.no_grad():
        learned = [sac.policy.critic.taken(features, torch.full((2,), a)).mean(0) for a in range(3)]
        policy = sac.policy(features).logits[:, 0].exp()
    np.testing.assert_allclose(torch.stack(learned, 1), q, atol=0.1)
    np.testing.assert_allclose(policy, np.exp((q - value[:, None]) / alpha), atol=0.05)


def test_numbers_reach_the_soft_values_of_a_tiny_task() -> None:
    alpha, gamma = 0.2, 0.7
    grid = np.linspace(-1, 1, 20_001)
    value = alpha * math.log(np.exp(-((grid - 0.5) ** 2) / alpha).mean() * 2) / (1 - gamma)
    collect = collector(Dent, rows=8, horizon=8)
    settings = {"gamma": gamma, "temperature": alpha, "batch_size": 64, "tau": 0.05}
    sac = soft_learner(collect.spec, {"hidden": (32, 32)}, learning_rate=3e-3, **settings)
    trained(sac, collect, 20)
    actions = torch.linspace(-0.5, 0.9, 8).reshape(-1, 1)
    with torch.no_grad():
        learned = sac.policy.critic.taken(torch.zeros(8, 1), actions).mean(0)
        noise = torch.randn(10_000, 1, generator=torch.Generator().manual_seed(0))
        unit, log_prob = sac.policy(torch.zeros(1, 1)).draw(noise)
    expected = -((actions[:, 0] - 0.5) ** 2) + gamma * value
    np.testing.assert_allclose(learned, expected, atol=0.1)
    worth = float((-((unit[:, 0] - 0.5) ** 2) - alpha * log_prob).mean()) / (1 - gamma)
    assert value - 0.15 < worth < value + 0.05


def test_a_learned_temperature_leads_to_the_entropy_it_aims_at() -> None:
    collect = collector(Loop, rows=8, horizon=8)
    settings = {"batch_size": 64, "tau": 0.05, "gamma": 0.5, "target_entropy": 0.8}
    sac = soft_learner(collect.spec, {"hidden": (32,)}, learning_rate=5e-3, **settings)
    trained(sac, collect, 30)
    with torch.no_grad():
        entropy = sac.policy(torch.eye(2)).entropy().mean()
    assert float(entropy) == pytest.approx(0.8, abs=0.1)
    assert 0.01 < float(sac._temperature.exp()) < 1.0


def test_a_fixed_temperature_stays() -> None:
    collect = collector("Pendulum-v1")
    sac = trained(soft_learner(collect.spec, temperature=0.25), collect, 2)
    assert float(sac._temperature.exp()) == pytest.approx(0.25)


def test_actions_are_random_and_nothing_is_learned_before_learning_starts() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=16)
    sac = soft_learner(collect.spec, learning_starts=128)
    before = sac._optimizer.flat.vector.clone()
    for _ in range(2):
        actor = sac.actor()
        assert isinstance(actor, Uniform)
        metrics = sac.update(collect.collect(actor), Progress(10**6))
    assert metrics["update/optimizer_steps"] == 64.0
    assert not torch.equal(before, sac._optimizer.flat.vector)
    assert not isinstance(sac.actor(), Uniform)
    assert collect.collect(sac.actor()).log_prob is None


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.5])
def test_every_step_is_worth_its_updates(ratio: float) -> None:
    collect = collector("Pendulum-v1", rows=2, horizon=4)
    sac = soft_learner(collect.spec, {"hidden": (4,)}, updates_per_step=ratio, batch_size=2)
    trained(sac, collect, 7)
    assert sac._optimizer.steps == math.floor(ratio * 56)


def test_reports_come_once_in_a_thousand_steps_and_average_all_updates() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=25)
    sac = soft_learner(collect.spec, {"hidden": (4,)}, updates_per_step=0.05, learning_rate=0)
    progress, reports, sizes = Progress(10**6), [], []
    for _ in range(25):
        rollout = collect.collect(sac.actor())
        metrics = sac.update(rollout, progress)
        progress = progress.after(rollout, metrics)
        sizes.append(len(metrics))
        reports += [metrics] if "sac/alpha" in metrics else []
    assert len(reports) == 3  # the first as soon as there is something
    assert sorted(sizes)[:-3] == [1] * 22
    assert progress.optimizer_steps == 125
    assert reports[0]["sac/alpha"] == pytest.approx(1.0)
    assert {"sac/critic_loss_1", "sac/critic_loss_2", "sac/actor_loss", "sac/entropy"} <= set(
        reports[0]
    )
    assert all(math.isfinite(value) for value in reports[1].values())


def test_the_end_of_a_run_is_reported() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=8)
    sac = soft_learner(collect.spec, {"hidden": (4,)})
    progress = Progress(total_steps=100)
    while not progress.done:
        rollout = collect.collect(sac.actor())
        metrics = sac.update(rollout, progress)
        progress = progress.after(rollout, metrics)
    assert metrics["sac/replay_size"] == 128


def test_reports_do_not_miss_iterations_that_are_worth_no_update() -> None:
    collect = collector("Pendulum-v1", rows=1, horizon=8)
    sac = soft_learner(collect.spec, {"hidden": (4,)}, updates_per_step=0.0333, batch_size=2)
    progress, reports = Progress(10**6), 0
    while progress.steps < 5_000:
        rollout = collect.collect(sac.actor())
        metrics = sac.update(rollout, progress)
        progress, reports = progress.after(rollout, metrics), reports + ("sac/alpha" in metrics)
    assert reports == 1 + 5


@pytest.mark.parametrize("kind", ENVS)
@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ({}, {}),
        ({"normalize_observations": True}, {"n_steps": 3, "max_grad_norm": 0.1}),
        ({"value_hidden": (8,)}, {"value_learning_rate": "linear:1e-2:0", "replay_steps": 200}),
    ],
)
def test_a_restored_learner_goes_on_bit_for_bit(kind: str, policy: Any, options: Any) -> None:
    collect = collector(ENVS[kind], rows=4, horizon=8)
    one, other = (soft_learner(collect.spec, policy, learning_starts=40, **options) for _ in "12")
    trained(one, collect, 9)
    other.restore(one.state())
    assert differences(one.state(), other.state()) == []
    progress = Progress(total_steps=10**4, steps=9 * 32)
    for _ in range(3):
        data = collect.collect(one.actor())
        assert one.update(data, progress) == other.update(data, progress)
    assert differences(one.state(), other.state()) == []


def test_a_fork_that_fixes_the_temperature_has_it() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=8)
    parent = trained(soft_learner(collect.spec), collect, 2)
    child = soft_learner(collect.spec, temperature=0.05)
    child.restore(parent.state())
    trained(child, collect, 1)
    assert float(child._temperature.exp()) == pytest.approx(0.05)


@pytest.mark.parametrize(
    "broken",
    [
        {"target": np.zeros(1, np.float32)},
        {"temperature": np.zeros(2, np.float32)},
        {"collected": -5},
        {"collected": "7"},
        {"measured": {"sums": np.zeros(3), "count": 1}},
        {"measured": {"sums": np.zeros(13), "count": "x"}},
    ],
)
def test_a_state_of_another_shape_is_refused(broken: Any) -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=8)
    state = trained(soft_learner(collect.spec), collect, 2).state()
    with pytest.raises(ValueError, match=r"is where|is no count"):
        soft_learner(collect.spec).restore({**state, **broken})


def test_gradients_of_actor_and_critics_are_clipped_and_that_of_the_temperature_is_not() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=8)
    sac = soft_learner(collect.spec, max_grad_norm=1e-3, updates_per_step=1 / 32)
    trained(sac, collect, 1)
    assert sac._optimizer.steps == 1
    policy, value, temperature = sac._optimizer.flat.norms(sac._optimizer.adam.first).tolist()
    assert policy == pytest.approx(1e-4, rel=1e-2)  # a tenth of the gradient
    assert value == pytest.approx(1e-4, rel=1e-2)
    assert temperature > 0.01


def test_the_normalizer_sees_valid_steps_alone() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=8)
    sac = soft_learner(collect.spec, {"normalize_observations": True})
    rollout = collect.collect(sac.actor())
    rollout.valid[:, 1] = False
    sac.update(rollout, Progress(10**6))
    seen = rollout.obs[:-1][:, [0, 2, 3]].reshape(-1, 3)
    mean = sac.policy.normalizer.parts[0].mean
    np.testing.assert_allclose(mean, seen.mean(0), rtol=1e-5)


def test_without_its_buffer_a_restored_learner_says_so_and_waits_until_there_is_enough() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=16)
    told: list[Any] = []
    one, other = (
        soft_learner(collect.spec, save_replay=False, learning_starts=100) for _ in range(2)
    )
    other._tell = told.append
    trained(one, collect, 3)
    other.restore(one.state())
    assert "not exact" in told[0]["message"]
    assert not isinstance(other.actor(), Uniform)
    steps = other._optimizer.steps
    trained(other, collect, 1)
    assert other._optimizer.steps == steps
    trained(other, collect, 1)
    assert other._optimizer.steps == steps + 64


def test_a_number_that_is_not_finite_stops_it_and_names_the_term() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=16)
    sac = soft_learner(collect.spec)
    rollout = collect.collect(sac.actor())
    rollout.reward[3, 2] = np.inf
    kept = sac._optimizer.flat.vector.clone()
    with pytest.raises(NonFiniteError, match="critic_loss_1 is not finite in iteration 1") as error:
        sac.update(rollout, Progress(10**6))
    assert torch.equal(kept, sac._optimizer.flat.vector)
    assert set(error.value.evidence) >= {"batch", "weights_before", "term"}


def test_a_rollout_without_valid_steps_changes_nothing() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=4)
    sac = soft_learner(collect.spec)
    rollout = collect.collect(sac.actor())
    rollout.valid[:] = False
    assert sac.update(rollout, Progress(10**6)) == {}
    assert len(sac._replay) == 0


def test_what_was_learned_from_can_be_looked_at() -> None:
    collect = collector("Pendulum-v1", rows=4, horizon=4)
    sac = soft_learner(collect.spec)
    assert sac.spread() == {}
    trained(sac, collect, 1)
    assert {name: len(values) for name, values in sac.spread().items()} == {
        "sac/q_values": 16,
        "sac/rewards": 16,
        "sac/actions": 16,
    }
