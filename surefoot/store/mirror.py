"""Copies a run's directory elsewhere while it trains, on a thread that nobody waits for."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

from surefoot.core.errors import RunError, StoreError, Unreachable
from surefoot.core.metrics import Metrics
from surefoot.store.checkpoint import Checkpoint
from surefoot.store.copying import Copy, File, identity_there
from surefoot.store.lease import Lease

EVERY = 10.0
"""Seconds between two looks for something new that nobody told of."""
FIRST_WAIT, LONGEST_WAIT, HURRY = 1.0, 120.0, 5.0
"""Seconds until a failed send is tried again: the first time, and at most; the last is for when
somebody waits."""
BRIEFLY, PATIENTLY = 2.0, 10.0
"""Seconds to wait for the thread to end where it will not get done anyway, and else."""
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

    def may_remove(self, checkpoint: Checkpoint) -> bool:
        """Say whether a checkpoint need not stay here."""


class Unmirrored:
    """For runs that are nowhere else."""

    def wake(self) -> None:
        pass

    def metrics(self) -> Metrics:
        return {}

    def may_remove(self, checkpoint: Checkpoint) -> bool:
        return True


class Mirror:
    """Brings a copy up to date again and again. What it has to say is passed on by whoever trains,
    since nobody else may write into a run."""

    def __init__(
        self,
        copy: Copy,
        lease: Lease,
        url: str,
        tell: Callable[[Mapping[str, Any]], None],
        trouble: str = "",
    ) -> None:
        """`trouble` is why `begin` has failed, as has been told, if it has."""
        self._copy, self._lease, self._url, self._tell = copy, lease, url, tell
        self._ready = not trouble
        self._said: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._lock = threading.Condition()
        self._asked, self._done, self._goal, self._leaving = 1, 0, 0, False
        self._everything = False
        self._pending, self._since, self._failures = Pending(), time.monotonic(), 0
        self._failing, self._short, self._lost = trouble, False, ""
        self._dice = random.Random()
        self._thread = threading.Thread(target=self._attend, name="mirror", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        with self._lock:
            if self._asked == self._done:
                self._since = time.monotonic()
            self._asked += 1
            self._lock.notify_all()

    def metrics(self) -> Metrics:
        """Say how far behind the copy is; pass on what there is to say."""
        while not self._said.empty():
            self._tell(self._said.get())
        pending = self._pending
        behind = time.monotonic() - self._since if pending.files or self._failing else 0.0
        return {
            "mirror/pending_files": float(pending.files),
            "mirror/pending_bytes": float(pending.bytes),
            "mirror/oldest_seconds": behind,
            "mirror/failures": float(self._failures),
        }

    def may_remove(self, checkpoint: Checkpoint) -> bool:
        if self._lost or not self._copy.needed(checkpoint):
            return True
        usage = shutil.disk_usage(checkpoint.path)
        if usage.free > min(LITTLE, usage.total // 20):
            return False
        if not self._short:
            self._short = True
            self._say(
                f"the disk runs short: checkpoints are removed though {self._url} has none of them"
            )
        return True

    @property
    def pending(self) -> Pending:
        return self._pending

    @property
    def trouble(self) -> str:
        """Why nothing is sent now, if so."""
        return self._lost or self._failing

    def complete(self, seconds: float) -> bool:
        """Wait until everything as it was when this was first asked is there; say whether it is."""
        with self._lock:
            if not self._everything:
                self._everything = True
                self._asked += 1
                self._goal = self._asked
                self._lock.notify_all()
            self._lock.wait_for(lambda: self._done >= self._goal or bool(self._lost), seconds)
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
        while not self._leaving and not self._lost:
            asked = self._asked
            try:
                self._pass()
            except RunError as error:  # the place is somebody else's
                self._lost = str(error)
                self._say(f"{error}; it is not mirrored there any more, training goes on")
                break
            except Exception as error:
                failed += 1
                self._note(error)
                self._rest_after_failure(failed)
                continue
            failed = 0
            if self._failing:
                self._failing = ""
                self._say(f"{self._url} has everything again")
            with self._lock:
                self._done = asked
                self._lock.notify_all()
            self._rest(EVERY, lambda: self._asked != self._done)
        with self._lock:
            self._lock.notify_all()
        if not self._lost:
            with suppress(Exception):
                self._lease.release()

    def _pass(self) -> None:
        """Send what is new, and delete what is not to be kept."""
        if not self._ready:
            begin(self._copy, self._lease, self._url, force=False)
            self._ready = True
        self._lease.renew()
        batches = self._copy.batches(self._everything)
        left = [file for batch in batches for file in batch.all()]
        sent = 0

        def tell(file: File) -> None:
            nonlocal sent
            sent += file.size
            if file in left:
                left.remove(file)
            self._count(left, sent)
            self._lease.renew()

        self._count(left, sent)
        for batch in batches:
            if self._leaving:
                return
            self._copy.send(batch, tell)
        if self._everything or any(batch.commit for batch in batches):
            self._copy.prune()
        self._count([], 0)

    def _count(self, left: list[File], sent: int) -> None:
        size = sum(file.size for file in left)
        self._pending = Pending(len(left), size, sent, tuple(file.key for file in left))

    def _note(self, error: Exception) -> None:
        """Take down a failure; say so where it is news."""
        self._failures += 1
        known = isinstance(error, StoreError | RunError)
        what = str(error) if known else f"{type(error).__name__}: {error}"
        if not self._failing:
            again = "" if isinstance(error, Unreachable) else " (it is tried again)"
            self._say(f"mirror: {what}{again}; training goes on")
        self._failing = what

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


def begin(copy: Copy, lease: Lease, url: str, force: bool) -> str:
    """Take possession of a place for a run; refuse one that has another run, or is ahead. Return
    what a person should know."""
    require_same(copy, url)
    note = lease.take(force)
    copy.look()
    ahead = copy.ahead()
    if ahead and not force:
        lease.release()
        raise RunError(
            f"{url} is ahead of {copy.run}: it has {ahead[-1]}, which was never here. Go on from "
            f"there with `surefoot resume {url}`, or give that up with --take-over"
        )
    copy.give_up_later()
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
