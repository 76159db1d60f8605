"""Run all benchmarks and write benchmarks/RESULTS.md: `make bench`, or `make bench-quick`.

    python benchmarks/run.py [--quick]

Nothing else should run meanwhile. The quick set takes three minutes and writes nothing.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from surefoot.core import hardware

HERE = Path(__file__).parent
TITLES = {
    "training": "Training",
    "offpolicy": "Training with SAC",
    "whole": "Starting, a short run, memory",
    "pieces": "Pieces of a training",
    "growth": "Growth",
    "collecting": "Collecting",
    "saving": "Saving",
    "watching": "Watching",
    "queueing": "Queueing networks",
}
PARTS = {"queueing": ["speed"]}
"""What of a benchmark is run here, if not all."""
QUICK = [
    ["training", "bipedal", "--repeats", "1", "--quick"],
    ["pieces", "--quick"],
    ["whole", "starting", "--repeats", "1"],
]
PACKAGES = ("torch", "numpy", "gymnasium", "envpool", "stable-baselines3", "sbx-rl", "jax")


def run(words: list[str]) -> str:
    """Run a benchmark; show and return what it says."""
    print(f"\n# {TITLES[words[0]]}", flush=True)
    command = [sys.executable, "-W", "ignore", str(HERE / f"{words[0]}.py"), *words[1:]]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said = []
    for line in child.stdout or ():
        said.append(line)
        print(line, end="", flush=True)
    if child.wait():
        raise SystemExit(f"{' '.join(words)} failed")
    return "".join(said)


def machine() -> str:
    """Describe what the figures depend on."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    return (
        f"{hardware.described()}, Python {platform.python_version()}, {versions}; "
        f"{time.strftime('%Y-%m-%d')}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    begun = time.monotonic()
    page = ["# Results of `make bench`\n", f"{machine()}\n"]
    for words in QUICK if quick else [[name, *PARTS.get(name, [])] for name in TITLES]:
        said = run(words).strip()
        title = TITLES[words[0]]
        command = " ".join([f"python benchmarks/{words[0]}.py", *words[1:]])
        page.append(f"## {title}\n\n`{command}`\n\n```\n{said}\n```\n")
        if not quick:
            (HERE / "RESULTS.md").write_text("\n".join(page))
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
