"""Episodes that are written down step by step."""

import io
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from PIL import Image

from surefoot.core.errors import RunError
from surefoot.recording import Trajectory
from surefoot.report.page import write_report
from surefoot.run import Run
from surefoot.video.overlay import Panel
from tests.trained import copy, trained


def kept(run: Run) -> list[Trajectory]:
    return [Trajectory.load(path) for path in sorted((run.path / "trajectories").iterdir())]


def record(tmp_path: Path, env: str = "CartPole-v1", **given: Any) -> list[Trajectory]:
    run = copy(trained(env), tmp_path / "run")
    run.record(**given)
    return kept(run)


def test_what_is_recorded_is_what_is_summed_up(tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    result = run.record(episodes=2)
    assert [one.total for one in kept(run)] == result.returns
    assert [one.length for one in kept(run)] == result.lengths
    assert result.returns[0] == run.evaluate(episodes=1).returns[0]


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
    run.record()
    (trajectory,), policy = kept(run), run.load().network
    with torch.inference_mode():
        prepared = policy.prepare(torch.from_numpy(trajectory.obs))
        distribution, value = policy(prepared)
    np.testing.assert_allclose(trajectory.value, value, rtol=1e-5)
    np.testing.assert_allclose(trajectory.chances, distribution.logits[:-1, 0].exp(), rtol=1e-4)
    chosen = np.take_along_axis(trajectory.chances, trajectory.action[:, None], 1)[:, 0]
    np.testing.assert_allclose(trajectory.log_prob, np.log(chosen), rtol=1e-4, atol=1e-6)


def test_what_was_returned_is_discounted_and_goes_on_after_a_cut() -> None:
    about = {"gamma": 0.5, "terminated": True}
    empty = np.zeros((2, 0))
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


@pytest.mark.parametrize(
    ("env", "channels", "actions"),
    [
        ("FrozenLake-v1", ["observation 0"], 4),
        ("Blackjack-v1", ["0 0", "1 0", "2 0"], 2),
        ("tests.counter:Choices", ["observation 0", "observation 1"], 3 + 2 + 4),
        ("tests.counter:Walk", ["a 0", "z 0", "z 1", "z 2"], 0),
    ],
)
def test_every_kind_of_space_can_be_recorded_filmed_and_reported(
    tmp_path: Path, env: str, channels: list[str], actions: int
) -> None:
    run = copy(trained(env, total_steps=1_000), tmp_path / "run")
    run.record(episodes=2)
    (one, _) = kept(run)
    assert list(one.channels()) == channels
    assert one.chances.shape == (one.length, actions)
    choices = len(np.atleast_1d(one.action[0])) if actions else 0
    np.testing.assert_allclose(one.chances.sum(1), choices, rtol=1e-5)
    picture = io.BytesIO()
    Image.new("RGB", (64, 64)).save(picture, "JPEG")
    film = Trajectory(**{**vars(one), "frames": [picture.getvalue()] * one.length})
    assert Panel(film, channels[:1]).draw(0).any()
    assert write_report([run], tmp_path / "report.html").stat().st_size > 1_000_000


def test_channels_are_named_by_where_they_are(tmp_path: Path) -> None:
    (one,) = record(tmp_path, "tests.counter:Walk")
    channels = one.channels()
    np.testing.assert_array_equal(channels["z 1"], one.obs["z"][:, 1])
    np.testing.assert_array_equal(channels["a 0"], one.obs["a"])


def test_a_long_episode_is_valued_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = record(tmp_path / "whole")
    for size in (7, whole.length, whole.length + 1):
        monkeypatch.setattr("surefoot.recording.CHUNK", size)
        (parts,) = record(tmp_path / str(size))
        for name in ("value", "log_prob", "chances"):
            one, other = getattr(whole, name), getattr(parts, name)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_file_that_is_no_trajectory_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"something else")
    with pytest.raises(RunError, match="is not a trajectory"):
        Trajectory.load(tmp_path / "x.safetensors")
