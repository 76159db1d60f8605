"""Everything a run leaves on disk besides its metrics, written together and in the right order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from surefoot.core.errors import SurefootError
from surefoot.core.progress import Progress
from surefoot.store.checkpoint import Boundary
from surefoot.store.models import Models
from surefoot.store.retention import Keeper

Trouble: TypeAlias = Callable[[OSError], None]
"""What to do when the disk refuses: raise a SaveError, or report it and return."""

ENTER_SECONDS = 60.0
"""How often the hall of fame is offered a new best, at most, before the run ends."""


class Saver:
    """Saves boundaries: metrics first, then models, then checkpoints, then the hall of fame."""

    def __init__(
        self,
        commit: Callable[[], None],
        models: Models,
        keeper: Keeper,
        enter: Callable[[], None],
        trouble: Trouble,
        last_trouble: Trouble,
        tell: Callable[[Mapping[str, Any]], None],
        saved: Callable[[], None],
    ) -> None:
        """`saved` is called whenever there is something new on disk."""
        self._commit, self._models, self._keeper, self._saved = commit, models, keeper, saved
        self._enter, self._tell = enter, tell
        self._trouble, self._last_trouble = trouble, last_trouble
        self._entered = time.monotonic()

    def offer(self, boundary: Boundary, before: Progress, progress: Progress) -> None:
        """Look at a boundary: it may be the best, or its policy may be asked for."""
        self._keeper.offer(boundary)
        self._models.offer(boundary, before, progress)

    def save(self, boundary: Boundary) -> None:
        """Save a boundary, and the best one before it, on the way."""
        self._save(boundary, self._trouble)
        if time.monotonic() - self._entered > ENTER_SECONDS:
            self._enter_best()

    def stop(self, boundary: Boundary) -> None:
        """Save the last boundary of a run that is not finished."""
        self._save(boundary, self._last_trouble)
        self._enter_best()

    def finish(self, boundary: Boundary) -> None:
        """Save the last boundary of a finished run."""
        self.stop(boundary)
        try:
            self._models.finish(boundary)
        except OSError as error:
            self._last_trouble(error)

    def tidy(self) -> None:
        """Remove what is not to be kept, as far as that can be done."""
        with suppress(OSError):
            self._keeper.tidy()

    def _save(self, boundary: Boundary, trouble: Trouble) -> None:
        if boundary.step == 0:
            return
        begun = time.perf_counter()
        try:
            self._commit()
            self._models.save()
            self._keeper.save(boundary)
        except OSError as error:
            trouble(error)
            return
        seconds = round(time.perf_counter() - begun, 4)
        facts = {"step": boundary.step, "exact": boundary.exact, "seconds": seconds}
        self._tell({"event": "save", **facts})
        self._saved()

    def _enter_best(self) -> None:
        """Offer the best that is on disk to the hall of fame."""
        self._entered = time.monotonic()
        try:
            self._enter()
        except (OSError, SurefootError, ValueError) as error:
            self._tell({"event": "hall-of-fame-error", "message": f"hall of fame: {error}"})
