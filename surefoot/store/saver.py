"""Everything a run leaves on disk besides its metrics, written together and in the right order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from surefoot.core.errors import SurefootError
from surefoot.core.progress import Progress
from surefoot.store.checkpoint import Boundary
from surefoot.store.models import Models
from surefoot.store.retention import Keeper

Trouble: TypeAlias = Callable[[OSError], None]
"""What to do when the disk refuses: raise a SaveError, or report it and return."""


class Saver:
    """Saves boundaries: metrics first, then models, then checkpoints, then the hall of fame."""

    def __init__(
        self,
        commit: Callable[[], None],
        models: Models,
        keeper: Keeper,
        enter: Callable[[Boundary], None],
        trouble: Trouble,
        tell: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._commit, self._models, self._keeper = commit, models, keeper
        self._enter, self._trouble, self._tell = enter, trouble, tell

    def offer(self, boundary: Boundary, before: Progress, progress: Progress) -> None:
        """Look at a boundary: it may be the best, or its policy may be asked for."""
        self._keeper.offer(boundary)
        try:
            self._models.offer(boundary, before, progress)
        except OSError as error:
            self._trouble(error)

    def save(self, boundary: Boundary) -> None:
        """Save a boundary, and the best one before it."""
        if boundary.step == 0:
            return
        begun = time.perf_counter()
        try:
            self._commit()
            self._models.save()
            best = self._keeper.save(boundary)
        except OSError as error:
            self._trouble(error)
            return
        if best is not None:
            try:
                self._enter(best)
            except (OSError, SurefootError) as error:
                self._tell({"event": "hall-of-fame-error", "message": f"hall of fame: {error}"})
        seconds = round(time.perf_counter() - begun, 4)
        self._tell({"event": "save", "step": boundary.step, "seconds": seconds})

    def finish(self, boundary: Boundary) -> None:
        """Save the last boundary of a finished run."""
        self.save(boundary)
        try:
            self._models.finish(boundary)
        except OSError as error:
            self._trouble(error)
