"""Prove for one environment that a killed and resumed run is the run nobody killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.config import Config
from surefoot.core.errors import RunError
from surefoot.core.state import differences
from surefoot.directory import last_line
from surefoot.envs.names import absolute
from surefoot.run import Run
from surefoot.schedules import Steps

POLL_SECONDS = 0.01
PATIENCE_SECONDS = 3600.0


def verify(config: Config, steps: int, say: Callable[[str], None]) -> tuple[list[str], str]:
    """Train twice `steps`; do it again with a kill in the middle; return what differs, and how
    environments come back, which is why."""
    steps = max(steps, 2 * config.iteration_steps())
    often = Steps(count=max(1, steps // 4))
    changed = {
        "total_steps": 2 * steps,
        "checkpoint_every": often,
        "hall_of_fame": 0,
        "mirror": "",
        "env": absolute(config.env),
        "metrics": absolute(config.metrics),
    }
    config = config.model_copy(update={**changed, "max_hours": None, "stop_at": None})
    with tempfile.TemporaryDirectory(prefix="surefoot-verify-") as place:
        settings = Path(place) / "config.yaml"
        settings.write_text(config.to_yaml(), encoding="utf-8")
        whole, broken = Path(place) / "whole", Path(place) / "broken"
        train = ["train", "--config", str(settings), "--out"]
        say(f"training {2 * steps:,} steps")
        errors = Path(place) / "errors.txt"
        _finish(_start([*train, str(whole)], errors), errors)
        say(f"training again, to be killed at step {steps:,}")
        step = _kill(_start([*train, str(broken)], errors), broken, steps, errors)
        one, other = Run.open(whole), Run.open(broken)
        way = _restored_by(one)
        say(f"environments come back by {way}")
        say(f"killed after step {step:,}; resuming")
        try:
            _finish(_start(["resume", str(broken)], errors), errors)
        except RunError as error:
            return [str(error)], way
        return run_differences(one, other), way


def run_differences(one: Run, other: Run) -> list[str]:
    """Name everything in which two runs' final states and metrics differ, times excepted."""
    (_, a), (_, b) = (run.store.read(run.checkpoint("last").path) for run in (one, other))
    for state in (a, b):
        del state["metrics_bytes"]  # times of different length stand in metrics.jsonl
    return [*differences(a, b), *_metric_differences(one, other)]


def _metric_differences(one: Run, other: Run) -> list[str]:
    rows = [_timeless(run.path / "metrics.jsonl") for run in (one, other)]
    if len(rows[0]) != len(rows[1]):
        return [f"metrics.jsonl: {len(rows[0])} lines against {len(rows[1])}"]
    found = []
    for mine, theirs in zip(*rows, strict=True):
        names = [k for k in sorted(mine.keys() | theirs.keys()) if mine.get(k) != theirs.get(k)]
        found += [
            f"metrics.jsonl, step {mine['step']}: {name} is {mine.get(name)} against "
            f"{theirs.get(name)}"
            for name in names
        ]
    return found


def _timeless(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    outer = ("time/", "mirror/")  # these are of the world around it
    return [{k: v for k, v in row.items() if not k.startswith(outer)} for row in rows]


def _restored_by(run: Run) -> str:
    first = run.journal()[0]
    return f"{first['restore']}: {first['because']}"


def _start(words: list[str], errors: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "surefoot", *words]
    with errors.open("wb") as file:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)


def _finish(process: subprocess.Popen[bytes], errors: Path) -> None:
    if process.wait():
        said = errors.read_text(errors="replace").strip()
        raise RunError(f"it ended with exit code {process.returncode}: {said}")


def _kill(process: subprocess.Popen[bytes], run: Path, steps: int, errors: Path) -> int:
    """Kill a training that has come this far; return how far it was."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if last_line(run / "metrics.jsonl").get("step", 0) >= steps:
            break
        time.sleep(POLL_SECONDS)
    else:
        process.kill()
        said = errors.read_text(errors="replace").strip()
        raise RunError(f"the training ended before it could be killed: {said}")
    process.send_signal(signal.SIGKILL)
    process.wait()
    return int(last_line(run / "metrics.jsonl").get("step", 0))
