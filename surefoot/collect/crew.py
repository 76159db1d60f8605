"""A worker as its parent sees it: started, told what to do, watched, and ended if need be."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]

import surefoot
from surefoot.collect import slab
from surefoot.collect.worker import ANSWER, CLOSE, COMMAND, LONGEST, TRAIL, Fault, Wires
from surefoot.core.errors import ConfigError, EnvError, SurefootError, WorkerTraceback
from surefoot.envs.make import Factory, ship
from surefoot.envs.probe import Kind, Way

SLICE = 0.1
"""Seconds between two looks at whether a worker lives."""
GRACE = 2.0
"""Seconds that a worker gets to close its environments."""
START_SECONDS = 60.0
"""Seconds that a worker gets at least to start, and for each environment it builds."""
JUDGING_SECONDS = 60.0
"""Seconds that a worker gets at least to find log-probabilities."""
DUMP_SECONDS = 0.5
"""Seconds that a worker gets to say where it hangs."""
SPIN = 100e-6
"""Seconds to look for news before going to sleep, where there is a core to do so on: waking up
takes about as long."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""There are as many workers as cores; and last bits of a matrix product depend on its threads."""
ERRORS: dict[str, type[SurefootError]] = {"ConfigError": ConfigError, "EnvError": EnvError}


class Lost(Exception):
    """A worker is gone, or as good as gone: how, and what it said last."""

    def __init__(self, how: str, said: str = "") -> None:
        super().__init__(how)
        self.how, self.said = how, said


class Member:
    """One worker process and the wires to it; it inherits the descriptors in `shared`."""

    def __init__(self, step_timeout: float, *shared: int) -> None:
        self._timeout = step_timeout
        self._letter, self._reply, self._last_words = (slab.anonymous_file() for _ in range(3))
        self._trail_fd = slab.allocate(TRAIL)
        marks = slab.attach(TRAIL, self._trail_fd)
        self.trail, self._leave = marks["trail"], marks["leave"]
        self.ended = False
        self.owes = False
        """Whether an answer is still to come."""
        self._still = 0.0
        """Seconds without a call into an environment, while one was due."""
        self._calls = 0
        their_go, self._go = os.pipe()
        self.done, their_done = os.pipe()
        files = (self._letter, self._reply, self._last_words, self._trail_fd)
        fds = Wires(their_go, their_done, *files)
        command = [sys.executable, "-P", "-m", "surefoot.collect.worker", str(os.getpid())]
        try:
            self._process: subprocess.Popen[bytes] = _started(
                [*command, *map(str, fds)],
                pass_fds=(*fds, *shared),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,  # Ctrl-C and Ctrl-Z are for the parent
            )
        finally:
            for descriptor in (their_go, their_done):
                os.close(descriptor)
        threading.Thread(target=_repeat, args=(self._process.stdout,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def go(self, lanes: bytes) -> None:
        """Let these lanes take a step."""
        if not self.ended:
            with suppress(BrokenPipeError):  # that it is gone shows when it is waited for
                os.write(self._go, lanes)

    def tell(self, command: str, *arguments: Any) -> None:
        """Give a command; `answer` waits for what comes of it."""
        assert not self.owes
        words = cloudpickle.dumps((command, arguments))
        if not self.ended:
            self.owes = True
            slab.write_letter(self._letter, words)
            self.go(bytes([COMMAND]))

    def answer(self, patience: float = 0.0) -> Any:
        """Wait for the answer to a command; raise what went wrong, or Lost. One call may take this
        many seconds, if that is more than usual."""
        poll = select.poll()
        poll.register(self.done, select.POLLIN)
        before = time.monotonic()
        while True:
            if poll.poll(1000 * SLICE) and ANSWER in self.hear():
                return self.listen()
            now = time.monotonic()
            self.watch(now - before, patience)
            before = now

    def hear(self) -> bytes:
        """Read what it says is done: lanes, or ANSWER."""
        said = os.read(self.done, 4096)
        if not said:
            raise self._gone()
        return said

    def listen(self) -> Any:
        """Receive an answer; raise the error that it is, if it is one."""
        answer = pickle.loads(slab.read_letter(self._reply))
        self.owes = False
        if isinstance(answer, Fault):
            cause = WorkerTraceback(answer.traceback) if answer.traceback else None
            raise ERRORS.get(answer.kind, EnvError)(answer.message) from cause
        return answer

    def watch(self, seconds: float, patience: float = 0.0, doing: str = "in one call") -> None:
        """Look after a worker that has had something to do for so long since the last look; raise
        Lost where it is dead, or has been in one call into an environment for too long, or at
        something else, that may take longer than usual."""
        if self._process.poll() is not None:
            raise self._gone()
        calls = int(self.trail[0])
        # A parent that was stopped meanwhile, as with Ctrl-Z, cannot hold it against a worker.
        self._still = 0.0 if calls != self._calls else self._still + min(seconds, 2 * SLICE)
        self._calls = calls
        if self._still > (limit := max(self._timeout, patience)):
            raise Lost(f"was {doing} for over {limit:g} s", self._stack())

    def end(self) -> None:
        """Kill it, with all processes it started, and let go of the wires; once is enough."""
        if self.ended:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.ended = True
        files = (self._letter, self._reply, self._last_words, self._trail_fd)
        for descriptor in (self._go, self.done, *files):
            os.close(descriptor)

    def close(self, deadline: float) -> None:
        """Let it close its environments and go; end it at the deadline."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        self.end()

    def say_goodbye(self) -> None:
        """Let it go when its step is over."""
        self._leave[0] = 1
        self.go(bytes([CLOSE]))

    def _gone(self) -> Lost:
        """Find out how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        code = self._process.poll()
        if code is None:
            return Lost("closed its wires", self._words())
        if code >= 0:
            return Lost(f"ended with exit code {code}", self._words())
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = " (by somebody, or because memory ran out)" if name == "SIGKILL" else ""
        return Lost(f"was killed by {name}{hint}", self._words())

    def _stack(self) -> str:
        """Have it write down where it is."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + DUMP_SECONDS
        while not self._words() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)  # it may be writing
        return self._words()

    def _words(self) -> str:
        return os.pread(self._last_words, LONGEST, 0).decode(errors="replace")


def settle_in_worker(wanted: Kind | None, make: Factory, seed: int, step_timeout: float) -> Way:
    """Find out in a process of its own how an environment comes back: it may hang or crash."""
    worker = Member(step_timeout)
    try:
        worker.tell("look", sys.path, ship(make))
        worker.answer(START_SECONDS)
        worker.tell("probe", wanted, seed)
        way: Way = worker.answer()
        return way
    except Lost as lost:
        if wanted is not None or int(worker.trail[0]) == 0:
            give_up(make.name, "while it was tried out", lost)
        # Those who play will meet it too, and are replaced.
        return Way("replay", f"the probe failed: its worker process {lost.how}")
    finally:
        worker.end()


def give_up(name: str, when: str, lost: Lost) -> NoReturn:
    """Raise the error of a loss that ends everything."""
    said = WorkerTraceback(lost.said) if lost.said else None
    raise EnvError(f"{name}: its worker process {lost.how} {when}") from said


def _started(command: list[str], **settings: Any) -> Any:
    """Start a process from a thread that lasts: the kernel would end it with the one that it was
    started from."""
    start = partial(subprocess.Popen, command, **settings)
    return _starter(os.getpid()).submit(start).result()


@cache
def _starter(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "surefoot-starter")


def _repeat(said: IO[bytes]) -> None:
    """Print what a worker prints where this process prints: whole lines, and not across a panel."""
    with said:
        for line in said:
            with suppress(OSError, ValueError):  # nobody listens any more
                print(line.decode(errors="replace"), end="", flush=True)


def _environment() -> dict[str, str]:
    """Let a worker find this very package, installed or not."""
    home = str(Path(surefoot.__file__).parents[1])
    installed = home in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    path = [] if installed else [home]
    path += filter(None, [os.environ.get("PYTHONPATH")])
    found = {"PYTHONPATH": os.pathsep.join(path)} if path else {}
    return {**os.environ, **ONE_THREAD, **found}
