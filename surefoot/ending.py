"""How a run ends: because it is done, because of a signal, or because of a fault."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from surefoot.config import Config
from surefoot.core.episodes import SCORE_NAMES
from surefoot.core.errors import NonFiniteError, SaveError
from surefoot.core.protocols import Sink
from surefoot.core.signals import Abandon, Held
from surefoot.run import Run
from surefoot.store.checkpoint import Boundary
from surefoot.store.saver import Saver
from surefoot.training import Training


@dataclass(frozen=True)
class Ending:
    """Why training ended, and whether that is all there was to do."""

    finished: bool
    reason: str

    @property
    def event(self) -> str:
        return "finish" if self.finished else "stop"


class Interrupted(KeyboardInterrupt):
    """A signal ended training; the run is saved."""

    def __init__(self, signal: int, run: Run) -> None:
        super().__init__(f"stopped by signal {signal}; the run is saved in {run.path}")
        self.signal, self.run = signal, run


def finished(config: Config, training: Training) -> Ending | None:
    """Say whether a run has done what it was to do."""
    score = training.recent.score
    if config.stop_at is not None and score is not None and score >= config.stop_at:
        return Ending(True, f"recent {SCORE_NAMES[config.score]} {score:.2f} reached stop_at")
    return Ending(True, "budget spent") if training.progress.done else None


def stopped(config: Config, started: float) -> Ending | None:
    """Say whether a run has to go on another time."""
    hours = (time.monotonic() - started) / 3600
    over = config.max_hours is not None and hours >= config.max_hours
    return Ending(False, "max_hours reached") if over else None


@dataclass
class Kept:
    """The last boundary, in memory: what there is to save when something ends the run."""

    boundary: Boundary | None = None


@contextmanager
def interruptible(held: Held, run: Run, saver: Saver, sink: Sink) -> Iterator[Kept]:
    """Save the last boundary when a signal or a fault ends what is inside."""
    kept = Kept()
    try:
        try:
            yield kept
        except Abandon:
            if kept.boundary:
                saver.stop(kept.boundary)
            raise Interrupted(held.caught[0], run) from None
    except (Interrupted, SaveError):
        raise
    except KeyboardInterrupt:  # a second signal: what is on disk stays as it is
        caught = held.caught[0] if held.caught else signal.SIGINT
        raise Interrupted(caught, run) from None
    except Exception as error:
        if kept.boundary:
            _save_after_fault(saver, kept.boundary, sink)
        if isinstance(error, NonFiniteError):
            path = run.save_fault(kept.boundary.step if kept.boundary else 0, error.evidence)
            raise NonFiniteError(f"{error}\nwhat led to it is in {path}", error.evidence) from None
        raise


def _save_after_fault(saver: Saver, boundary: Boundary, sink: Sink) -> None:
    """Save what was learned before a fault, which is worse news than a full disk."""
    try:
        saver.stop(boundary)
    except SaveError as error:
        sink.event({"event": "save-error", "message": str(error)})
