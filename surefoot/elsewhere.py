"""Runs at places elsewhere: listing, fetching and sending them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any

from surefoot.core.errors import Missing, RunError, StoreError, SurefootError
from surefoot.mirroring import Show, unsent
from surefoot.run import Run
from surefoot.store.fetching import LOOKS, Source, put_in_place, staged
from surefoot.store.lease import Lease, holder
from surefoot.store.mirror import Mirror
from surefoot.store.places import joined, open_store, require_apart, settled

PATIENCE = 60.0
"""Seconds that `push` tries a place that does not answer."""


def name_of(url: str) -> str:
    """Name the directory that a run at this place would have."""
    return PurePosixPath(url.rstrip("/").rpartition("://")[2]).name


def pull(
    url: str,
    out: str | Path | None = None,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Run:
    """Fetch a whole run."""
    with _received(url, out) as (source, path):
        source.everything(tell)
    return Run.open(path)


def fetch_to_go_on(
    url: str,
    out: str | Path | None,
    checkpoint: str | int | None,
    allow_inexact: bool,
    take_over: bool,
) -> Path:
    """Fetch what a resume needs, unless somebody else goes on with the run; return where it is."""
    with _received(url, out) as (source, path):
        if not take_over:
            Lease(open_store(url), url).require_free()
        source.to_go_on(checkpoint, allow_inexact)
        run = Run.open(source.into)
        run.configure(run.config.model_copy(update={"mirror": url}))  # it is mirrored there again
    return path


@contextmanager
def to_look_at(url: str, checkpoint: str | int) -> Iterator[Run]:
    """Fetch a run with one checkpoint's policy, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="surefoot-") as place:
        path = Path(place) / name_of(url)
        for look in range(LOOKS):
            path.mkdir()
            try:
                source = Source(open_store(url), url, path)
                source.about()
                source.contents_of(Run.open(path).checkpoint(checkpoint))
                break
            except Missing:  # it has just been deleted, as there is a newer one
                if look == LOOKS - 1:
                    raise
                shutil.rmtree(path)
        yield Run.open(path)


def summaries(url: str) -> list[dict[str, Any]]:
    """Summarize the runs at a place and below it."""
    store = open_store(url)
    rows = []
    for key in sorted(key for key in store.list() if key.rpartition("/")[2] == "run.json"):
        place = joined(url, key.rpartition("/")[0]).rstrip("/")
        try:
            rows.append(_summary(place))
        except SurefootError as error:
            broken = {"environment": "-", "steps": 0, "best_return": None}
            rows.append({"run": place, **broken, "state": f"unreadable: {error}"})
    return rows


def push(path: str | Path, url: str, keep: int | None, take_over: bool, show: Show) -> str:
    """Bring a place up to date with a run, and return its name; raise StoreError if that fails.
    `keep` is how many checkpoints stay there; None: as many as the run's settings say."""
    run = Run.open(path)
    url = settled(url, run.name)
    require_apart(url, run.path)
    open_store(url)  # says what is wrong with it
    keep = run.config.mirror_keep if keep is None else keep
    with run.lock():
        mirror = Mirror(run.path, url, keep, lambda entry: None, take_over)
        try:
            note = mirror.begun(PATIENCE)
            if note:
                show(0, 0, note)
            complete = _patiently(mirror, show)
            missing, why = mirror.pending.missing, mirror.trouble
        finally:
            mirror.close()
        if not complete:
            raise StoreError(unsent(url, missing, why).removeprefix("warning: "))
    return url


def _patiently(mirror: Mirror, show: Show) -> bool:
    """Wait for a mirror as long as it gets on; say whether it has everything."""
    sent, since = -1, time.monotonic()
    while not mirror.complete(0.5):
        pending, trouble = mirror.pending, mirror.trouble
        show(pending.sent, pending.sent + pending.bytes, trouble)
        if pending.sent != sent or not trouble:
            sent, since = pending.sent, time.monotonic()
        if mirror.lost or time.monotonic() - since > PATIENCE:
            return False
    return True


def _summary(url: str) -> dict[str, Any]:
    store = open_store(url)
    with tempfile.TemporaryDirectory(prefix="surefoot-") as place:
        path = Path(place) / "run"
        path.mkdir()
        Source(store, url, path).about()
        run = Run.open(path)
        row = run.summary()
        last = max((checkpoint.step for checkpoint in run.checkpoints), default=0)
        owner = holder(store)
        state = f"running on {owner.host}" if owner else row["state"]
        return {**row, "run": url, "steps": last, "state": state}


@contextmanager
def _received(url: str, out: str | Path | None) -> Iterator[tuple[Source, Path]]:
    """Put a run together beside where it is to be; give it its name when it is complete."""
    path = _free(url, out)
    place = staged(path)
    try:
        yield Source(open_store(url), url, place), path
        put_in_place(place, path)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _free(url: str, out: str | Path | None) -> Path:
    """Choose where a run is to be, which must be free."""
    path = Path(out) if out else Path("runs") / name_of(url)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        advice = f"go on with it by `surefoot resume {quote(str(path))}`, or "
        there = (path / "run.json").is_file()
        raise RunError(f"{path} exists; {advice * there}choose another directory with --out")
    return path
