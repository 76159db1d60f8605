"""GAE against hand numbers and a slow reference."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.maths.gae import gae


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1)


def flags(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.bool).reshape(-1, 1)


def advantages(**changed: torch.Tensor) -> list[float]:
    """Three steps of one row, gamma 0.5, lambda 0.5, so carries are 0.25."""
    given = {
        "rewards": column(1, 2, 3),
        "values": column(10, 20, 30),
        "next_values": column(20, 30, 40),
        "terminated": flags(0, 0, 0),
        "ended": flags(0, 0, 0),
        **changed,
    }
    result, targets = gae(**given, gamma=0.5, lam=0.5)
    torch.testing.assert_close(targets, result + given["values"])
    return result.flatten().tolist()


def test_rollout_end_bootstraps_from_the_next_value() -> None:
    # deltas: 1+10-10=1, 2+15-20=-3, 3+20-30=-7; backwards -7, -3-1.75, 1+.25*(-4.75)
    assert advantages() == [-0.1875, -4.75, -7.0]


def test_terminated_step_is_worth_its_reward_alone_and_cuts_the_trace() -> None:
    # step 1: 2-20=-18, nothing carried from step 2
    got = advantages(terminated=flags(0, 1, 0), ended=flags(0, 1, 0))
    assert got == [1 + 0.25 * -18, -18.0, -7.0]


def test_truncated_step_bootstraps_from_final_observation_and_cuts_the_trace() -> None:
    # the final observation of step 1 is worth 100: 2+50-20=32
    got = advantages(next_values=column(20, 100, 40), ended=flags(0, 1, 0))
    assert got == [1 + 0.25 * 32, 32.0, -7.0]


def test_terminated_last_step_does_not_bootstrap() -> None:
    assert advantages(terminated=flags(0, 0, 1), ended=flags(0, 0, 1))[2] == 3 - 30


def test_garbage_on_an_invalid_step_reaches_no_valid_one() -> None:
    # step 1 is invalid; step 0 ended, as the rollout's invariant demands
    ended = flags(1, 0, 0)
    got = advantages(ended=ended)
    other = advantages(
        rewards=column(1, 1e9, 3),
        values=column(10, -1e9, 30),
        next_values=column(20, 7, 40),
        ended=ended,
    )
    assert (got[0], got[2]) == (other[0], other[2]) == (1.0, -7.0)


def slow(rewards, values, next_values, terminated, ended, gamma, lam):  # type: ignore[no-untyped-def]
    """The definition: a weighted sum of the temporal differences that follow within the episode."""
    result = np.zeros_like(rewards)
    steps, rows = rewards.shape
    for n in range(rows):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                bootstrap = 0.0 if terminated[k, n] else gamma * next_values[k, n]
                result[t, n] += weight * (rewards[k, n] + bootstrap - values[k, n])
                if ended[k, n]:
                    break
                weight *= gamma * lam
    return result


@given(
    steps=st.integers(1, 12),
    rows=st.integers(1, 4),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_agrees_with_the_definition_for_any_endings(
    steps: int, rows: int, gamma: float, lam: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rewards, values, next_values = random.normal(size=(3, steps, rows))
    terminated, truncated = random.random((2, steps, rows)) < 0.2
    ended = terminated | truncated
    invalid = random.random((steps, rows)) < 0.2
    ended[:-1] |= invalid[1:]  # the rollout's invariant: what goes before an invalid step ended
    arguments = (rewards, values, next_values, terminated, ended)
    expected = slow(*arguments, gamma, lam)
    garbage = [np.where(invalid, 1e9, numbers) for numbers in arguments[:3]]
    got, targets = gae(*map(torch.from_numpy, (*garbage, terminated, ended)), gamma, lam)
    np.testing.assert_allclose(got.numpy()[~invalid], expected[~invalid], atol=1e-9)
    np.testing.assert_allclose(targets.numpy()[~invalid], (expected + values)[~invalid], atol=1e-9)
