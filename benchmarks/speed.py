"""Training steps per second beside Stable-Baselines3: same work, one run, interleaved, medians.

`make bench`, or `python benchmarks/speed.py --repeats 5`.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import statistics
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import torch

STEPS = 25_600
ENVS, HORIZON, MINIBATCH, EPOCHS = 8, 32, 256, 20


def ours() -> float:
    """Train CartPole with all a run does: metrics, terminal, checkpoints."""
    import surefoot

    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        surefoot.train("CartPole-v1", out=Path(directory) / "run", total_steps=STEPS, device="cpu")
        return STEPS / (time.perf_counter() - begun)


def sb3(vector: str) -> float:
    """Train CartPole with the same settings, in the class of vector environment given."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    kind = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[vector]
    env = make_vec_env("CartPole-v1", n_envs=ENVS, vec_env_cls=kind)
    settings = {"n_steps": HORIZON, "batch_size": MINIBATCH, "n_epochs": EPOCHS}
    begun = time.perf_counter()
    model = PPO("MlpPolicy", env, **settings, gae_lambda=0.8, gamma=0.98, device="cpu")
    model.learn(STEPS)
    speed = STEPS / (time.perf_counter() - begun)
    env.close()
    return speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    contestants = {
        "surefoot": ours,
        "SB3 DummyVecEnv, 1 thread": lambda: sb3("dummy"),
        "SB3 DummyVecEnv, all threads": lambda: sb3("dummy"),
        "SB3 SubprocVecEnv, 1 thread": lambda: sb3("subproc"),
    }
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(options.repeats):
        for name, contestant in contestants.items():
            torch.set_num_threads(os.cpu_count() or 1 if "all threads" in name else 1)
            with redirect_stdout(io.StringIO()):
                speeds[name].append(contestant())
    print(f"CartPole-v1, {ENVS} environments × {HORIZON}, minibatch {MINIBATCH}, {EPOCHS} epochs")
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    mine = statistics.median(speeds["surefoot"])
    for name, values in speeds.items():
        middle = statistics.median(values)
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        ratio = f"surefoot is {mine / middle:.2f} ×"
        print(f"  {name:<30}{middle:8,.0f} steps/s  ({spread})   {ratio}")


if __name__ == "__main__":
    main()
