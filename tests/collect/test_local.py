"""What the local collector records."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from surefoot.collect.collector import StageCollector
from surefoot.collect.facts import Facts, Tally
from surefoot.collect.local import local_collector
from surefoot.core.rollout import Episode
from surefoot.core.seeding import EpisodeSeeds
from surefoot.envs.make import factory, make_vector
from surefoot.policy.lean import Lean
from tests.counter import Counter
from tests.toys import ENVS, collector, learner


def play(collect: StageCollector, rollouts: int = 1) -> list:  # type: ignore[type-arg]
    actor = learner(collect.spec).actor()
    return [collect.collect(actor) for _ in range(rollouts)]


def test_a_rollout_records_each_rows_own_sequence() -> None:
    (data,) = play(collector(Counter, length=5, horizon=12))
    steps = np.arange(12) % 5
    assert (data.obs[:-1, :, 0] == steps[:, None]).all()
    assert (data.episode_step == steps[:, None]).all()
    assert (data.reward == steps[:, None] + 1).all()
    assert (data.terminated == (steps == 4)[:, None]).all()
    assert not data.truncated.any()
    assert data.valid.all()


@pytest.mark.parametrize("truncate", [False, True])
def test_final_observations_are_the_true_last_ones(truncate: bool) -> None:
    (data,) = play(collector(Counter, length=5, horizon=12, truncate=truncate))
    assert data.truncated.any() == truncate
    ended = np.argwhere(data.ended)
    assert (np.sort(data.final_index[data.ended]) == np.arange(8)).all()
    assert (data.final_index[~data.ended] == -1).all()
    for t, row in ended:
        final = data.final_obs[data.final_index[t, row]]
        assert final.tolist() == [5.0, data.obs[t, row, 1]]  # same episode, one step on
        assert data.obs[t + 1, row, 0] == 0  # and the next one has begun


def test_rollouts_continue_where_the_last_ended_and_episodes_go_on_across_them() -> None:
    first, second = play(collector(Counter, length=5, horizon=7), rollouts=2)
    assert np.array_equal(first.obs[-1], second.obs[0])
    assert (second.episode_step[0] == 2).all()
    crossing = [e for e in second.episodes if e.number == 1]
    assert [(e.length, e.total) for e in crossing] == [(5, 15.0)] * 4


def test_episode_records_say_how_an_episode_ended() -> None:
    (data,) = play(collector(Counter, length=5, horizon=5, truncate=True))
    assert [(e.row, e.number, e.terminated, e.success) for e in data.episodes] == [
        (row, 0, False, 1.0) for row in range(4)
    ]
    (data,) = play(collector("CartPole-v1", horizon=60))
    assert {e.success for e in data.episodes} == {None}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    "space",
    [Box(-0.1, 0.1, (2,)), Box(0, 1, (2,), np.float64), Discrete(2, start=5), MultiBinary(3)],
    ids=str,
)
def test_environments_get_actions_of_their_space_and_rollouts_keep_what_was_sampled(
    space: Any, native: bool
) -> None:
    def make() -> Any:
        single = lambda: Counter(length=4, action=space)  # noqa: E731
        return SyncVectorEnv([single, single]) if native else single()

    (data,) = play(
        local_collector(make_vector(factory(make), 2), 12, 0)
    )  # Counter asserts contains
    if isinstance(space, Box):
        assert (np.abs(data.action) > 1).any()
    else:
        assert set(np.unique(data.action)) == {0, 1}


def test_every_rollout_has_noise_of_its_own() -> None:
    first, second = play(collector(Counter, length=16), rollouts=2)
    assert not np.array_equal(first.action, second.action)


def test_invalid_steps_count_towards_no_episode() -> None:
    facts = Facts.blank(3, 1)
    facts.reward[:, 0] = [100.0, 1.0, 2.0]
    facts.valid[0], facts.terminated[2] = False, True
    _, episodes = Tally(1).add(facts)
    assert [(e.total, e.length) for e in episodes] == [(3.0, 2)]


def test_episodes_are_counted_within_and_across_rollouts() -> None:
    facts = Facts.blank(4, 3)
    facts.reward[:] = np.transpose([[1, 2, 4, 8], [10, 20, 40, 80], [np.nan, 5, 6, 7]])
    facts.terminated[1, 0] = facts.truncated[0, 2] = facts.terminated[2, 2] = True
    facts.lost[2, 1], facts.success[2, 2] = 1, 1.0
    tally = Tally(3)
    before, episodes = tally.add(facts)
    assert before.T.tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert facts.valid.T.tolist() == [[True] * 4, [False, False, False, True], [True] * 4]
    cut, *others = episodes
    assert (cut.row, cut.number, cut.length, cut.terminated) == (2, 0, 1, False)
    assert np.isnan(cut.total)  # and no other
    assert others == [Episode(0, 0, 3.0, 2, True, None), Episode(2, 1, 11.0, 2, True, 1.0)]
    facts = Facts.blank(1, 3)
    facts.reward[:], facts.terminated[0, :2] = 1.0, True
    before, episodes = tally.add(facts)
    assert before.tolist() == [[2, 1, 1]]
    assert episodes == [Episode(0, 1, 13.0, 3, True, None), Episode(1, 1, 81.0, 2, True, None)]
    counts = {"number": [2, 2, 2], "length": [0, 0, 2], "total": [0.0, 0.0, 8.0]}
    assert {name: found.tolist() for name, found in tally.state().items()} == counts


def test_terminated_and_truncated_at_once_stay_both() -> None:
    class Both(Counter):
        def step(self, action: Any) -> Any:
            obs, reward, end, _, info = super().step(action)
            return obs, reward, end, end, info

    (data,) = play(collector(Both))
    assert data.terminated.any()
    assert np.array_equal(data.terminated, data.truncated)
    assert all(episode.terminated for episode in data.episodes)


def test_success_is_not_a_metric_and_a_metric_of_that_name_is_no_success() -> None:
    class Odd(Counter):
        def step(self, action: Any) -> Any:
            *rest, _ = super().step(action)
            return *rest, {"metrics": {"is_success": 7.0}}

    (data,) = play(collector(Odd))
    assert data.metrics == {"env/is_success": 7.0}
    assert {episode.success for episode in data.episodes} == {None}


def test_numbers_from_info_are_averaged_over_the_rollout() -> None:
    (data,) = play(collector(Counter, length=5, horizon=10))
    assert data.metrics == {"env/steps": 3.0}


def test_every_episode_starts_from_its_addressed_seed() -> None:
    (data,) = play(collector(Counter, length=4, horizon=12, seed=9))
    seeds = EpisodeSeeds(9)
    for row in range(4):
        for episode in range(3):
            expected = Counter()
            first, _ = expected.reset(seed=seeds(row, episode))
            assert data.obs[4 * episode, row].tolist() == first.tolist()


@pytest.mark.parametrize("kind", ENVS)
def test_one_seed_gives_one_rollout_and_another_seed_another(kind: str) -> None:
    same = [play(collector(ENVS[kind], seed=1))[0] for _ in range(2)]
    (other,) = play(collector(ENVS[kind], seed=2))
    for name, value in same[0].arrays().items():
        assert np.array_equal(value, same[1].arrays()[name]), name
    assert not np.array_equal(same[0].obs, other.obs)


@pytest.mark.parametrize("width", [1, 3, 4, 7])
def test_the_policy_is_asked_for_groups_of_one_width(width: int) -> None:
    collect = local_collector(make_vector(factory("CartPole-v1"), 4), 8, 3, width)
    asked: list[int] = []

    class Spy(Lean):
        def act(self, obs: Any, *rest: Any) -> Any:
            asked.append(len(obs))
            return super().act(obs, *rest)

    actor = Spy(**vars(learner(collect.spec).actor()))
    grouped = collect.collect(actor)
    assert set(asked) == {width}
    (whole,) = play(collector("CartPole-v1", horizon=8))
    assert np.array_equal(grouped.action, whole.action)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_gymnasium_vector_environments_give_the_same_facts_in_every_autoreset_mode(
    mode: AutoresetMode,
) -> None:
    def make() -> SyncVectorEnv:
        makers = [lambda length=length: Counter(length, truncate=True) for length in (3, 4)]
        return SyncVectorEnv(makers, autoreset_mode=mode)

    (data,) = play(local_collector(make_vector(factory(make), 2), 12, 0))
    phantom = ~data.valid
    assert phantom.any() == (mode == AutoresetMode.NEXT_STEP)
    assert not (phantom & data.ended).any()
    for row, length in enumerate((3, 4)):
        valid = data.valid[:, row]
        count = int(valid.sum())
        assert data.reward[valid, row].tolist() == [1 + i % length for i in range(count)]
        assert data.episode_step[valid, row].tolist() == [i % length for i in range(count)]
        assert data.obs[:-1][valid, row, 0].tolist() == [i % length for i in range(count)]
        finals = data.final_obs[data.final_index[data.ended[:, row], row]]
        assert (finals[:, 0] == length).all()
    if mode == AutoresetMode.DISABLED:
        marks = [Counter().reset(seed=EpisodeSeeds(0)(row, 1))[0][1] for row in range(2)]
        assert [data.obs[3, 0, 1], data.obs[4, 1, 1]] == marks
    # every valid step that is not the last is ended or followed by a valid one
    assert (data.valid[1:] | data.ended[:-1] | ~data.valid[:-1]).all()
    assert {e.length for e in data.episodes} == {3, 4}
    assert {e.success for e in data.episodes} == {0.0, 1.0}
    reported = data.reward[data.valid].mean()  # Counter reports its steps, which is its reward
    assert data.metrics["env/steps"] == pytest.approx(reported)


class Reusing(SyncVectorEnv):
    """Returns the same arrays again and again, and clears rewards where it resets."""

    def __init__(self) -> None:
        super().__init__([lambda: Counter(3)] * 2, autoreset_mode=AutoresetMode.DISABLED)
        self.rewards, self.seen = np.zeros(2), np.zeros((2, 2), np.float32)

    def reset(self, *, options: Any = None, **arguments: Any) -> Any:
        self.rewards[:] = 0.0
        self.seen[:], info = super().reset(options=options, **arguments)
        return self.seen, info

    def step(self, actions: Any) -> Any:
        self.seen[:], self.rewards[:], *rest = super().step(actions)
        return self.seen, self.rewards, *rest


def test_a_vector_environment_may_reuse_what_it_returned() -> None:
    (data,) = play(local_collector(make_vector(factory(Reusing), 2), 9, 0))
    assert data.reward[:, 0].tolist() == [1, 2, 3] * 3
    assert data.obs[:-1, 0, 0].tolist() == [0, 1, 2] * 3
    assert data.final_obs[:, 0].tolist() == [3] * 6


class OneSeed(SyncVectorEnv):
    """Takes one seed for all rows, and leaves resetting to the caller."""

    def __init__(self) -> None:
        makers = [lambda length=length: Counter(length) for length in (7, 3, 5)]
        super().__init__(makers, autoreset_mode=AutoresetMode.DISABLED)

    @property
    def unwrapped(self) -> Any:
        return None

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=[int(seed) + k for k in range(3)], options=options)


def test_a_vector_that_takes_one_seed_gets_that_of_a_row_that_is_reset() -> None:
    (data,) = play(local_collector(make_vector(factory(OneSeed), 3), 60, 0))
    for row, length in enumerate((7, 3, 5)):
        marks = data.obs[:-1:length, row, 1]
        assert len(np.unique(marks)) == len(marks)


def test_a_vector_of_the_wrong_size_is_refused() -> None:
    def make() -> Any:
        return gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")

    with pytest.raises(Exception, match="set envs to 3"):
        make_vector(factory(make), 8)


def test_renewing_starts_the_next_episodes() -> None:
    collect = collector(Counter, length=5, horizon=7, seed=4)
    play(collect)
    other = collector(Counter, length=5, horizon=7, seed=4)
    other.renew(collect.state())
    (data,) = play(other)
    marks = [Counter().reset(seed=EpisodeSeeds(4)(row, 2))[0][1] for row in range(4)]
    assert data.obs[0, :, 1].tolist() == marks
