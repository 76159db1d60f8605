"""What check-env finds in good and bad environments."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from gymnasium.vector import SyncVectorEnv

from surefoot.core.errors import ConfigError
from surefoot.envs.check import check
from surefoot.envs.make import factory
from tests.counter import Counter


def found(env: Any, **arguments: Any) -> dict[str, str]:
    """Return what was found, by level."""
    levels: dict[str, str] = {}
    for finding in check(factory(env, arguments)):
        levels[finding.level] = levels.get(finding.level, "") + f"{finding}\n"
    return levels


def test_a_sound_environment_has_neither_errors_nor_warnings() -> None:
    levels = found(Counter, length=9, truncate=True)
    assert set(levels) == {"ok"}
    assert "resumes exactly: seed and actions repeat" in levels["ok"]
    assert "info reports is_success, steps" in levels["ok"]
    assert "steps per second" in levels["ok"]


def test_an_environment_that_draws_its_own_randomness_is_not_deterministic() -> None:
    class Unseeded(Counter):
        def reset(self, **arguments: Any) -> Any:
            super().reset(**arguments)
            self.mark = float(np.random.default_rng().uniform())
            return self._obs(), {}

    levels = found(Unseeded)
    assert "two new environments with one seed differ at step 0" in levels["warning"]
    assert "np_random" in levels["warning"]


def test_an_environment_that_remembers_earlier_episodes_replays_only_when_rebuilt() -> None:
    class Remembers(Counter):
        life = 0

        def step(self, action: Any) -> Any:
            self.life += 1
            obs, _, *rest = super().step(action)
            return obs, float(self.life > 12), *rest

    assert "resumes exactly when rebuilt" in found(Remembers)["note"]


@pytest.mark.slow
def test_bipedal_walker_replays_only_when_rebuilt() -> None:
    assert "resumes exactly when rebuilt" in found("BipedalWalker-v3")["note"]


def test_nan_is_an_error_with_its_place() -> None:
    class Nan(Counter):
        def _obs(self) -> Any:
            return np.array([self.steps, np.nan if self.steps == 3 else 0], np.float32)

    assert "row 0, episode 0, step 3: observation is not finite" in found(Nan)["error"]


def test_the_old_step_api_is_an_error_with_its_remedy() -> None:
    class Old(Counter):
        def step(self, action: Any) -> Any:
            obs, reward, end, _, info = super().step(action)
            return obs, reward, end, info

    error = found(Old)["error"]
    assert "not (obs, reward, terminated, truncated, info)" in error
    assert "return what Gymnasium expects" in error


def test_never_ending_and_never_truncating_are_told_apart() -> None:
    assert "no episode ended" in found(Counter, length=10**9)["warning"]
    assert "truncation was never used" in found(Counter, length=5)["note"]


def test_large_rewards_observations_and_actions_get_a_remedy() -> None:
    levels = found(Counter, length=200, truncate=True, action=Box(-1000, 1000, (1,)))
    assert "--ppo.normalize-returns" in levels["warning"]
    assert "--policy.normalize-observations" in levels["warning"]
    assert "RescaleAction" in levels["warning"]


def test_bounds_far_from_where_a_policy_starts_are_named_one_by_one() -> None:
    space = Box(np.array([-1, 5, 0], np.float32), np.array([1, 6, np.inf], np.float32))
    warning = found(Counter, truncate=True, action=space)["warning"]
    assert "action[1] is from 5 to 6" in warning
    assert "action[0]" not in warning
    assert "action[2]" not in warning


def test_observations_outside_their_bounds_and_of_another_dtype_are_noted() -> None:
    class Loose(Counter):
        def __init__(self) -> None:
            super().__init__(truncate=True)
            self.observation_space = Box(0, 1, (2,), np.float32)

        def _obs(self) -> Any:
            return super()._obs().astype(np.float64)

    levels = found(Loose)
    assert "left its declared bounds" in levels["warning"]
    assert "float64, but the space says float32" in levels["note"]


def test_a_factory_that_fails_is_an_error() -> None:
    def fails() -> Any:
        raise OSError("no licence")

    assert "OSError: no licence" in found(fails)["error"]


def test_a_time_limit_that_grows_does_not_replay() -> None:
    class Grows(Counter):
        def reset(self, **arguments: Any) -> Any:
            self.length += 1
            return super().reset(**arguments)

    assert "resumes exactly when rebuilt" in found(Grows, truncate=True)["note"]


def test_tuples_are_examined_too() -> None:
    class Pair(Counter):
        def __init__(self) -> None:
            super().__init__(truncate=True)
            self.observation_space = Tuple((Box(-1000, 1000, (2,)), Discrete(9)))

        def _obs(self) -> Any:
            return super()._obs(), self.steps

    assert set(found(Pair)) == {"ok"}


def test_spaces_that_no_policy_takes_are_an_error() -> None:
    def refuse(_: Any) -> None:
        raise ConfigError("no policy for this")

    (finding,) = check(factory(Counter), trainable=refuse)
    assert (finding.level, finding.what) == ("error", "no policy for this")


def test_a_vector_environment_is_examined_too() -> None:
    levels = found(lambda: SyncVectorEnv([Counter, Counter]))
    assert "a vector environment without" in levels["note"]
    assert "error" not in levels
