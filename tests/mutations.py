"""Checkpoints that somebody broke, by accident or on purpose."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import shutil
import struct
from copy import deepcopy
from pathlib import Path
from typing import Any

from surefoot.store import checkpoint

FILES = ("manifest.json", "state.json", "tensors.safetensors")


class Exploit:
    """Does damage when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/surefoot-was-exploited",)


ODD: list[Any] = [
    *(None, True, -1, 0, 2**80, 1e308, "", "../../etc/passwd", "x" * 1000, [], {}, [[[]]]),
    *({"$tensor": "nowhere"}, {"$tensor": "../state.json"}, {"$tensor": 5}, {"$pieces": 3}),
    *({"$pieces": ["../../checkpoints/x"]}, {"$pieces": ["f" * 64]}, {"$tensor": ["a"]}),
]


def mutate(path: Path, chance: random.Random) -> str:
    """Break a checkpoint in one way; return which."""
    names = list(WAYS)
    name = chance.choices(names, [WAYS[n][1] for n in names])[0]
    WAYS[name][0](path, chance)
    return name


def flip(path: Path, chance: random.Random) -> None:
    file = path / chance.choice(FILES)
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 8))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def tear(path: Path, chance: random.Random) -> None:
    file = path / chance.choice(FILES)
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content))])


def lengthen(path: Path, chance: random.Random) -> None:
    with (path / chance.choice(FILES)).open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 5000)))


def lose(path: Path, chance: random.Random) -> None:
    (path / chance.choice(FILES)).unlink()


def swap(path: Path, chance: random.Random) -> None:
    one, other = chance.sample(FILES, 2)
    (path / one).write_bytes((path / other).read_bytes())


def zero(path: Path, chance: random.Random) -> None:
    file = path / chance.choice(FILES)
    file.write_bytes(bytes(file.stat().st_size))


def replace_by_something_else(path: Path, chance: random.Random) -> None:
    file = path / chance.choice(FILES)
    file.unlink()
    chance.choice([os.mkfifo, os.mkdir, lambda f: os.symlink("/dev/zero", f)])(file)


def pickle_instead(path: Path, chance: random.Random) -> None:
    (path / chance.choice(FILES)).write_bytes(pickle.dumps(Exploit()))
    reseal(path)


def odd_state(path: Path, chance: random.Random) -> None:
    content = json.loads((path / "state.json").read_text())
    for _ in range(chance.choice((1, 1, 3))):
        _change(content, chance)
    (path / "state.json").write_text(json.dumps(content))
    reseal(path)


def strange_json(path: Path, chance: random.Random) -> None:
    texts = [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"[" + b"[]," * 100_000 + b"[]]",
        b"9" * 100_000,
        b'{"spec": 1, "spec": 2}',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        '{"a": "ü"}'.encode(),
        b"null",
        b"",
        b'"' + b"x" * 5_000_000 + b'"',
    ]
    (path / "state.json").write_bytes(chance.choice(texts))
    reseal(path)


def strange_tensors(path: Path, chance: random.Random) -> None:
    file = path / "tensors.safetensors"
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    name = chance.choice([n for n in header if n != "__metadata__"])
    kind = chance.randrange(8)
    if kind == 0:
        header[name]["shape"] = [2**62, 2**62]
    elif kind == 1:
        header[name]["data_offsets"] = [0, 2**63]
    elif kind == 2:
        header[name]["dtype"] = chance.choice(["F64", "I8", "F16", "BOOL", "U64", "Q7"])
    elif kind == 3:
        header |= {f"x{k}": header[name] for k in range(20_000)}
    elif kind == 4:
        header[name]["shape"] = [-1]
    elif kind == 5:
        del header[name]
    elif kind == 6:
        header[name]["data_offsets"] = header[chance.choice(list(header))].get("data_offsets")
    text = json.dumps(header).encode()
    if kind == 7:
        text = (
            text[:-1] + b', "' + name.encode() + b'": ' + json.dumps(header[name]).encode() + b"}"
        )
    size = chance.choice([len(text), len(text), 2**63, 2**40]) if kind == 6 else len(text)
    file.write_bytes(struct.pack("<Q", size) + text + data)
    reseal(path)


def other_numbers(path: Path, chance: random.Random) -> None:
    file = path / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    for _ in range(100):
        content[chance.randrange(8 + length, len(content))] = chance.randrange(256)
    file.write_bytes(content)
    reseal(path)


def odd_manifest(path: Path, chance: random.Random) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.pop("seal")
    _change(manifest, chance)
    (path / "manifest.json").write_bytes(checkpoint.seal(manifest))


def many_entries(path: Path, chance: random.Random) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["segments"] = ["f" * 64] * chance.choice((10, 100_000))
    (path / "manifest.json").write_text(json.dumps(manifest))


def reseal(path: Path) -> None:
    """Make the manifest agree with what the files are now, as an attacker would."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except ValueError:
        return
    manifest.pop("seal")
    for key, name in (("tensors", "tensors.safetensors"), ("state", "state.json")):
        content = (path / name).read_bytes()
        manifest[key] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (path / "manifest.json").write_bytes(checkpoint.seal(manifest))


def copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def _change(content: Any, chance: random.Random) -> None:
    """Exchange, remove or add something at a random place of a JSON tree."""
    while True:
        keys: list[Any] = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not keys:
            return
        key = chance.choice(keys)
        inner = content[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            content = inner
            continue
        if chance.random() < 0.2:
            del content[key]
        else:
            content[key] = deepcopy(chance.choice(ODD))
        return


WAYS: dict[str, tuple[Any, int]] = {
    "flip": (flip, 4),
    "tear": (tear, 3),
    "lengthen": (lengthen, 1),
    "lose": (lose, 1),
    "swap": (swap, 1),
    "zero": (zero, 1),
    "replace": (replace_by_something_else, 1),
    "pickle": (pickle_instead, 1),
    "odd state": (odd_state, 6),
    "strange JSON": (strange_json, 2),
    "strange tensors": (strange_tensors, 4),
    "other numbers": (other_numbers, 1),
    "odd manifest": (odd_manifest, 2),
    "many entries": (many_entries, 1),
}
ACCIDENTS = ("flip", "tear", "lengthen", "lose", "swap", "zero", "replace", "many entries")
"""What leaves the manifest's hashes as they were, so that it must be noticed."""
