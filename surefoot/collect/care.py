"""How workers are looked after: how long they may take, and how many may be lost."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from surefoot.collect.crew import Lost
from surefoot.core.errors import EnvError, WorkerTraceback

WINDOW = 600.0
"""Seconds for which a loss counts."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds to wait before replacing a worker whose predecessor achieved nothing; they double."""


@dataclass(frozen=True)
class Care:
    """What the settings say; see there."""

    step_timeout: float
    restarts: int
    restart_on_error: bool


class Budget:
    """How many workers may be lost before it is too many."""

    def __init__(self, name: str, restarts: int) -> None:
        self._name, self._restarts = name, restarts
        self._losses: deque[tuple[float, Lost]] = deque()

    def spend(self, lost: Lost) -> None:
        """Count a loss; give up where there were too many, with the first one's last words."""
        now = time.monotonic()
        self._losses.append((now, lost))
        while self._losses[0][0] < now - WINDOW:
            self._losses.popleft()
        if len(self._losses) > self._restarts:
            first = self._losses[0][1]
            said = WorkerTraceback(first.said) if first.said else None
            raise EnvError(
                f"{self._name}: workers lost within {WINDOW / 60:g} minutes: {len(self._losses)}, "
                f"more than worker_restarts={self._restarts}. The first {first.how}. Mend the "
                f"environment and go on with `surefoot resume`"
            ) from said


class Pauses:
    """How long to wait before replacing a worker that achieved nothing."""

    def __init__(self, workers: int) -> None:
        self._fruitless = [0] * workers

    def fruit(self, worker: int) -> None:
        """Note that a worker made a step."""
        self._fruitless[worker] = 0

    def take(self, worker: int) -> None:
        tries = self._fruitless[worker]
        self._fruitless[worker] += 1
        if tries:
            time.sleep(min(LONGEST_DELAY, FIRST_DELAY * 2 ** (tries - 1)))
