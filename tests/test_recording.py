"""Episodes that are written down step by step."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from surefoot.core.errors import RunError
from surefoot.recording import Trajectory
from tests.trained import copy, trained


def record(tmp_path: Path, env: str = "CartPole-v1", **given: Any) -> list[Trajectory]:
    run = copy(trained(env), tmp_path / "run")
    return [Trajectory.load(path) for path in run.record(**given)]


def test_a_record_is_the_episode_that_is_evaluated(tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    evaluated = run.evaluate(episodes=1)
    (path,) = run.record(episodes=1)
    recorded = Trajectory.load(path)
    assert recorded.total == evaluated.returns[0]
    assert recorded.length == evaluated.lengths[0]


def test_playing_the_actions_again_gives_the_observations(tmp_path: Path) -> None:
    one, other = record(tmp_path, episodes=2)
    assert len(one.obs) == one.length + 1
    env: Any = gymnasium.make("CartPole-v1")
    for trajectory in (one, other):
        env.reset()
        env.unwrapped.state = trajectory.obs[0].astype(np.float64)
        for t, action in enumerate(trajectory.action):
            obs, reward, *_ = env.step(int(action))
            np.testing.assert_allclose(obs, trajectory.obs[t + 1], atol=1e-3)
            assert reward == trajectory.reward[t]
    assert not np.array_equal(one.obs[0], other.obs[0])


def test_opinions_are_the_policys(tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    (path,) = run.record()
    trajectory, policy = Trajectory.load(path), run.load().network
    with torch.inference_mode():
        prepared = policy.prepare(torch.from_numpy(trajectory.obs))
        distribution, value = policy(prepared)
    np.testing.assert_allclose(trajectory.value, value, rtol=1e-5)
    np.testing.assert_allclose(trajectory.chances, distribution.logits[:-1].exp(), rtol=1e-4)
    chosen = np.take_along_axis(trajectory.chances[:, 0], trajectory.action[:, None], 1)[:, 0]
    np.testing.assert_allclose(trajectory.log_prob, np.log(chosen), rtol=1e-4, atol=1e-6)


def test_what_was_returned_is_discounted_and_goes_on_after_a_cut() -> None:
    about = {"gamma": 0.5, "terminated": True}
    empty = np.zeros((2, 0, 0))
    given: Any = {"action": None, "log_prob": None, "entropy": None, "chances": empty, "info": {}}
    rewards, values = np.array([1.0, 2.0]), np.array([0.0, 0.0, 8.0])
    ended = Trajectory(obs=None, reward=rewards, value=values, about=about, **given)
    assert ended.returns().tolist() == [2.0, 2.0]
    cut = Trajectory(
        obs=None, reward=rewards, value=values, about={**about, "terminated": False}, **given
    )
    assert cut.returns().tolist() == [4.0, 6.0]


def test_names_are_written_down(tmp_path: Path) -> None:
    (trajectory,) = record(tmp_path)
    assert trajectory.about["observation_names"][2] == "pole angle"
    assert trajectory.about["action_names"] == ["push left", "push right"]


def test_a_file_that_is_no_trajectory_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"something else")
    with pytest.raises(RunError, match="is not a trajectory"):
        Trajectory.load(tmp_path / "x.safetensors")
