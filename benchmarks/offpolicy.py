"""SAC's steps per second beside other trainers: same environment, same settings, one run.

    python benchmarks/offpolicy.py [--repeats 3]

Pendulum-v1, one environment, one update per step, batches of 256, two hidden layers of 256. Every
contestant trains in a process of its own, in turn; figures are medians of what follows the first
steps, so neither starting nor compiling counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from apart import alone, give, in_turn, spread

ENV, STARTS, WARM, MEASURED = "Pendulum-v1", 200, 200, 1000
"""Steps before anything is learned, steps of learning before it counts, and those that count."""
CONTESTANTS: dict[str, dict[str, Any]] = {
    "surefoot": {"threads": 1},
    "surefoot, 2 threads": {"threads": 2},
    "surefoot, overlap": {"threads": 1, "overlap": True},
    "SB3, 1 thread": {"by": "sb3", "threads": 1},
    "SB3, 2 threads": {"by": "sb3", "threads": 2},
    "SBX": {"by": "sbx", "threads": 2},
}


def surefoot_speed(**settings: Any) -> float:
    """Train with all that a run does, and compiled."""
    import surefoot

    with tempfile.TemporaryDirectory() as directory:
        run = surefoot.train(
            ENV,
            config=surefoot.Config(
                algo="sac",
                envs=1,
                total_steps=STARTS + WARM + MEASURED,
                compile="on",
                device="cpu",
                checkpoint_every="100000it",
                hall_of_fame=0,
                sac={"learning_starts": STARTS},
                **settings,
            ),
            out=Path(directory) / "run",
        )
        rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    counted = [row for row in rows if row["step"] > STARTS + WARM]
    spent = sum(
        v for row in counted for k, v in row.items() if k.startswith("time/") and "per_" not in k
    )
    return sum(row["rollout/steps"] for row in counted) / spent


def peer_speed(by: str, threads: int) -> float:
    """Train with Stable-Baselines3, or with its sibling in JAX."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(threads)
    if by == "sb3":
        from stable_baselines3 import SAC
    else:
        from sbx import SAC
    stamps: dict[int, float] = {}

    class Clock(BaseCallback):
        def _on_step(self) -> bool:
            stamps[self.num_timesteps] = time.perf_counter()
            return True

    network = {"net_arch": [256, 256]}
    model = SAC("MlpPolicy", ENV, learning_starts=STARTS, policy_kwargs=network, device="cpu")
    model.learn(STARTS + WARM + MEASURED, callback=Clock())
    first, last = STARTS + WARM, STARTS + WARM + MEASURED
    return MEASURED / (stamps[last] - stamps[first])


def compare(repeats: int) -> None:
    found = in_turn(list(CONTESTANTS), lambda name: alone(__file__, name), repeats)
    print(
        f"{ENV}, SAC, 1 environment, an update per step, batch 256, (256, 256) relu; steps per "
        f"second, medians of {repeats}, of {MEASURED} steps each"
    )
    best = {
        by: max(statistics.median(v) for name, v in found.items() if name.startswith(by))
        for by in ("SB3", "SBX")
    }
    for name, values in found.items():
        speed = statistics.median(values)
        ratios = "  ".join(f"{speed / value:5.2f} × {by}" for by, value in best.items())
        print(f"  {name:<24}{spread(values):<28}{ratios}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=1)
    options = parser.parse_args()
    if options.one:
        settings = CONTESTANTS[options.one[0]]
        give((peer_speed if "by" in settings else surefoot_speed)(**settings))
    compare(options.repeats)
