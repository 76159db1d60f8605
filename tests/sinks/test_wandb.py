"""Runs that the wandb package keeps, without a network."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot
from surefoot.config import WandbConfig
from surefoot.core.errors import ConfigError
from surefoot.run import Run
from surefoot.sinks.wandb import WeightsAndBiases
from surefoot.video.film import write

wandb_internal = pytest.importorskip("wandb.proto.wandb_internal_pb2")
pytestmark = pytest.mark.slow
SECRET = "0123456789abcdef0123456789abcdef01234567"
PATIENCE = 30.0
HEADER, BLOCK = 7, 32_768
"""Bytes of a file's beginning, and of its blocks, which records are cut at."""


def records(path: Path) -> Iterator[Any]:
    """Read what wandb would send: LevelDB's log format, with wandb's messages in it."""
    data, place, pending = path.read_bytes(), HEADER, b""
    while place + 7 <= len(data):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        pending += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal.Record()
            record.ParseFromString(pending)
            yield record
            pending = b""


def complete(path: Path) -> list[Any]:
    """Read a file once it has its end: wandb's own process writes it, also after `finish`."""
    deadline = time.monotonic() + PATIENCE
    found = list(records(path))
    while not any(record.HasField("exit") for record in found):
        assert time.monotonic() < deadline, f"{path} has no end"
        time.sleep(0.05)
        found = list(records(path))
    return found


def kept(run: Run) -> list[Any]:
    files = sorted((run.path / "wandb").glob("offline-run-*/*.wandb"))
    return [record for file in files for record in complete(file)]


def history(run: Run, name: str) -> dict[int, float]:
    """Find the points of a metric."""
    found = {}
    for record in kept(run):
        items = {
            "/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item
        }
        if name in items:
            found[int(items["_step"])] = items[name]
    return found


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    settings: Any = {"wandb": {"mode": "offline", "tags": ["a"]}, "tensorboard": False}
    given = {"total_steps": 4_000, "checkpoint_every": 1_000, "output": "quiet", **settings}
    return surefoot.train("CartPole-v1", out=tmp_path / "run", **given)


def test_a_run_there_has_our_id_settings_metrics_and_models(run: Run) -> None:
    (first, *_) = [record.run for record in kept(run) if record.HasField("run")]
    assert first.run_id == run.identity["id"]
    assert first.project == "surefoot"
    settings = {update.key: json.loads(update.value_json) for update in first.config.update}
    assert settings["total_steps"] == 4_000
    steps = history(run, "progress/steps")
    assert list(steps) == [int(step) for step in steps.values()] == sorted(steps)
    assert max(steps) >= 4_000
    artifacts = {r.artifact.name for r in kept(run) if r.HasField("artifact")}
    artifacts |= {
        r.request.log_artifact.artifact.name
        for r in kept(run)
        if r.HasField("request") and r.request.HasField("log_artifact")
    }
    assert artifacts == {f"{run.identity['id']}-{model}" for model in ("best", "final")}


def test_a_resumed_run_goes_on_in_the_same_one(run: Run) -> None:
    surefoot.resume(run.path, total_steps=6_000, output="quiet")
    found = {record.run.run_id for record in kept(run) if record.HasField("run")}
    assert found == {run.identity["id"]}
    assert max(history(run, "progress/steps")) >= 6_000


def test_films_and_histograms_are_there_also_of_a_step_that_is_over(tmp_path: Path) -> None:
    write(tmp_path / "film.mp4", [np.zeros((64, 64, 3), np.uint8)] * 10, 10)
    settings = WandbConfig(mode="offline")
    sink = WeightsAndBiases(settings, "abc", tmp_path, {}, lambda entry: None)
    sink.write(10, {"a": 1.0})
    sink.spread(10, lambda: {"numbers": np.arange(100.0)})
    sink.event({"event": "video", "step": 5, "path": str(tmp_path / "film.mp4")})
    sink.write(20, {"a": 2.0})
    sink.close()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    items = [item for record in complete(file) for item in record.history.item]
    named = {name for item in items for name in (item.key, *item.nested_key)}
    assert {"a", "numbers", "video", "video_step"} <= named
    assert list(tmp_path.glob("wandb/offline-run-*/files/media/videos/*.mp4"))


def test_no_file_of_a_run_holds_a_key(run: Run) -> None:
    for file in run.path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("key", "said"),
    [
        pytest.param({}, "wandb login", id="key"),
        pytest.param({"WANDB_API_KEY": SECRET}, "W&B: ", id="server", marks=pytest.mark.soak),
    ],
)
def test_without_a_key_or_a_server_everything_is_kept_and_training_goes_on(
    tmp_path: Path, key: dict[str, str], said: str
) -> None:
    given = ["--total-steps", "2048", "--wandb.mode", "online", "--out", str(tmp_path / "run")]
    nowhere = {"HOME": str(tmp_path), "WANDB_BASE_URL": "http://127.0.0.1:9"}
    outside = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    subprocess.run(
        [sys.executable, "-m", "surefoot", "train", "CartPole-v1", *given],
        env={**outside, **nowhere, **key},
        check=True,
        capture_output=True,
    )
    run = Run.open(tmp_path / "run")
    (entry,) = [entry for entry in run.journal() if entry["event"] == "wandb-offline"]
    assert said in entry["message"]
    assert history(run, "progress/steps")


def test_a_missing_package_is_named_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.sinks.build.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'surefoot\[wandb\]'"):
        surefoot.train("CartPole-v1", out=tmp_path / "run", wandb={"mode": "offline"})
    assert not (tmp_path / "run").exists()
