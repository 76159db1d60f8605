"""What a person sees on a terminal while training: one panel that is redrawn in place."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from surefoot.core.metrics import Metrics
from surefoot.core.tree import Array
from surefoot.core.wishes import KEYS, Wishes
from surefoot.sinks.drawing import (
    COLORS,
    fitting,
    lines,
    mirror_line,
    separated,
    sparkline,
    split_bar,
    summary,
)
from surefoot.sinks.keyboard import Keyboard
from surefoot.sinks.plain import printable
from surefoot.sinks.statistics import duration, lasting, sections

SECONDS = 1.0
"""Between two pictures."""
WIDEST = 110
"""Characters of the panel at most."""
EVENTS = 5
"""Lines of what happened last."""
FRAME = 2
"""Lines that the panel itself takes."""
BESIDES, GAPS = 7, 4
"""Lines of all that is not statistics, and blank ones between the parts if there is room."""
PERCENT, SHORTEST = 6, 12
"""Characters of the share that is done, and of its bar at least."""
MEMORY = 0.8
"""How much of the time split an iteration leaves as it was."""


class Dashboard:
    """Progress and time left, statistics, the return so far, where time goes, what happened last,
    and keys. A thread of its own draws, so that clocks and keys do not wait for an iteration."""

    def __init__(
        self,
        console: Console,
        title: str,
        recent: int,
        crew: str,
        wishes: Wishes,
        algo: str = "ppo",
    ) -> None:
        """`crew` says who steps the environments."""
        self._algo = algo
        self._title, self._recent, self._crew, self._wishes = title, recent, crew, wishes
        self._started = time.monotonic()
        self._before: float | None = None
        self._latest: Metrics | None = None
        self._returns = History()
        self._split: dict[str, float] = {}
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._last: str | None = None
        self._state = ""
        self._lasting: Metrics = {}
        self._paused = Stopwatch()
        self._keyboard = Keyboard()
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._drawing = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, step: int, metrics: Metrics) -> None:
        self._begin()
        if self._before is None:  # a resumed run has steps behind it that took no time now
            self._before = metrics["progress/steps"] - metrics["rollout/steps"]
        scores = (metrics.get(f"recent/{name}_mean") for name in ("return", "lta_return"))
        if (score := next((one for one in scores if one is not None), None)) is not None:
            self._returns.add(score)
        spent = {name: metrics.get(f"time/{name}", 0.0) for name in COLORS}
        self._split = {
            name: MEMORY * self._split.get(name, seconds) + (1 - MEMORY) * seconds
            for name, seconds in spent.items()
        }
        self._lasting |= lasting(metrics)
        self._latest = {**self._lasting, **metrics}

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        pass

    def event(self, entry: Mapping[str, Any]) -> None:
        self._begin()
        self._state = {"pause": "paused", "continue": ""}.get(str(entry.get("event")), self._state)
        self._paused.run(self._state == "paused")
        text = entry.get("message") or _described(entry)
        now = time.strftime("%H:%M:%S")
        if entry.get("event") == self._last == "save":  # many of them would hide all the rest
            self._events.pop()
        self._last = entry.get("event")
        self._events.extend(f"{now}  {printable(line)}" for line in str(text).splitlines())

    def alert(self, text: str) -> None:
        self._state = text

    def close(self) -> None:
        if self._thread is None:
            return
        self._closed.set()
        self._thread.join()
        self._keyboard.close()
        self._draw()
        with suppress(OSError, SystemExit):  # the terminal is gone
            self._live.stop()

    def _begin(self) -> None:
        """Take over the terminal, when there is something to show and somebody to give it back."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._attend, name="dashboard", daemon=True)
            with suppress(OSError, SystemExit):  # the terminal may be gone
                self._live.start()
            self._thread.start()

    def _attend(self) -> None:
        while not self._closed.is_set():
            wish = KEYS.get(self._keyboard.wait(SECONDS))
            if wish:
                self._wishes.ask(wish)
            self._draw()

    def _draw(self) -> None:
        console = self._live.console
        width = min(WIDEST, console.width)
        body = Group(*self._parts(width - 4, console.height - FRAME - 1))
        panel = Panel(body, title=Text(self._title), width=width)
        with self._drawing, suppress(OSError, SystemExit):  # the terminal may be gone
            self._live.update(panel, refresh=True)

    def _parts(self, width: int, height: int) -> list[RenderableType]:
        """List what to show, as much as there is room for: blank lines last."""
        metrics = self._latest
        if metrics is None:
            news = self._news(width, height - 4)
            return separated([[Text("collecting the first rollout …")], news, [self._keys(width)]])
        elapsed = time.monotonic() - self._started
        figures: list[Text] = []
        arranged = sections(metrics, self._recent, elapsed, self._algo)
        statistics = fitting(arranged, width, height - BESIDES)
        if lines(statistics) > height - 2:
            statistics = summary(metrics, width)
        room = height - 2 - lines(statistics)
        shown = [self._curve(width), split_bar(self._split, width), self._health(metrics)]
        for part in [*shown, *mirror_line(metrics)]:
            if room > lines(part):  # what happened last is to have a line
                figures.append(part)
                room -= lines(part)
        blank = min(GAPS, max(0, room - min(2, len(self._events))))
        news = self._news(width, room - blank)
        top = [self._progress(metrics, elapsed, width)]
        return separated([top, [statistics], figures, news, [self._keys(width)]], blank)

    def _health(self, metrics: Metrics) -> Text:
        """Say how those are who step the environments."""
        replaced = metrics.get("collect/workers_replaced", 0.0)
        lost = f", {replaced:.0f} lost and replaced" if replaced else ""
        return Text.assemble(("envs    ", "dim"), self._crew, lost, no_wrap=True)

    def _progress(self, metrics: Metrics, elapsed: float, width: int) -> RenderableType:
        done, total = metrics["progress/steps"], metrics["progress/total_steps"]
        spent = elapsed - self._paused.seconds
        left = spent * max(0.0, total - done) / max(done - (self._before or 0.0), 1.0)
        speed = metrics.get("time/steps_per_second", 0.0)
        facts = [f"{duration(elapsed)} gone", f"{duration(left)} left", f"{speed:,.0f} steps/s"]
        while len(facts) > 1 and len(", ".join(facts)) > width - PERCENT - SHORTEST:
            facts.pop(-1 if len(facts) == 3 else 0)
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        percent = Text(f"{min(1.0, done / total):4.0%}  {', '.join(facts)}")
        bar.add_row(ProgressBar(total=total, completed=min(done, total)), percent)
        return bar

    def _curve(self, width: int) -> Text:
        """Draw the mean return of recent episodes since this process began."""
        label = "return  "
        if not self._returns.values:
            return Text.assemble((label, "dim"), "no episode has ended yet")
        low, high = min(self._returns.values), max(self._returns.values)
        span = f"  {low:.4g} to {high:.4g}"
        line = sparkline(self._returns.values, max(8, width - len(label) - len(span)))
        return Text.assemble((label, "dim"), (line, "green"), (span, "dim"), no_wrap=True)

    def _news(self, width: int, most: int) -> list[Text]:
        """List what happened last, in up to so many lines."""
        last = list(self._events)[-most:] if most > 0 else []
        cut = [line if len(line) <= width else f"{line[: width - 1]}…" for line in last]
        return [Text(line, style="dim", no_wrap=True) for line in cut]

    def _keys(self, width: int) -> Text:
        """List the keys, and what is about to happen; where that is too long, the keys alone."""
        pending = ", ".join(self._wishes.pending)
        state = self._state or (f"after this iteration: {pending}" if pending else "")
        told = Text(f"{state}   " if state else "", style="bold yellow")
        meant, alone = told.copy(), told.copy().append("keys  ", style="not bold dim default")
        for key, wish in KEYS.items():
            meant.append(key, style="bold default").append(
                f" {wish}  ", style="not bold dim default"
            )
            alone.append(f"{key} ", style="bold default")
        line = meant if len(meant.plain.rstrip()) <= width else alone
        line.no_wrap, line.overflow = True, "ellipsis"
        return line


class Stopwatch:
    """Sums up the time in which something is so."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def run(self, on: bool) -> None:
        """Say whether it is so from now on."""
        self._before, self._since = self.seconds, time.monotonic() if on else None

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._since is None else time.monotonic() - self._since)


class History:
    """A curve of any length in a few thousand numbers: neighbours are averaged as it grows."""

    def __init__(self, most: int = 4096) -> None:
        self.values: list[float] = []
        self._most, self._each = most, 1
        self._sum, self._count = 0.0, 0

    def add(self, value: float) -> None:
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < self._each:
            return
        self.values.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self.values) == self._most:
            pairs = zip(self.values[::2], self.values[1::2], strict=True)
            self.values = [(one + other) / 2 for one, other in pairs]
            self._each *= 2


def _described(entry: Mapping[str, Any]) -> str:
    """Put an event into words that brings none of its own."""
    if entry.get("event") == "save":
        return f"saved step {entry['step']:,} in {entry['seconds']:.2f} s"
    if entry.get("event") in ("stop", "finish"):
        return f"ended at step {entry['step']:,}: {entry['reason']}"
    facts = (f"{name} {value}" for name, value in entry.items() if name not in ("event", "config"))
    return ", ".join([str(entry.get("event", "")), *facts])
