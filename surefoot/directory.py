"""The directory of a run: who it belongs to, and what is in it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, Self, TextIO

import numpy as np
import yaml
from safetensors.numpy import save_file

from surefoot.config import Config
from surefoot.core import tree
from surefoot.core.errors import CheckpointError, ConfigError, RunError, SurefootError
from surefoot.core.state import State
from surefoot.envs.names import identity
from surefoot.store import durable
from surefoot.store.checkpoint import Boundary, Checkpoint, Checkpoints, describe
from surefoot.store.lease import KEY as LEASE
from surefoot.store.lease import read_owner
from surefoot.store.places import require_apart, settled

LIFE = ("start", "resume", "fork", "finish", "stop", "signal", "fault")
"""Events with which a run begins or ends."""


class RunDirectory:
    """Where everything about one training is written."""

    def __init__(
        self,
        path: Path,
        config: Config,
        env: str | Callable[..., Any] | None = None,
        metrics: str | Callable[..., Any] | None = None,
    ) -> None:
        self.path = path
        self.config = config
        self.store = Checkpoints(path)
        self._env, self._metrics = env, metrics

    @classmethod
    def create(
        cls,
        path: Path | None,
        config: Config,
        env: str | Callable[..., Any] | None = None,
        metrics: str | Callable[..., Any] | None = None,
        parent: Mapping[str, Any] | None = None,
        first: Boundary | None = None,
    ) -> Self:
        """Start a directory, a new one if none is named; none is ever overwritten. `first` is the
        checkpoint that a fork begins with."""
        try:
            settings = config.to_yaml()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"env_args cannot be written down: {error}") from None
        path = path or _fresh_directory(config)
        _require_free(path)
        if config.mirror:
            place = settled(config.mirror, path.resolve().name)
            require_apart(place, path)
            config = config.model_copy(update={"mirror": place})
            settings = config.to_yaml()
        identity = {
            "id": uuid.uuid4().hex,
            "parent": parent,
            "problem": problem(config),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            durable.make_directory(path)
            run = cls(path, config, env, metrics)
            with run.lock():
                _require_free(path)  # somebody else may have come first
                durable.make_directory(run.store.directory)
                durable.write_file(path / "config.yaml", settings.encode())
                if first is not None:
                    run.store.write(first)
                text = json.dumps(identity, indent=1).encode() + b"\n"
                durable.write_file(path / "run.json", text)  # from now on it is a run
        except OSError as error:
            raise RunError(f"cannot make the run directory {path}: {error}") from None
        return run

    @classmethod
    def open(
        cls,
        path: str | Path,
        env: str | Callable[..., Any] | None = None,
        metrics: str | Callable[..., Any] | None = None,
    ) -> Self:
        """Open a run; `env` and `metrics` are its environment and its metrics function where those
        are functions nobody can import. With `metrics=""` it does without."""
        path = Path(path)
        if not (path / "run.json").is_file():
            what = (
                "is not a run directory (it has no run.json)" if path.exists() else "does not exist"
            )
            raise RunError(f"{path} {what}; `surefoot runs` lists runs")
        try:
            config = Config.from_yaml((path / "config.yaml").read_text("utf-8"))
        except (OSError, ConfigError, ValueError, yaml.YAMLError) as error:
            raise RunError(f"{path / 'config.yaml'} cannot be used: {error}") from None
        if not config.env:
            raise RunError(f"{path / 'config.yaml'} cannot be used: it names no environment")
        run = cls(path, config, env, metrics)
        assert run.identity  # raises where run.json cannot be used
        return run

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.config.env}, {self.condition})"

    @property
    def name(self) -> str:
        """What its directory is called."""
        return self.path.resolve().name

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return self.store.listed()

    @property
    def identity(self) -> dict[str, Any]:
        """What run.json says: id, parent, problem, created."""
        try:
            content = json.loads((self.path / "run.json").read_text())
            return {"id": str(content["id"]), "parent": None, **content}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self.path / 'run.json'} cannot be used: {error}") from None

    def checkpoint(self, which: str | int = "best") -> Checkpoint:
        """Find the `best` (else the last), the `last`, or the one of a step."""
        there = self.checkpoints
        if not there:
            for path in reversed(self.store.paths()):
                describe(path)  # says what is wrong with it
            raise RunError(f"{self.path} has no checkpoint yet")
        if which == "last":
            return there[-1]
        if which == "best":
            named = [c for c in there if c.step == there[-1].manifest.best]
            scored = named or [c for c in there if c.score is not None]
            return max(scored, key=lambda c: (c.score, c.step)) if scored else there[-1]
        for path in self.store.paths():
            if str(which).isdecimal() and path.name == f"step_{int(which):012d}":
                return describe(path)
        steps = ", ".join(str(c.step) for c in there)
        raise RunError(f"no checkpoint {which!r} in {self.path}; there are best, last, {steps}")

    def configure(self, config: Config) -> None:
        """Replace the settings: for a run that is to go on for longer."""
        durable.write_file(self.path / "config.yaml", config.to_yaml().encode())
        self.config = config

    def save_fault(self, step: int, evidence: State) -> Path:
        """Keep what led to a fault: arrays, figures and the settings."""
        path = self.path / "faults" / f"step_{step:012d}"
        path.mkdir(parents=True, exist_ok=True)
        arrays = {n: v for n, v in tree.items(evidence) if isinstance(v, np.ndarray)}
        facts = {n: v for n, v in tree.items(evidence) if not isinstance(v, np.ndarray)}
        save_file(
            {n: np.asarray(v, order="C") for n, v in arrays.items()}, path / "arrays.safetensors"
        )
        (path / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
        (path / "config.yaml").write_text(self.config.to_yaml(), encoding="utf-8")
        return path

    def read(self, found: Checkpoint, whole: bool = True) -> State:
        """Read a checkpoint's state, or all but the data that only grows; where it is damaged, say
        which others there are."""
        try:
            return self.store.read(found.path, whole)[1]
        except CheckpointError as error:
            steps = ", ".join(str(c.step) for c in self.checkpoints if c.step != found.step)
            hint = f"; choose another with --checkpoint: {steps}" if steps else ""
            raise CheckpointError(f"{error}{hint}") from None

    def pin(self, step: str | int, pinned: bool = True) -> Checkpoint:
        """Let a checkpoint stay whatever comes after it, or no longer."""
        found = self.checkpoint(step)
        self.store.pin(found, pinned)
        return found

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Own the directory while training; the lock goes when the process does."""
        with self._lock_file() as file:
            for patience in (0.2, 0.4, 0.0):  # `surefoot runs` may be looking at it
                if _locked(file, fcntl.LOCK_EX):
                    break
                time.sleep(patience)
            else:
                raise RunError(f"{self.path} is in use by another process{_owner(file)}")
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def _lock_file(self) -> TextIO:
        try:
            return (self.path / "lock").open("a+")
        except OSError as error:
            raise RunError(f"{self.path} cannot be written to: {error.strerror}") from None

    def summary(self) -> dict[str, Any]:
        """Say in a few words how far the run is: for a table of runs."""
        last = last_line(self.path / "metrics.jsonl")
        scores = [c.score for c in self.checkpoints if c.score is not None]
        return {
            "run": str(self.path),
            "environment": self.config.env,
            "steps": int(last.get("step", 0)),
            "best_return": max(scores) if scores else None,
            "state": self.condition + self._damage(),
        }

    @property
    def ending(self) -> str:
        """Say why training ended, or nothing."""
        return str(self._last_event.get("reason", ""))

    def journal(self) -> list[dict[str, Any]]:
        """Return what happened to the run, oldest first."""
        file = self.path / "journal.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [entry for line in lines if isinstance(entry := _entry(line), dict)]

    @property
    def _last_event(self) -> dict[str, Any]:
        """Find how the run began or ended last; who is slow may have had a word after it."""
        ours = (entry for entry in reversed(self.journal()) if entry.get("event") in LIFE)
        return next(ours, {})

    @property
    def condition(self) -> str:
        """Say whether the run is running, finished or interrupted."""
        if (self.path / "lock").exists():
            with (self.path / "lock").open() as file:
                if not _locked(file, fcntl.LOCK_SH):
                    return "running"
        owner = read_owner(self.path / LEASE)  # it may be a mirror
        if owner and not owner.gone:
            return f"running on {owner.host}"
        return "interrupted" if self.finished_at is None else "finished"

    @property
    def finished_at(self) -> int | None:
        """The step at which the run came to its end, if that is what happened to it last."""
        last = self._last_event
        return int(last.get("step", 0)) if last.get("event") == "finish" else None

    def _damage(self) -> str:
        damaged = len(self.store.paths()) - len(self.checkpoints)
        return f", {damaged} damaged" if damaged else ""


def problem(config: Config) -> str:
    """Hash what makes two runs' scores comparable: the environment, its settings, and what counts
    as the score over how many steps."""
    parts: list[Any] = [config.env, identity(config.env, config.env_args)]
    longer = config.evaluate_steps if config.evaluate_every else None
    limit = longer or config.reset_every
    if config.score != "return" or limit is not None:
        parts += [config.score, limit]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _require_free(path: Path) -> None:
    there = path.is_dir() and [entry.name for entry in path.iterdir()]
    if path.exists() and there not in ([], ["lock"]):
        raise RunError(_taken(path))


def _taken(path: Path) -> str:
    """Say that a directory is in use, and what can be done about it."""
    if not (path / "run.json").is_file():
        return f"{path} exists and is not empty; choose another directory with --out"
    try:
        state = RunDirectory.open(path).summary()
    except SurefootError as error:
        return f"{path} holds a run that cannot be read ({error}); choose another with --out"
    what = (
        f"{path} holds a run of {state['environment']}, {state['state']} at step {state['steps']:,}"
    )
    name = quote(str(path))
    advice = {
        "running": "wait for it, or choose another directory with --out",
        "interrupted": f"go on with it by `surefoot resume {name}`, or choose another with --out",
        "finished": f"extend it by `surefoot resume {name} --total-steps N`, or choose another "
        f"directory with --out",
    }
    return f"{what}, and is never overwritten; {advice[re.split('[, ]', state['state'])[0]]}"


def _fresh_directory(config: Config) -> Path:
    """Make a directory named after the environment, seed and time."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in config.env.split(":")[-1])
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name.strip('_')}-seed{config.seed}-{stamp}"
    candidates = [base, *(base.with_name(f"{base.name}-{n}") for n in range(2, 1000))]
    for path in candidates:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise RunError(f"there are too many runs named {base}")


def _owner(file: TextIO) -> str:
    file.seek(0)
    number = file.read(20)
    return f" ({number})" if number.isdecimal() else ""


def _locked(file: TextIO, kind: int) -> bool:
    """Try to take a lock that goes with the file's descriptor."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def last_line(file: Path) -> dict[str, Any]:
    """Read the last complete JSON line of a file, or nothing."""
    if not file.is_file():
        return {}
    with file.open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - 65536))
        lines = stream.read().splitlines()
    entries = (entry for line in reversed(lines) if isinstance(entry := _entry(line), dict))
    return next(entries, {})


def _entry(line: str | bytes) -> Any:
    """Read a line of JSON; one that was torn is nothing."""
    try:
        return json.loads(line)
    except ValueError:
        return None
