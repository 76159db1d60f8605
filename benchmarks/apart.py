"""For benchmarks: contestants that take turns, each in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


def alone(script: str, *arguments: str) -> Any:
    """Run a script with `--one` and these arguments; return what it gave."""
    (result,) = together(1, script, *arguments)
    return result


def together(count: int, script: str, *arguments: str) -> list[Any]:
    """Run a script so many times at once; return what each gave."""
    command = [sys.executable, script, "--one", *arguments]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **pipes) for _ in range(count)]
    results = []
    for child in children:
        out, errors = child.communicate()
        if child.returncode:
            raise SystemExit(f"{' '.join(arguments)} failed:\n{errors[-2000:]}")
        results.append(json.loads(out.strip().splitlines()[-1]))
    return results


def give(result: Any) -> NoReturn:
    """Hand a result to `alone`, and leave: some of what ran here takes its time to close."""
    print(f"\n{json.dumps(result)}", flush=True)
    os._exit(0)


def in_turn(names: Sequence[str], measure: Callable[[str], Any], repeats: int) -> dict[str, Any]:
    """Measure everybody, then everybody again; return lists of what was measured."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            found[name].append(measure(name))
    return found


def spread(values: Sequence[float], places: int = 0) -> str:
    """Write the median, and what it lies between."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:,.{places}f} ({least:,.{places}f} to {most:,.{places}f})"
