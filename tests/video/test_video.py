"""Films, read back by PyAV."""

import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import gymnasium
import numpy as np
import pytest
from PIL import Image

import surefoot
from surefoot.core import tree
from surefoot.core.errors import ConfigError
from surefoot.core.tree import Array
from surefoot.envs.make import factory
from surefoot.recording import Trajectory, record
from surefoot.run import Run
from surefoot.video.aside import Cameras
from surefoot.video.film import LINE, PAUSE
from surefoot.video.overlay import LINE as LINE_OF_TEXT
from surefoot.video.overlay import MARGIN, NARROWEST, Panel, outline, scale
from surefoot.video.shoot import PICTURES, natural_rate, shoot
from tests.trained import copy, trained


def frames(path: Path) -> list[Array]:
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return copy(trained(), tmp_path / "run")


def filmed(run: Run) -> Trajectory:
    player, make = run.player(), run.factory(PICTURES)
    (found,) = record(player, make, run.config.env, 1, 0, film=True)
    return found


def test_a_film_has_a_picture_for_every_step_in_a_format_that_browsers_play(run: Run) -> None:
    path = shoot(run)
    length = run.evaluate(episodes=1).lengths[0]
    assert path.parent == run.path / "videos"
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert stream.frames == length + round(PAUSE * 50)
        assert stream.average_rate == 50  # CartPole's own
        assert float(stream.duration * stream.time_base) == pytest.approx(stream.frames / 50)


def test_the_panel_shows_what_happens(run: Run) -> None:
    trajectory = filmed(run)
    panel = Panel(trajectory, ["pole angle"])
    height = panel._picture_size[1]
    first, last = (panel.draw(t)[height:] for t in (0, trajectory.length - 1))
    assert (first != last).any(-1).mean() > 0.01
    changed: Any = {**vars(trajectory), "value": trajectory.value + 100}
    other = Panel(Trajectory(**changed), ["pole angle"]).draw(0)[height:]
    assert (first != other).any()  # the value estimate is there
    assert (panel.draw(0)[height:] == first).all()


@pytest.mark.parametrize("field", ["reward", "value", "entropy", "chances", "obs", "info"])
def test_the_panel_changes_with_each_of_its_figures(run: Run, field: str) -> None:
    trajectory = filmed(run)
    trajectory = replace(trajectory, info={"speed": np.ones(trajectory.length)})
    doubled = tree.map(lambda values: 2 * values + 0.1, getattr(trajectory, field))
    changed: Any = {field: doubled}
    one, other = (
        Panel(each, ["pole angle", "speed"])
        for each in (trajectory, replace(trajectory, **changed))
    )
    below = one._picture_size[1]
    t = trajectory.length // 2
    assert (one.draw(t)[below:] != other.draw(t)[below:]).any()
    assert (one.draw(t)[:below] == other.draw(t)[:below]).all()


def test_the_first_line_says_the_return_so_far_and_the_step(run: Run) -> None:
    trajectory = filmed(run)
    more = trajectory.reward.copy()
    more[0] += 5
    one, other = Panel(trajectory), Panel(replace(trajectory, reward=more))
    below = one._picture_size[1]
    line = slice(below, below + MARGIN + LINE_OF_TEXT)
    assert (one.draw(4)[line] != other.draw(4)[line]).any()
    none = Panel(replace(trajectory, reward=0 * more))
    assert (none.draw(4)[line] != none.draw(5)[line]).any()


def test_the_figures_reach_the_film(run: Run) -> None:
    path = shoot(run)
    pictures = frames(path)
    panel = Panel(filmed(run))
    below = panel._picture_size[1]
    changes = [
        np.abs(after[below:].astype(int) - before[below:]).max()
        for before, after in pairwise(pictures[: panel.trajectory.length])
    ]
    assert min(changes) > 40  # the return and the step, in every frame


def test_a_long_curve_has_few_points_and_keeps_its_peaks() -> None:
    values = np.zeros(30_000)
    values[12_345], values[23_456] = 5, -7
    kept = outline(values, 200)
    assert len(kept) <= 600
    assert {12_345, 23_456} <= set(kept)
    assert outline(values[:150], 200) == list(range(150))


def test_a_fall_does_not_flatten_the_rewards_before_it() -> None:
    walked = np.sin(np.arange(300.0))
    low, high = scale(np.append(walked, -100.0))
    assert low == pytest.approx(-1, abs=0.01)
    assert high == pytest.approx(1, abs=0.01)
    assert scale(np.append(np.zeros(300), 1.0)) == (0, 1)  # nothing else to be seen
    assert scale(np.ones(10)) == (0, 1)


def test_checkpoints_side_by_side_meet_the_same_episode(run: Run) -> None:
    steps = [checkpoint.step for checkpoint in run.checkpoints][:2]
    assert len(steps) == 2
    path = shoot(run, side_by_side=steps)
    first = frames(path)[0]
    left, right = np.split(first, 2, axis=1)
    picture = (slice(0, 300), slice(2 * LINE, None))  # above the panels, right of the line between
    assert np.abs(left[picture].astype(int) - right[picture]).mean() < 1


@pytest.mark.parametrize("size", [(84, 84), (210, 160), (600, 400), (1080, 1920)])
def test_text_has_room_at_any_size_of_picture(run: Run, size: tuple[int, int]) -> None:
    trajectory = filmed(run)
    picture = Image.new("RGB", size[::-1], (10, 200, 10))
    file = Path(run.path / "picture.jpg")
    picture.save(file)
    changed: Any = {**vars(trajectory), "frames": [file.read_bytes()] * trajectory.length}
    drawn = Panel(Trajectory(**changed)).draw(0)
    height, width, _ = drawn.shape
    assert NARROWEST <= width <= 962
    assert height % 2 == width % 2 == 0


def test_a_channel_that_is_not_there_is_named_with_those_that_are_before_anything_is_drawn(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.recording.picture_of", lambda env: pytest.fail("drawn"))
    with pytest.raises(ConfigError, match="no channel 'speed'; there are cart position"):
        shoot(run, channels=["speed"])


class Blind(gymnasium.Env[Any, Any]):
    """Has nothing to show."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["human"]}

    def __init__(self, render_mode: str | None = None) -> None:
        self.t = 0

    def reset(self, **_: Any) -> Any:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t >= 5, False, {}


def test_an_environment_without_pictures_says_what_is_missing(tmp_path: Path) -> None:
    run = surefoot.train(
        "tests.video.test_video:Blind", total_steps=2_048, out=tmp_path / "run", output="quiet"
    )
    with pytest.raises(ConfigError, match=r"needs render_mode='rgb_array', and it has human"):
        shoot(run)
    with pytest.raises(ConfigError, match="rgb_array"):
        surefoot.train("tests.video.test_video:Blind", video_every=1_000, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_film_that_nobody_waits_for_is_given_up(run: Run) -> None:
    told: list[Any] = []
    cameras = Cameras(run.factory({}), run.config.env, 0, run.path / "videos", told.append)
    cameras.shoot(run.player())
    child: Any = cameras._child
    cameras.close()
    assert child.returncode == -signal.SIGKILL
    assert [entry["event"] for entry in told] == ["video-begun"]
    cameras.close()


@pytest.mark.slow
def test_films_are_made_beside_the_training(tmp_path: Path) -> None:
    run = surefoot.train(
        "CartPole-v1", total_steps=4_000, video_every="4it", out=tmp_path / "run", output="quiet"
    )
    told = [entry for entry in run.journal() if entry["event"] == "video"]
    assert told
    for entry in told:
        assert len(frames(Path(entry["path"]))) > 5


def test_a_factory_that_takes_no_render_mode_is_told_to() -> None:
    make = factory("tests.counter:Choices").with_arguments(PICTURES)
    with pytest.raises(ConfigError, match=r"must take render_mode, as in `def make_env\("):
        natural_rate(make)
