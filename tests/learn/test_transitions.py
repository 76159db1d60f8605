"""Transitions of one and of several steps, by hand and against a slow reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surefoot.core.rollout import Rollout
from surefoot.core.spec import Box, Discrete, Spec
from surefoot.learn.transitions import Trail, Transitions
from tests.counter import Counter
from tests.toys import collector, learner

GAMMA = 0.9
ONE = Spec(Box(np.zeros(1), np.ones(1), "float32"), Discrete(9), 1)


def rollout(
    rewards: list[float], ends: str, start: int = 0, begun: int = 0, valid: str = ""
) -> Rollout:
    """One row whose observation counts up from `start`; a step that ends, by `T` or `t`, has a
    final observation of its own, which is negative."""
    length = len(rewards)
    terminated, truncated = (np.array([[e == kind] for e in ends]) for kind in "Tt")
    ended = terminated | truncated
    index, step, steps = np.full((length, 1), -1), [], begun
    index[ended] = np.arange(ended.sum())
    for end in ends:
        step.append([steps])
        steps = 0 if end in "Tt" else steps + 1
    return Rollout(
        obs=np.arange(start, start + length + 1, dtype=np.float32).reshape(-1, 1, 1),
        action=np.arange(length).reshape(-1, 1),
        log_prob=None,
        reward=np.array(rewards).reshape(-1, 1),
        terminated=terminated,
        truncated=truncated,
        valid=np.array([[v != "-"] for v in valid or ends]),
        episode_step=np.array(step),
        final_obs=-np.arange(start, start + length, dtype=np.float32).reshape(-1, 1)[ended[:, 0]],
        final_index=index,
    )


def listed(made: Transitions) -> list[tuple[float, float, float, float]]:
    columns = (made.obs[:, 0], made.reward, made.next_obs[:, 0], made.discount)
    return [tuple(round(float(x), 4) for x in row) for row in zip(*columns, strict=True)]


def test_a_step_leads_to_the_next_observation_and_an_end_to_the_true_last_one() -> None:
    made = Trail(1, GAMMA, ONE).add(rollout([1, 2, 3, 4], ".T.t"))
    assert listed(made) == [(0, 1, 1, 0.9), (1, 2, -1, 0), (2, 3, 3, 0.9), (3, 4, -3, 0.9)]


def test_three_steps_add_up_to_the_end_of_the_episode_by_hand() -> None:
    made = Trail(3, GAMMA, ONE).add(rollout([1, 2, 4, 8, 16], "...T."))
    assert listed(made) == [
        (0, 1 + 1.8 + 3.24, 3, 0.729),
        (1, 2 + 3.6 + 6.48, -3, 0),
        (2, 4 + 7.2, -3, 0),
        (3, 8, -3, 0),
    ]


def test_a_cut_off_episode_counts_for_what_would_have_followed() -> None:
    made = Trail(3, GAMMA, ONE).add(rollout([1, 2, 4], ".t."))
    assert listed(made) == [(0, 1 + 1.8, -1, 0.81), (1, 2, -1, 0.9)]


def test_the_last_steps_wait_for_the_next_rollout() -> None:
    trail = Trail(3, GAMMA, ONE)
    assert listed(trail.add(rollout([1, 2], ".."))) == []
    made = trail.add(rollout([4, 8], "..", start=2, begun=2))
    assert listed(made) == [(0, 1 + 1.8 + 3.24, 3, 0.729), (1, 2 + 3.6 + 6.48, 4, 0.729)]
    made = trail.add(rollout([16], "T", start=4, begun=4))
    assert [row[0] for row in listed(made)] == [2, 3, 4]


def test_nothing_reaches_over_an_episode_that_was_lost_or_cut_between_rollouts() -> None:
    trail = Trail(3, GAMMA, ONE)
    trail.add(rollout([1, 2], ".."))
    made = trail.add(rollout([4, 8, 16], "...", start=100, begun=0))
    assert listed(made)[:2] == [(0, 1 + 1.8, 2, 0.81), (1, 2, 2, 0.9)]
    assert [row[0] for row in listed(made)] == [0, 1, 100]


def test_steps_that_do_not_count_become_no_transition() -> None:
    made = Trail(2, GAMMA, ONE).add(rollout([1, 0, 4, 8], "t..T", valid="+-++"))
    assert [row[0] for row in listed(made)] == [0, 2, 3]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("truncate", [True, False])
def test_many_rollouts_give_what_whole_episodes_give(n: int, truncate: bool) -> None:
    collect = collector(Counter, rows=3, horizon=4, length=5, truncate=truncate)
    trail, found = Trail(n, GAMMA, collect.spec), []
    for _ in range(15):
        made = trail.add(collect.collect(learner(collect.spec).actor()))
        found += [tuple(row[1:]) for row in listed(made) if row[0] == 0]
    # The reward of a step is its number, and the observation counts steps, up to 5.
    count = min(n, 5)
    total = sum(GAMMA**k * (k + 1) for k in range(count))
    ended = n >= 5 and not truncate
    expected = (round(total, 4), count, 0.0 if ended else round(GAMMA**count, 4))
    assert set(found) == {expected}
    assert len(found) >= 3 * 8


@pytest.mark.parametrize("n", [1, 4])
def test_a_restored_trail_goes_on_as_the_first_one(n: int) -> None:
    collect = collector(Counter, rows=2, horizon=3)
    actor = learner(collect.spec).actor()
    first, second = (Trail(n, GAMMA, collect.spec) for _ in range(2))
    first.add(collect.collect(actor))
    second.restore(first.state())
    for _ in range(3):
        data = collect.collect(actor)
        ours, theirs = first.add(data), second.add(data)
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)


def test_waiting_steps_of_other_rows_are_given_up_and_foreign_ones_refused() -> None:
    parent = collector(Counter, rows=4, horizon=3)
    first = Trail(3, GAMMA, parent.spec)
    first.add(parent.collect(learner(parent.spec).actor()))
    collect = collector(Counter, rows=2, horizon=3)
    second = Trail(3, GAMMA, collect.spec)
    second.restore(first.state())
    assert second.state() == {}
    assert len(second.add(collect.collect(learner(collect.spec).actor())).reward) > 0
    state = first.state()
    for broken in ({"reward": state["reward"][:, :1]}, {"obs": state["obs"].astype(np.float64)}):
        with pytest.raises(ValueError, match="is float"):
            Trail(3, GAMMA, parent.spec).restore({**state, **broken})


def test_types_of_observations_stay_as_they_are() -> None:
    data: Any = rollout([1, 2], "..")
    data = Rollout(
        **{**vars(data), "obs": data.obs.astype(np.uint8), "final_obs": np.zeros((0, 1), np.uint8)}
    )
    made = Trail(1, GAMMA, ONE).add(data)
    assert made.obs.dtype == made.next_obs.dtype == np.uint8
    assert made.reward.dtype == made.discount.dtype == np.float32
