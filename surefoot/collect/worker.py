"""A worker process: steps its share of the environments and leaves what they give in a record that
is shared.

It is started as `python -m surefoot.collect.worker` with descriptors, and never loads torch. Bytes
on one pipe say what to do: a lane to step, or that a command is in the letter. Bytes on another say
what is done. When the pipe ends, so does the worker.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from surefoot.collect import record, reports, slab
from surefoot.collect.pace import Cue, Inference, Scene, play_here, take_step
from surefoot.collect.record import Record
from surefoot.collect.reports import Reports
from surefoot.collect.screen import Screen
from surefoot.core.errors import SurefootError
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Actor
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs import probe
from surefoot.envs.make import Factory, lay_out, make_vector, unship
from surefoot.envs.probe import Kind, Way

COMMAND, CLOSE = 254, 255
"""Bytes that are no lane: a command is in the letter; close and go."""
ANSWER = 255
"""What a worker says instead of a lane that it has stepped: an answer is in the reply."""
LONGEST = 20_000
"""Characters of a traceback that are passed on."""
PR_SET_PDEATHSIG = 1
TRAIL = {"trail": slab.Field((4,), "int64"), "leave": slab.Field((1,), "int64")}


class Wires(NamedTuple):
    """What connects a worker with its parent, as descriptors."""

    go: int
    done: int
    letter: int
    """What a command is; and what came of it."""
    reply: int
    last_words: int
    trail: int
    """Shared memory: calls made into environments, and row, episode and step of the last one; and
    whether to leave in the middle of a rollout."""


class Task(NamedTuple):
    """What a worker has to do: which rows of how many, in which lanes, of which environment."""

    worker: int
    workers: int
    spec: Spec
    lanes: list[slice]
    horizon: int
    inference: Inference
    rebuild: bool
    slab: int
    """Descriptor of the shared memory."""
    spin: float
    """Seconds to look for orders before going to sleep."""
    judges: bool
    """Whether to find log-probabilities."""


class Part(NamedTuple):
    """What came of playing a rollout, or some rows of it, besides what is in the record."""

    memory: Tree
    """What rows remember [N, …]."""
    seconds: Metrics
    """Where the time went."""
    log_prob: Array | None
    """Of actions [T, N], if those who played were to find them."""


class Fault(NamedTuple):
    """What went wrong in a worker, in words."""

    kind: str
    message: str
    traceback: str


class Leave(BaseException):
    """Somebody wants this process to end."""


class Troupe:
    """All lanes of a worker, and the commands that concern them."""

    def __init__(self, make: Factory, task: Task, trail: Array, heed: Callable[[], None]) -> None:
        """`heed` is called before every step of a rollout."""
        shared = slab.attach(shared_layout(task.spec, task.horizon, task.workers), task.slab)
        self._inference, self._heed = task.inference, heed
        self._judges = task.judges
        self._record = Record(shared, Reports(shared, task.worker, task.lanes))
        self._lanes = [
            (rows, make_vector(make, rows.stop - rows.start, task.rebuild, rows.start, trail))
            for rows in task.lanes
        ]

    def step(self, lane: int) -> None:
        """Let a lane take its next step; somebody else has chosen the actions."""
        take_step(self._record, *self._lanes[lane])

    def play(self, actor: Actor, cue: Cue) -> Part:
        """Play a rollout to its end, from wherever it is."""
        record = self._record
        scene = Scene.of(actor, cue, record)
        seconds = play_here(self._lanes, self._inference, scene, self._heed)
        begun = time.perf_counter()
        log_prob = actor.log_prob(record.obs, record.action) if self._judges else None
        seconds["acting"] += time.perf_counter() - begun
        return Part(scene.memory, seconds, log_prob)

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> list[Tree]:
        return [env.reset(seeds, episodes[rows]) for rows, env in self._lanes]

    def restart(self, which: Array) -> list[Tree]:
        return [env.restart(which[rows]) for rows, env in self._lanes]

    def replay(self, row: int, action: Tree) -> tuple[Tree, Array]:
        rows, env = next(lane for lane in self._lanes if lane[0].start <= row < lane[0].stop)
        result: tuple[Tree, Array] = env.replay(row - rows.start, action)  # type: ignore[attr-defined]
        return result

    def snapshot(self) -> list[State]:
        return [env.snapshot() for _, env in self._lanes]  # type: ignore[attr-defined]

    def recall(self, state: State) -> None:
        for _, env in self._lanes:
            env.recall(state)  # type: ignore[attr-defined]

    def close(self) -> None:
        for _, env in self._lanes:
            with suppress(Exception):  # nobody is left to hear of it
                env.close()


class Worker:
    """The loop: reads what to do, does it, says so."""

    def __init__(self, wires: Wires, parent: int) -> None:
        self._wires, self._parent = wires, parent
        shared = slab.attach(TRAIL, wires.trail)
        self._trail, self._leave = shared["trail"], shared["leave"]
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
            try:
                for order in orders:
                    self._obey(order)
            except Leave:
                if self._troupe:
                    self._troupe.close()
                return

    def _obey(self, order: int) -> None:
        if order == CLOSE:
            raise Leave
        try:
            if order == COMMAND:
                name, arguments = pickle.loads(slab.read_letter(self._wires.letter))
                answer = self._command(name)(*arguments)
            else:
                assert self._troupe is not None
                self._troupe.step(order)
                os.write(self._wires.done, bytes([order]))
                return
        except Leave:
            raise
        except BaseException as error:  # sys.exit in a step too
            answer = _fault(error)
        try:
            words = pickle.dumps(answer)
        except Exception as error:
            words = pickle.dumps(_fault(error))
        slab.write_letter(self._wires.reply, words)
        os.write(self._wires.done, bytes([ANSWER]))

    def _heed(self) -> None:
        """Leave if nobody is waiting for what this process does."""
        orphaned = sys.platform != "linux" and os.getppid() != self._parent  # Linux would end it
        if self._leave[0] or orphaned:
            raise Leave

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
        self._troupe = Troupe(unship(shipped), task, self._trail, self._heed)

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


def shared_layout(spec: Spec, horizon: int, workers: int) -> dict[str, Tree]:
    """Lay out what workers and their parent share: a rollout in the making."""
    return {**record.layout(spec, horizon), **reports.layout(spec, horizon, workers)}


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


def die_with_parent(parent: int) -> None:
    """Let the kernel end this process when its parent ends, even in the middle of a step."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def main() -> None:
    parent, *descriptors = map(int, sys.argv[1:])
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    wires = Wires(*descriptors)
    for wire in wires:
        os.set_inheritable(wire, False)  # what an environment starts must not keep them open
    faulthandler.enable(wires.last_words)
    faulthandler.register(signal.SIGUSR1, wires.last_words, all_threads=True)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    Worker(wires, parent).run()


if __name__ == "__main__":
    # What is sent must be of the module that the parent knows, not of __main__.
    from surefoot.collect import worker

    worker.main()
