"""Copies a run's directory elsewhere while it trains, on a thread that nobody waits for."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from surefoot.core.errors import RunError, StoreError, Unreachable
from surefoot.core.metrics import Metrics
from surefoot.store.checkpoint import Checkpoint
from surefoot.store.copying import NOWHERE, Copy, File, identity_there
from surefoot.store.lease import Lease, Leased
from surefoot.store.places import open_store, redacted, resuming

EVERY = 10.0
"""Seconds between two looks for something new that nobody told of."""
FIRST_WAIT, LONGEST_WAIT, HURRY = 1.0, 60.0, 5.0
"""Seconds until a failed send is tried again: the first time, and at most; the last is for when
somebody waits."""
BRIEFLY, PATIENTLY = 2.0, 10.0
"""Seconds to wait for the thread to end where it will not get done anyway, and else."""
SHARE, LONGEST_PAUSE = 0.01, 30.0
"""Of a core, how much the thread may take, but for a pass that is begun; and the seconds that it
pauses for that at most."""
REOPEN = 3
"""Failures in a row after which a place is opened anew."""
LITTLE = 1 << 30
"""Bytes that are free on a disk that runs short, or a twentieth of it if that is less."""
NICENESS = 10


@dataclass(frozen=True)
class Pending:
    """What is still to be sent."""

    files: int = 0
    bytes: int = 0
    sent: int = 0
    """Bytes sent since there was nothing to send."""
    missing: tuple[str, ...] = ()


class Mirroring(Protocol):
    """What training knows of a mirror."""

    def wake(self) -> None:
        """Say that there is something new."""

    def metrics(self) -> Metrics: ...

    def removable(self, checkpoints: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        """Choose from checkpoints those that need not stay here."""


class Unmirrored:
    """For runs that are nowhere else."""

    def wake(self) -> None:
        pass

    def metrics(self) -> Metrics:
        return {}

    def removable(self, checkpoints: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        return checkpoints


class Mirror:
    """Brings a copy up to date again and again, all of it on one thread. What it has to say is
    passed on by whoever trains, since nobody else may write into a run."""

    def __init__(
        self,
        run: Path,
        url: str,
        keep: int,
        tell: Callable[[Mapping[str, Any]], None],
        force: bool = False,
    ) -> None:
        """`force` takes the place over from others."""
        self._copy, self._lease = Copy(run, keep), Lease(NOWHERE, url)
        self._url, self._force, self._tell = url, force, tell
        self._begun: Future[str] = Future()
        self._ready = self._sent_something = False
        self._said: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._lock = threading.Condition()
        self._asked, self._done, self._goal, self._leaving = 1, 0, 0, False
        self._everything = False
        self._pending, self._since, self._failures = Pending(), time.monotonic(), 0
        self._failing, self._short, self.lost = "", False, False
        self._dice = random.Random()
        self._thread = threading.Thread(target=self._attend, name="mirror", daemon=True)
        self._thread.start()

    def begun(self, seconds: float) -> str:
        """Wait until the place has been taken possession of, but not too long: it does not stop
        anybody from training if it does not answer. Raise what it refuses with; return what a
        person should know."""
        try:
            return self._begun.result(seconds)
        except FutureTimeout:
            self._failing = f"{self._url} has not answered in {seconds:.0f} s"
            return unanswered(self._failing)

    def wake(self) -> None:
        with self._lock:
            self._asked += 1
            self._lock.notify_all()

    def metrics(self) -> Metrics:
        """Say how far behind the copy is; pass on what there is to say."""
        while not self._said.empty():
            self._tell(self._said.get())
        pending = self._pending
        return {
            "mirror/pending_files": float(pending.files),
            "mirror/pending_bytes": float(pending.bytes),
            "mirror/oldest_seconds": time.monotonic() - self._since if pending.files else 0.0,
            "mirror/failures": float(self._failures),
        }

    def removable(self, checkpoints: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
        if not checkpoints or self.lost:
            return checkpoints
        needed = self._copy.needed()
        free = [checkpoint for checkpoint in checkpoints if checkpoint.step not in needed]
        usage = shutil.disk_usage(checkpoints[0].path)
        short = usage.free <= min(LITTLE, usage.total // 20)
        if short and not self._short and len(free) < len(checkpoints):
            self._say(f"the disk runs short: checkpoints go that {self._url} does not have")
        self._short = short
        return checkpoints if short else free

    @property
    def pending(self) -> Pending:
        return self._pending

    @property
    def trouble(self) -> str:
        """Why nothing is sent now, if so."""
        return self._failing

    def complete(self, seconds: float) -> bool:
        """Wait until everything as it was when this was first asked is there; say whether it is."""
        with self._lock:
            if not self._everything:
                self._everything = True
                self._asked += 1
                self._goal = self._asked
                self._lock.notify_all()
            self._lock.wait_for(lambda: self._done >= self._goal or self.lost, seconds)
            return self._done >= self._goal

    def close(self) -> None:
        """Give the lease back if that can be done at once, and end; what is being sent may be
        left unfinished."""
        with self._lock:
            self._leaving = True
            self._lock.notify_all()
        self._thread.join(BRIEFLY if self._failing or self._pending.files else PATIENTLY)

    def _attend(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        failed = 0
        while not self._leaving and not self.lost:
            asked, begun = self._asked, time.thread_time()
            try:
                complete = self._pass()
            except Exception as error:
                failed += 1
                self._take_down(error)
                if failed % REOPEN == 0:
                    self._ready = False  # some stores connect only when they are opened
                if not self.lost:
                    self._rest_after_failure(failed)
                continue
            failed = 0
            if complete and self._failing:
                self._failing = ""
                self._say(f"{self._url} has everything again")
            with self._lock:
                self._done = asked if complete else self._done
                self._lock.notify_all()
            pause = (time.thread_time() - begun) / SHARE
            self._rest(min(pause, LONGEST_PAUSE), lambda: self._everything)
            self._rest(EVERY, lambda: self._asked != self._done)
        with self._lock:
            self._lock.notify_all()
        with suppress(Exception):
            self._lease.release()

    def _pass(self) -> bool:
        """Send what is new, and delete what is not to be kept; say whether that is all. Another
        checkpoint that comes meanwhile goes before the rest."""
        asked, batches = self._asked, self._copy.batches(self._everything)
        left = [file for batch in batches for file in batch.all()]
        sent = 0

        def tell(file: File) -> None:
            nonlocal sent
            sent += file.size
            self._sent_something = True
            if file in left:
                left.remove(file)
            self._count(left, sent)
            self._lease.require()

        self._count(left, sent)
        if not self._ready:
            self._begin()
            return False  # now that it is known what is there, there may be less to do
        self._lease.require()
        for batch in batches:
            if self._leaving or self._asked != asked:
                return False
            self._copy.send(batch, tell, self._lease.check)
        if self._everything or any(batch.commit for batch in batches):
            self._copy.prune()
        self._count([], 0)
        return True

    def _begin(self) -> None:
        """Take possession of the place."""
        store = open_store(self._url)
        if self._sent_something and identity_there(store) is None:
            raise Unreachable(f"{self._url} is gone; is it still mounted?")
        self._lease.forget()
        self._copy.store, self._lease = store, Lease(store, self._url)
        note = begin(self._copy, self._lease, self._url, self._force)
        self._ready, self._force = True, False
        if not self._begun.done():
            self._begun.set_result(note)
        elif note:
            self._say(note)

    def _take_down(self, error: Exception) -> None:
        """Take down a failure, and say so where it is news; give up where it is for good."""
        known = isinstance(error, StoreError | RunError)
        what = redacted(str(error) if known else f"{type(error).__name__}: {error}")
        first, asked_for = not self._failing, not self._begun.done()
        self._failures += 1
        self._failing = what
        may_pass = isinstance(error, Unreachable) or not known
        if asked_for and not may_pass:
            self.lost = True
            self._begun.set_exception(error)
        elif asked_for:
            self._begun.set_result(unanswered(what))
        elif isinstance(error, RunError) and (self._ready or not isinstance(error, Leased)):
            self.lost = True
            self._say(f"{what}; it is not mirrored there any more, training goes on")
        elif first:
            self._say(unanswered(what))

    def _count(self, left: list[File], sent: int) -> None:
        if left and not self._pending.files:
            self._since = time.monotonic()
        size = sum(file.size for file in left)
        self._pending = Pending(len(left), size, sent, tuple(file.key for file in left))

    def _patience(self, failed: int) -> float:
        """Choose how long to wait after so many failures: longer and longer, and at random, so that
        many who wait for one place do not come back at once."""
        most = HURRY if self._everything else LONGEST_WAIT
        longest = min(most, FIRST_WAIT * 2.0 ** min(failed - 1, 20))
        return longest * self._dice.uniform(0.5, 1.0)

    def _rest_after_failure(self, failed: int) -> None:
        """Wait, until somebody begins to wait for us."""
        calm = not self._everything
        self._rest(self._patience(failed), lambda: calm and self._everything)

    def _rest(self, seconds: float, waking: Callable[[], bool]) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._leaving or waking(), seconds)

    def _say(self, message: str) -> None:
        self._said.put({"event": "mirror", "message": message})


def unanswered(why: str) -> str:
    return f"mirror: {why}; training goes on, and it is tried again"


def begin(copy: Copy, lease: Lease, url: str, force: bool) -> str:
    """Take possession of a place for a run; refuse one that has another run, or is ahead. Return
    what a person should know."""
    require_same(copy, url)
    note = lease.take(force)
    try:
        copy.look()
    except BaseException:
        lease.release()
        raise
    ahead = copy.ahead()
    if ahead and not force:
        lease.release()
        raise RunError(
            f"{url} is ahead of {copy.run}: it has {ahead[-1]}, which was never here. Go on from "
            f"there with `{resuming(url)}`, or give that up with --take-over"
        )
    lease.keep()
    copy.give_up_later()
    copy.store.sweep()
    return note


def require_same(copy: Copy, url: str) -> None:
    """Refuse a place that has something else."""
    there = identity_there(copy.store)
    if there is None:
        return
    try:
        same = json.loads(there)["id"] == json.loads((copy.run / "run.json").read_bytes())["id"]
    except (ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise RunError(f"{url} holds another run, and is never overwritten; choose another place")
