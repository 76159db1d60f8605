"""Where a view is picked that suits where standard output goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from rich.console import Console

from surefoot.config import Output
from surefoot.core.protocols import Sink
from surefoot.core.wishes import Wishes
from surefoot.sinks.dashboard import Dashboard
from surefoot.sinks.plain import JsonLogs, PlainBlocks, Silent


class View(Sink, Protocol):
    """A sink that people look at."""

    def alert(self, text: str) -> None:
        """Say at once what a signal leads to; a handler may call this at any moment."""


def terminal(
    output: Output, title: str, recent: int, crew: str, wishes: Wishes, algo: str = "ppo"
) -> View:
    """Make a view; `recent` is how many episodes count as such, `crew` says who steps environments,
    keys become wishes, and `algo` has fields of its own."""

    def what_suits() -> View:
        console = Console()
        # FORCE_COLOR makes rich take a pipe for a terminal.
        if sys.stdout is not None and sys.stdout.isatty() and not console.is_dumb_terminal:
            return Dashboard(console, title, recent, crew, wishes, algo)
        return PlainBlocks(title, recent, algo)

    views: dict[str, Callable[[], View]] = {"auto": what_suits, "quiet": Silent, "json": JsonLogs}
    return views[output]()
