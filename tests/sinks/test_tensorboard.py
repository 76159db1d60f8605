"""What TensorBoard's own reader finds."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import surefoot
from surefoot.sinks.averaged import Averaged
from surefoot.sinks.optional import Optional
from surefoot.sinks.tensorboard import TensorBoard
from surefoot.video.film import write

ALL = {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0}


def read(directory: Path) -> Any:
    return EventAccumulator(str(directory), size_guidance=ALL).Reload()


def points(directory: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(directory).Scalars(tag)]


def test_every_metric_of_a_run_is_there(tmp_path: Path) -> None:
    run = surefoot.train("CartPole-v1", total_steps=3_000, out=tmp_path / "run", output="quiet")
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    found = read(run.path / "tensorboard")
    assert set(found.Tags()["scalars"]) == {name for line in lines for name in line} - {"step"}
    assert found.Scalars("progress/steps")[-1].value == lines[-1]["step"]
    assert set(found.Tags()["histograms"]) == {"ppo/values", "ppo/advantages", "rollout/action/0"}
    (first, *_) = found.Histograms("rollout/action/0")
    assert first.histogram_value.num == lines[0]["rollout/steps"]
    assert (first.histogram_value.min, first.histogram_value.max) == (0, 1)


def test_settings_are_hyperparameters(tmp_path: Path) -> None:
    TensorBoard(tmp_path, {"seed": 3, "ppo": {"epochs": 10}, "env": "X", "none": None}, 0).close()
    found = read(tmp_path)
    data = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"ppo.epochs" in data
    assert b"seed" in data


def test_a_run_that_goes_on_leaves_no_point_twice(tmp_path: Path) -> None:
    killed = TensorBoard(tmp_path, {}, 0)
    for step in range(1, 11):
        killed.write(step, {"a": float(step)})
    killed.event({"event": "save"})  # on disk, and never closed
    going_on = TensorBoard(tmp_path, {}, 5)
    for step in range(6, 9):
        going_on.write(step, {"a": 10.0 * step})
    going_on.close()
    early = [(step, float(step)) for step in range(1, 6)]
    assert points(tmp_path, "a") == [*early, (6, 60.0), (7, 70.0), (8, 80.0)]


def test_a_run_that_begins_again_leaves_no_point_twice(tmp_path: Path) -> None:
    killed = TensorBoard(tmp_path, {}, 0)
    killed.write(10, {"a": 1.0})
    killed.event({"event": "save"})
    again = TensorBoard(tmp_path, {}, 0)
    again.write(10, {"a": 2.0})
    again.close()
    assert points(tmp_path, "a") == [(10, 2.0)]


def test_a_film_is_a_moving_picture(tmp_path: Path) -> None:
    pictures = [np.full((64, 96, 3), 2 * n, np.uint8) for n in range(100)]
    write(tmp_path / "film.mp4", pictures, 50)
    sink = TensorBoard(tmp_path / "there", {}, 0)
    sink.event({"event": "video", "step": 5, "path": str(tmp_path / "film.mp4")})
    sink.close()
    (event,) = read(tmp_path / "there").Images("video")
    shown: Any = Image.open(io.BytesIO(event.encoded_image_string))
    assert (event.step, shown.format, shown.size) == (5, "GIF", (96, 64))
    assert shown.n_frames == 50


def test_a_run_that_goes_back_to_an_earlier_checkpoint_has_one_curve(tmp_path: Path) -> None:
    settings: Any = {"total_steps": 6_000, "checkpoint_every": 2_000, "output": "quiet"}
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    step = run.checkpoints[0].step
    assert step < 6_000
    surefoot.resume(run.path, checkpoint=step, output="quiet")
    steps = [at for at, _ in points(run.path / "tensorboard", "progress/steps")]
    assert steps == sorted(set(steps))
    assert steps[-1] >= 6_000


def test_writes_in_between_are_averaged_and_counters_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("surefoot.sinks.averaged.time.monotonic", lambda: now[0])
    sink = Averaged(TensorBoard(tmp_path, {}, 0))
    for step in range(10):
        now[0] = 0.125 * step
        sink.write(step, {"a": float(step), "progress/steps": float(step), **_odd(step)})
    sink.close()
    assert points(tmp_path, "a") == [(0, 0.0), (4, 2.5), (8, 6.5), (9, 9.0)]
    assert points(tmp_path, "progress/steps") == [(0, 0.0), (4, 4.0), (8, 8.0), (9, 9.0)]
    assert points(tmp_path, "odd") == [(4, 2.0), (8, 6.0), (9, 9.0)]


def _odd(step: int) -> dict[str, float]:
    return {"odd": float(step)} if step % 2 else {}


def test_training_goes_on_without_a_sink_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said: list[Any] = []
    sink = Optional("TensorBoard", lambda: TensorBoard(tmp_path / "file" / "x", {}, 0), said.append)
    for step in range(3):
        sink.write(step, {"a": 1.0})
        sink.spread(step, lambda: {"b": np.ones(3)})
    sink.event({"event": "save"})
    sink.close()
    (entry,) = said
    assert entry["message"].startswith("TensorBoard fails, training goes on without: ")
