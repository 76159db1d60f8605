"""Train presets over several seeds and evaluate: `python benchmarks/scores.py CartPole-v1:1-5`.

Each argument is an environment and its seeds; `sac/Pendulum-v1:1-3` is for another algorithm.
Runs go to runs/scores/; those that are there are gone on with, or taken as they are if finished, so
that an interrupted table can be completed.
`--flags` are given to every training, and `--reach` asks when an evaluation first came that far:

    python benchmarks/scores.py BipedalWalker-v3:0-2 --reach 280 --flags="--overlap \\
        --evaluate-every 500000 --evaluate-episodes 20"
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EPISODES = 100


def score(work: str, seed: int, out: Path, flags: Sequence[str]) -> dict[str, float]:
    """Train one seed, or go on with it if it is there, and evaluate best and last policy."""
    algo, _, env = work.rpartition("/")
    surefoot = [sys.executable, "-m", "surefoot"]
    train = [*surefoot, "train", env, "--algo", algo or "ppo"]
    train += ["--seed", str(seed), "--out", str(out), *flags]
    go_on = [*surefoot, "resume", str(out)]
    with (out.parent / f"{out.name}.log").open("a") as stream:
        there = (out / "run.json").exists()
        subprocess.run(
            go_on if there else train, stdout=stream, stderr=subprocess.STDOUT, check=True
        )
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


def place(work: str, seed: int, root: Path, flags: Sequence[str]) -> Path:
    """Say where the run of a seed with these flags is."""
    settings = f"-{hashlib.sha256(shlex.join(flags).encode()).hexdigest()[:8]}" if flags else ""
    return root / f"{work.replace('/', '-')}{settings}-seed{seed}"


def time_to(goal: float, run: Path) -> str:
    """Say when an evaluation of a run first reached a return: after how many steps, and seconds of
    iterations, evaluations included."""
    seconds = 0.0
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        parts = [name for name in row if name.startswith("time/") and "per_" not in name]
        seconds += sum(row[name] for name in parts)
        if row.get("eval/return_mean", -float("inf")) >= goal:
            return f"reached {goal:g} after {row['step']:,} steps, {seconds:,.0f} s of iterations"
    return f"never reached {goal:g} in an evaluation"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", nargs="+", metavar="[ALGO/]ENV:FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--root", type=Path, default=Path("runs/scores"))
    parser.add_argument("--flags", type=shlex.split, default=[])
    parser.add_argument("--reach", type=float)
    options = parser.parse_args()
    options.root.mkdir(parents=True, exist_ok=True)
    work = []
    for item in options.work:
        env, _, seeds = item.partition(":")
        first, _, last = seeds.partition("-")
        work += [(env, seed) for seed in range(int(first), int(last or first) + 1)]
    flags = options.flags
    runs = [place(*item, options.root, flags) for item in work]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda item, out: score(*item, out, flags), work, runs))
    for env in dict.fromkeys(env for env, _ in work):
        rows = [figures for (name, _), figures in zip(work, results, strict=True) if name == env]
        for which in ("best", "last"):
            values = [figures[which] for figures in rows]
            every = ", ".join(f"{value:.1f}" for value in values)
            print(f"{env:<28}{which:<6}mean {statistics.fmean(values):8.1f}   seeds: {every}")
    if options.reach is not None:
        for (env, seed), run in zip(work, runs, strict=True):
            print(f"{env} seed {seed}: {time_to(options.reach, run)}")


if __name__ == "__main__":
    main()
