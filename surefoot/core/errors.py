"""Errors a user can act on. The command line prints their message, without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class SurefootError(Exception):
    """Anything that went wrong in a way surefoot understands."""


class ConfigError(SurefootError):
    """A setting, option, environment id or factory that cannot be used as given."""


class RunError(SurefootError):
    """A run directory or checkpoint that is missing, taken or unreadable."""


class CheckpointError(RunError):
    """A checkpoint that is damaged, hostile, or not for this version or environment."""


class VersionError(CheckpointError):
    """A checkpoint that another version of surefoot wrote in another format."""


class SaveError(RunError):
    """A checkpoint could not be written; those before it are intact."""


class StoreError(SurefootError):
    """A store elsewhere refused; the message says what to do."""


class Unreachable(StoreError):
    """A store elsewhere does not answer, or not now: trying again may help."""


class Missing(StoreError):
    """A store has nothing under a key."""


class InexactError(SurefootError):
    """An environment did not come back as it was; the message names row and step."""


class EnvError(SurefootError):
    """An environment broke its contract; the message names environment, row, episode and step."""


class WorkerTraceback(Exception):
    """What a worker process wrote about the exception or the signal that stopped it."""


class NonFiniteError(SurefootError):
    """Learning produced NaN or infinity. `evidence` is what is needed to reproduce it."""

    def __init__(self, message: str, evidence: dict[str, Any]) -> None:
        super().__init__(message)
        self.evidence = evidence


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the closest known word as a clause to append to a message, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
