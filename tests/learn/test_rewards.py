"""What is learned from instead of raw rewards, against numpy and by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from surefoot.config import Config, build
from surefoot.core.errors import ConfigError, EnvError
from surefoot.core.rollout import Rollout
from surefoot.core.tree import Array
from surefoot.learn.build import build_rewards
from surefoot.learn.rewards import Rewards, Scaled
from surefoot.transforms import TimeScaled
from tests.counter import Counter
from tests.toys import collector, learner


def rollouts(count: int) -> list[Rollout]:
    collect = collector(Counter, length=7)
    actor = learner(collect.spec).actor()
    return [collect.collect(actor) for _ in range(count)]


def with_rewards(data: Rollout, reward: Any, **more: Any) -> Rollout:
    """Take the first steps of a rollout's first row, with other rewards."""
    column = np.array(reward, float)[:, None]
    steps = len(column)
    shape: dict[str, Array] = {
        "reward": column,
        "valid": np.ones((steps, 1), bool),
        "episode_step": np.arange(steps)[:, None],
    }
    return replace(data, **{**shape, **more})


def scaled(gamma: float = 0.9) -> Rewards:
    return Rewards([Scaled(4, gamma)])


def stack(*words: str, rows: int = 1) -> Rewards:
    return build_rewards(Config(rewards=words, ppo={"gamma": 0.5}), rows)  # type: ignore[arg-type]


def learned(rewards: Rewards, rollout: Rollout) -> list[float]:
    rewards.absorb(rollout)
    return rewards.of(rollout)[:, 0].tolist()  # type: ignore[no-any-return]


def test_rewards_are_divided_by_the_deviation_of_all_discounted_returns() -> None:
    data = rollouts(3)
    rewards = scaled()
    for rollout in data:
        rewards.absorb(rollout)
    returns = []
    for row in range(4):
        running = 0.0
        for rollout in data:
            for t in range(rollout.horizon):
                running = 0.9 * running + rollout.reward[t, row]
                returns.append(running)
                running = 0.0 if rollout.ended[t, row] else running
    expected = (data[-1].reward / np.std(returns)).astype(np.float32)
    np.testing.assert_allclose(rewards.of(data[-1]), expected, rtol=1e-6)


def test_the_raw_rewards_stay_raw() -> None:
    (rollout,) = rollouts(1)
    before = rollout.reward.copy()
    for words in ((), ("no_state_penalty", "time_scaled", "normalized", "clip:-1:1", "scale:3")):
        rewards = stack(*words, rows=4)
        rewards.absorb(rollout)
        rewards.of(rollout)
        assert np.array_equal(rollout.reward, before)
    assert Rewards().of(rollout).tolist() == before.tolist()


def test_scaled_rewards_are_clipped() -> None:
    (rollout,) = rollouts(1)
    assert float(scaled().of(rollout).max()) == pytest.approx(7.0)
    rollout.reward[0, 0] = 1e9
    assert float(scaled().of(rollout).max()) == 10.0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["time_scaled"], [-4.0, -4.0, -2.0]),
        (["per_horizon"], [-4 / 3, -8 / 3, -2.0]),
        (["scale:0.5"], [-2.0, -4.0, -3.0]),
        (["floor:-5"], [-4.0, -5.0, -5.0]),
        (["clip:-7:-5"], [-5.0, -7.0, -6.0]),
        (["no_state_penalty"], [0.0, 0.0, 2.0]),
        (["add:sent:2"], [-2.0, -8.0, 0.0]),
        (["replace:sent"], [1.0, 0.0, 3.0]),
        (["time_scaled", "floor:-3", "scale:2"], [-6.0, -6.0, -4.0]),
        (["scale:2", "time_scaled", "floor:-3"], [-3.0, -3.0, -3.0]),
    ],
)
def test_transforms_by_hand_one_after_another(words: list[str], expected: list[float]) -> None:
    channels = {"sent": np.array([[1.0], [0.0], [3.0]])}
    rollout = with_rewards(rollouts(1)[0], [-4.0, -8.0, -6.0], channels=channels)
    np.testing.assert_allclose(learned(stack(*words), rollout), expected, rtol=1e-6)


def test_an_improvement_is_seen_from_one_rollout_to_the_next_but_not_over_a_reset() -> None:
    data, rewards = rollouts(1)[0], stack("no_state_penalty")
    assert learned(rewards, with_rewards(data, [-4.0, -8.0])) == [0.0, 0.0]
    on = with_rewards(data, [-5.0, -1.0, -3.0], episode_step=np.array([[2], [3], [0]]))
    assert learned(rewards, on) == [3.0, 4.0, 0.0]


def test_a_moving_normalization_forgets_what_rewards_were_like_long_ago() -> None:
    data, rewards = rollouts(1)[0], stack("normalized:0.5")
    for size in [1000.0] * 5 + [1.0] * 40:
        last = learned(rewards, with_rewards(data, [size, -size, size, -size]))
    returns = [1.0, -0.5, 0.75, -0.625]  # each half the one before, and the reward
    expected = np.array([1.0, -1.0, 1.0, -1.0]) / np.std(returns)
    np.testing.assert_allclose(last, expected, rtol=1e-4)


@pytest.mark.parametrize("word", ["normalized", "no_state_penalty"])
def test_state_carries_accumulators_across(word: str) -> None:
    first, second = rollouts(2)
    one, other = (build_rewards(Config(rewards=(word,)), 4) for _ in range(2))  # type: ignore[arg-type]
    one.absorb(first)
    other.restore(one.state())
    for rewards in (one, other):
        rewards.absorb(second)
    assert np.array_equal(one.of(second), other.of(second))
    assert not np.array_equal(one.of(second), stack(word, rows=4).of(second))


def test_what_is_learned_from_is_compared_with_raw_rewards_in_the_metrics() -> None:
    rewards = stack("scale:0.5")
    rollout = with_rewards(rollouts(1)[0], [-4.0, -8.0])
    rewards.absorb(rollout)
    assert rewards.metrics(rollout) == {
        "reward/raw_mean": -6.0,
        "reward/raw_std": 2.0,
        "reward/learned_mean": -3.0,
        "reward/learned_std": 1.0,
    }
    assert Rewards().metrics(rollout) == {}


def test_a_quantity_that_nobody_reports_is_an_error_that_names_it() -> None:
    channels = {"sent": np.array([[1.0], [np.nan]])}
    rollout = with_rewards(rollouts(1)[0], [1.0, 1.0], channels=channels)
    with pytest.raises(EnvError, match=r"'sent', but row 0 does not report it .* at step 1"):
        learned(stack("add:sent"), rollout)
    absent = replace(rollout, valid=np.array([[True], [False]]))
    assert learned(stack("replace:sent"), absent) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("time_scale", "unknown transform 'time_scale'; did you mean 'time_scaled'?"),
        ("scale:0", "'scale:0': Input should be greater than 0"),
        ("clip:3:1", "'clip:3:1': the lower bound comes first"),
        ("floor", "'floor': Field required"),
        ("per_horizon:3", "too much after per_horizon"),
    ],
)
def test_a_word_that_is_no_transform_is_an_error(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        build({"argument": {"rewards": [word]}})
    assert message in str(error.value)


def test_one_transform_may_stand_alone() -> None:
    assert build({"argument": {"rewards": "time_scaled"}}).rewards == (TimeScaled(),)


def test_steps_are_not_compared_in_units_that_change() -> None:
    with pytest.raises(ConfigError, match="put no_state_penalty first"):
        build({"argument": {"rewards": ["normalized", "no_state_penalty"]}})


def test_transforms_are_written_as_they_are_read() -> None:
    words = ["time_scaled", "normalized:0.05", "clip:-10.0:10.0", "add:delivered:1.0"]
    config = build({"argument": {"rewards": words}})
    assert config.model_dump(mode="json")["rewards"] == words
    assert Config.from_yaml(config.to_yaml()) == config
