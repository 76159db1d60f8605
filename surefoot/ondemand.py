"""What a run does between two iterations because somebody asked for it at the keyboard."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.core.episodes import SCORE_NAMES
from surefoot.core.errors import SurefootError
from surefoot.core.signals import Held
from surefoot.core.wishes import Wishes
from surefoot.ending import Ending
from surefoot.evaluate import Evaluation
from surefoot.store.checkpoint import Boundary
from surefoot.store.saver import Saver

PATIENCE = 0.1
"""Seconds between two looks at the keyboard while a run pauses."""


@dataclass
class OnDemand:
    """Grants wishes. None of them changes what the run learns: a checkpoint is one more on disk,
    and an evaluation decides nothing."""

    wishes: Wishes
    evaluate: Callable[[int], Evaluation]
    """Evaluates the policy as of a step."""
    film: Callable[[Boundary], None]
    """Begins a film of the policy."""
    saver: Saver
    score: str
    """What counts of an evaluation: return or lta."""
    tell: Callable[[Mapping[str, Any]], None]

    def grant(self, boundary: Boundary, held: Held) -> Ending | None:
        """Do what was asked for; say if that ends the run. A pause lasts until it is asked for
        again."""
        paused = False
        while True:
            while wish := self.wishes.take():
                match wish:
                    case "pause":
                        paused = not paused
                        self._say("pause" if paused else "continue", boundary)
                    case "checkpoint":
                        self._save(boundary)
                    case "evaluate":
                        with held.abandonable():
                            self._evaluate(boundary)
                    case "video":
                        self.film(boundary)
                    case "stop":
                        return Ending(False, "stopped at the keyboard")
            if not paused:
                return None
            with held.abandonable():
                time.sleep(PATIENCE)

    def _say(self, event: str, boundary: Boundary) -> None:
        words = {"pause": "paused, p goes on", "continue": "goes on"}[event]
        self.tell({"event": event, "step": boundary.step, "message": words})

    def _save(self, boundary: Boundary) -> None:
        self.saver.save(boundary)
        words = "" if boundary.exact else ", to look at: it is not one to go on from exactly"
        message = f"checkpoint of step {boundary.step:,}{words}"
        self.tell({"event": "saved-on-demand", "step": boundary.step, "message": message})

    def _evaluate(self, boundary: Boundary) -> None:
        try:
            found = self.evaluate(boundary.step)
        except SurefootError as error:  # nobody needs it to go on
            message = f"evaluation of step {boundary.step:,} failed: {error}"
            self.tell({"event": "evaluation-error", "step": boundary.step, "message": message})
            return
        scores, what = found.scores(self.score), SCORE_NAMES[self.score]
        message = (
            f"evaluation of step {boundary.step:,}: {what} {statistics.fmean(scores):.2f} ± "
            f"{statistics.pstdev(scores):.2f} in {len(scores)} episodes"
        )
        entry = {"event": "evaluation", "step": boundary.step, "metrics": found.metrics()}
        self.tell({**entry, "message": message})
