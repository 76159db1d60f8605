"""What saving costs: time and size of a checkpoint, its share of a training, the replay log.

python benchmarks/saving.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import surefoot
from surefoot.collect.collector import StageCollector
from surefoot.config import resolve
from surefoot.core import tree
from surefoot.envs.make import factory
from surefoot.run import Run
from surefoot.train import prepared
from surefoot.training import Training

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "CartPole-v1 preset (64×64)": ("CartPole-v1", {}),
    "BipedalWalker-v3, 256×256": (
        "BipedalWalker-v3",
        {"policy": {"hidden": [256, 256]}, "ppo": {"horizon": 256}},
    ),
}
ITERATIONS, REPEATS = 3, 25


def milliseconds(work: Callable[[int], object]) -> float:
    """Return the median time of a piece of work."""
    times = []
    for number in range(REPEATS):
        begun = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


def iterate(training: Training) -> float:
    """Train for some iterations; return how many seconds one took."""
    begun = time.perf_counter()
    for _ in range(ITERATIONS):
        rollout = training.collector.collect(training.learner.actor())
        update = training.learner.update(rollout, training.progress)
        training.note(training.progress.after(rollout, update), rollout, None)
    return (time.perf_counter() - begun) / ITERATIONS


def checkpoint(name: str, place: Path) -> None:
    env, settings = CASES[name]
    config = resolve(env, None, settings)
    with prepared(config, factory(env), cast(Any, config.restore)) as training:
        seconds = iterate(training)
        run = Run.create(place / "run", config)
        boundary = training.boundary(0)
        took = milliseconds(lambda k: training.boundary(0))
        write = milliseconds(lambda k: run.store.write(replace(boundary, step=k + 1)))
        path = run.checkpoints[0].path
        read = milliseconds(lambda k: run.store.read(path))
        size = sum(file.stat().st_size for file in path.iterdir())
        print(f"{name}: {size / 1e3:,.0f} kB; taken down in {took:.2f} ms, ", end="")
        print(f"written in {write:.1f} ms, read in {read:.1f} ms")
        print(f"  one iteration takes {1000 * seconds:,.0f} ms")
        collector = cast(StageCollector, training.collector)
        rollout = collector.collect(training.learner.actor())
        kept = collector._restoration.state()
        used = sum(part.nbytes for ragged in tree.leaves(kept) for part in ragged.parts)
        steps = sum(len(part) for part in kept["prints"].parts) - config.envs
        log = milliseconds(lambda k: collector._restoration.note(rollout))
        print(f"  replay log: {log:.2f} ms an iteration ({log / 10 / seconds:.2f} %), ", end="")
        print(f"{used / steps:.0f} bytes a step of running episodes, {used / 1e3:,.0f} kB now")


def share(place: Path) -> None:
    out = place / "whole"
    begun = time.perf_counter()
    sys.stdout.flush()
    run = surefoot.train("CartPole-v1", out=out, seed=1, output="quiet")
    seconds = time.perf_counter() - begun
    saves = [entry["seconds"] for entry in run.journal() if entry["event"] == "save"]
    mean, part = 1000 * statistics.mean(saves), sum(saves) / seconds
    print(f"CartPole-v1 preset, {run.config.total_steps:,} steps: {len(saves)} saves of ", end="")
    print(f"{mean:.1f} ms are {part:.2%} of {seconds:.1f} s")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(CASES):
            (Path(place) / str(number)).mkdir()
            checkpoint(name, Path(place) / str(number))
        share(Path(place))


if __name__ == "__main__":
    main()
