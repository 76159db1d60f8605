"""Queueing networks: what they do, by hand and by counting."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

from surefoot.config import Config
from surefoot.core.errors import ConfigError
from surefoot.directory import problem
from surefoot.envs.baselines import RULES, build_baseline
from surefoot.envs.make import factory, make_some
from surefoot.envs.networks import bundled, load, parse_quantity
from surefoot.envs.queueing import ID, Draws, QueueNetworkVector, register_envs
from surefoot.evaluate import evaluate_baseline, play
from tests.optimal import SINGLE, TWO, least_cost

LINE: dict[str, Any] = {
    "links": [
        {"from": "a", "to": "b", "capacity": 3},
        {"from": "b", "to": "c", "capacity": 1},
    ],
    "classes": [
        {"name": "x", "from": "a", "to": "c", "arrivals": 2, "cost": 2},
        {"name": "y", "from": "a", "to": "b", "arrivals": 1},
    ],
}
"""Queues: a x, b x, a y; the first link may send x or y, the second x."""


def line(**more: Any) -> QueueNetworkVector:
    env = QueueNetworkVector(2, LINE, **more)
    env.reset(seed=[1, 2])
    return env


def test_packets_move_over_links_wait_and_leave() -> None:
    env = line()
    assert env.observation_names == ["a x", "b x", "a y"]
    assert env.single_action_space == gymnasium.spaces.MultiDiscrete([3, 2])
    idle = np.zeros((2, 2), int)
    obs, reward, *_, infos = env.step(idle)  # 2 of x and 1 of y arrive
    assert obs[0].tolist() == [2, 0, 1]
    assert reward[0] == -(2 * 2 + 1)
    assert infos["metrics"]["backlog"].tolist() == [3, 3]
    both = np.array([[1, 1], [2, 1]])  # the first row sends x, the second y, which leaves at b
    obs, reward, *_, infos = env.step(both)
    assert obs.tolist() == [[2, 2, 2], [4, 0, 1]]
    assert reward.tolist() == [-(2 * 4 + 2), -(2 * 4 + 1)]
    assert infos["metrics"]["delivered"].tolist() == [0, 1]
    obs, *_, infos = env.step(both)  # one of x leaves at c; those that have just come to b stay
    assert obs[0].tolist() == [2, 3, 3]
    assert infos["metrics"]["delivered"].tolist() == [1, 1]


def test_shares_of_a_link_come_to_no_more_than_all_of_it() -> None:
    env = line(actions="shares")
    assert env.single_action_space.shape == (3,)
    for _ in range(3):
        env.step(np.zeros((2, 3)))
    assert env.queues[0].tolist() == [6, 0, 3]
    env.step(np.array([[0.5, 0.25, 1.0], [1.0, 1.0, 7.0]]))
    np.testing.assert_allclose(env.queues[0], [6 - 1.5 + 2, 1.5, 3 - 0.75 + 1])
    np.testing.assert_allclose(env.queues[1], [6 - 1.5 + 2, 1.5, 3 - 1.5 + 1])


def test_links_that_want_more_than_waits_take_it_in_their_order() -> None:
    fork = {
        "links": [{"from": "a", "to": "b", "capacity": n} for n in (2, 3)],
        "classes": [{"name": "x", "from": "a", "to": "b", "arrivals": 4}],
    }
    env = QueueNetworkVector(1, fork)
    env.reset(seed=1)
    env.step(np.zeros((1, 2), int))
    _, _, _, _, infos = env.step(np.ones((1, 2), int))
    assert infos["metrics"]["delivered"].tolist() == [4]
    assert env.queues[0].tolist() == [4]


@pytest.mark.parametrize("instance", bundled())
@pytest.mark.parametrize("actions", ["choice", "shares"])
def test_nothing_is_lost_and_nothing_comes_from_nowhere(instance: str, actions: Any) -> None:
    env = QueueNetworkVector(8, instance, actions, observe=("queues", "capacities", "arrivals"))
    env.reset(seed=list(range(8)))
    random, arrived, left = np.random.default_rng(0), 0.0, 0.0
    space = env.single_action_space
    for _ in range(200):
        arrived += env._arriving.sum()
        drawn = random.random((8, len(env.plan.lanes))).astype(np.float32)
        chosen = random.integers(env.plan.choices, size=(8, env.plan.links))
        discrete = isinstance(space, gymnasium.spaces.MultiDiscrete)
        *_, infos = env.step(chosen if discrete else drawn)
        left += infos["metrics"]["delivered"].sum()
        assert (env.queues >= 0).all()
    assert arrived > 0
    assert left > 0
    np.testing.assert_allclose(arrived - left, env.queues.sum(), rtol=1e-9)


def test_one_network_is_like_a_row_of_many() -> None:
    register_envs()
    many = QueueNetworkVector(3, "diamond")
    seen, _ = many.reset(seed=[5, 6, 7])
    one = gymnasium.make(ID, instance="diamond", disable_env_checker=True)
    first, _ = one.reset(seed=6)
    assert np.array_equal(first, seen[1])
    random = np.random.default_rng(0)
    for _ in range(100):
        action = random.integers(many.plan.choices, size=(3, many.plan.links))
        obs, reward, *_ = many.step(action)
        again, same, *_ = one.step(action[1])
        assert np.array_equal(again, obs[1])
        assert same == reward[1]


def test_a_row_that_is_reset_leaves_the_others_alone() -> None:
    one, other = QueueNetworkVector(2, "diamond"), QueueNetworkVector(2, "diamond")
    for env in (one, other):
        env.reset(seed=[1, 2])
    action = np.ones((2, one.plan.links), int)
    for _ in range(5):
        one.step(action), other.step(action)
    one.reset(seed=[9, 9], options={"reset_mask": np.array([True, False])})
    assert one.queues[0].tolist() == [0.0] * len(one.plan.queues)
    for _ in range(5):
        one.step(action), other.step(action)
    assert np.array_equal(one.queues[1], other.queues[1])


def test_quantities_are_drawn_as_often_as_they_should() -> None:
    said = [3, {"bernoulli": 0.7}, {"poisson": 20}, {"binomial": [4, 0.25]}, {"uniform": [1, 3]}]
    quantities = [parse_quantity(one) for one in [*said, {"choice": {0: 0.5, 8: 0.5}}]]
    assert [q.mean for q in quantities] == pytest.approx([3, 0.7, 20, 1, 2, 4])
    rows = 40_000
    seeds = np.arange(rows, dtype=np.uint64) * np.uint64(2**40 + 7)
    drawn = Draws(quantities).at(seeds, np.full(rows, 17, np.uint64))
    for place, quantity in enumerate(quantities):
        variance = sum(
            p * (v - quantity.mean) ** 2
            for v, p in zip(quantity.values, quantity.probabilities, strict=True)
        )
        error = 4 * np.sqrt(variance / rows) + 1e-12
        assert abs(drawn[:, place].mean() - quantity.mean) <= error
        assert drawn[:, place].var() == pytest.approx(variance, rel=0.05, abs=1e-12)
    later = Draws(quantities).at(seeds, np.full(rows, 18, np.uint64))
    correlation = np.corrcoef(drawn[:, 2], later[:, 2])[0, 1]
    beside = np.corrcoef(drawn[:, 2], drawn[:, 4])[0, 1]
    assert abs(correlation) < 0.02
    assert abs(beside) < 0.02


def test_observations_may_tell_of_the_coming_step_and_be_logarithms() -> None:
    env = QueueNetworkVector(2, "diamond", observe=("queues", "arrivals"), log=True)
    obs, _ = env.reset(seed=[1, 2])
    assert env.observation_names[-2:] == ["arrivals through", "arrivals down"]
    coming = np.expm1(obs[:, -2:])
    env.step(np.zeros((2, env.plan.links), int))
    np.testing.assert_allclose(env.queues[:, env.plan.entries], coming, atol=1e-5)


def test_back_pressure_serves_the_steepest_way_down_and_idles_uphill() -> None:
    env = line()
    act = build_baseline(env, "back_pressure").act
    env.queues = np.array([[5.0, 1.0, 3.0], [1.0, 4.0, 0.0]])
    noise = np.full((2, 3), 0.5)
    action, _ = act(env._observed(), None, {}, noise)
    assert action.tolist() == [[1, 1], [0, 1]]  # 5 - 1 > 3; 1 < 4
    heavy, _ = build_baseline(env, "longest_queue").act(env._observed(), None, {}, noise)
    assert heavy.tolist() == [[1, 1], [1, 1]]


def test_rules_are_ranked_as_theory_has_it() -> None:
    given = ({"instance": "two_queues"}, 16, 2_000, 3)
    found = {rule: evaluate_baseline(rule, *given).lta_return_mean for rule in RULES}
    assert found["max_weight"] > found["back_pressure"] > found["random"]
    assert found["longest_queue"] > found["random"]
    with pytest.raises(ConfigError, match="did you mean 'back_pressure'"):
        evaluate_baseline("backpressure", *given)


def test_scores_on_different_networks_are_of_different_problems(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(LINE))

    def of(instance: str) -> str:
        return problem(Config(env=ID, env_args={"instance": instance}))

    first = of(str(file))
    file.write_text(yaml.safe_dump({"about": "the same", **LINE}))
    assert of(str(file)) == first
    file.write_text(yaml.safe_dump({**LINE, "links": LINE["links"][::-1]}))
    assert of(str(file)) != first
    assert of("two_queues") != of("diamond")


def test_what_means_the_same_is_one_problem() -> None:
    def of(**more: Any) -> str:
        return problem(Config(env=ID, env_args={"instance": LINE, **more}))

    first = of()
    assert of(observe="queues") == of(observe=["queues"]) == first
    spelt = {**LINE["classes"][1], "cost": 1.0}
    assert of(instance={**LINE, "classes": [LINE["classes"][0], spelt]}) == first
    chances: dict[Any, float] = {5: 0.5, 10: 0.5}
    links = [{**LINE["links"][0], "capacity": {"choice": chances}}, *LINE["links"][1:]]
    as_text = json.loads(json.dumps({**LINE, "links": links}))  # numbers become words
    assert of(instance={**LINE, "links": links}) == of(instance=as_text) != first


def test_a_state_that_was_taken_stays_as_it_was() -> None:
    env = QueueNetworkVector(2, "diamond")
    env.reset(seed=1)
    state = env.get_state()
    seen = [env.step(env.action_space.sample() * 0 + 1)[1] for _ in range(5)]
    env.set_state(state)
    again = [env.step(env.action_space.sample() * 0 + 1)[1] for _ in range(5)]
    assert np.array_equal(seen, again)


def test_a_reset_without_a_seed_follows_from_the_seed_before() -> None:
    def rewards(*seeds: Any) -> list[float]:
        env = QueueNetworkVector(2, "diamond")
        for seed in seeds:
            env.reset(seed=seed)
        return [float(env.step(np.zeros((2, env.plan.links), int))[1].sum()) for _ in range(20)]

    assert rewards(1, None) == rewards(1, None) != rewards(1)
    assert rewards(1, None) != rewards(2, None)
    assert rewards(1, [None, None]) == rewards(1, None)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"links": []}, "links: Tuple should have at least 1 item"),
        ({"nodes": ["a"]}, "nodes: Extra inputs are not permitted"),
        ({"classes": [{**LINE["classes"][0], "to": "d"}]}, "cannot get from a to d"),
        ({"classes": [LINE["classes"][0]] * 2}, "two classes have one name: x, x"),
        ({"links": [{"from": "a", "to": "c"}]}, "either capacity, or capacities by class"),
        ({"classes": [{**LINE["classes"][0], "arrivals": {"poison": 3}}]}, "is no quantity"),
        ({"classes": [{**LINE["classes"][0], "arrivals": -1}]}, "is no quantity"),
        ({"classes": [{**LINE["classes"][0], "to": "a"}]}, "arrives where it is to get to"),
    ],
)
def test_a_description_that_makes_no_sense_is_an_error_that_says_why(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match="describes no queueing network") as error:
        load({**LINE, **changed})
    assert message in str(error.value)


def test_an_unknown_instance_is_an_error_that_names_those_there_are() -> None:
    make = factory(ID, {"instance": "two_queue"})
    with pytest.raises(ConfigError, match="did you mean 'two_queues'"):
        make()
    with pytest.raises(ConfigError, match="no argument 'instances'; did you mean 'instance'"):
        factory(ID, {"instances": "two_queues"})()
    with pytest.raises(ConfigError, match="has no pictures"):
        factory(ID, {"render_mode": "human"})()


class Priority:
    """Serves the first kind that waits, in this order of queues."""

    def __init__(self, env: QueueNetworkVector) -> None:
        self._env = env

    def noise(self, random: np.random.Generator, *axes: int) -> Any:
        return {}

    def memory(self, rows: int) -> Any:
        return {}

    def act(self, obs: Any, mask: Any, memory: Any, noise: Any) -> Any:
        first = 1 + (obs > 0).argmax(1)
        return np.where((obs > 0).any(1), first, 0)[:, None], memory


@pytest.mark.parametrize(("instance", "model"), [("single_queue", SINGLE), ("two_queues", TWO)])
def test_the_best_policy_costs_what_dynamic_programming_says(
    instance: str, model: dict[str, list[float]]
) -> None:
    # To serve the dearest and quickest first is best here, which the iteration does not know.
    env = make_some(factory(ID, {"instance": instance}, reset_every=4_000), 64)
    best = play(Priority(env.first), env, 64, seed=5, step=0, longest=4_000)
    error = 4 * np.std(best.lta_returns) / 8  # of the mean of 64
    assert abs(-best.lta_return_mean - least_cost(**model)) < error
    assert error < 0.05 * least_cost(**model)
    rule = evaluate_baseline("back_pressure", {"instance": instance}, 64, 4_000, 5, rows=64)
    assert rule.lta_return_mean < best.lta_return_mean + error
