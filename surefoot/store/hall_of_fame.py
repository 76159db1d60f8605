"""The best models over all runs of one problem: one per run, the k best.

hall_of_fame/<problem>/  entries.json  lock  <run id>-<step>-<model>/  (a run of its own)
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError

from surefoot.config import Config
from surefoot.core.errors import RunError
from surefoot.core.state import State
from surefoot.policy.files import actor_file, critic_file
from surefoot.store import durable
from surefoot.store.checkpoint import Boundary, Checkpoints

DIRECTORY, ENTRIES = "hall_of_fame", "entries.json"
ENTRY_BYTES = 1 << 22


class Entry(BaseModel):
    """One model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    run: Annotated[str, Field(pattern=r"^[0-9a-z]{1,64}$")]
    step: NonNegativeInt
    score: float
    by: Literal["evaluation", "return"]
    env: str
    env_args: dict[str, Any]
    seed: NonNegativeInt
    path: str
    """Where the run was."""
    model: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    """The beginning of a hash of its weights."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Order a run's own models: an evaluation counts more than a recent return."""
        return self.by == "evaluation", self.score

    @property
    def directory(self) -> str:
        return f"{self.run}-{self.step}-{self.model}"


Entries = TypeAdapter(list[Entry])


class HallOfFame:
    """The k best models for one problem."""

    def __init__(self, runs: Path, problem: str, size: int) -> None:
        self.directory = runs / DIRECTORY / problem
        self._size = size

    def entries(self) -> list[Entry]:
        """List the models, best first."""
        if not (self.directory / ENTRIES).exists():
            return []
        try:
            return Entries.validate_json(durable.read_file(self.directory / ENTRIES, ENTRY_BYTES))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise RunError(
                f"{self.directory / ENTRIES} cannot be used ({place}: {first['msg']}); move it "
                f"away to begin a new one"
            ) from None

    def offer(self, entry: Entry, config: Config, model: State) -> bool:
        """Take a model in if it is among the best; say whether it was."""
        durable.make_directory(self.directory)
        with self._lock():
            before = self.entries()
            mine = [old for old in before if old.run == entry.run and old.rank >= entry.rank]
            others = [old for old in before if old.run != entry.run]
            ranked = sorted([*others, *(mine or [entry])], key=lambda e: e.score, reverse=True)
            kept = ranked[: self._size]
            if entry not in kept:
                return False
            self._place(entry, config, model)
            durable.write_file(self.directory / ENTRIES, Entries.dump_json(kept, indent=1))
            named = {entry.directory for entry in kept}
            for path in self.directory.iterdir():
                if path.is_dir() and path.name not in named:
                    shutil.rmtree(path, ignore_errors=True)
            return True

    def _place(self, entry: Entry, config: Config, model: State) -> None:
        """Put the model there as a run of its own, with one checkpoint that holds the policy."""
        target = self.directory / entry.directory
        if target.exists():
            return
        staged = self.directory / f"{durable.STAGING}{entry.directory}"
        shutil.rmtree(staged, ignore_errors=True)
        (staged / "checkpoints").mkdir(parents=True)
        policy = model["learner"]["policy"]
        state = {"spec": model["spec"], "learner": {"policy": policy}}
        Checkpoints(staged).write(Boundary(entry.step, state, exact=False, score=entry.score))
        files = {
            "actor.pth": actor_file(policy),
            "critic.pth": critic_file(policy),
            "config.yaml": config.to_yaml().encode(),
            "run.json": json.dumps({"id": entry.run, "path": entry.path}).encode(),
        }
        for name, content in files.items():
            durable.write_file(staged / name, content)
        os.rename(staged, target)
        durable.sync(self.directory)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Wait for our turn; the lock goes with the process."""
        with (self.directory / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def halls(runs: Path) -> list[HallOfFame]:
    """Find the hall of every problem below a directory of runs."""
    return [
        HallOfFame(runs, path.parent.name, 0) for path in (runs / DIRECTORY).glob(f"*/{ENTRIES}")
    ]
