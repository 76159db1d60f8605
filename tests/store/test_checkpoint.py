"""The checkpoint format, and what is noticed when it is broken."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.core.errors import CheckpointError, SaveError, VersionError
from surefoot.core.state import Appended, Piece, Ragged, State, differences
from surefoot.store import checkpoint, durable
from surefoot.store.checkpoint import Boundary, Checkpoints

STATE: State = {
    "weights": {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": {"b": np.array(2.5)}},
    "flags": np.array([True, False]),
    "transposed": np.arange(6).reshape(2, 3).T,
    "counters": {"steps": 12, "rate": 0.1, "name": "ü", "none": None, "empty": {}},
    "list": [1, {"x": np.zeros((0, 2))}],
    "order": {"z": np.ones(1), "a": np.ones(2)},
    "weird key/β %2F": {"é": np.ones(3), "e%": np.ones(4)},
}


def store(path: Path) -> Checkpoints:
    (path / "checkpoints").mkdir(exist_ok=True)
    return Checkpoints(path)


def at(step: int, state: State = STATE, **facts: Any) -> Boundary:
    return Boundary(step, state, **{"exact": True, "score": None, **facts})


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = store(tmp_path)
    written = kept.write(at(1234, score=9.5, best=1234))
    (listed,) = kept.listed()
    assert listed == written
    assert (listed.step, listed.score, listed.path.name) == (1234, 9.5, "step_000000001234")
    found, state = kept.read(listed.path)
    assert found == written
    assert differences(state, STATE) == []
    assert list(state["order"]) == ["z", "a"]


def test_the_comparison_of_states_sees_every_kind_of_difference() -> None:
    changes: list[tuple[str, Any]] = [
        ("flags", np.array([True, True])),
        ("flags", np.array([1, 0])),
        ("counters", {**STATE["counters"], "steps": 13}),
        ("counters", {**STATE["counters"], "steps": 12.0}),
        ("list", [1]),
        ("weights", {"a": {"b": np.array(-0.0)}, "a/b": STATE["weights"]["a/b"]}),
    ]
    for name, value in changes:
        assert differences(STATE, {**STATE, name: value}), name
    assert differences({"x": np.array(0.0)}, {"x": np.array(-0.0)})
    assert not differences({"x": np.array(np.nan)}, {"x": np.array(np.nan)})


def test_the_manifest_says_what_exactness_depends_on(tmp_path: Path) -> None:
    written = store(tmp_path).write(at(1))
    manifest = json.loads((written.path / "manifest.json").read_text())
    assert manifest["format"] == 2
    names = {"torch", "numpy", "gymnasium", "surefoot", "cpu", "threads", "update", "python"}
    assert names <= set(manifest["machine"])
    assert checkpoint.machine_differences(written, "", {}) == []
    known = store(tmp_path).write(replace(at(2), update="numpy"))
    for update, said in {"numpy": [], "": [], "torch": ["update was numpy and is torch"]}.items():
        assert checkpoint.machine_differences(known, update, {}) == said


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_changed_byte_a_cut_and_a_loss_are_noticed(tmp_path: Path, name: str) -> None:
    kept = store(tmp_path)
    file = kept.write(at(1)).path / name
    content = file.read_bytes()
    for broken in (content[:-3] + bytes([content[-3] ^ 1]) + content[-2:], content[:-1], b""):
        file.write_bytes(broken)
        with pytest.raises(CheckpointError, match=f"step_000000000001: .*({name}|JSON)"):
            kept.read(file.parent)
    file.unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        kept.read(file.parent)


def test_another_format_version_is_named_and_is_no_damage(tmp_path: Path) -> None:
    kept = store(tmp_path)
    written = kept.write(at(1))
    manifest = json.loads((written.path / "manifest.json").read_text())
    del manifest["seal"]
    (written.path / "manifest.json").write_bytes(checkpoint.seal({**manifest, "format": 99}))
    with pytest.raises(VersionError, match="has format 99; this surefoot reads 2"):
        kept.read(written.path)


def test_nothing_unfinished_is_listed_and_tidying_removes_it(tmp_path: Path) -> None:
    kept = store(tmp_path)
    (kept.directory / ".staging-step_5-1").mkdir()
    written = kept.write(at(5))
    assert [c.step for c in kept.listed()] == [5]
    kept.tidy()
    assert [path.name for path in kept.directory.iterdir()] == [written.path.name]
    kept.remove(written)
    assert kept.listed() == []


def test_a_name_is_never_written_twice(tmp_path: Path) -> None:
    kept = store(tmp_path)
    written = kept.write(at(5))
    with pytest.raises(OSError, match="not empty"):
        kept.write(at(5, {"other": 1}))
    assert differences(kept.read(written.path)[1], STATE) == []
    assert [path.name for path in kept.directory.iterdir()] == [written.path.name]


def test_what_json_cannot_hold_is_refused_when_it_is_written(tmp_path: Path) -> None:
    many = {str(k): np.zeros(1) for k in range(10_000)}
    states: list[State] = [
        *({"a": float("nan")}, {"a": object()}, {"a": list(range(60_000))}, many),
        *({"a": np.array(["x"])}, {"a": np.array([object()])}, {"a": np.array([1j])}),
    ]
    for state in states:
        with pytest.raises(SaveError, match=r"step_000000000001 cannot be written: a state"):
            store(tmp_path).write(at(1, state))


def test_arrays_of_differing_lengths_are_kept_as_one(tmp_path: Path) -> None:
    kept = store(tmp_path)
    parts = [np.arange(6.0).reshape(3, 2), np.zeros((0, 2)), np.ones((1, 2))] * 4096
    state: State = {"log": Ragged(parts), "one": Ragged([np.arange(3)])}
    assert differences(kept.read(kept.write(at(1, state)).path)[1], state) == []
    assert differences({"x": Ragged(parts[:2])}, {"x": Ragged(parts[1:3])})


def test_a_damaged_segment_is_written_again(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.write(at(1, {"log": Appended([Piece({"x": np.ones(2)})])}))
    (file,) = (tmp_path / "segments").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"segment .* is not as written"):
        kept.read(kept.listed()[0].path)
    again = store(tmp_path).write(at(2, {"log": Appended([Piece({"x": np.ones(2)})])}))
    assert kept.read(again.path)


def test_only_so_many_that_were_set_aside_stay(tmp_path: Path) -> None:
    kept = store(tmp_path)
    for step in range(1, 15):
        written = kept.write(at(step, {"log": Appended([Piece({"x": np.full(2, step)})])}))
        os.utime(kept.supersede(written.path), (step, step))
    (kept.superseded / "step_000000000014" / "manifest.json").write_text("{")
    (kept.superseded / "step_000000000002" / "pinned").touch()
    for step in (2, 14):
        os.utime(kept.superseded / f"step_{step:012d}", (step, step))
    kept.tidy()
    names = sorted(path.name for path in kept.superseded.iterdir())
    assert names == [f"step_{step:012d}" for step in (2, *range(5, 15))]  # and what is pinned
    assert len(list((tmp_path / "segments").iterdir())) == 10  # one manifest cannot be read


def test_a_checkpoint_pinned_at_the_last_moment_stays(tmp_path: Path) -> None:
    kept = store(tmp_path)
    written = kept.write(at(5))
    rename = os.rename

    def pinning(source: Any, target: Any) -> None:
        (Path(source) / "pinned").touch()
        rename(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", pinning)
        kept.remove(written)
    assert [c.step for c in kept.listed()] == [5]


def test_the_first_format_is_another_version_not_damage(tmp_path: Path) -> None:
    kept = store(tmp_path)
    written = kept.write(at(1))
    (written.path / "manifest.json").write_text('{"format": 1, "step": 1, "score": null}')
    with pytest.raises(VersionError, match="has format 1; this surefoot reads 2"):
        kept.read(written.path)


def test_data_that_grows_is_written_once_and_goes_with_the_last_that_names_it(
    tmp_path: Path,
) -> None:
    kept = store(tmp_path)
    pieces = [Piece({"z": np.full(3, k), "a": {"b": np.array(k)}}) for k in range(3)]
    first = kept.write(at(1, {"log": Appended(pieces[:2])}))
    times = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "segments").iterdir()}
    second = kept.write(at(2, {"log": Appended(pieces[1:])}))
    assert len(list((tmp_path / "segments").iterdir())) == 3
    assert all((tmp_path / "segments" / n).stat().st_mtime_ns == t for n, t in times.items())
    _, state = kept.read(second.path)
    assert differences(state, {"log": Appended(pieces[1:])}) == []
    assert list(state["log"].pieces[0].arrays) == ["z", "a"]
    kept.remove(first)
    kept.tidy()
    assert len(list((tmp_path / "segments").iterdir())) == 2
    assert differences(kept.read(second.path)[1], state) == []


def test_segments_of_what_is_superseded_stay(tmp_path: Path) -> None:
    kept = store(tmp_path)
    written = kept.write(at(1, {"log": Appended([Piece({"x": np.ones(2)})])}))
    moved = kept.supersede(written.path)
    kept.tidy()
    assert moved.parent.name == "superseded"
    assert differences(kept.read(moved)[1]["log"].pieces[0].arrays, {"x": np.ones(2)}) == []
    again = kept.write(at(1))
    assert kept.supersede(again.path).name == "step_000000000001-2"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    durable.write_file(tmp_path / "x", b"one")
    durable.write_file(tmp_path / "x", b"two")
    assert (tmp_path / "x").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
