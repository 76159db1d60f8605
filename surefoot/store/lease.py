"""A lease: who writes to a place elsewhere, so that no two machines go on with one run."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from surefoot.core.errors import Missing, RunError, Unreachable
from surefoot.core.protocols import Store

KEY = "lease.json"
RENEW, STALE = 30.0, 150.0
"""Seconds after which a lease is renewed, and is nobody's any more."""
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
    pid: int
    renewed: float

    @property
    def gone(self) -> bool:
        """Whether it is known, or to be assumed, that the process is no more."""
        if self.boot and self.boot == ME.boot and self.host == ME.host:
            return not Path(f"/proc/{self.pid}").exists()
        return time.time() - self.renewed > STALE

    def described(self) -> str:
        ago = max(0.0, time.time() - self.renewed)
        return f"{self.host}, process {self.pid}, {ago:.0f} s ago"


ME = Owner(uuid.uuid4().hex, socket.gethostname(), _boot(), os.getpid(), 0.0)


class Lease:
    """The lease of one place."""

    def __init__(self, store: Store, url: str) -> None:
        self._store, self._url = store, url
        self._renewed = 0.0

    def require_free(self) -> None:
        """Refuse a place that somebody else writes to."""
        owner = self.owner()
        if owner and owner.id != ME.id and not owner.gone:
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
        if after is None or after.id != ME.id:
            who = after.described() if after else "nobody"
            raise Leased(f"{self._url} was taken by {who} at the same moment")
        other = before is not None and before.id != ME.id
        return f"took over {self._url} from {before.described()}" if before and other else ""

    def renew(self) -> None:
        """Say that the owner is there; raise Leased where somebody else has become it."""
        if time.monotonic() - self._renewed < RENEW:
            return
        now = self.owner()
        if now is not None and now.id != ME.id:
            raise Leased(f"{self._url} was taken over by {now.described()}")
        self._write()

    def release(self) -> None:
        """Let others have it."""
        if (now := self.owner()) and now.id == ME.id:
            self._store.delete(KEY)

    def owner(self) -> Owner | None:
        """Read who owns the place."""
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / KEY
            try:
                self._store.get(KEY, file)
                said = json.loads(file.read_text())
                return Owner(
                    id=str(said["id"]),
                    host=str(said["host"]),
                    boot=str(said["boot"]),
                    pid=int(said["pid"]),
                    renewed=float(said["renewed"]),
                )
            except Missing:
                return None
            except (ValueError, TypeError, KeyError):
                return None  # it was not written by one of ours, or not whole

    def _write(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / KEY
            file.write_text(json.dumps({**asdict(ME), "pid": os.getpid(), "renewed": time.time()}))
            self._store.put(KEY, file)
        self._renewed = time.monotonic()


def holder(store: Store) -> Owner | None:
    """Say who writes to a place now, if anybody does and it can be found out."""
    try:
        owner = Lease(store, "").owner()
    except Unreachable:
        return None
    return None if owner is None or owner.gone else owner
