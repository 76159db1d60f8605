"""For benchmarks: contestants that take turns, each in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn, TypeVar

Name = TypeVar("Name", bound=Hashable)
NO_RATE = 1e-12
"""A learning rate with which nothing is learned."""


def alone(script: str, *arguments: str) -> Any:
    """Run a script with `--one` and these arguments; return what it gave."""
    (result,) = together(script, arguments)
    return result


def together(script: str, *each: Sequence[str]) -> list[Any]:
    """Run a script once with each of these arguments, all at once; return what each gave."""
    commands = [[sys.executable, script, "--one", *arguments] for arguments in each]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **pipes) for command in commands]
    results = []
    for child, arguments in zip(children, each, strict=True):
        out, errors = child.communicate()
        if child.returncode:
            raise SystemExit(f"{' '.join(arguments)} failed:\n{errors[-2000:]}")
        results.append(json.loads(out.strip().splitlines()[-1]))
    return results


def give(result: Any) -> NoReturn:
    """Hand a result to `alone`, and leave: some of what ran here takes its time to close."""
    print(f"\n{json.dumps(result)}", flush=True)
    os._exit(0)


def in_turn(
    names: Sequence[Name], measure: Callable[[Name], Any], repeats: int
) -> dict[Name, list[Any]]:
    """Measure everybody, then everybody again; return lists of what was measured."""
    found: dict[Name, list[Any]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            found[name].append(measure(name))
    return found


def spread(values: Sequence[float], places: int = 0) -> str:
    """Write the median, and what it lies between."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:,.{places}f} ({least:,.{places}f} to {most:,.{places}f})"
