"""Watching the first row: whole episodes of it, and nobody waits."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.collect.build import build_collector
from surefoot.collect.viewer import Viewer, Watched
from surefoot.config import Config, PPOConfig
from surefoot.core.seeding import EpisodeSeeds
from surefoot.envs.make import factory
from surefoot.verify import run_differences
from tests.counter import Counter
from tests.toys import learner

SETTINGS: dict[str, Any] = {
    "total_steps": 640,
    "envs": 2,
    "seed": 4,
    "hall_of_fame": 0,
    "ppo": {"horizon": 16, "minibatch_size": 16, "epochs": 1},
}


class Shown(Counter):
    """Writes down what it is shown, and takes long to show it."""

    metadata = {"render_modes": ["human"], "render_fps": 50}

    def __init__(self, file: str = "", render_mode: str | None = None) -> None:
        super().__init__(length=9)
        self.file = Path(file) if render_mode == "human" else None
        self.history: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.history = [seed]
        self.begun = time.monotonic()
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.history.append(int(action))
        if self.file is not None and self.steps == 8:
            seconds = time.monotonic() - self.begun
            with self.file.open("a") as file:
                file.write(json.dumps([*self.history, seconds]) + "\n")
        return super().step(action)


def test_whole_episodes_of_the_first_row_are_shown_as_they_were_at_their_natural_pace(
    tmp_path: Path,
) -> None:
    file, played, seeds = tmp_path / "shown", {}, EpisodeSeeds(4)
    make = factory(Shown, {"file": str(file)})
    config = Config(envs=2, seed=4, collector="local", ppo=PPOConfig(horizon=30))
    viewer = Viewer(make, 4, True, pytest.fail)
    collector = Watched(build_collector(config, make, "replay"), viewer)
    actor = learner(collector.spec).actor()
    actions: list[int] = []
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        actions += collector.collect(actor).action[:, 0].tolist()
        time.sleep(0.02)
    collector.close()
    for number in range(len(actions) // 9):
        played[seeds(0, number)] = actions[9 * number : 9 * number + 9]
    for line in file.read_text().splitlines():
        seed, *taken, seconds = json.loads(line)
        assert taken == played[seed]
        assert seconds >= 8 / 50


def test_watching_changes_no_number(tmp_path: Path) -> None:
    settings = {**SETTINGS, "env_args": {"file": str(tmp_path / "shown")}}
    runs = [
        surefoot.train(Shown, out=tmp_path / str(render), render=render, **settings)
        for render in (False, True)
    ]
    assert run_differences(*runs) == []


class Blind(Counter):
    def __init__(self) -> None:
        super().__init__(length=5)


def test_what_cannot_be_shown_is_said_once_and_training_goes_on() -> None:
    make, told = factory(Blind), []
    config = Config(envs=2, seed=4, collector="local", ppo=PPOConfig(horizon=30))
    collector = Watched(
        build_collector(config, make, "replay"), Viewer(make, 4, False, told.append)
    )
    actor = learner(collector.spec).actor()
    deadline = time.monotonic() + 30
    while not told:
        assert time.monotonic() < deadline
        collector.collect(actor)
        time.sleep(0.02)
    for _ in range(3):
        assert collector.collect(actor).valid.all()
    collector.close()
    (event,) = told
    assert event["event"] == "render-stopped"
    assert "unexpected keyword argument 'render_mode'" in event["message"]
