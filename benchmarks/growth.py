"""How speed and memory grow with the number of environments and with the horizon.

    python benchmarks/growth.py [--repeats 3]

CartPole-v1 with minibatches of 64 and 4 epochs. Every size has a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from typing import Any

import numpy as np
from apart import alone, give, in_turn, spread

ENVS = (1, 4, 16, 64, 256)
HORIZONS = (128, 512, 2048, 8192)
SECONDS = 2.0


def one(envs: int, horizon: int) -> None:
    """Train for a while; give steps per second and megabytes."""
    import torch
    from threadpoolctl import threadpool_limits

    from surefoot.collect.build import build_collector
    from surefoot.config import Config
    from surefoot.core.progress import Progress
    from surefoot.envs.make import factory
    from surefoot.learn.build import build_learner

    torch.set_num_threads(1)
    with threadpool_limits(limits=1, user_api="blas"):
        ppo: Any = {"horizon": horizon, "minibatch_size": 64, "epochs": 4}
        config = Config(envs=envs, collector="local", device="cpu", ppo=ppo)
        collector = build_collector(config, factory("CartPole-v1"), "fresh")
        learner = build_learner(config, collector.spec)
        steps, begun = 0, 0.0
        while not begun or time.perf_counter() - begun < SECONDS:
            rollout = collector.collect(learner.actor())
            learner.update(rollout, Progress(10**9))
            steps += rollout.steps if begun else 0  # the first one warms up
            begun = begun or time.perf_counter()
        speed = steps / (time.perf_counter() - begun)
        give([speed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3])


def grow(name: str, sizes: list[tuple[int, int]], repeats: int) -> None:
    names = [f"{envs} × {horizon}" for envs, horizon in sizes]
    by_name = dict(zip(names, sizes, strict=True))
    found = in_turn(names, lambda n: alone(__file__, *(str(s) for s in by_name[n])), repeats)
    print(name)
    for size, values in found.items():
        speeds, megabytes = zip(*values, strict=True)
        print(f"  {size:<14}{spread(speeds):<34}{statistics.median(megabytes):8.0f} MB", flush=True)
    steps = [envs * horizon for envs, horizon in sizes]
    used = [statistics.median(megabytes for _, megabytes in v) for v in found.values()]
    slope, base = np.polyfit(steps, used, 1)
    off = max(abs(base + slope * s - u) for s, u in zip(steps, used, strict=True))
    print(f"  {base:.0f} MB and {1e6 * slope:.0f} bytes per step of a rollout, within {off:.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, type=int)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
    print(f"CartPole-v1, training, steps per second, {os.cpu_count()} cores")
    grow("environments × 128", [(envs, 128) for envs in ENVS], options.repeats)
    grow("8 environments × horizon", [(8, horizon) for horizon in HORIZONS], options.repeats)
