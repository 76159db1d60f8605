"""What takes too long for every change: many kills, many signals, many hostile checkpoints.

python benchmarks/soak.py [kills] [mutations] [signals] [--count N]
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import surefoot
from surefoot.core.errors import SurefootError
from surefoot.envs.make import factory
from surefoot.train import prepared
from tests import killing, mutations
from tests.store.test_hostile import SETTINGS, load

FORBIDDEN = ("import", "exec", "compile", "subprocess.Popen", "os.system", "socket.", "os.exec")
WRITING = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.", "os.truncate")


def kills(count: int, place: Path) -> None:
    """Kill -9 runs of all kinds, half of them inside a save, and resume each to its end."""
    wholes, seconds = {}, {}
    for case in killing.CASES:
        wholes[case] = place / case
        seconds[case] = killing.finish(killing.train, case, wholes[case])
    done: collections.Counter[tuple[str, str]] = collections.Counter()
    different = number = 0
    while done.total() < count:
        number += 1
        chance, out = random.Random(number), place / f"killed-{number}"
        case = chance.choice(list(killing.CASES))
        aimed = done.total() % 2 == 0
        if aimed:
            killed = killing.kill_inside_a_save(case, out, chance)
        else:
            killed = killing.kill_anywhere(case, out, chance, seconds[case])
        if killed and (out / "run.json").exists():
            done[case, "inside a save" if aimed else "anywhere"] += 1
            if found := killing.difference_after_resuming(out, wholes[case]):
                different += 1
                print(f"kill {number} of {case}: {found[:3]}", flush=True)
    print(f"{done.total()} kills, {different} runs that differ; {dict(done)}", flush=True)


def signals(count: int, place: Path) -> None:
    """SIGTERM at random moments; each run ends in time, with its code, and resumes exactly."""
    whole = place / "whole"
    seconds = killing.finish(killing.train, "cartpole", whole)
    slowest, bad, done, number = 0.0, 0, 0, 0
    while done < count:
        number += 1
        chance, out = random.Random(number), place / f"ended-{number}"
        process = killing.start(killing.train_and_exit, "cartpole", out)
        process.join(chance.uniform(0.3, seconds))
        if process.exitcode is not None or not (out / "run.json").exists():
            process.kill()
            continue
        begun = time.monotonic()
        process.terminate()
        process.join()
        took = time.monotonic() - begun
        done += 1
        slowest = max(slowest, took)
        if process.exitcode == 0:
            continue  # it was finishing already
        if process.exitcode != 128 + signal.SIGTERM:
            bad += 1
            print(f"signal {number}: exit code {process.exitcode}", flush=True)
        if found := killing.difference_after_resuming(out, whole):
            bad += 1
            print(f"signal {number}: {found[:3]}", flush=True)
    print(f"{done} signals, {bad} bad; the slowest took {slowest:.2f} s to end", flush=True)


class Watch:
    """Notes every event of the interpreter that loading a checkpoint must not cause."""

    def __init__(self) -> None:
        self.on = False
        self.events: collections.Counter[str] = collections.Counter()
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: Any) -> None:
        if not self.on:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if event.startswith((*FORBIDDEN, *WRITING)) or writes:
            self.events[f"{event} {str(arguments)[:100]}"] += 1


def mutated(count: int, place: Path) -> None:
    """Load broken and hostile checkpoints while watching what the interpreter does."""
    run = surefoot.train("CartPole-v1", out=place / "run", **SETTINGS)
    original = run.checkpoint("last").path
    path = run.store.directory / "superseded" / original.name
    outcomes: collections.Counter[str] = collections.Counter()
    watch = Watch()
    with prepared(run.config, factory("CartPole-v1"), "replay") as training:
        load(run, original, training)  # whatever is imported late is imported now
        for number in range(count):
            mutations.copy(original, path)
            mutations.mutate(path, random.Random(number))
            watch.on = True
            try:
                load(run, path, training)
                outcome = "loaded"
            except SurefootError as error:
                outcome = type(error).__name__
            except Exception as error:
                outcome = f"UNEXPECTED {type(error).__name__}"
                print(f"mutation {number}: {error!r:.200}", flush=True)
            finally:
                watch.on = False
            outcomes[outcome] += 1
    print(f"{count} checkpoints: {dict(outcomes)}; forbidden events: {dict(watch.events)}")


SUITES: dict[str, tuple[Callable[[int, Path], None], int]] = {
    "kills": (kills, 200),
    "mutations": (mutated, 10_000),
    "signals": (signals, 100),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=list(SUITES), help=", ".join(SUITES))
    parser.add_argument("--count", type=int, help="how many instead of the usual number")
    options = parser.parse_args()
    for name in options.suites:
        suite, count = SUITES[name]
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="surefoot-soak-") as place:
            suite(options.count or count, Path(place))
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
