"""Google Drive: the real client against a server that misbehaves."""

from __future__ import annotations

import hashlib
import json
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.core.errors import ConfigError, Missing, StoreError, Unreachable
from surefoot.store import drive, drive_login
from surefoot.store.places import open_store
from tests import drive_server
from tests.places import Place, place


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(drive, "LONGEST_WAIT", 0.05)


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Place]:
    with place("drive", tmp_path) as found:
        yield found


def world(google: Place) -> drive_server.World:
    assert google.drive is not None
    return google.drive


def upload_all(google: Place, tmp_path: Path, count: int, rate: float, seed: int) -> float:
    """Upload files while a share of all requests fails; return bytes sent over their size."""
    dice, store, total, sums = random.Random(seed), google.store(), 0, {}
    world(google).rate, world(google).dice = rate, random.Random(seed)
    for number in range(count):
        content = dice.randbytes(dice.randint(1_000_000, 8_000_000))
        path = tmp_path / "file"
        path.write_bytes(content)
        for _ in range(20):  # as the mirror does
            try:
                store.put(f"segments/{number}", path)
                break
            except Unreachable:
                continue
        sums[f"segments/{number}"] = hashlib.md5(content).hexdigest()
        total += len(content)
    world(google).rate = 0.0
    listed = google.store().list()
    assert {key: kept.md5 for key, kept in listed.items()} == sums
    kept = [f for f in world(google).files.values() if f.mime != drive_server.FOLDER]
    assert len(kept) == count  # no duplicate
    folders = [f for f in world(google).files.values() if f.mime == drive_server.FOLDER]
    assert len(folders) == 3
    return world(google).bytes_received / total


@pytest.mark.slow
def test_uploads_arrive_whole_and_once_though_a_fifth_of_all_requests_fails(
    google: Place, tmp_path: Path
) -> None:
    assert upload_all(google, tmp_path, 40, 0.2, seed=1) <= 1.3


@pytest.mark.soak
def test_five_hundred_uploads_arrive_whole_and_once(google: Place, tmp_path: Path) -> None:
    assert upload_all(google, tmp_path, 500, 0.2, seed=2) <= 1.3


@pytest.mark.parametrize("fault", drive_server.FAULTS)
def test_an_upload_survives_every_fault_at_every_request(
    google: Place, tmp_path: Path, fault: str
) -> None:
    content = random.Random(0).randbytes(9_000_000)
    path = tmp_path / "file"
    path.write_bytes(content)
    for place_of_fault in range(8):
        store = google.store()
        world(google).faults = [""] * place_of_fault + [fault]
        store.put("file", path)
        world(google).faults = []
        assert [file.content for file in world(google).by_path(_path(google, "file"))] == [content]
        store.delete("file")
        assert world(google).by_path(_path(google, "file")) == []


def test_a_create_whose_answer_is_lost_makes_no_duplicate(google: Place, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    store = google.store()
    store.put("file", path)
    (one,) = world(google).by_path(_path(google, "file"))
    world(google).files.clear()
    world(google).ids.add("reserved")
    store = google.store()
    assert isinstance(store, drive.Drive)
    store._reserved = ["reserved"] * 8
    world(google).files["reserved"] = one  # as if it had been made, and nobody was told
    one.properties = {"surefoot": "file"}
    store._sent(_path(google, "other"), path)
    assert world(google).files["reserved"].content == b"content"


def test_downloads_survive_faults(google: Place, tmp_path: Path) -> None:
    content = random.Random(0).randbytes(10_000_000)
    path = tmp_path / "file"
    path.write_bytes(content)
    store = google.store()
    store.put("file", path)
    for fault in ("500", "503", "429", "403", "drop", "401"):
        for place_of_fault in range(4):
            world(google).faults = [""] * place_of_fault + [fault]
            store.get("file", tmp_path / "fetched")
            assert (tmp_path / "fetched").read_bytes() == content


def test_files_are_found_though_somebody_renamed_them(google: Place, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    google.store().put("models/actor.pth", path)
    for file in world(google).files.values():
        file.name, file.parents = "renamed", ["elsewhere"]
    google.store().get("models/actor.pth", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"content"
    assert list(google.store().list()) == ["models/actor.pth"]


def test_long_lists_come_in_pages(google: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    store, keys = google.store(), [f"segments/{number}" for number in range(8)]
    for key in keys:
        store.put(key, tmp_path / "file")
    world(google).page = 3
    assert sorted(google.store().list()) == keys


def test_what_another_machine_has_replaced_or_deleted_is_noticed(
    google: Place, tmp_path: Path
) -> None:
    ours, theirs, path = google.store(), google.store(), tmp_path / "file"
    for content in (b"ours", b"theirs"):
        path.write_bytes(content)
        (ours if content == b"ours" else theirs).put("file", path)
    ours.get("file", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"theirs"
    theirs.delete("file")
    with pytest.raises(Missing):
        ours.get("file", tmp_path / "fetched")
    ours.put("file", path)
    assert list(theirs.list()) == ["file"]


def test_people_see_folders_and_names(google: Place, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    google.store().put("models/actor.pth", path)
    (file,) = world(google).by_path(_path(google, "models/actor.pth"))
    names, parent = [file.name], file.parents[0]
    while parent != "root":
        folder = world(google).files[parent]
        names.insert(0, folder.name)
        parent = folder.parents[0]
    assert "/".join(names) == _path(google, "models/actor.pth")


@pytest.mark.parametrize(
    ("attribute", "said"),
    [("full", "make room"), ("no_storage", "service account has no storage of its own")],
)
def test_a_drive_without_room_is_told_with_advice(
    google: Place, tmp_path: Path, attribute: str, said: str
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    setattr(world(google), attribute, True)
    with pytest.raises(StoreError, match=said) as refused:
        google.store().put("file", tmp_path / "file")
    assert not isinstance(refused.value, Unreachable)


def test_a_login_that_was_revoked_is_told_with_advice(google: Place) -> None:
    world(google).refresh_token = "another"
    with pytest.raises(StoreError, match="surefoot drive login") as refused:
        google.store().list()
    assert "1//" not in str(refused.value)


def test_a_server_that_hangs_up_is_unreachable(google: Place) -> None:
    store = google.store()
    store.list()
    world(google).closed = True
    with pytest.raises(Unreachable):
        store.list()


def test_shared_drives_are_named_by_their_id(google: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    store = open_store("gdrive://shared:0ATeam/runs")
    store.put("file", tmp_path / "file")
    (top,) = [f for f in world(google).files.values() if f.name == "runs"]
    assert top.parents == ["0ATeam"]
    store.delete("file")
    assert store.list() == {}


def test_without_a_login_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    with pytest.raises(ConfigError, match="surefoot drive login"):
        open_store("gdrive://surefoot/run")


def client_file(tmp_path: Path, url: str) -> Path:
    path = tmp_path / "client.json"
    about = {
        "client_id": "some-client",
        "client_secret": "GOCSPX-planted-client-secret",
        "auth_uri": f"{url}/auth",
        "token_uri": f"{url}/token",
        "redirect_uris": ["http://localhost"],
    }
    path.write_text(json.dumps({"installed": about}))
    return path


def test_a_headless_login_takes_the_address_the_browser_ended_at(
    google: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "fresh"))
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # the server is on this machine
    told: list[str] = []
    url = google.environ["SUREFOOT_DRIVE_ENDPOINT"]

    def paste(_: str) -> str:
        return "http://localhost:1/?state=x&code=the-code&scope=drive.file"

    said = drive_login.log_in(client_file(tmp_path, url), None, False, paste, told.append)
    assert "Logged in" in said
    assert f"{url}/auth?" in told[0]
    assert "drive.file" in told[0]
    assert stat.S_IMODE(os.stat(drive_login.place()).st_mode) == 0o600
    assert world(google).refresh_token not in said + "".join(told)
    assert google.store().list() == {}
    assert drive_login.status().startswith("somebody@example.com: 0.0 of 15.0 GB")
    assert "Logged out" in drive_login.log_out()
    assert not drive_login.place().exists()


@pytest.mark.parametrize("content", ["no json", "[]", '{"web": {}}'])
def test_a_file_that_is_no_client_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "client.json").write_text(content)
    with pytest.raises(ConfigError, match="--client"):
        drive_login.log_in(tmp_path / "client.json", None, False, input, print)


def _path(google: Place, key: str) -> str:
    return f"{google.url.removeprefix('gdrive://')}/{key}"
