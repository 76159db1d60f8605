"""A run is safe elsewhere while it trains, and goes on from there."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.core.errors import ConfigError, RunError, StoreError, Unreachable
from surefoot.core.protocols import Kept
from surefoot.elsewhere import pull, push, summaries
from surefoot.run import Run
from surefoot.store import lease, mirror
from surefoot.store.checkpoint import MANIFEST, Checkpoints
from surefoot.store.copying import Copy
from surefoot.store.fetching import Source
from surefoot.store.lease import Lease, Leased, Owner
from surefoot.store.places import open_store
from surefoot.store.plain import Directory
from surefoot.verify import run_differences
from tests import killing, mirrored
from tests.mirrored import TINY, incomplete
from tests.places import SECRETS, Place
from tests.places import place as a_place


@pytest.fixture(autouse=True)
def _in_a_hurry() -> None:
    mirrored.hurry()


def silent(done: int, total: int, note: str = "") -> None:
    pass


def train(out: Path, url: str = "", **more: Any) -> Run:
    settings = {**TINY, **more}
    return surefoot.train("CartPole-v1", out=out, mirror=url, output="quiet", **settings)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that is nowhere else."""
    return train(tmp_path_factory.mktemp("trained") / "run").path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def files(directory: Path) -> dict[str, bytes]:
    there = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in there}


def test_a_mirror_has_everything_when_a_run_ends(place: Place, tmp_path: Path) -> None:
    trained = train(tmp_path / "run", place.url)
    fetched = pull(place.url, tmp_path / "fetched")
    assert files(fetched.path) == files(trained.path)
    assert "lease.json" not in place.store().list()
    assert fetched.evaluate(2).summary() == trained.evaluate(2).summary()


@pytest.mark.slow
def test_a_killed_run_whose_disk_is_lost_goes_on_elsewhere_bit_for_bit(
    place: Place, tmp_path: Path
) -> None:
    case = "cartpole"
    whole = tmp_path / "whole"
    killing.finish(killing.train, case, whole)
    lost, again = tmp_path / "lost", tmp_path / "again"
    if place.kind == "memory":  # which is this process's, and so must be who trains
        _train_until_lost(case, lost, place.url)
    else:
        process = killing.start(mirrored.train_and_die, case, lost, place.url, place.environ)
        process.join(killing.PATIENCE)
        assert process.exitcode == -9
    shutil.rmtree(lost)
    if place.kind == "memory":
        surefoot.resume(place.url, out=again, metrics="", output="quiet")
    else:
        killing.finish(mirrored.resume, place.url, again, place.environ)
    run = Run.open(again)
    assert next(e["step"] for e in run.journal() if e["event"] == "resume") > 0
    assert run_differences(Run.open(whole), run) == []
    assert files(again).items() <= files(pull(place.url, tmp_path / "fetched").path).items()


def _train_until_lost(case: str, out: Path, url: str) -> None:
    """Train here until something breaks in the middle, of which nothing is saved."""
    env, settings = killing.CASES[case]
    store, steps = open_store(url), 0

    def metrics(info: Any) -> dict[str, float]:
        nonlocal steps
        steps += 1
        if steps > settings["total_steps"] // 2:
            _wait_for(lambda: mirrored.manifests(store) >= 2)
            raise SystemExit(3)
        return {}

    given = {**settings, "collector": "local", "metrics": metrics}
    with pytest.raises(SystemExit):
        surefoot.train(env, out=out, mirror=url, output="quiet", **given)


def _wait_for(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directory", "s3", "drive"])
def test_a_kill_during_an_upload_never_shows_half_a_checkpoint(
    run: Path, tmp_path: Path, kind: str
) -> None:
    kill_uploads(run, tmp_path, kind, 3)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["directory", "s3", "drive"])
def test_ten_kills_during_uploads_never_show_half_a_checkpoint(
    run: Path, tmp_path: Path, kind: str
) -> None:
    kill_uploads(run, tmp_path, kind, 10)


def kill_uploads(run: Path, tmp_path: Path, kind: str, wanted: int) -> None:
    """Kill who sends a run at random moments, until that has happened in the middle so often."""
    chance, kills, total = random.Random(kind), 0, len(files(run))
    with a_place(kind, tmp_path) as somewhere:
        for n in range(30):
            url = f"{somewhere.url}-{n}"
            store, enough = open_store(url), chance.randrange(total)
            process = killing.start(mirrored.send, run, url, somewhere.environ)
            while process.is_alive() and len(store.list()) < enough:
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.01))
            process.kill()
            process.join()
            kills += process.exitcode == -9
            looked = tmp_path / f"looked-{n}"
            looked.mkdir()
            assert incomplete(open_store(url), url, looked) == []
            killing.finish(mirrored.send, run, url, somewhere.environ)
            assert files(pull(url, looked / "fetched").path) == files(run)
            if kills == wanted:
                return
    pytest.fail("too few of them were killed in the middle")


class Recorded(Directory):
    """A directory that remembers what was asked of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[tuple[str, str]] = []

    def put(self, key: str, file: Path) -> Kept:
        self.asked.append(("put", key))
        return super().put(key, file)

    def delete(self, key: str) -> None:
        self.asked.append(("delete", key))
        super().delete(key)


def copy_all(copy: Copy) -> None:
    copy.look()
    for batch in copy.batches(everything=True):
        copy.send(batch, lambda file: None)
    copy.prune()


def test_a_manifest_comes_last_and_goes_first(run: Path, tmp_path: Path) -> None:
    store = Recorded(tmp_path / "there")
    copy_all(Copy(run, 3, store))
    order = [key for _, key in store.asked]
    manifests = [key for key in order if key.endswith(MANIFEST)]
    assert len(manifests) >= 3
    for key in manifests:
        folder = key.removesuffix(MANIFEST)
        manifest = json.loads((run / key).read_text())
        names = [f"{folder}tensors.safetensors", f"{folder}state.json", "metrics.jsonl"]
        names += [f"segments/{name}.safetensors" for name in manifest["segments"]]
        assert max(order.index(name) for name in names) < order.index(key)
    store.asked.clear()
    copy_all(Copy(run, 1, store))
    gone = [key for what, key in store.asked if what == "delete"]
    assert gone
    folders = {key.rpartition("/")[0] for key in gone if key.startswith("checkpoints/")}
    for folder in folders:
        mine = [key for key in gone if key.startswith(folder)]
        assert mine[0] == f"{folder}/{MANIFEST}"
        assert len(mine) == 3


def test_nothing_is_sent_twice(run: Path, tmp_path: Path) -> None:
    store = Recorded(tmp_path / "there")
    copy = Copy(run, 3, store)
    copy_all(copy)
    store.asked.clear()
    for batch in copy.batches(everything=True):
        copy.send(batch, lambda file: None)
    copy.prune()
    assert store.asked == []
    copy_all(Copy(run, 3, store))  # by somebody who has to find out what is there
    assert not any(key.startswith(("checkpoints", "segments")) for _, key in store.asked)


def test_a_place_keeps_its_own_number_of_checkpoints(tmp_path: Path) -> None:
    there = tmp_path / "there"
    trained = train(tmp_path / "run", str(there), keep=1, mirror_keep=4)
    exact = [c for c in Checkpoints(there).listed() if c.manifest.exact]
    assert len(exact) >= 4
    assert len([c for c in trained.checkpoints if c.manifest.exact]) <= 2


def test_pins_are_mirrored_and_taken_back(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    first = Run.open(run).checkpoints[0]
    Run.open(run).pin(first.step)
    push(run, str(there), 1, False, silent)
    assert [c.step for c in Checkpoints(there).listed() if c.pinned] == [first.step]
    Run.open(run).pin(first.step, False)
    push(run, str(there), 1, False, silent)
    assert first.step not in [c.step for c in Checkpoints(there).listed() if c.pinned]


def test_a_run_that_went_back_takes_its_mirror_back(tmp_path: Path) -> None:
    there = tmp_path / "there"
    trained = train(tmp_path / "run", str(there))
    earlier = next(c.step for c in trained.checkpoints if c.manifest.exact)
    later = trained.checkpoint("last").step
    assert earlier < later
    surefoot.resume(trained.path, checkpoint=earlier, total_steps=earlier + 128, output="quiet")
    assert Checkpoints(there).listed()[-1].step == earlier + 128
    assert files(pull(str(there), tmp_path / "fetched").path).keys() <= files(trained.path).keys()


def test_a_place_that_is_ahead_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    push(run, there, 3, False, silent)
    last = Run.open(run).checkpoint("last")
    shutil.rmtree(last.path)  # an older copy of the run
    with pytest.raises(RunError, match=rf"is ahead.*{last.path.name}"):
        push(run, there, 3, False, silent)
    assert last.step in [c.step for c in Checkpoints(Path(there)).listed()]
    push(run, there, 3, True, silent)
    assert last.step not in [c.step for c in Checkpoints(Path(there)).listed()]


def test_a_place_with_another_run_is_refused(run: Path, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    push(run, there, 3, False, silent)
    with pytest.raises(RunError, match="holds a run, which is never overwritten"):
        train(tmp_path / "other", there)
    assert not (tmp_path / "other").exists()
    with pytest.raises(RunError, match="holds a run, which is never overwritten"):
        surefoot.fork(run, out=tmp_path / "other", mirror=there, total_steps=4096, output="quiet")
    assert not (tmp_path / "other").exists()
    with pytest.raises(RunError, match="holds a run, which is never overwritten"):
        train(tmp_path / "here" / "there", f"{tmp_path}/")
    other = train(tmp_path / "other", total_steps=256)
    with pytest.raises(RunError, match="holds another run"):
        push(other.path, there, 3, False, silent)


def owner(**changed: Any) -> Owner:
    told = {"id": "x", "host": "elsewhere", "boot": "b", "space": "s", "pid": 7, "began": 1}
    return Owner(**{**told, "renewed": time.time(), **changed})


def leased(store: Any, tmp_path: Path, who: Owner) -> None:
    file = tmp_path / "lease"
    file.write_text(json.dumps(vars(who)))
    store.put(lease.KEY, file)


def test_a_run_that_goes_on_elsewhere_is_left_alone(
    run: Path, place: Place, tmp_path: Path
) -> None:
    push(run, place.url, 3, False, silent)
    leased(place.store(), tmp_path, owner())
    with pytest.raises(Leased, match=r"in use by elsewhere, process 7.*--take-over"):
        surefoot.resume(place.url, out=tmp_path / "again", total_steps=4096, output="quiet")
    assert not (tmp_path / "again").exists()
    leased(place.store(), tmp_path, owner(renewed=time.time() - lease.STALE - 1))
    again = surefoot.resume(place.url, out=tmp_path / "again", total_steps=2304, output="quiet")
    said = "\n".join(str(entry.get("message")) for entry in again.journal())
    assert "took over" in said
    assert "elsewhere, process 7" in said


def test_a_process_of_this_machine_that_is_gone_leases_nothing(tmp_path: Path) -> None:
    store, here = (
        Directory(tmp_path / "there"),
        {"boot": lease.me().boot, "space": lease.me().space},
    )
    for pid in (2**22 + 1, lease.me().pid):  # the id may be that of another process now
        leased(store, tmp_path, owner(**here, pid=pid))
        assert "took over" in Lease(store, "there").take()
    alive = owner(**here, pid=lease.me().pid, began=lease.me().began)
    leased(store, tmp_path, alive)
    with pytest.raises(Leased):
        Lease(store, "there").take()


def test_who_has_lost_the_lease_stops_sending_and_trains_on(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, said = tmp_path / "there", list[Any]()
    monkeypatch.setattr(lease, "RENEW", 0.2)
    sender = mirror.Mirror(run, str(there), 3, said.append)
    assert sender.begun(20.0) == ""
    assert sender.complete(20.0)

    def has_lost_it() -> bool:
        leased(Directory(there), tmp_path, owner())  # again, as a renewal may have just been made
        sender.wake()
        return sender.lost

    _wait_for(has_lost_it)
    sender.metrics()
    assert "was taken over by elsewhere" in said[0]["message"]
    sender.close()
    assert json.loads((there / lease.KEY).read_text())["host"] == "elsewhere"


def test_a_lease_is_renewed_by_itself_until_it_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW", 0.05)
    store = Directory(tmp_path / "there")
    ours = Lease(store, str(tmp_path / "there"))
    ours.take()
    ours.keep()
    first = ours.owner()
    assert first
    _wait_for(lambda: (now := ours.owner()) is not None and now.renewed > first.renewed)
    ours.release()
    time.sleep(3 * lease.RENEW)
    assert store.list() == {}


def test_a_lease_that_another_machine_wrote_beside_ours_is_seen(
    google: Place, tmp_path: Path
) -> None:
    assert google.drive
    store = google.store()
    leased(store, tmp_path, owner(host="first"))
    (ours,) = (file for file in google.drive.files.values() if file.name == lease.KEY)
    text = ours.content.replace(b"first", b"second")
    theirs = replace(ours, id="theirs", content=text, modified=ours.modified + 1)
    google.drive.files["theirs"] = theirs
    seen = Lease(store, google.url).owner()
    assert seen is not None
    assert seen.host == "second"


def test_a_run_is_fetched_while_old_checkpoints_are_deleted_there(
    run: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    push(run, str(there), 3, False, silent)
    store, place = Directory(there), tmp_path / "place"
    source = Source(store, str(there), place)
    oldest, *others = Checkpoints(there).paths()
    for file in (oldest / MANIFEST, *oldest.iterdir()):
        store.delete(f"checkpoints/{oldest.name}/{file.name}")
    source.everything(lambda done, total: None)
    assert [path.name for path in Checkpoints(place).paths()] == [path.name for path in others]
    assert files(place) == files(there)


def test_what_uploads_that_were_killed_have_left_is_removed(run: Path, tmp_path: Path) -> None:
    left = tmp_path / "there" / "checkpoints" / "step_000000000256" / ".staging-tensors-7"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    push(run, str(tmp_path / "there"), 3, False, silent)
    assert not left.exists()


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Place]:
    with a_place("drive", tmp_path) as found:
        yield found


def test_a_place_that_is_down_keeps_nobody_waiting(google: Place, tmp_path: Path) -> None:
    assert google.drive
    google.store().list()
    google.drive.closed = True
    trained = train(tmp_path / "run", google.url, mirror_wait=0.5)
    rows = [json.loads(line) for line in (trained.path / "metrics.jsonl").open()]
    assert rows[-1]["mirror/failures"] >= 1
    assert trained.finished_at == 2048
    said = [entry for entry in trained.journal() if entry["event"] == "mirror"]
    assert len(said) == 1
    assert "training goes on" in said[0]["message"]
    google.drive.closed = False
    assert google.store().list() == {}
    push(trained.path, google.url, 3, False, silent)
    fetched = pull(google.url, tmp_path / "fetched")
    assert run_differences(trained, fetched) == []
    assert files(fetched.path).items() <= files(trained.path).items()  # where more had to stay


def test_a_place_that_comes_back_gets_everything(run: Path, google: Place) -> None:
    assert google.drive
    google.store()
    google.drive.closed = True
    said: list[Any] = []
    sender = mirror.Mirror(run, google.url, 3, said.append)
    assert "training goes on" in sender.begun(20.0)
    assert not sender.complete(1.0)
    measured = sender.metrics()
    assert measured["mirror/pending_files"] > 5
    assert measured["mirror/pending_bytes"] > 1000
    assert measured["mirror/failures"] >= 1
    assert measured["mirror/oldest_seconds"] > 0.5
    assert "metrics.jsonl" in sender.pending.missing
    google.drive.closed = False
    assert sender.complete(60.0)
    sender.close()
    assert sender.metrics()["mirror/pending_files"] == 0
    assert "has everything again" in said[-1]["message"]


def test_checkpoints_stay_until_they_are_elsewhere_unless_the_disk_runs_short(
    run: Path, google: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert google.drive
    google.store()
    google.drive.closed = True
    said: list[Any] = []
    sender = mirror.Mirror(run, google.url, 1, said.append)
    sender.begun(20.0)
    first = Run.open(run).checkpoints[:1]
    assert sender.removable(first) == []
    usage = shutil.disk_usage(run)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1))
        assert sender.removable(first) == first
    sender.metrics()
    assert "the disk runs short" in said[-1]["message"]
    assert sender.removable(first) == []
    google.drive.closed = False
    assert sender.complete(60.0)
    assert sender.removable(first) == first  # a newer one is there
    sender.close()


def test_a_run_resumed_in_its_mirror_is_not_mirrored_onto_itself(tmp_path: Path) -> None:
    there = tmp_path / "there"
    train(tmp_path / "run", str(there), total_steps=512)
    again = surefoot.resume(there, total_steps=1024, output="quiet")
    assert again.finished_at == 1024
    assert any("is its own mirror" in str(entry.get("message")) for entry in again.journal())
    rows = [json.loads(line)["step"] for line in (there / "metrics.jsonl").open()]
    assert rows[-1] == 1024


@pytest.mark.parametrize("url", ["run", "run/within", "."])
def test_a_mirror_lies_apart_from_its_run(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="must not be within"):
        train(Path("run"), url)
    assert not Path("run").exists()


def test_a_run_that_stopped_between_checkpoints_goes_on_from_its_mirror(
    place: Place, tmp_path: Path
) -> None:
    whole = train(tmp_path / "whole", restore="fresh")
    train(tmp_path / "run", place.url, restore="fresh", max_hours=1e-9)
    names = [key for key in place.store().list() if key.endswith(MANIFEST)]
    inexact = [json.loads((tmp_path / "run" / name).read_text())["exact"] for name in names]
    assert inexact == [False]  # a snapshot of the model after the first iteration
    again = surefoot.resume(place.url, out=tmp_path / "again", output="quiet", max_hours=1.0)
    assert run_differences(whole, again) == []


def test_pins_survive_a_resume_elsewhere(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    last = Run.open(run).checkpoint("last")
    Run.open(run).pin(last.step)
    push(run, str(there), 3, False, silent)
    surefoot.resume(there, out=tmp_path / "again", total_steps=4096, output="quiet")
    assert [c.step for c in Checkpoints(there).listed() if c.pinned] == [last.step]


def test_an_unknown_checkpoint_is_told_and_nothing_is_left(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    push(run, str(there), 3, False, silent)
    with pytest.raises(RunError, match="there is no checkpoint 7; there are best, last"):
        surefoot.resume(there, out=tmp_path / "again", checkpoint=7, output="quiet")
    assert not (tmp_path / "again").exists()


def test_a_run_that_was_lost_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    there, lost = tmp_path / "there", tmp_path / "lost"
    train(lost, str(there))
    for folder in ("checkpoints", "segments", "models"):
        shutil.rmtree(there / folder, ignore_errors=True)
    for name in ("metrics.jsonl", "journal.jsonl"):
        (there / name).unlink()
    again = surefoot.resume(there, out=tmp_path / "again", output="quiet")
    assert run_differences(Run.open(lost), again) == []


def test_a_disk_that_is_not_mounted_any_more_is_not_replaced(run: Path, tmp_path: Path) -> None:
    disk, said = tmp_path / "disk", list[Any]()
    sender = mirror.Mirror(run, str(disk / "run"), 3, said.append)
    assert sender.begun(20.0) == ""
    _wait_for(lambda: (disk / "run" / "metrics.jsonl").exists())
    disk.rename(tmp_path / "unmounted")
    (run / "report.html").write_text("new")
    assert not sender.complete(1.0)
    assert "is it still mounted?" in sender.trouble
    assert not disk.exists()
    (tmp_path / "unmounted").rename(disk)
    assert sender.complete(20.0)
    sender.close()
    assert files(disk / "run") == files(run)


def test_a_lease_on_a_disk_that_is_not_mounted_any_more_is_not_lost(tmp_path: Path) -> None:
    store = Directory(tmp_path / "disk")
    ours = Lease(store, "disk")
    ours.take()
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    with pytest.raises(Unreachable, match="is it still mounted"):
        ours.check()
    (tmp_path / "unmounted").rename(tmp_path / "disk")
    ours.check()


@pytest.mark.parametrize(
    ("place", "name", "use"),
    [
        (shutil, "copyfile", lambda store: Lease(store, "disk").check()),
        (Path, "mkdir", lambda store: store.put("models/a.pth", Path(__file__))),
        (os, "replace", lambda store: store.put("a.pth", Path(__file__))),
        (Path, "unlink", lambda store: store.delete("run.json")),
        (os, "walk", lambda store: store.list()),
    ],
)
def test_a_disk_may_go_at_the_very_moment_it_is_used(
    place: Any,
    name: str,
    use: Callable[[Directory], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, function = Directory(tmp_path / "disk"), getattr(place, name)
    Lease(store, "disk").take()

    def unmount_first(*given: Any, **named: Any) -> Any:
        with suppress(FileNotFoundError):
            os.rename(tmp_path / "disk", tmp_path / "unmounted")
        return function(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(place, name, unmount_first)
        with pytest.raises(Unreachable, match="is it still mounted"):
            use(store)
    assert not (tmp_path / "disk").exists()


def test_who_has_lost_the_lease_commits_no_checkpoint(run: Path, tmp_path: Path) -> None:
    store = Directory(tmp_path / "there")
    copy, ours = Copy(run, 3, store), Lease(store, "there")
    mirror.begin(copy, ours, "there", force=False)
    leased(store, tmp_path, owner())
    first = next(batch for batch in copy.batches(everything=True) if batch.commit)
    with pytest.raises(Leased):
        copy.send(first, lambda file: None, ours.check)
    assert not any(key.endswith(MANIFEST) for key in store.list())
    store.delete(lease.KEY)  # they have ended
    with pytest.raises(Leased, match="taken over by somebody"):
        ours.check()


def test_a_mirror_in_use_is_listed_as_running(run: Path, tmp_path: Path) -> None:
    push(run, str(tmp_path / "there"), 3, False, silent)
    assert Run.open(tmp_path / "there").condition == "finished"
    leased(Directory(tmp_path / "there"), tmp_path, owner())
    assert Run.open(tmp_path / "there").condition == "running on elsewhere"


@pytest.mark.parametrize("place", ["/proc/surefoot/run", "taken"])
def test_a_place_that_cannot_be_written_leaves_no_run_behind(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file")
    with pytest.raises(StoreError):
        train(tmp_path / "run", place)
    assert not (tmp_path / "run").exists()


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command; its output ends with the arguments that processes were seen with."""
    line, seen = [sys.executable, "-m", "surefoot", *words], set[bytes]()
    child = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while True:
        with suppress(subprocess.TimeoutExpired):
            out, errors = child.communicate(timeout=0.3)
            break
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # the process has ended
                seen.add(one.read_bytes())
    arguments = b"\n".join(seen).decode(errors="replace")
    return subprocess.CompletedProcess(line, child.returncode, out + arguments, errors)


SHORT = ["--total-steps", "1024", "--envs", "4", "--ppo.horizon", "32", "--hall-of-fame", "0"]
SHORT += ["--ppo.minibatch-size", "64"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "drive"])
def test_commands_work_with_a_url_and_tell_no_secret(kind: str, tmp_path: Path) -> None:
    with a_place(kind, tmp_path) as there:
        run = tmp_path / "runs" / "first"
        said = [command("train", "CartPole-v1", *SHORT, "--out", str(run), "--mirror", there.url)]
        said.append(command("runs", there.url.rpartition("/")[0]))
        assert "CartPole-v1" in said[-1].stdout
        assert "finished" in said[-1].stdout
        said.append(command("eval", there.url, "--episodes", "2"))
        assert "2 episodes" in said[-1].stdout
        again = tmp_path / "runs" / "again"
        more = ["--out", str(again), "--total-steps", "1280"]
        said.append(command("resume", there.url, *more))
        said.append(command("report", str(again)))
        said.append(command("push", str(again), there.url))
        said.append(command("pull", there.url, "--out", str(tmp_path / "fetched")))
        for one in said:
            assert one.returncode == 0, one.stderr
        assert Run.open(tmp_path / "fetched").checkpoint("last").step == 1280
        secrets = [*SECRETS, *([there.drive.refresh_token] if there.drive else []), "ya29."]
        words = [one.stdout + one.stderr for one in said]
        written = [
            content.decode(errors="replace") for content in files(tmp_path / "runs").values()
        ]
        if there.drive:
            for file in there.drive.files.values():
                written += [json.dumps(file.described()), file.content.decode(errors="replace")]
        for text in [*words, *written]:
            for secret in secrets:
                assert secret not in text


@pytest.mark.slow
def test_a_run_ends_well_though_its_mirror_is_down_and_says_how_to_complete_it(
    google: Place, tmp_path: Path
) -> None:
    assert google.drive
    google.drive.closed = True
    run = tmp_path / "run"
    given = [*SHORT, "--out", str(run), "--mirror", google.url, "--mirror-wait", "0.2"]
    ended = command("train", "CartPole-v1", *given)
    assert ended.returncode == 0, ended.stderr
    assert f"warning: {google.url} does not have" in ended.stderr
    assert f"surefoot push {run} {google.url}" in ended.stderr
    google.drive.closed = False
    assert command("push", str(run), google.url).returncode == 0
    assert files(pull(google.url, tmp_path / "fetched").path) == files(run)


def test_runs_at_a_place_are_listed(run: Path, place: Place, tmp_path: Path) -> None:
    push(run, f"{place.url}/", 3, False, silent)
    (row,) = summaries(place.url)
    assert row["run"] == f"{place.url}/run"
    assert (row["environment"], row["steps"], row["state"]) == ("CartPole-v1", 2048, "finished")


def test_what_is_needed_to_go_on_is_fetched_and_no_more(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (run / "videos").mkdir()
    (run / "videos" / "step_1.mp4").write_bytes(b"a film")
    push(run, str(there), 3, False, silent)
    again = surefoot.resume(there, out=tmp_path / "again", output="quiet")
    assert not (again.path / "videos").exists()
    kept = {c.step for c in again.checkpoints}
    last = Run.open(run).checkpoint("last")
    assert kept == {last.step, last.manifest.best or last.step}


def test_a_damaged_checkpoint_there_is_passed_over(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    push(run, str(there), 3, False, silent)
    newest = Checkpoints(there).paths()[-1]
    tensors = newest / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"!")
    again = surefoot.resume(there, out=tmp_path / "again", output="quiet")
    assert any("not as written" in str(entry.get("message")) for entry in again.journal())
    assert again.config.mirror == str(there)
    assert run_differences(Run.open(run), again) == []
    assert incomplete(Directory(there), str(there), tmp_path) == []


def test_a_place_without_a_run_is_told(place: Place, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        pull(place.url, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()
    with pytest.raises(RunError, match="holds no run"):
        surefoot.resume(place.url, out=tmp_path / "again")
    assert place.store().list() == {}


def test_a_directory_that_is_taken_is_not_fetched_into(run: Path, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    push(run, there, 3, False, silent)
    with pytest.raises(RunError, match=r"exists; go on with it by `surefoot resume"):
        surefoot.resume(there, out=run)


def test_a_fork_is_not_mirrored_over_its_parent(tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    parent = train(tmp_path / "run", there, total_steps=512)
    child = surefoot.fork(parent.path, tmp_path / "child", total_steps=1024, output="quiet")
    assert child.config.mirror == ""
    assert Checkpoints(Path(there)).listed()[-1].step == 512


def test_a_push_to_a_place_that_does_not_answer_gives_up(
    run: Path, google: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert google.drive
    monkeypatch.setattr("surefoot.elsewhere.PATIENCE", 0.5)
    store = google.store()
    store.list()
    google.drive.closed = True
    with pytest.raises(StoreError):
        push(run, google.url, 3, False, silent)
