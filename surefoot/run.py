"""The run directory: who it belongs to, what is in it, and how to use what was trained."""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
import yaml
from safetensors.numpy import save_file

from surefoot.config import Config
from surefoot.core import tree
from surefoot.core.errors import ConfigError, RunError, SurefootError
from surefoot.core.protocols import State
from surefoot.core.spec import Spec, differences
from surefoot.envs.make import Factory, factory, make_some
from surefoot.evaluate import Evaluation, play
from surefoot.policy.actor import Greedy, PolicyActor, Sample
from surefoot.policy.agent import Agent
from surefoot.policy.build import build_actor_critic
from surefoot.policy.device import to_tensors
from surefoot.store import checkpoint
from surefoot.store.checkpoint import Checkpoint

EVALUATION_ROWS = 16


class Run:
    """One training and its directory."""

    def __init__(
        self, path: Path, config: Config, env: str | Callable[..., Any] | None = None
    ) -> None:
        self.path = path
        self.config = config
        self._env = env

    @classmethod
    def create(
        cls, path: Path | None, config: Config, env: str | Callable[..., Any] | None = None
    ) -> Run:
        """Start a directory, a new one if none is named; none is ever overwritten."""
        try:
            settings = config.to_yaml()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"env_args cannot be written down: {error}") from None
        path = path or _fresh_directory(config)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            what = "holds a run" if (path / "run.json").is_file() else "exists and is not empty"
            raise RunError(
                f"{path} {what} and is never overwritten; choose another directory with --out, "
                f"or look at it with `surefoot eval {path}`"
            )
        try:
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the run directory {path}: {error}") from None
        identity = {
            "id": uuid.uuid4().hex,
            "parent": None,
            "problem": problem(config),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            with (path / "run.json").open("x") as file:
                file.write(json.dumps(identity, indent=1) + "\n")
        except FileExistsError:
            raise RunError(f"{path} was just taken by another run; choose another") from None
        (path / "config.yaml").write_text(settings, encoding="utf-8")
        return cls(path, config, env)

    @classmethod
    def open(cls, path: str | Path, env: str | Callable[..., Any] | None = None) -> Run:
        """Open a run; `env` is its environment where that is a function nobody can import."""
        path = Path(path)
        if not (path / "run.json").is_file():
            what = (
                "is not a run directory (it has no run.json)" if path.exists() else "does not exist"
            )
            raise RunError(f"{path} {what}; `surefoot runs` lists runs")
        try:
            return cls(path, Config.from_yaml((path / "config.yaml").read_text("utf-8")), env)
        except (OSError, ConfigError, yaml.YAMLError) as error:
            raise RunError(f"{path / 'config.yaml'} cannot be used: {error}") from None

    @property
    def checkpoints_directory(self) -> Path:
        return self.path / "checkpoints"

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return checkpoint.listed(self.checkpoints_directory)

    def checkpoint(self, which: str = "best") -> Checkpoint:
        """Find the `best` (else the last), the `last`, or the one of a step."""
        there = self.checkpoints
        if not there:
            raise RunError(f"{self.path} has no checkpoint yet")
        if which == "last":
            return there[-1]
        if which == "best":
            scored = [c for c in there if c.score is not None]
            return max(scored, key=lambda c: (c.score, c.step)) if scored else there[-1]
        for found in there:
            if which.isdecimal() and found.step == int(which):
                return found
        steps = ", ".join(str(c.step) for c in there)
        raise RunError(f"no checkpoint {which!r} in {self.path}; there are best, last, {steps}")

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

    def load(self, which: str = "best") -> Agent:
        """Load a trained policy; its environment is not needed."""
        return self._load(self.checkpoint(which))

    def _load(self, found: Checkpoint) -> Agent:
        state = checkpoint.read(found)
        try:
            spec = Spec.from_state(state["spec"])
            policy = build_actor_critic(spec, self.config.policy, self.config.seed)
            policy.load_state_dict(to_tensors(state["learner"]["policy"], torch.device("cpu")))
        except (KeyError, TypeError, RuntimeError) as error:
            raise RunError(
                f"{found.path} does not fit {self.path / 'config.yaml'}: {error}"
            ) from None
        return Agent(policy, spec, self.config.seed)

    def evaluate(
        self,
        episodes: int = 20,
        checkpoint: str = "best",
        deterministic: bool = True,
        seed: int | None = None,
        render: bool = False,
    ) -> Evaluation:
        """Play whole episodes with a trained policy in new environments."""
        if episodes < 1 or (seed is not None and seed < 0):
            raise ConfigError(
                f"episodes={episodes}, seed={seed}: play at least one, from seed 0 up"
            )
        found = self.checkpoint(checkpoint)
        agent = self._load(found)
        make = self.factory({"render_mode": "human"} if render else {})
        env = make_some(make, 1 if render else min(episodes, EVALUATION_ROWS))
        try:
            if different := differences(agent.spec, env.spec):
                raise RunError(f"{make.name} is not what was trained on: {'; '.join(different)}")
            actor = PolicyActor(agent.network, Greedy() if deterministic else Sample())
            return play(
                actor, env, episodes, self.config.seed if seed is None else seed, found.step
            )
        finally:
            env.close()

    def factory(self, extra: dict[str, Any]) -> Factory:
        """Find what makes this run's environments."""
        if self._env is None and self.config.env.startswith("<"):
            raise RunError(
                f"the environment of {self.path} is the function {self.config.env}, which "
                f"cannot be imported; say where it is with --env file.py:function, or in Python "
                f"with surefoot.Run.open(path, env=function)"
            )
        return factory(self._env or self.config.env, {**self.config.env_args, **extra})

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Own the directory while training; the lock goes when the process does."""
        with (self.path / "lock").open("a") as file:
            for patience in (0.2, 0.4, 0.0):  # `surefoot runs` may be looking at it
                if _locked(file, fcntl.LOCK_EX):
                    break
                time.sleep(patience)
            else:
                raise RunError(f"{self.path} is in use by another process")
            yield

    def summary(self) -> dict[str, Any]:
        """Say in a few words how far the run is: for a table of runs."""
        last = _last_line(self.path / "metrics.jsonl")
        scores = [c.score for c in self.checkpoints if c.score is not None]
        return {
            "run": str(self.path),
            "environment": self.config.env,
            "steps": int(last.get("step", 0)),
            "best_return": max(scores) if scores else None,
            "state": self._state(),
        }

    @property
    def ending(self) -> str:
        """Say why training ended, or nothing."""
        return str(_last_line(self.path / "journal.jsonl").get("reason", ""))

    def _state(self) -> str:
        if (self.path / "lock").exists():
            with (self.path / "lock").open() as file:
                if not _locked(file, fcntl.LOCK_SH):
                    return "running"
        ended = _last_line(self.path / "journal.jsonl").get("event") == "finish"
        return "finished" if ended else "interrupted"


def load(path: str | Path, checkpoint: str = "best") -> Agent:
    """Load the trained policy of a run."""
    return Run.open(path).load(checkpoint)


def problem(config: Config) -> str:
    """Hash what makes two runs' scores comparable: the environment and its settings."""
    env = config.env.rpartition("/")[2] if ".py:" in config.env else config.env
    text = json.dumps([env, config.env_args], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def summaries(directory: Path) -> list[dict[str, Any]]:
    """Summarize the runs below a directory, oldest first; one that cannot be read says why."""
    found = [path.parent for path in directory.glob("**/run.json")]
    rows = []
    for path in sorted(found, key=lambda path: (path / "run.json").stat().st_mtime):
        try:
            rows.append(Run.open(path).summary())
        except SurefootError as error:
            broken = {"environment": "-", "steps": 0, "best_return": None}
            rows.append({"run": str(path), **broken, "state": f"unreadable: {error}"})
    return rows


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


def _locked(file: TextIO, kind: int) -> bool:
    """Try to take a lock that goes with the file's descriptor."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _last_line(file: Path) -> dict[str, Any]:
    """Read the last complete JSON line of a file, or nothing."""
    if not file.is_file():
        return {}
    with file.open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - 65536))
        lines = stream.read().splitlines()
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            return entry
    return {}
