"""A lease: who writes to a place elsewhere, so that no two machines go on with one run."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Event, Thread

from surefoot.core.errors import Missing, RunError, Unreachable
from surefoot.core.protocols import Store
from surefoot.store.places import open_store

KEY = "lease.json"
RENEW, STALE = 30.0, 300.0
"""Seconds after which a lease is renewed, and is nobody's any more."""
LEAVING = 2.0
"""Seconds to wait for a renewal that is under way when the lease is given back."""
SETTLE = 0.5
"""Seconds after which who took a lease looks whether somebody else took it at the same moment."""


class Leased(RunError):
    """Somebody else writes there."""


def _boot() -> str:
    """Name this machine since it was started: processes of then are gone."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Owner:
    """A process, and when it last said that it is there."""

    id: str
    host: str
    boot: str
    space: str
    """Which processes can see each other by their ids."""
    pid: int
    began: int
    """When the process did, as ids are used again."""
    renewed: float

    @property
    def gone(self) -> bool:
        """Whether it is known, or to be assumed, that the process is no more."""
        if time.time() - self.renewed > STALE:
            return True
        ours = bool(self.boot and self.space) and (self.boot, self.space) == (me().boot, me().space)
        return ours and _began(self.pid) != self.began

    def described(self) -> str:
        ago = max(0.0, time.time() - self.renewed)
        return f"{self.host}, process {self.pid}, {ago:.0f} s ago"


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _began(pid: int) -> int:
    """Say when a process began, in ticks since the machine did; 0 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def me() -> Owner:
    """Describe this process."""
    return _described(os.getpid())


@cache
def _described(pid: int) -> Owner:
    return Owner(uuid.uuid4().hex, socket.gethostname(), _boot(), _space(), pid, _began(pid), 0.0)


class Lease:
    """The lease of one place."""

    def __init__(self, store: Store, url: str) -> None:
        self._store, self._url = store, url
        self._renewal: Renewal | None = None

    def require_free(self) -> None:
        """Refuse a place that somebody else writes to."""
        owner = self.owner()
        if owner and owner.id != me().id and not owner.gone:
            left = max(1.0, STALE - (time.time() - owner.renewed))
            raise Leased(
                f"{self._url} is in use by {owner.described()}. If that is no more, try again in "
                f"{left:.0f} s, or go on at once with --take-over"
            )

    def take(self, force: bool = False) -> str:
        """Become the owner; return what a person should know about the one before."""
        if not force:
            self.require_free()
        before = self.owner()
        self._write()
        time.sleep(SETTLE)
        after = self.owner()
        if after is None or after.id != me().id:
            who = after.described() if after else "nobody"
            raise Leased(f"{self._url} was taken by {who} at the same moment")
        other = before is not None and before.id != me().id
        return f"took over {self._url} from {before.described()}" if before and other else ""

    def keep(self) -> None:
        """Renew it from now on, until it is given back."""
        self._renewal = Renewal(self._url)

    def require(self) -> None:
        """Raise Leased where it is known that somebody else has become the owner."""
        if self._renewal and self._renewal.lost:
            raise self._renewal.lost

    def renew(self, over: Event) -> None:
        """Say that the owner is there, unless it is over meanwhile; raise Leased where somebody
        else has become it."""
        self.check()
        if not over.is_set():
            self._write()

    def check(self) -> None:
        """Raise Leased where somebody else has become the owner, or was it and has left."""
        now = self.owner()
        if now is None:
            raise Leased(f"{self._url} was taken over by somebody, or its {KEY} was deleted")
        if now.id != me().id:
            raise Leased(f"{self._url} was taken over by {now.described()}")

    def release(self) -> None:
        """Let others have it."""
        self.forget()
        if (now := self.owner()) and now.id == me().id:
            self._store.delete(KEY)

    def forget(self) -> None:
        """Renew it no longer."""
        if self._renewal:
            self._renewal.end()

    def owner(self) -> Owner | None:
        """Read who owns the place."""
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / KEY
            try:
                self._store.get(KEY, file)
            except Missing:
                return None
            return read_owner(file)

    def _write(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / KEY
            file.write_text(json.dumps({**asdict(me()), "renewed": time.time()}))
            self._store.put(KEY, file)


class Renewal:
    """Renews a lease on a thread, and by a connection, of its own: a file may take longer to send
    than a lease lasts."""

    def __init__(self, url: str) -> None:
        self.lost: Leased | None = None
        self._url, self._over = url, Event()
        self._thread = Thread(target=self._attend, name="lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(LEAVING)

    def _attend(self) -> None:
        lease: Lease | None = None
        while not self._over.wait(RENEW):
            try:
                lease = lease or Lease(open_store(self._url), self._url)
                lease.renew(self._over)
            except Leased as error:
                self.lost = error
                return
            except Exception:  # whatever it was, without the lease others would go on with the run
                lease = None  # it is opened anew next time


def read_owner(file: Path) -> Owner | None:
    """Read who owns a place from its lease; None if that was not written by one of ours."""
    try:
        said = json.loads(file.read_text())
        return Owner(
            id=str(said["id"]),
            host=str(said["host"]),
            boot=str(said["boot"]),
            space=str(said["space"]),
            pid=int(said["pid"]),
            began=int(said["began"]),
            renewed=float(said["renewed"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def holder(store: Store) -> Owner | None:
    """Say who writes to a place now, if anybody does and it can be found out."""
    try:
        owner = Lease(store, "").owner()
    except Unreachable:
        return None
    return None if owner is None or owner.gone else owner
