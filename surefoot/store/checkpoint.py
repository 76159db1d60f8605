"""The checkpoint format: tensors as safetensors, the rest as JSON, hashes in a manifest.

A checkpoint is a directory that appears under its name only when it is complete. Nothing in it is
ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from surefoot.core.errors import RunError
from surefoot.core.protocols import State
from surefoot.core.tree import Array

FORMAT = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
TENSOR_KEY = "$tensor"
"""In state.json, an object with this one key stands for the tensor of that name."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint, by what its manifest says."""

    path: Path
    step: int
    score: float | None
    """Mean return of the recent episodes when it was taken, if there were enough."""


def write(directory: Path, step: int, state: State, score: float | None) -> Checkpoint:
    """Write a checkpoint that is there whole, durably, or not at all."""
    path = directory / f"step_{step:012d}"
    staging = directory / f".staging-{step}-{os.getpid()}"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    tensors: dict[str, Array] = {}
    content = _split(state, "", tensors)
    save_file(tensors, staging / TENSORS)
    (staging / STATE).write_text(json.dumps(content, allow_nan=False))
    manifest = {
        "format": FORMAT,
        "step": step,
        "score": score,
        "files": {name: _digest(staging / name) for name in (TENSORS, STATE)},
        **_machine(),
    }
    (staging / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for file in (TENSORS, STATE, MANIFEST):
        _sync(staging / file)
    _sync(staging)
    if path.exists():
        delete(path)
    staging.rename(path)
    _sync(directory)
    return Checkpoint(path, step, score)


def delete(path: Path) -> None:
    """Remove a checkpoint: first from its name, so that nobody sees half of it."""
    doomed = path.with_name(f".deleted-{path.name}-{os.getpid()}")
    path.rename(doomed)
    shutil.rmtree(doomed)


def read(checkpoint: Checkpoint) -> State:
    """Read a checkpoint's state after verifying every file against its manifest."""
    manifest = _manifest(checkpoint.path)
    for name, expected in manifest["files"].items():
        file = checkpoint.path / name
        if name not in (TENSORS, STATE) or not file.is_file() or _digest(file) != expected:
            raise RunError(f"checkpoint {checkpoint.path} is damaged: {name} is not as written")
    try:
        tensors = load_file(checkpoint.path / TENSORS)
        content = json.loads((checkpoint.path / STATE).read_text())
        state: State = _join(content, tensors)
    except (SafetensorError, ValueError, KeyError) as error:
        raise RunError(f"checkpoint {checkpoint.path} cannot be read: {error}") from None
    return state


def listed(directory: Path) -> list[Checkpoint]:
    """List the complete checkpoints, oldest first."""
    found = []
    for path in sorted(directory.glob("step_*")):
        try:
            manifest = _manifest(path)
        except FileNotFoundError:
            continue  # deleted meanwhile
        found.append(Checkpoint(path, manifest["step"], manifest["score"]))
    return found


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        version = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"checkpoint {path} has no readable manifest: {error}") from None
    if version != FORMAT:
        raise RunError(f"checkpoint {path} has format {version}; this surefoot reads {FORMAT}")
    return manifest


def _split(tree: Any, path: str, tensors: dict[str, Array]) -> Any:
    """Move arrays out of a state tree into `tensors`, leaving their names."""
    if isinstance(tree, dict):
        return {
            key: _split(value, f"{path}/{_quoted(key)}", tensors) for key, value in tree.items()
        }
    if isinstance(tree, np.ndarray):
        tensors[path[1:]] = np.asarray(tree, order="C")
        return {TENSOR_KEY: path[1:]}
    return tree


def _join(content: Any, tensors: dict[str, Array]) -> Any:
    if isinstance(content, dict):
        if content.keys() == {TENSOR_KEY}:
            return tensors[content[TENSOR_KEY]]
        return {key: _join(value, tensors) for key, value in content.items()}
    return content


def _quoted(key: str) -> str:
    return key.replace("%", "%25").replace("/", "%2F")


def _digest(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _machine() -> dict[str, Any]:
    """Describe what exact repetition depends on."""
    names = ("surefoot", "torch", "numpy", "gymnasium")
    return {
        "versions": {name: metadata.version(name) for name in names},
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "compile": "eager",
    }
