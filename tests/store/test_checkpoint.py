"""The checkpoint format."""

import json
from pathlib import Path

import numpy as np
import pytest

from surefoot.core.errors import RunError
from surefoot.store import checkpoint

STATE = {
    "weights": {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": {"b": np.array(2.5)}},
    "flags": np.array([True, False]),
    "transposed": np.arange(6).reshape(2, 3).T,
    "counters": {"steps": 12, "rate": 0.1, "name": "x", "none": None, "empty": {}},
}


def same(one: object, other: object) -> None:
    if isinstance(one, dict):
        assert isinstance(other, dict)
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert (one == other).all()
    else:
        assert one == other


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    written = checkpoint.write(tmp_path, 1234, STATE, score=9.5)
    (listed,) = checkpoint.listed(tmp_path)
    assert listed == written
    assert (listed.step, listed.score, listed.path.name) == (1234, 9.5, "step_000000001234")
    same(checkpoint.read(listed), STATE)


def test_the_manifest_says_what_exactness_depends_on(tmp_path: Path) -> None:
    written = checkpoint.write(tmp_path, 1, STATE, score=None)
    manifest = json.loads((written.path / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert set(manifest["files"]) == {"tensors.safetensors", "state.json"}
    assert {"torch", "numpy", "gymnasium", "surefoot"} <= set(manifest["versions"])
    assert {"cpu", "threads", "compile", "python"} <= set(manifest)


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_a_changed_byte_is_noticed(tmp_path: Path, name: str) -> None:
    written = checkpoint.write(tmp_path, 1, STATE, score=None)
    content = bytearray((written.path / name).read_bytes())
    content[-3] ^= 1
    (written.path / name).write_bytes(content)
    with pytest.raises(RunError, match=f"damaged: {name}"):
        checkpoint.read(written)


def test_another_format_version_is_named(tmp_path: Path) -> None:
    written = checkpoint.write(tmp_path, 1, STATE, score=None)
    manifest = json.loads((written.path / "manifest.json").read_text())
    (written.path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(RunError, match="has format 99; this surefoot reads 1"):
        checkpoint.listed(tmp_path)


def test_nothing_unfinished_is_listed_and_writing_a_step_again_replaces_it(tmp_path: Path) -> None:
    (tmp_path / ".staging-5-1").mkdir()
    checkpoint.write(tmp_path, 5, {"a": 1}, score=None)
    checkpoint.write(tmp_path, 5, {"a": 2}, score=None)
    (listed,) = checkpoint.listed(tmp_path)
    assert checkpoint.read(listed) == {"a": 2}
    checkpoint.delete(listed.path)
    assert checkpoint.listed(tmp_path) == []


def test_nan_is_never_written_into_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        checkpoint.write(tmp_path, 1, {"a": float("nan")}, score=None)
