"""Where a run's settings become its mirror, and how the end of a run waits for it."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from threading import Thread
from typing import Any, Protocol, TypeAlias, TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from surefoot.config import Config, Output
from surefoot.core.errors import RunError, Unreachable
from surefoot.core.protocols import Store
from surefoot.run import Run
from surefoot.store.copying import identity_there
from surefoot.store.lease import Lease
from surefoot.store.mirror import Mirror, Unmirrored
from surefoot.store.places import open_store, require_apart, resuming, same_directory, settled

NAMED = 3
"""How many files a warning names."""
PROMPT = 10.0
"""Seconds that a place has to answer before training begins without it."""
PROBE = "probe"
"""Key of what is put and deleted to see whether that is allowed."""
AT_ONCE = 30.0
"""Seconds that a run which was interrupted waits for its mirror at most."""
LINE_SECONDS = 10.0
"""Between two lines about the progress, where there is no terminal."""
Tell: TypeAlias = Callable[[Mapping[str, Any]], None]
T = TypeVar("T")


def build_mirror(config: Config, run: Run, tell: Tell, take_over: bool) -> Mirror | Unmirrored:
    """Make what copies a run elsewhere, if that is asked for. A place that does not answer now is
    no reason not to train; one that refuses is."""
    if not config.mirror:
        return Unmirrored()
    if same_directory(config.mirror, run.path):
        message = f"{run.path} is its own mirror: it is kept nowhere else (--out fetches it first)"
        tell({"event": "mirror", "message": message})
        return Unmirrored()
    require_apart(config.mirror, run.path)
    mirror = Mirror(run.path, config.mirror, config.mirror_keep, tell, take_over)
    try:
        note = mirror.begun(PROMPT)
    except BaseException:
        mirror.close()
        raise
    tell({"event": "mirror", "message": note or f"mirrored to {config.mirror}"})
    return mirror


def require_unleased(config: Config, take_over: bool) -> None:
    """Refuse to go on with a run that another machine goes on with, before anything is changed."""
    if config.mirror and not take_over:
        place = config.mirror
        with suppress(Unreachable):
            promptly(lambda: Lease(open_store(place), place).require_free(), place)


def promptly(work: Callable[[], T], place: str) -> T:
    """Ask something of a place, unless that takes too long for somebody who wants to train."""
    done: Future[T] = Future()

    def attempt() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=attempt, name="mirror", daemon=True).start()
    try:
        return done.result(PROMPT)
    except TimeoutError:
        raise Unreachable(f"{place} has not answered in {PROMPT:.0f} s") from None


def require_free(config: Config, out: Path | None) -> None:
    """Refuse a place that cannot be used for a new run, before anything is trained."""
    if not config.mirror:
        return
    place = settled(config.mirror, out.resolve().name) if out else config.mirror
    if out:
        require_apart(place, out)
    try:
        there = promptly(lambda: tried(open_store(place)), place)
    except Unreachable:
        return  # the mirror will say so, and try again
    if there is not None:
        raise RunError(
            f"{place} holds a run, which is never overwritten; go on with it by "
            f"`{resuming(place)}`, or choose another place"
        )


def tried(store: Store) -> bytes | None:
    """Read which run is at a place; if none is, try whether it may be written to."""
    there = identity_there(store)
    if there is None:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / PROBE
            file.write_bytes(b"")
            store.put(PROBE, file)
        store.delete(PROBE)
    return there


def finish(
    mirror: Mirror | Unmirrored, config: Config, run: Run, output: Output, seconds: float
) -> None:
    """Wait until the copy has everything, but not too long; say what is missing."""
    if isinstance(mirror, Unmirrored):
        return
    complete = False
    try:
        with _shown(output, config.mirror) as show:
            complete = waited(mirror, seconds, show)
    except (KeyboardInterrupt, SystemExit):  # somebody does not want to wait
        pass
    if not complete:
        print(unsent(config.mirror, mirror.pending.missing, mirror.trouble), file=sys.stderr)
        if not mirror.lost:
            push = f"surefoot push {quote(str(run.path))} {quote(config.mirror)}"
            print(f"To send the rest:\n  {push}", file=sys.stderr)
    with suppress(KeyboardInterrupt, SystemExit):
        mirror.close()


def waited(mirror: Mirror, seconds: float, show: Show) -> bool:
    """Wait for a mirror while showing how far it is; say whether it has everything."""
    deadline = time.monotonic() + seconds
    while not (complete := mirror.complete(min(0.5, max(0.0, deadline - time.monotonic())))):
        pending = mirror.pending
        show(pending.sent, pending.sent + pending.bytes, mirror.trouble)
        if mirror.lost or time.monotonic() >= deadline:
            break
    return complete


def unsent(url: str, missing: tuple[str, ...], why: str) -> str:
    """Say what a place does not have."""
    named = ", ".join(missing[:NAMED]) + (", …" if len(missing) > NAMED else "")
    count = f"{len(missing)} file{'s' * (len(missing) != 1)} ({named})"
    what = f"does not have {count}" if missing else "does not have the newest of this run"
    return f"warning: {url} {what}{f': {why}' if why else ''}"


class Show(Protocol):
    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def _shown(output: Output, place: str) -> Iterator[Show]:
    """Show how much has been sent: as a bar on a terminal, in lines elsewhere, or not at all."""
    if output != "auto":
        yield lambda done, total, note="": None
        return
    with transfer(f"sending to {place}") as show:
        yield show


@contextmanager
def transfer(title: str) -> Iterator[Show]:
    """Show the progress of a transfer."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=None)

        def show(done: int, total: int, note: str = "") -> None:
            shown = f"{title}: {note}" if note else title
            bars.update(task, completed=done, total=total or None, description=shown)

        yield show


def _lines(title: str) -> Show:
    told = time.monotonic()

    def show(done: int, total: int, note: str = "") -> None:
        nonlocal told
        if time.monotonic() - told > LINE_SECONDS:
            told = time.monotonic()
            part = f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB"
            print(f"{title}: {part}{f' ({note})' if note else ''}", file=sys.stderr, flush=True)

    return show
