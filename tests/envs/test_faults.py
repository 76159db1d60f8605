"""What an environment does wrong is reported with environment, row, episode, step and field."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, Text
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from surefoot.core.errors import ConfigError, EnvError, SurefootError
from surefoot.envs.make import factory, make_vector
from tests.counter import Counter
from tests.toys import collector, learner


def broken(change: Callable[[tuple[Any, ...]], Any]) -> type[Counter]:
    """Make a Counter whose third step of its second episode returns something else."""

    class Broken(Counter):
        episode = 0

        def reset(self, **arguments: Any) -> Any:
            self.episode += 1
            return super().reset(**arguments)

        def step(self, action: Any) -> Any:
            result = super().step(action)
            return change(result) if (self.episode, self.steps) == (2, 3) else result

    return Broken


def boom(_: Any) -> Any:
    raise RuntimeError("boom")


NAN, INF = float("nan"), float("inf")
FAULTS = {
    "nan observation": (
        lambda r: (np.array([NAN, 0], np.float32), *r[1:]),
        "observation is not fin",
    ),
    "inf observation": (
        lambda r: (np.array([INF, 0], np.float32), *r[1:]),
        "observation is not fin",
    ),
    "nan reward": (lambda r: (r[0], NAN, *r[2:]), "reward is nan"),
    "inf reward": (lambda r: (r[0], -INF, *r[2:]), "reward is -inf"),
    "no reward": (lambda r: (r[0], None, *r[2:]), "reward is None"),
    "wrong shape": (lambda r: (np.zeros(3, np.float32), *r[1:]), r"shape \(3,\).*has \(2,\)"),
    "broadcastable shape": (lambda r: (np.zeros(1, np.float32), *r[1:]), r"shape \(1,\)"),
    "wrong dtype": (lambda r: (np.array(["a", "b"]), *r[1:]), "dtype <U1"),
    "nothing": (lambda r: (None, *r[1:]), "observation"),
    "an exception": (boom, "step.* raised RuntimeError: boom"),
    "four values": (lambda r: r[:4], r"not \(obs, reward, terminated, truncated, info\)"),
    "no values": (lambda _: None, r"step returned None, not \(obs"),
    "metrics not a dict": (lambda r: (*r[:4], {"metrics": 3.0}), "must be dicts"),
    "info not a dict": (lambda r: (*r[:4], [1]), "must be dicts"),
    "terminated an array": (lambda r: (*r[:2], np.zeros(2, bool), *r[3:]), "terminated is"),
    "truncated nothing": (lambda r: (*r[:3], None, r[4]), "truncated is None"),
    "ragged observation": (lambda r: ([[1, 2], [3]], *r[1:]), "observation is not an array"),
    "bad metric": (lambda r: (*r[:4], {"metrics": {"x": "y"}}), "info metric 'x' is 'y'"),
    "infinite metric": (lambda r: (*r[:4], {"metrics": {"x": INF}}), "info metric 'x' is infinite"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_environment_row_episode_step_and_field(fault: str) -> None:
    change, message = FAULTS[fault]
    collect = collector(broken(change), rows=2)
    with pytest.raises(EnvError, match=message) as caught:
        collect.collect(learner(collect.spec).actor())
    assert "Broken" in str(caught.value)
    step = 2 if "raised" in str(caught.value) else 3  # the step that failed was the third
    assert f"row 0, episode 1, step {step}" in str(caught.value)


VECTOR_FAULTS = {
    "nan observation": "row 1, episode 1, step 3: (final )?observation is not finite",
    "nan reward": "row 1, episode 1, step 3: reward is nan",
    "wrong shape": "all 2 rows: ",
    "an exception": "all 2 rows: step raised RuntimeError: boom",
    "infinite metric": "row 1, .*info metric 'x' is infinite",
}


@pytest.mark.parametrize("fault", VECTOR_FAULTS)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_fault_in_a_vector_environment_is_caught_in_every_autoreset_mode(
    fault: str, mode: AutoresetMode
) -> None:
    change, _ = FAULTS[fault]

    def make() -> SyncVectorEnv:
        return SyncVectorEnv([Counter, broken(change)], autoreset_mode=mode)

    collect = collector(make, rows=2)
    with pytest.raises(EnvError, match=VECTOR_FAULTS[fault]):
        collect.collect(learner(collect.spec).actor())


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("vector", [False, True])
def test_numbers_are_no_fault_because_they_are_large_nor_warned_of(vector: bool) -> None:
    def large(result: tuple[Any, ...]) -> Any:
        return np.full(2, -3e38, np.float32), 1e300, *result[2:]

    def make() -> Any:
        return SyncVectorEnv([broken(large)] * 2) if vector else broken(large)()

    collect = collector(make, rows=2)
    rollout = collect.collect(learner(collect.spec).actor())
    assert rollout.reward.max() == 1e300
    assert rollout.obs.min() == np.float32(-3e38)


class Numbered(Counter):
    """Counts its steps in a choice that begins with 3."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Discrete(9, start=3)

    def _obs(self) -> Any:
        return np.int64(3 + self.steps)


def test_choices_that_a_vector_observes_begin_with_zero() -> None:
    collect = collector(lambda: SyncVectorEnv([Numbered, Numbered]), rows=2)
    rollout = collect.collect(learner(collect.spec).actor())
    assert rollout.obs[:5, 0].tolist() == [0, 1, 2, 3, 4]


def test_an_exception_keeps_the_original_traceback() -> None:
    collect = collector(broken(boom), rows=1)
    with pytest.raises(EnvError) as caught:
        collect.collect(learner(collect.spec).actor())
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.__cause__.__traceback__ is not None


def test_an_action_that_the_environment_refuses_is_shown() -> None:
    class Picky(Counter):
        def step(self, action: Any) -> Any:
            raise ValueError(f"I never do {action}")

    collect = collector(Picky, rows=1)
    with pytest.raises(EnvError, match=r"step\(.*[01].*\) raised ValueError: I never do"):
        collect.collect(learner(collect.spec).actor())


def test_a_failing_reset_and_a_failing_constructor_say_so() -> None:
    class NoReset(Counter):
        def reset(self, **_: Any) -> Any:
            raise KeyError("door")

    with pytest.raises(
        EnvError, match=r"row 0, episode 0, step 0: reset\(seed=\d+\) raised KeyError"
    ):
        collector(NoReset)

    def no_env() -> Any:
        raise OSError("no simulator")

    with pytest.raises(
        ConfigError, match=r"failed: OSError: no simulator \(at .*test_faults.py:\d+"
    ):
        collector(no_env)


def test_a_choice_outside_its_space_is_a_fault() -> None:
    class Outside(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = Discrete(3, start=1)

        def _obs(self) -> Any:
            return 1 + self.steps

    collect = collector(Outside)
    actor = learner(collect.spec).actor()
    with pytest.raises(EnvError, match=r"is 4, outside its space Discrete\(3, from 1\)"):
        collect.collect(actor)


def test_a_missing_key_of_a_dict_observation_is_a_fault() -> None:
    class Forgetful(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = Dict(a=Box(-1, 1, (1,)), b=Discrete(2))

        def _obs(self) -> Any:
            return {"a": np.zeros(1, np.float32)}

    with pytest.raises(
        EnvError, match=r"observation is \['a'\], but the space has the keys \['a', 'b'\]"
    ):
        collector(Forgetful)


@pytest.mark.parametrize("space", [Text(5), Graph(Discrete(2), None)])
def test_unsupported_observations_are_refused_with_what_is_supported(space: Any) -> None:
    class Strange(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = space

    with pytest.raises(ConfigError, match=r"observation space .* is not supported; use Box"):
        collector(Strange)


def test_whole_numbers_in_a_box_are_no_action_for_a_gaussian() -> None:
    with pytest.raises(ConfigError, match="Box of floating-point numbers"):
        collector(Counter, action=Box(0, 5, (2,), np.int64))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "did you mean 'CartPole-v1'"),
        ("no.such.module:make", "No module named 'no"),
        ("no_such_file.py:make", "no_such_file.py does not exist"),
        ("tests.counter:Countr", "has no 'Countr'; did you mean 'Counter'"),
        ("tests.toys:ENVS", "is a dict, not a function"),
        ("tests.toys:collector", "failed: TypeError: .*missing 1 required"),
        ("", "no environment given"),
    ],
)
def test_names_that_lead_nowhere_get_one_clear_message(name: str, message: str) -> None:
    with pytest.raises(SurefootError, match=message):
        make_vector(factory(name), 1)


def test_a_factory_must_return_an_environment() -> None:
    with pytest.raises(ConfigError, match=r"returned a list; it must return a gymnasium.Env"):
        make_vector(factory(list), 1)
