"""A worker process: steps its share of the environments and leaves what they give in the slab.

It is started as `python -m surefoot.collect.worker` with descriptors, and never loads torch. Bytes
on one pipe say what to do: a lane to step, or that a command waits on the connection. Pairs of
bytes on another say what is done. When the pipe ends, so does the worker.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from surefoot.collect import slab
from surefoot.collect.screen import Screen
from surefoot.core import tree
from surefoot.core.errors import SurefootError
from surefoot.core.protocols import Step, VectorEnv
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs import probe
from surefoot.envs.make import Factory, lay_out, make_vector, unship
from surefoot.envs.probe import Kind, Way

COMMAND, CLOSE = 254, 255
"""Bytes that are no lane: a command is on the connection; close and go."""
NOTABLE, REPORTING, ANSWER = 1, 2, 255
"""What a worker says about a lane it stepped: an episode ended or a step does not count; there are
metrics. Or that there is an answer on the connection instead."""
LIMITS = f"workers pass on {slab.METRICS} names of up to {slab.NAME_BYTES} bytes"
COLUMNS = ("terminated", "truncated", "valid", "success")
LONGEST = 20_000
"""Characters of a traceback that are passed on."""
PR_SET_PDEATHSIG = 1
TRAIL = {"trail": slab.Field((4,), "int64")}


class Wires(NamedTuple):
    """What connects a worker with its parent, as descriptors."""

    go: int
    done: int
    connection: int
    last_words: int
    trail: int
    """Shared memory: calls made into environments, and row, episode and step of the last one."""


class Task(NamedTuple):
    """What a worker has to do: which rows of how many, in which lanes, of which environment."""

    worker: int
    workers: int
    spec: Spec
    lanes: list[slice]
    rebuild: bool
    slab: int
    """Descriptor of the shared memory."""
    spin: float
    """Seconds to look for orders before going to sleep."""


class Fault(NamedTuple):
    """What went wrong in a worker, in words."""

    kind: str
    message: str
    traceback: str


class LaneEnv:
    """Some rows that are stepped together, and their places in the slab."""

    def __init__(self, env: VectorEnv, rows: slice, shared: Mapping[str, Any]) -> None:
        self.env, self.rows = env, rows
        here = (tree.index(shared[name], rows) for name in ("obs", "final_obs", "action"))
        self._obs, self._final_obs, self._action = here
        self._reward = shared["reward"][rows]
        self._columns = [shared[name][rows] for name in COLUMNS]
        self._notable = False

    def step(self) -> Step:
        step = self.env.step(self._action)
        tree.write(self._obs, slice(None), step.obs)
        self._reward[:] = step.reward
        if step.notable or self._notable:  # columns are right for who reads several lanes at once
            for name, column in zip(COLUMNS, self._columns, strict=True):
                column[:] = getattr(step, name)
            tree.write(self._final_obs, step.ended, step.final_obs)
        self._notable = step.notable
        return step

    def show(self, obs: Tree) -> None:
        """Leave what rows see after a reset."""
        tree.write(self._obs, slice(None), obs)


class Reports:
    """The metrics of environments: a line of the slab for every name, in the order they come up.

    A name is written once, before any row says that it knows so many; a row that does not report a
    metric has NaN there. What is too long or too much is left out.
    """

    def __init__(self, worker: int, shared: Mapping[str, Any]) -> None:
        self._values, self._counts = shared["metrics"], shared["metric_count"]
        self._written = shared["metric_names"][worker]
        self._complained = False
        self._names: dict[str, int] = {}

    def write(self, info: Mapping[str, Array], rows: slice) -> bool:
        """Leave what rows reported; say whether there is anything."""
        if self._names:
            self._values[: len(self._names), rows] = np.nan
        for name, values in info.items():
            if name in self._names or self._add(name):
                self._values[self._names[name], rows] = values
        if self._names:
            self._counts[rows] = len(self._names)
        return bool(info)

    def _add(self, name: str) -> bool:
        """Give a new name a place, if there is room."""
        text, place = name.encode(), len(self._names)
        if place == slab.METRICS or len(text) > slab.NAME_BYTES:
            if not self._complained:
                print(f"surefoot: metric {name[:40]!r} and maybe others are left out: {LIMITS}")
            self._complained = True
            return False
        self._written[place, : len(text)] = np.frombuffer(text, np.uint8)
        self._names[name] = place
        return True


class Troupe:
    """All lanes of a worker, and the commands that concern them."""

    def __init__(self, make: Factory, task: Task, trail: Array) -> None:
        shared = slab.attach(slab.layout(task.spec, task.workers), task.slab)
        self._lanes = []
        for rows in task.lanes:
            count = rows.stop - rows.start
            env = make_vector(make, count, task.rebuild, rows.start, trail)
            self._lanes.append(LaneEnv(env, rows, shared))
        self._reports = Reports(task.worker, shared)

    def step(self, lane: int) -> int:
        """Step a lane; return what is to be said about it."""
        playing = self._lanes[lane]
        step = playing.step()
        reporting = self._reports.write(step.info, playing.rows)
        return NOTABLE * step.notable | REPORTING * reporting

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> None:
        for lane in self._lanes:
            lane.show(lane.env.reset(seeds, episodes[lane.rows]))

    def restart(self, rows: Array) -> None:
        for lane in self._lanes:
            if rows[lane.rows].any():
                lane.show(lane.env.restart(rows[lane.rows]))

    def replay(self, row: int, action: Tree) -> tuple[Tree, Array]:
        lane = next(lane for lane in self._lanes if lane.rows.start <= row < lane.rows.stop)
        result: tuple[Tree, Array] = lane.env.replay(row - lane.rows.start, action)  # type: ignore[attr-defined]
        return result

    def snapshot(self) -> list[State]:
        return [lane.env.snapshot() for lane in self._lanes]  # type: ignore[attr-defined]

    def recall(self, state: State) -> None:
        for lane in self._lanes:
            lane.env.recall(state)  # type: ignore[attr-defined]

    def close(self) -> None:
        for lane in self._lanes:
            with suppress(Exception):  # nobody is left to hear of it
                lane.env.close()


class Worker:
    """The loop: reads what to do, does it, says so."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._connection = Connection(wires.connection)
        self._trail = slab.attach(TRAIL, wires.trail)["trail"]
        self._trail[3] = -1  # there is no step yet
        self._make: Factory | None = None
        self._troupe: Troupe | None = None
        self._screen: Screen | None = None
        self._spin = 0.0

    def run(self) -> None:
        news = select.poll()
        news.register(self._wires.go, select.POLLIN)
        while True:
            if self._spin:
                await_news(news, self._spin)
            orders = os.read(self._wires.go, 4096)
            if not orders:
                return
            for order in orders:
                if order == CLOSE:
                    if self._troupe:
                        self._troupe.close()
                    return
                self._obey(order)

    def _obey(self, order: int) -> None:
        try:
            if order == COMMAND:
                name, arguments = self._connection.recv()
                answer = self._command(name)(*arguments)
            else:
                assert self._troupe is not None
                os.write(self._wires.done, bytes([self._troupe.step(order), order]))
                return
        except BaseException as error:  # sys.exit in a step too
            answer = _fault(error)
        os.write(self._wires.done, bytes([ANSWER, 0]))  # first, so that it is read while it is sent
        try:
            self._connection.send(answer)
        except Exception as error:  # nothing is sent of what cannot be pickled
            self._connection.send(_fault(error))

    def _command(self, name: str) -> Callable[..., Any]:
        own: dict[str, Callable[..., Any]] = {
            "look": self._look,
            "probe": self._probe,
            "begin": self._begin,
            "open": self._open,
            "show": self._show,
        }
        return own.get(name) or getattr(self._troupe, name)

    def _look(self, path: list[str], shipped: bytes) -> tuple[Spec, bool]:
        """Say what the environment is like, and whether it is a vector already."""
        sys.path[:] = path
        self._make = unship(shipped)
        first = self._make()
        native = isinstance(first, GymnasiumVectorEnv)
        vector = lay_out(self._make, first, 1)
        vector.close()
        return vector.spec, native

    def _begin(self, path: list[str], shipped: bytes, task: Task) -> None:
        """Build the environments."""
        sys.path[:] = path
        self._spin = task.spin
        self._troupe = Troupe(unship(shipped), task, self._trail)

    def _probe(self, wanted: Kind | None, seed: int) -> Way:
        """Find out how the environment comes back that was looked at: here it can do no harm."""
        assert self._make is not None
        return probe.settle(wanted, self._make, seed, self._beat)

    def _open(self, path: list[str], shipped: bytes, rebuild: bool) -> None:
        """Open a window to show episodes in."""
        sys.path[:] = path
        self._screen = Screen(unship(shipped), rebuild)

    def _show(self, seed: int, action: Tree) -> None:
        """Show an episode."""
        assert self._screen is not None
        self._screen.show(seed, action)

    def _beat(self) -> None:
        self._trail[0] += 1


def await_news(news: select.poll, seconds: float) -> list[tuple[int, int]]:
    """Look for news again and again for so long, without going to sleep."""
    end = time.perf_counter() + seconds
    while not (found := news.poll(0)) and time.perf_counter() < end:
        pass
    return found


def _fault(error: BaseException) -> Fault:
    """Put an exception into words: it may not be picklable, or only where it came from."""
    cause = error.__cause__ if isinstance(error, SurefootError) else error
    lines = traceback.format_exception(cause) if cause is not None else []
    said = "".join(lines)
    shortened = (
        said if len(said) <= LONGEST else f"{said[: LONGEST // 2]}\n…\n{said[-LONGEST // 2 :]}"
    )
    message = str(error) if cause is not error else f"{type(error).__name__}: {error}"
    return Fault(type(error).__name__, message[:LONGEST], shortened)


def _die_with_parent(parent: int) -> None:
    """Let the kernel end this process when its parent ends, even in the middle of a step."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def main() -> None:
    parent, *descriptors = map(int, sys.argv[1:])
    _die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    wires = Wires(*descriptors)
    for wire in wires:
        os.set_inheritable(wire, False)  # what an environment starts must not keep them open
    faulthandler.enable(wires.last_words)
    faulthandler.register(signal.SIGUSR1, wires.last_words, all_threads=True)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    Worker(wires).run()


if __name__ == "__main__":
    # What is sent must be of the module that the parent knows, not of __main__.
    from surefoot.collect import worker

    worker.main()
