"""A few runs that tests look at, trained once per process."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import surefoot
from surefoot.run import Run

_runs: dict[str, Run] = {}


def trained(env: str = "CartPole-v1", seed: int = 0, name: str = "run", **settings: Any) -> Run:
    """Train for a moment; a caller that writes into the run takes a `copy`."""
    key = json.dumps([env, seed, name, settings])
    if key not in _runs:
        _runs[key] = _train(env, seed, name, settings)
    return _runs[key]


def _train(env: str, seed: int, name: str, settings: dict[str, Any]) -> Run:
    directory = Path(tempfile.mkdtemp(prefix="surefoot-trained-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    given = {"total_steps": 4_000, "checkpoint_every": 2_000, "evaluate_every": 2_000, **settings}
    out = directory / name
    return surefoot.train(env, out=out, seed=seed, output="quiet", hall_of_fame=0, **given)


def copy(run: Run, to: Path) -> Run:
    shutil.copytree(run.path, to)
    return Run.open(to)
