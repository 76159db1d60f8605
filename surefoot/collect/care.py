"""How workers are looked after: how long they may take, and how many may be lost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.collect.crew import Lost
from surefoot.core.errors import EnvError, WorkerTraceback
from surefoot.core.tree import Array

WINDOW = 600.0
"""Seconds for which a loss counts."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds to wait before replacing a worker whose predecessor achieved nothing; they double."""
SHOWN_LINES = 12
"""Lines of a lost worker's last words that a person sees at once; the journal has them all."""
INCOMPARABLE = (
    "from here on this run is not comparable bit for bit with one in which no worker was replaced"
)


@dataclass(frozen=True)
class Care:
    """What the settings say; see there."""

    step_timeout: float
    restarts: int
    restart_on_error: bool


class Losses:
    """What becomes of a loss: it is told, counts against the budget, and is followed by a pause if
    the worker achieved nothing."""

    def __init__(
        self,
        name: str,
        restarts: int,
        workers: int,
        tell: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._name, self._restarts, self._tell = name, restarts, tell
        self._losses: deque[tuple[float, Lost]] = deque()
        self._fruitless = [0] * workers

    def note(self, worker: int, lost: Lost, trail: Array, first: bool) -> None:
        """See to a loss, the run's first or another; `trail` says where the worker was."""
        self._report(worker, lost, trail, first)
        self._spend(lost)
        tries = self._fruitless[worker]
        self._fruitless[worker] += 1
        if tries:
            time.sleep(min(LONGEST_DELAY, FIRST_DELAY * 2 ** (tries - 1)))

    def fruit(self, worker: int) -> None:
        """Note that a worker made a step."""
        self._fruitless[worker] = 0

    def _spend(self, lost: Lost) -> None:
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

    def _report(self, worker: int, lost: Lost, trail: Array, first: bool) -> None:
        place, said = self._place(trail), lost.said.strip().splitlines()
        part = said[:SHOWN_LINES] if "most recent call first" in lost.said else said[-SHOWN_LINES:]
        where = "" if self._name in lost.how else f": {place}"
        message = [f"lost worker {worker}, which {lost.how}{where}"]
        message += [f"  {line}" for line in part]
        message += [INCOMPARABLE] if first else []
        self._tell(
            {
                "event": "worker-lost",
                "worker": worker,
                "how": lost.how,
                "place": place,
                "traceback": lost.said,
                "message": "\n".join(message),
            }
        )

    def _place(self, trail: Array) -> str:
        """Say where a worker was last: environment, row, episode and step."""
        _, row, episode, step = trail.tolist()
        where = f"row {row}, episode {episode}, step {step}" if step >= 0 else "while it was built"
        return f"{self._name}, {where}"
