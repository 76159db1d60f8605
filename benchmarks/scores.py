"""Train presets over several seeds and evaluate: `python benchmarks/scores.py CartPole-v1:1-5`.

Each argument is an environment and its seeds; `sac/Pendulum-v1:1-3` is for another algorithm.
Runs go to runs/scores/ and are reused if finished, so that an interrupted table can be completed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EPISODES = 100


def score(work: str, seed: int, root: Path) -> dict[str, float]:
    """Train one seed, unless it is there already, and evaluate best and last policy."""
    algo, _, env = work.rpartition("/")
    out = root / f"{work.replace('/', '-')}-seed{seed}"
    surefoot = [sys.executable, "-m", "surefoot"]
    if not (out / "run.json").exists():
        log = root / f"{out.name}.log"
        with log.open("w") as stream:
            train = [*surefoot, "train", env, "--algo", algo or "ppo"]
            train += ["--seed", str(seed), "--out", str(out)]
            subprocess.run(train, stdout=stream, stderr=subprocess.STDOUT, check=True)
    figures = {}
    for which in ("best", "last"):
        command = [*surefoot, "eval", str(out), "--json", "--checkpoint", which]
        done = subprocess.run(
            [*command, "--episodes", str(EPISODES), "--seed", "1000"],
            check=True,
            capture_output=True,
            text=True,
        )
        figures[which] = json.loads(done.stdout)["return_mean"]
    print(f"{work} seed {seed}: {figures}", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", nargs="+", metavar="[ALGO/]ENV:FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--root", type=Path, default=Path("runs/scores"))
    options = parser.parse_args()
    options.root.mkdir(parents=True, exist_ok=True)
    work = []
    for item in options.work:
        env, _, seeds = item.partition(":")
        first, _, last = seeds.partition("-")
        work += [(env, seed) for seed in range(int(first), int(last or first) + 1)]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda item: score(*item, options.root), work))
    for env in dict.fromkeys(env for env, _ in work):
        rows = [figures for (name, _), figures in zip(work, results, strict=True) if name == env]
        for which in ("best", "last"):
            values = [figures[which] for figures in rows]
            every = ", ".join(f"{value:.1f}" for value in values)
            print(f"{env:<28}{which:<6}mean {statistics.fmean(values):8.1f}   seeds: {every}")


if __name__ == "__main__":
    main()
