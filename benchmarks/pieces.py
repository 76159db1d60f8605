"""What the pieces of a training cost, each by itself, so that it shows where something got slower.
Saving has a file of its own.

    python benchmarks/pieces.py [update | acting | collecting | passes | gae] … [--quick]

Contestants run in turn, in repeats; figures are medians. `update` has Stable-Baselines3 beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from apart import alone, give, in_turn, spread
from threadpoolctl import threadpool_limits

from surefoot.collect.build import build_collector
from surefoot.config import Config
from surefoot.core import hardware
from surefoot.core.progress import Progress
from surefoot.envs.make import factory
from surefoot.learn.build import build_learner
from surefoot.maths.gae import gae
from surefoot.policy.actor import PolicyActor, Sample

ENV, ROWS = "BipedalWalker-v3", 16
NOW = Progress(10**9)
REPEATS = 3
"""Processes per contestant; each takes the median of its own measurements."""


def timed(work: Callable[[], Any], times: int) -> float:
    """Return the median time of a piece of work, in microseconds."""
    work()
    spans = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        spans.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(spans)


def prepared(minibatch: int = 64, epochs: int = 4, **settings: Any) -> tuple[Any, Any, Any]:
    """Make a learner and a collector, and a rollout of 4,096 steps."""
    ppo: Any = {"horizon": 4096 // ROWS, "minibatch_size": minibatch, "epochs": epochs}
    config = Config(envs=ROWS, collector="local", ppo=ppo, device="cpu", **settings)
    collector = build_collector(config, factory(ENV), "fresh")
    learner = build_learner(config, collector.spec)
    return learner, collector, collector.collect(learner.actor())


def ours(minibatch: int, compile: str, in_torch: bool) -> float:
    """Time all epochs of an update, shuffling and what is measured included, per minibatch step:
    what Stable-Baselines3's `train` does, to which advantages are given."""
    learner, _, rollout = prepared(minibatch, compile=compile)
    if in_torch:
        learner._step = getattr(learner._step, "plain", learner._step)
    learner.update(rollout, NOW)
    samples, knobs = (
        learner._samples(rollout, *learner._valued(rollout)),
        {"clip_range": 0.2, "entropy_coefficient": 0.0},
    )
    steps = len(learner._improve(samples, knobs, NOW)[0])
    return timed(lambda: learner._improve(samples, knobs, NOW), 5) / steps


def theirs(minibatch: int) -> float:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(ENV, n_envs=ROWS)
    model = PPO("MlpPolicy", env, n_steps=4096 // ROWS, batch_size=minibatch, n_epochs=4)
    model.learn(4096)
    return timed(model.train, 5) / (4 * 4096 / minibatch)


STEPS: dict[str, Callable[[int], float]] = {
    "surefoot, compiled": lambda size: ours(size, "on", False),
    "surefoot, not compiled": lambda size: ours(size, "off", False),
    "surefoot, torch": lambda size: ours(size, "off", True),
    "SB3": theirs,
}


def update(quick: bool) -> None:
    print(f"a minibatch step, {ENV}, 64-64 tanh, one thread, µs")
    for size in (64,) if quick else (64, 2048):
        repeats = 1 if quick else REPEATS
        found = in_turn(list(STEPS), lambda name, s=size: alone(__file__, name, str(s)), repeats)
        peer = statistics.median(found["SB3"])
        for name, values in found.items():
            share = f"{statistics.median(values) / peer:.2f} × SB3"
            print(f"  {size:>5} samples  {name:<26}{spread(values):<30}{share}", flush=True)


def acting(quick: bool) -> None:
    print(f"acting, {ENV}, 64-64 tanh, µs per call")
    learner, _, rollout = prepared()
    for rows in (1, 16, 256):
        seen = rollout.obs.reshape(-1, rollout.obs.shape[-1])[:rows]
        for name, actor in {
            "numpy": learner.actor(),
            "torch": PolicyActor(learner.policy, Sample()),
        }.items():
            noise = actor.noise(np.random.default_rng(0), rows)
            cost = timed(lambda a=actor, s=seen, n=noise: a.act(s, None, {}, n), 300)
            print(f"  {rows:>4} rows  {name:<8}{cost:8.1f}")


def collecting(quick: bool) -> None:
    print(f"collecting in one process, {ROWS} rows, µs per step")
    for env in ("CartPole-v1", ENV):
        config = Config(envs=ROWS, collector="local", ppo={"horizon": 256})
        collector = build_collector(config, factory(env), "fresh")
        actor = build_learner(config, collector.spec).actor()
        cost = timed(lambda c=collector, a=actor: c.collect(a), 3 if quick else 9)
        print(f"  {env:<24}{cost / ROWS / 256:8.1f}")


def passes(quick: bool) -> None:
    print(f"batched passes over a rollout of 4,096 steps, {ENV}, 64-64 tanh, ms")
    for compile in ("off", "on"):
        learner, _, rollout = prepared(compile=compile)
        cost = timed(lambda ppo=learner, r=rollout: ppo._valued(r), 9)
        print(f"  values, compile {compile:<8}{cost / 1000:8.2f}")
    actor = learner.actor()
    cost = timed(lambda: actor.log_prob(rollout.obs, rollout.action), 9)
    print(f"  log-probabilities      {cost / 1000:8.2f}", flush=True)


def advantages(quick: bool) -> None:
    print("GAE, µs per step of a row")
    for horizon, rows in ((128, 8), (512, 16), (2048, 32)):
        values = [torch.randn(horizon, rows) for _ in range(3)]
        flags = [torch.rand(horizon, rows) < 0.01 for _ in range(2)]
        cost = timed(lambda v=values, f=flags: gae(*v, *f, 0.99, 0.95), 9)
        print(f"  {horizon:>5} × {rows:<4}{cost / horizon / rows:8.3f}   ({cost / 1000:.1f} ms)")


PIECES = {
    "update": update,
    "acting": acting,
    "collecting": collecting,
    "passes": passes,
    "gae": advantages,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pieces", nargs="*", choices=[[], *PIECES], metavar="|".join(PIECES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2)
    options = parser.parse_args()
    hardware.keep_memory()  # as a run does
    torch.set_num_threads(1)
    with threadpool_limits(limits=1, user_api="blas"):
        if options.one:
            name, size = options.one
            give(STEPS[name](int(size)))
        for piece in options.pieces or PIECES:
            PIECES[piece](options.quick)
