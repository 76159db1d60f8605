"""What it costs to watch a training, to keep it elsewhere, and to look back at a long one.

    python benchmarks/watching.py [--repeats 6] [sinks mirrors report]

The same training without any sink but the log, and with all of them: the dashboard on a
pseudo-terminal, TensorBoard, and W&B, which is offline; and what the log itself takes, by writing
its lines again. The same without a mirror, with one that is a directory, and with one that takes
connections and never answers. Two are trained at once, each on a core of its own, which they swap
the next time: so whatever else slows the machine slows both, and threads besides the training take
their time from it. Then a report about 10 million steps.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from apart import spread

from surefoot.sinks.jsonl import JsonLines

STEPS, WARM = 200_000, 100
"""Of a training, and iterations of it that do not count: TensorBoard and W&B are loaded in them,
which takes two seconds of a core, once."""
ENDING = 8
"""Samples at the end that do not count: what is over is written then."""
ROWS = 50_000
"""Of the long run's metrics."""
SINKS = {
    "the log alone": ["--quiet", "--no-tensorboard"],
    "dashboard, TensorBoard, W&B": ["--wandb.mode", "offline"],
}
MIRRORED = [*SINKS["the log alone"], "--checkpoint-every", "5000", "--mirror-wait", "1", "--mirror"]
MIRRORS = {
    "no mirror": [*MIRRORED, ""],
    "a directory": [*MIRRORED, "{place}/there"],
    "S3 that never answers": [*MIRRORED, "s3://bucket/run"],
}


def train(
    out: Path,
    flags: list[str],
    steps: int = STEPS,
    watch: Callable[[int], None] = lambda pid: None,
    core: int | None = None,
) -> list[dict[str, float]]:
    """Train on a terminal that nobody looks at, and on one core if that is given; return the
    metrics. `watch` hears of the process several times a second."""
    ours, theirs = pty.openpty()
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    command = [*pinned, sys.executable, "-m", "surefoot", "train", "CartPole-v1", "--out", str(out)]
    words = [*command, "--total-steps", str(steps), "--hall-of-fame", "0", *flags]
    child = subprocess.Popen(words, stdout=theirs, stderr=subprocess.DEVNULL, stdin=theirs)
    os.close(theirs)
    threading.Thread(target=_drain, args=(ours,), daemon=True).start()
    while child.poll() is None:
        watch(child.pid)
        time.sleep(0.2)
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} failed")
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 65_536):
            pass
    except OSError:  # the other end is closed
        os.close(terminal)


@dataclass
class Trained:
    """A training that was looked at several times a second."""

    rows: list[dict[str, float]]
    logging: float
    """Seconds to write these rows to a log."""
    times: list[float] = field(default_factory=list)
    """When it was looked at, after the first iterations and before the last."""
    lines: list[int] = field(default_factory=list)
    """Rows there were then."""
    besides: list[float] = field(default_factory=list)
    """Seconds of processor time that threads besides the first had taken then."""

    def costs(self, begun: float, ended: float) -> tuple[float, float, float, float]:
        """Return microseconds per step between two moments, and shares of the time: of reporting
        within the loop, of a core for threads besides it, and of writing the log, which is part of
        the first."""
        first, last = (int(np.searchsorted(self.times, moment)) for moment in (begun, ended))
        rows = self.rows[self.lines[first] : self.lines[last]]
        parts = [n for n in rows[-1] if n.startswith("time/") and n != "time/steps_per_second"]
        seconds = {name: sum(row.get(name, 0.0) for row in rows) for name in parts}
        spent, steps = sum(seconds.values()), sum(row["rollout/steps"] for row in rows)
        besides = self.besides[last] - self.besides[first]
        besides /= self.times[last] - self.times[first]
        logging = self.logging * len(rows) / len(self.rows)
        return 1e6 * spent / steps, seconds["time/reporting"] / spent, besides, logging / spent


def trained(flags: list[str], core: int, started: threading.Event) -> Trained:
    """Train on a core; `started` is set with the first iteration, or where there is none."""
    samples: list[tuple[float, int, float]] = []
    seen: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "run" / "metrics.jsonl"

        def watch(pid: int) -> None:
            lines = log.read_bytes().count(b"\n") if log.exists() else 0
            if lines:
                started.set()
            if lines > WARM:
                samples.append((time.perf_counter(), lines, _besides(pid, seen)))

        try:
            given = [flag.format(place=place) for flag in flags]
            rows = train(Path(place) / "run", given, watch=watch, core=core)
        finally:
            started.set()
        times, lines, besides = zip(*samples[:-ENDING], strict=True)
        return Trained(rows, _log(rows, Path(place)), list(times), list(lines), list(besides))


def _log(rows: list[dict[str, float]], place: Path) -> float:
    """Return the seconds it takes to write these metrics to a log."""
    log = JsonLines(place)
    begun = time.perf_counter()
    for row in rows:
        log.write(int(row["step"]), row)
    seconds = time.perf_counter() - begun
    log.close()
    return seconds


def _besides(pid: int, seen: dict[str, float]) -> float:
    """Return the processor time, in seconds, of all threads of a process but its first, with those
    that have been seen before and have ended."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if task.name != str(pid):
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                ticks = int(fields[11]) + int(fields[12])
                seen[task.name] = ticks / os.sysconf("SC_CLK_TCK")
    return sum(seen.values())


def sinks(repeats: int) -> None:
    compare(SINKS, repeats)


def mirrors(repeats: int) -> None:
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(64)  # connections succeed, and that is all
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{hole.getsockname()[1]}"}
        os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        compare(MIRRORS, repeats)


def compare(ways: dict[str, list[str]], repeats: int) -> None:
    first, *others = ways
    print(f"CartPole-v1, {STEPS:,} steps, medians of {repeats} pairs at once, a core each")
    for way in others:
        pairs = [_pair(ways[first], ways[way], turn) for turn in range(repeats)]
        ratios = [theirs[0] / ours[0] for ours, theirs in pairs]
        print(f"  {way}, in units of {first}: {spread(ratios, 3)} ×")
        for name, place in ((first, 0), (way, 1)):
            micros, *shares = zip(*(pair[place] for pair in pairs), strict=True)
            within, besides, logging = (statistics.median(share) for share in shares)
            share = f"reporting {within:.1%} of the time (the log {logging:.2%}), "
            share += f"threads besides {besides:.1%} of a core"
            print(f"    {name:<30}{spread(micros, 1)} µs per step   {share}", flush=True)


def _pair(one: list[str], other: list[str], turn: int) -> list[tuple[float, ...]]:
    """Train in two ways at once, and count what lies in the time of both; who has which core
    changes from turn to turn. The other starts first: it may have to wait for its mirror."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    mine, theirs = cores if turn % 2 else reversed(cores)
    started = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        second = pool.submit(trained, other, theirs, started)
        started.wait()
        first = pool.submit(trained, one, mine, threading.Event())
        both = [first.result(), second.result()]
    begun = max(training.times[0] for training in both)
    ended = min(training.times[-1] for training in both)
    return [training.costs(begun, ended) for training in both]


def report(repeats: int) -> None:
    """Let a run's metrics look as after 10 million steps; write a report."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        row = train(run, ["--quiet"], 2_000)[-1]
        with (run / "metrics.jsonl").open("w") as file:
            for number in range(1, ROWS + 1):
                wobble = 1 + 0.1 * (number * 7919 % 1000) / 1000
                varied = {name: value * wobble for name, value in row.items()}
                file.write(json.dumps({**varied, "step": 200 * number}) + "\n")
        begun = time.perf_counter()
        command = [sys.executable, "-m", "surefoot", "report", str(run)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begun
        size = (run / "report.html").stat().st_size
        what = f"report about {ROWS:,} rows of {len(row)} metrics"
        print(f"{what}: {seconds:.1f} s, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"sinks": sinks, "mirrors": mirrors, "report": report}
    parser.add_argument("parts", nargs="*", default=list(parts))
    parser.add_argument("--repeats", type=int, default=6)
    options = parser.parse_args()
    for name in options.parts:
        parts[name](options.repeats)
