"""How speed and memory grow with the number of environments and with the horizon.

    python benchmarks/growth.py [--repeats 5]

CartPole-v1 with minibatches of 64 and 4 epochs, in one process of one thread. A size and the next
larger one are trained at once, for as many steps: where they are about as fast, whatever else slows
the machine slows both. Nothing is learned (the learning rate is next to nothing), since a policy
that has learned more, as one does from many short rollouts, has longer episodes, and steps without
a reset are faster.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
from apart import NO_RATE, give, in_turn, spread, together

from surefoot.core import hardware

ENVS = (1, 4, 16, 64, 256)
HORIZONS = (128, 512, 2048, 8192)
STEPS = 32_768
"""How many are measured at least, after as many that are not."""

Size = tuple[int, int]
"""Environments, and the horizon."""


def one(envs: int, horizon: int, steps: int) -> None:
    """Train for so many steps, twice; give the second time's steps per second, and megabytes."""
    import torch
    from threadpoolctl import threadpool_limits

    from surefoot.collect.build import build_collector
    from surefoot.config import Config
    from surefoot.core import hardware
    from surefoot.core.progress import Progress
    from surefoot.envs.make import factory
    from surefoot.learn.build import build_learner

    hardware.keep_memory()
    torch.set_num_threads(1)
    with threadpool_limits(limits=1, user_api="blas"):
        ppo: Any = {"horizon": horizon, "minibatch_size": 64, "epochs": 4}
        ppo |= {"learning_rate": NO_RATE}
        config = Config(envs=envs, collector="local", device="cpu", ppo=ppo)
        collector = build_collector(config, factory("CartPole-v1"), "fresh")
        learner = build_learner(config, collector.spec)

        def train() -> float:
            begun, done = time.perf_counter(), 0
            while done < steps:
                rollout = collector.collect(learner.actor())
                learner.update(rollout, Progress(10**9))
                done += rollout.steps
            return done / (time.perf_counter() - begun)

        train()
        give([train(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3])


def at_once(sizes: tuple[Size, Size]) -> list[Any]:
    """Train both at once, for as many steps as the larger one's rollout has, or more."""
    steps = max(STEPS, *(envs * horizon for envs, horizon in sizes))
    return together(__file__, *([str(number) for number in (*size, steps)] for size in sizes))


def grow(name: str, sizes: list[Size], repeats: int) -> None:
    speeds, megabytes, ratios = (defaultdict[Size, list[float]](list) for _ in range(3))
    for pair, results in in_turn(list(pairwise(sizes)), at_once, repeats).items():
        for both in results:
            for size, (speed, memory) in zip(pair, both, strict=True):
                speeds[size].append(speed)
                megabytes[size].append(memory)
            (before, _), (after, _) = both
            ratios[pair[1]].append(after / before)
    used = [statistics.median(megabytes[size]) for size in sizes]
    print(name)
    for size, memory in zip(sizes, used, strict=True):
        label, speed = f"{size[0]} × {size[1]}", spread(speeds[size])
        grown = f"{spread(ratios[size], 2)} × the one before" if size in ratios else ""
        print(f"  {label:<12}{speed:<28}{grown:<40}{memory:5.0f} MB", flush=True)
    steps = [envs * horizon for envs, horizon in sizes]
    slope, base = np.polyfit(steps, used, 1)
    off = max(abs(base + slope * s - u) for s, u in zip(steps, used, strict=True))
    print(f"  {base:.0f} MB and {1e6 * slope:.0f} bytes per step of a rollout, within {off:.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", nargs=3, type=int)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
    print(f"CartPole-v1, training, steps per second, {hardware.cores()} cores, two sizes at once")
    grow("environments × 128", [(envs, 128) for envs in ENVS], options.repeats)
    grow("8 environments × horizon", [(8, horizon) for horizon in HORIZONS], options.repeats)
