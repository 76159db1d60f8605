"""Run benchmarks and write benchmarks/RESULTS.md: `make bench`, or `make bench-quick`.

    python benchmarks/run.py [training | pieces | …] … [--quick]

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
    return f"{hardware.described()}, Python {platform.python_version()}, {versions}."


def note(words: list[str], said: str) -> None:
    """Put what a benchmark said into the page, in place of what it said before."""
    title, command = TITLES[words[0]], " ".join([f"python benchmarks/{words[0]}.py", *words[1:]])
    _, *sections = (PAGE.read_text() if PAGE.exists() else "").split("\n## ")
    written = {section.partition("\n")[0]: section.strip() for section in sections}
    written[title] = (
        f"{title}\n\n`{command}`, {time.strftime('%Y-%m-%d')}; {machine()}\n\n"
        f"```\n{said.strip()}\n```"
    )
    ordered = [written[title] for title in TITLES.values() if title in written]
    PAGE.write_text("\n\n## ".join(["# Results of `make bench`", *ordered]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *TITLES], metavar=" | ".join(TITLES))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.names and options.quick:
        parser.error("--quick is a choice of its own: drop it, or the names")
    begun = time.monotonic()
    names = options.names or TITLES
    for words in QUICK if options.quick else [[name, *PARTS.get(name, [])] for name in names]:
        said = run(words)
        if not options.quick:
            note(words, said)
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
