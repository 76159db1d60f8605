"""The contract of stores, the same on all kinds of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from surefoot.core.errors import ConfigError, Missing, StoreError, Unreachable
from surefoot.core.protocols import Kept
from surefoot.store.places import open_store, redacted
from tests.places import Place


def file(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content)
    return path


def fetched(place: Place, key: str, tmp_path: Path) -> bytes:
    path = tmp_path / "fetched"
    place.store().get(key, path)
    return path.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 100_000, 9_000_000])
def test_what_is_put_can_be_got(place: Place, tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    content = content[:size]
    kept = place.store().put("checkpoints/step_1/tensors", file(tmp_path, content))
    assert kept == Kept(size, hashlib.md5(content).hexdigest())
    assert fetched(place, "checkpoints/step_1/tensors", tmp_path) == content


def test_a_new_file_replaces_the_old_one(place: Place, tmp_path: Path) -> None:
    store = place.store()
    for content in (b"one", b"another"):
        store.put("a/key", file(tmp_path, content))
        assert fetched(place, "a/key", tmp_path) == content
    assert [(key, kept.size) for key, kept in store.list().items()] == [("a/key", 7)]


def test_keys_are_listed_with_their_sizes_below_a_prefix(place: Place, tmp_path: Path) -> None:
    keys = {f"checkpoints/step_{n}/{'x' * n}": n for n in range(1, 13)} | {"run.json": 3}
    for key, size in keys.items():
        place.store().put(key, file(tmp_path, b"." * size))
    assert {key: kept.size for key, kept in place.store().list().items()} == keys
    below = place.store().list("checkpoints/step_1")
    assert {key: kept.size for key, kept in below.items()} == {"checkpoints/step_1/x": 1}
    for kept in below.values():
        assert kept.md5 in (None, hashlib.md5(b".").hexdigest())


def test_an_empty_place_has_nothing(place: Place) -> None:
    assert place.store().list() == {}
    assert place.store().list("checkpoints") == {}


def test_what_is_deleted_is_gone_and_may_be_deleted_again(place: Place, tmp_path: Path) -> None:
    store = place.store()
    store.put("a/key", file(tmp_path, b"x"))
    store.put("other", file(tmp_path, b"y"))
    for _ in range(2):
        store.delete("a/key")
        assert list(store.list()) == ["other"]
        assert list(place.store().list()) == ["other"]


def test_what_is_not_there_is_missing(place: Place, tmp_path: Path) -> None:
    with pytest.raises(Missing, match="there is no"):
        place.store().get("nothing", tmp_path / "fetched")


def test_names_may_be_long_and_foreign(place: Place, tmp_path: Path) -> None:
    key = f"models/{'lang' * 40}/größe 1.pth"
    place.store().put(key, file(tmp_path, b"x"))
    assert list(place.store().list()) == [key]
    assert fetched(place, key, tmp_path) == b"x"


def test_a_directory_that_may_not_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match="taken"):
        open_store(str(tmp_path / "taken")).put("key", file(tmp_path, b"x"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "names no place"),
        ("/", "names no place"),
        ("s3://", "names no place"),
        ("gdrive:///", "names no place"),
        ("sftp://user:secret@host/run", "would be written into the run"),
        ("s3://bucket/run?key=secret", "would be written into the run"),
        ("nonsense://bucket/run", "nonsense"),
    ],
)
def test_a_place_that_cannot_be_is_refused_without_telling_secrets(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        open_store(url)
    assert "secret" not in str(refused.value)


def test_a_server_that_is_not_there_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(Unreachable, match="s3://bucket"):
        open_store("s3://bucket/run").put("key", file(tmp_path, b"x"))


@pytest.mark.parametrize(
    "secret",
    [
        "https://user:hunter2-password@host/x",
        "Bearer ya29.a0AfH6SMBsecret-token",
        "ya29.a0AfH6SMBsecret-token",
        "1//0gdLongRefreshTokenOfSomebody",
        "AKIAIOSFODNN7EXAMPLE",
        "token=abc-secret",
        "-----BEGIN PRIVATE KEY-----\nMIIsecret\n-----END PRIVATE KEY-----",
    ],
)
def test_secrets_are_taken_out_of_messages(secret: str) -> None:
    shown = redacted(f"before {secret} after")
    assert shown.startswith("before ")
    for word in ("hunter2", "secret", "LongRefresh", "AKIAIOS"):
        assert word not in shown
