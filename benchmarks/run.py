"""Run benchmarks and write benchmarks/RESULTS.md: `make bench`, or `make bench-quick`.

    python benchmarks/run.py [bipedal | pieces | …] … [--quick]

Nothing else should run meanwhile. If only some are run, what the page says of others stays. The
quick set takes three minutes and writes nothing.
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
PAGE = HERE / "RESULTS.md"
BENCHMARKS = {
    "bipedal": ("Training: BipedalWalker-v3", ["training", "bipedal"]),
    "cheetah": ("Training: HalfCheetah-v5", ["training", "cheetah"]),
    "cartpole": ("Training: CartPole-v1", ["training", "cartpole"]),
    "offpolicy": ("Training with SAC", ["offpolicy"]),
    "whole": ("Starting, a short run, memory", ["whole"]),
    "pieces": ("Pieces of a training", ["pieces"]),
    "growth": ("Growth", ["growth"]),
    "collecting": ("Collecting", ["collecting"]),
    "saving": ("Saving", ["saving"]),
    "watching": ("Watching", ["watching"]),
    "queueing": ("Queueing networks", ["queueing", "speed"]),
}
"""What a benchmark is called in the page, and its script with arguments."""
QUICK = [
    ["training", "bipedal", "--repeats", "1", "--quick"],
    ["pieces", "--quick"],
    ["whole", "starting", "--repeats", "1"],
]
PACKAGES = ("torch", "numpy", "gymnasium", "envpool", "stable-baselines3", "sbx-rl", "jax")


def run(words: list[str]) -> str:
    """Run a benchmark; show and return what it says."""
    print(f"\n# {' '.join(words)}", flush=True)
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
    return f"{hardware.described()}, Python {platform.python_version()}, {versions}."


def note(name: str, said: str) -> None:
    """Put what a benchmark said into the page, in place of what it said before."""
    title, (script, *arguments) = BENCHMARKS[name]
    command = " ".join([f"python benchmarks/{script}.py", *arguments])
    _, *sections = (PAGE.read_text() if PAGE.exists() else "").split("\n## ")
    written = {section.partition("\n")[0]: section.strip() for section in sections}
    written[title] = (
        f"{title}\n\n`{command}`, {time.strftime('%Y-%m-%d')}; {machine()}\n\n"
        f"```\n{said.strip()}\n```"
    )
    ordered = [written[title] for title, _ in BENCHMARKS.values() if title in written]
    PAGE.write_text("\n\n## ".join(["# Results of `make bench`", *ordered]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[[], *BENCHMARKS], metavar=" | ".join(BENCHMARKS)
    )
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.names and options.quick:
        parser.error("--quick is a choice of its own: drop it, or the names")
    begun = time.monotonic()
    if options.quick:
        for words in QUICK:
            run(words)
    else:
        for name in options.names or BENCHMARKS:
            note(name, run(BENCHMARKS[name][1]))
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
