"""What a user waits for and pays: starting, a whole short run from a cold start, memory.

python benchmarks/whole.py [starting | cold | memory] … [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apart import in_turn, spread

COLD_STEPS = 100_000
ROWS, HORIZON, MINIBATCH, EPOCHS = 8, 32, 256, 20
"""CartPole's settings, those of its preset."""
PEER = f"""
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
torch.set_num_threads(1)
env = make_vec_env("CartPole-v1", n_envs={ROWS})
model = PPO("MlpPolicy", env, n_steps={HORIZON}, batch_size={MINIBATCH}, n_epochs={EPOCHS},
            gae_lambda=0.8, gamma=0.98, learning_rate=1e-3, device="cpu")
model.learn({COLD_STEPS})
"""
WALKER = """
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv
if __name__ == "__main__":
    torch.set_num_threads(1)
    env = make_vec_env("BipedalWalker-v3", n_envs=16, vec_env_cls=SubprocVecEnv)
    PPO("MlpPolicy", env, n_steps=512, batch_size=64, n_epochs=10, device="cpu").learn(3 * 8192)
"""
FIRST_STEP = """
import os, sys, time
from gymnasium.envs.classic_control import CartPoleEnv

class Stopping(CartPoleEnv):
    def step(self, action):
        print(time.time(), file=sys.stderr, flush=True)
        os._exit(0)
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "surefoot", *words]


def wall(words: list[str], **more: Any) -> float:
    """Return how many seconds a command takes, with an empty cache of compiled code."""
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": place}
        begun = time.perf_counter()
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        subprocess.run(words, check=True, cwd=place, env=environment, **{**quiet, **more})
        return time.perf_counter() - begun


def first_step() -> float:
    """Return how many seconds lie between starting `train` and the first step of an environment."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "stopping.py").write_text(FIRST_STEP)
        words = command("train", "stopping:Stopping", "--collector", "local")
        begun = time.time()
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=True)
        return float(done.stderr.split()[-1]) - begun


def starting(repeats: int) -> None:
    print("starting, seconds")
    ways = {
        "python -c 'import surefoot'": lambda: wall([sys.executable, "-c", "import surefoot"]),
        "python -c pass": lambda: wall([sys.executable, "-c", "pass"]),
        "surefoot --help": lambda: wall(command("--help")),
        "train, to the first step": first_step,
        "python -c 'import torch'": lambda: wall([sys.executable, "-c", "import torch"]),
    }
    for name, values in in_turn(list(ways), lambda name: ways[name](), 2 * repeats + 1).items():
        print(f"  {name:<34}{spread(values, 2)}", flush=True)


def cold(repeats: int) -> None:
    print(f"CartPole-v1, {COLD_STEPS:,} steps, {ROWS} × {HORIZON}, minibatch {MINIBATCH}, ", end="")
    print(f"{EPOCHS} epochs; from start to finished run, cold cache, seconds")
    settings = {
        "total-steps": COLD_STEPS,
        "envs": ROWS,
        "ppo.horizon": HORIZON,
        "ppo.minibatch-size": MINIBATCH,
        "ppo.epochs": EPOCHS,
    }
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    ways = {
        "surefoot train": command("train", "CartPole-v1", *flags, "--device", "cpu"),
        "SB3, a bare script": [sys.executable, "-c", PEER],
    }
    found = in_turn(list(ways), lambda name: wall(ways[name]), repeats)
    peer = statistics.median(found["SB3, a bare script"])
    for name, values in found.items():
        share = f"{statistics.median(values) / peer:.2f} × SB3"
        print(f"  {name:<34}{spread(values, 1):<24}{share}", flush=True)


def memory(_: int) -> None:
    print("BipedalWalker-v3, 16 × 512, minibatch 64: most memory of all processes together, MB")
    flags = ["--envs", "16", "--ppo.horizon", "512", "--ppo.minibatch-size", "64"]
    base = command("train", "BipedalWalker-v3", "--total-steps", str(3 * 8192), *flags)
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "walker.py"
        script.write_text(WALKER)
        pool, processes = (
            [*base, "--env-backend", backend, "--collector", "processes", "--n-proc"]
            for backend in ("envpool", "gymnasium")
        )
        ways = {
            "surefoot, 2 workers": [*processes, "2"],
            "surefoot, 2 workers, compiled": [*processes, "2", "--compile", "on"],
            "surefoot, 16 workers": [*processes, "16"],
            "surefoot, EnvPool, 2 workers": [*pool, "2"],
            "SB3, SubprocVecEnv (16 workers)": [sys.executable, str(script)],
        }
        found = in_turn(list(ways), lambda name: most_memory(ways[name]), 1)  # it is steady
    (peer,) = found["SB3, SubprocVecEnv (16 workers)"]
    for name, (value,) in found.items():
        print(f"  {name:<34}{value:8,.0f}   {value / peer:.2f} × SB3", flush=True)


def most_memory(words: list[str]) -> float:
    """Run a command; return the most that it and its children hold at once, with what they share
    counted once."""
    with tempfile.TemporaryDirectory() as place:
        child = subprocess.Popen(
            words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        most = 0.0
        while child.poll() is None:
            most = max(most, sum(_share(pid) for pid in _family(child.pid)))
            time.sleep(0.25)
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} failed")
    return most


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    try:
        found = [int(word) for file in children for word in file.read_text().split()]
    except OSError:
        return []
    return [pid, *(each for one in found for each in _family(one))]


def _share(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("Pss:")), 0.0)


PARTS = {part.__name__: part for part in (starting, cold, memory)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="|".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options.repeats)
