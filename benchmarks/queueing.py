"""How well and how fast queues are controlled.

    python benchmarks/queueing.py [optimal scales larger speed] [--seeds 3]

optimal: small queues whose least cost is known by dynamic programming. scales: what transforms of
rewards do where those reach ten thousands. larger: a network of ten nodes against back-pressure.
speed: steps per second of networks and of training on them. Each training is a process of its own,
two at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import surefoot
from surefoot.envs.queueing import QueueNetworkVector

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.optimal import SINGLE, TWO, least_cost

ID = "surefoot/QueueNetwork-v0"
EPISODES, LONG = 64, 10_000
"""Of an evaluation, and the steps of each."""
AT_ONCE = 2
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}
"""Quantiles of Student's distribution, by the number of seeds."""


def trained(settings: dict[str, Any], seed: int) -> dict[str, float]:
    """Train in a process of its own; return what the last policy is worth, and what led to it."""
    words = json.dumps({**settings, "seed": seed})
    child = subprocess.run(
        [sys.executable, __file__, "--one", words], capture_output=True, text=True, check=False
    )
    if child.returncode:
        raise SystemExit(child.stderr[-2000:])
    found: dict[str, float] = json.loads(child.stdout.strip().splitlines()[-1])
    return found


def one(settings: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        begun = time.perf_counter()
        common = {"output": "quiet", "hall_of_fame": 0, "tensorboard": False}
        run = surefoot.train(ID, out=Path(place) / "run", **common, **settings)
        seconds = time.perf_counter() - begun
        rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        late = rows[-len(rows) // 5 :]
        found = run.evaluate(EPISODES, checkpoint="last", steps=LONG, seed=1000)
        figures = {
            "lta": found.lta_return_mean,
            "value_loss": statistics.median(row["ppo/value_loss"] for row in late),
            "first_value_loss": statistics.median(row["ppo/value_loss"] for row in rows[1:6]),
            "worst_reward": min(row["rollout/reward_mean"] for row in rows),
            "reported": late[-1]["recent/lta_return_mean"],
            "steps_per_second": settings["total_steps"] / seconds,
        }
    print(json.dumps(figures))


def over_seeds(settings: dict[str, Any], seeds: int) -> list[dict[str, float]]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda seed: trained(settings, seed), range(1, seeds + 1)))


def rule(name: str, instance: str, **more: Any) -> float:
    args = {"instance": instance, **more}
    return surefoot.evaluate_baseline(name, args, EPISODES, LONG, seed=1000).lta_return_mean


def with_ppo(settings: dict[str, Any], **ppo: Any) -> dict[str, Any]:
    return {**settings, "ppo": {**settings.get("ppo", {}), **ppo}}


def listed(values: list[float]) -> str:
    return ", ".join(f"{value:,.3f}" for value in values)


def optimal(seeds: int) -> None:
    for instance, model in (("single_queue", SINGLE), ("two_queues", TWO)):
        least = least_cost(**model)
        print(f"{instance}: least cost {least:.3f} a step", flush=True)
        settings = {"env_args": {"instance": instance}, "total_steps": 500_000}
        for objective in ("discounted", "average"):
            found = over_seeds(with_ppo(settings, objective=objective), seeds)
            costs = [-one["lta"] for one in found]
            over = statistics.fmean(costs) / least - 1
            print(
                f"  PPO, {objective:<12}{statistics.fmean(costs):8.3f}  {over:+6.1%}  "
                f"seeds: {listed(costs)}",
                flush=True,
            )
        for name in ("back_pressure", "max_weight", "longest_queue", "random"):
            cost = -rule(name, instance)
            print(f"  {name:<17}{cost:8.3f}  {cost / least - 1:+6.1%}", flush=True)


def scales(seeds: int) -> None:
    print("heavy: value losses in the units of what is learned from, raw average reward")
    settings = {"env_args": {"instance": "heavy", "log": True}, "total_steps": 300_000}
    ways: dict[str, dict[str, Any]] = {
        "rewards as they are": {"rewards": []},
        "time_scaled": {"rewards": ["time_scaled"]},
        "normalized": {"rewards": ["normalized"]},
        "as they are, average": with_ppo({"rewards": []}, objective="average"),
        "normalized, average": with_ppo({"rewards": ["normalized"]}, objective="average"),
        "PopArt": with_ppo({"rewards": []}, popart=0.05),
    }
    for name, way in ways.items():
        found = over_seeds({**settings, **way}, seeds)
        first, last, lta, worst = (
            [one[key] for one in found]
            for key in ("first_value_loss", "value_loss", "lta", "worst_reward")
        )
        losses = f"{statistics.median(first):12,.4g} → {statistics.median(last):10,.4g}"
        print(
            f"  {name:<24}{losses}   LTA {listed(lta)}   worst rollout {min(worst):,.0f}",
            flush=True,
        )
    for name in ("back_pressure", "max_weight"):
        print(f"  {name:<24}{rule(name, 'heavy'):10,.1f}", flush=True)


def larger(seeds: int) -> None:
    args = {"instance": "backbone", "observe": ["queues", "capacities"], "log": True}
    settings = {"env_args": args, "total_steps": 1_000_000}
    known = {key: value for key, value in args.items() if key != "instance"}
    for name in ("back_pressure", "longest_queue", "random"):
        print(f"  {name:<17}{rule(name, 'backbone', **known):10.3f}", flush=True)
    found = over_seeds(settings, seeds)
    lta = [one["lta"] for one in found]
    half = T95[len(lta)] * statistics.stdev(lta) / math.sqrt(len(lta))
    print(
        f"  PPO              {statistics.fmean(lta):10.3f} ± {half:.3f} (95 %)   "
        f"seeds: {listed(lta)}",
        flush=True,
    )


def speed(seeds: int) -> None:
    for instance in ("two_queues", "diamond", "backbone"):
        for rows in (16, 64, 256, 1024):
            env = QueueNetworkVector(rows, instance)
            env.reset(seed=list(range(rows)))
            per_second = statistics.median(_rate(env) for _ in range(3))
            print(f"  {instance:<12}{rows:6} rows{per_second:14,.0f} steps a second", flush=True)
    for instance in ("two_queues", "backbone"):
        settings = {"env_args": {"instance": instance}, "total_steps": 300_000}
        found = trained(settings, 1)["steps_per_second"]
        print(f"  training on {instance}, start to end: {found:,.0f} steps a second", flush=True)


def _rate(env: QueueNetworkVector) -> float:
    """Return how many steps of rows a network makes in a second."""
    action = np.ones((env.num_envs, env.plan.links), np.int64)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < 1.0:
        env.step(action)
        count += 1
    return env.num_envs * count / (time.perf_counter() - begun)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"optimal": optimal, "scales": scales, "larger": larger, "speed": speed}
    parser.add_argument("parts", nargs="*", default=list(parts))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--one", default="")
    options = parser.parse_args()
    if options.one:
        one(json.loads(options.one))
    else:
        for part in options.parts:
            print(f"{part}:", flush=True)
            parts[part](5 if part == "larger" else options.seeds)
