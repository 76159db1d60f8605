"""Names of what environments observe and take."""

from typing import Any

import gymnasium
import pytest

from surefoot.envs.channels import ACTIONS, OBSERVATIONS, action_names, observation_names

VERSIONS = {"v0", "v1", "v2", "v3", "v5"}
"""Those whose documentation the names are from."""


def ids() -> list[str]:
    newest: dict[str, str] = {}
    for env_id in sorted(gymnasium.registry):
        name, _, version = env_id.rpartition("-")
        if name in OBSERVATIONS and version in VERSIONS:
            newest[name] = env_id
    return list(newest.values())


@pytest.mark.parametrize("env_id", ids())
def test_there_is_a_name_for_every_number_of_the_usual_environments(env_id: str) -> None:
    try:
        env = gymnasium.make(env_id)
    except gymnasium.error.DependencyNotInstalled:
        pytest.skip("MuJoCo is not installed")
    name, _, _ = env_id.rpartition("-")
    (size,) = env.observation_space.shape or ()
    space: Any = env.action_space
    options = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else space.shape[0]
    assert observation_names(env_id, env, size) == list(OBSERVATIONS[name])
    assert action_names(env_id, env, options) == list(ACTIONS[name])
    assert len(set(OBSERVATIONS[name])) == size
    env.close()


class Named:
    observation_names = ("height", "speed")
    action_names = "up"


def test_an_environment_may_name_its_own() -> None:
    assert observation_names("CartPole-v1", Named(), 2) == ["height", "speed"]
    assert observation_names("Mine-v0", Named(), 3) == [f"observation {n}" for n in range(3)]
    assert action_names("mine:Own/Mine-v0", Named(), 2) == ["action 0", "action 1"]
