"""Return scaling against numpy."""

import numpy as np
import pytest
import torch

from surefoot.learn.rewards import RawRewards, ScaledRewards
from tests.counter import Counter
from tests.toys import collector, learner


def rollouts(count: int) -> list:  # type: ignore[type-arg]
    collect = collector(Counter, length=7)
    actor = learner(collect.spec).actor()
    return [collect.collect(actor) for _ in range(count)]


def test_rewards_are_divided_by_the_deviation_of_all_discounted_returns() -> None:
    data = rollouts(3)
    scaled = ScaledRewards(rows=4, gamma=0.9)
    for rollout in data:
        scaled.absorb(rollout)
    returns = []
    for row in range(4):
        running = 0.0
        for rollout in data:
            for t in range(rollout.horizon):
                running = 0.9 * running + rollout.reward[t, row]
                returns.append(running)
                running = 0.0 if rollout.ended[t, row] else running
    expected = torch.from_numpy(data[-1].reward / np.std(returns)).float()
    torch.testing.assert_close(scaled.of(data[-1]), expected, rtol=1e-6, atol=0)


def test_the_raw_rewards_stay_raw() -> None:
    (rollout,) = rollouts(1)
    before = rollout.reward.copy()
    scaled = ScaledRewards(rows=4, gamma=0.9)
    scaled.absorb(rollout)
    scaled.of(rollout)
    assert np.array_equal(rollout.reward, before)
    assert RawRewards().of(rollout).tolist() == before.tolist()


def test_state_carries_accumulators_across() -> None:
    first, second = rollouts(2)
    one, other = ScaledRewards(4, 0.9), ScaledRewards(4, 0.9)
    one.absorb(first)
    other.restore(one.state())
    one.absorb(second)
    other.absorb(second)
    assert torch.equal(one.of(second), other.of(second))


def test_scaled_rewards_are_clipped() -> None:
    (rollout,) = rollouts(1)
    assert float(ScaledRewards(4, 0.9).of(rollout).max()) == pytest.approx(7.0)
    rollout.reward[0, 0] = 1e9
    assert float(ScaledRewards(4, 0.9).of(rollout).max()) == 10.0
