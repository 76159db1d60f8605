"""What a person sees while training: a live panel on a terminal, plain blocks anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Sink

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 5.0
WIDTH = 22
"""Characters for a field's name in plain blocks."""
WIDEST, GAP = 110, 3
"""Characters of the live panel at most, and between its columns."""


def terminal(title: str, recent: int) -> Sink:
    """Pick the view that suits where standard output goes."""
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return LivePanel(console, title, recent)
    return PlainBlocks(title, recent)


def sections(metrics: Metrics, recent: int, elapsed: float) -> dict[str, dict[str, str]]:
    """Arrange metrics as three sections of labelled values; an absent metric shows as a dash."""

    def show(name: str, form: str = ".4g") -> str:
        return format(metrics[name], form) if name in metrics else "-"

    counted = "is_success" if metrics.get("recent/success_reported") else "terminated"
    return {
        "rollout": {
            "mean_ep_len": show("rollout/episode_length_mean", ".1f"),
            "mean_ep_return": show("rollout/episode_return_mean", ".2f"),
            "mean_reward": show("rollout/reward_mean"),
            "mean_clipped_ratio": show("ppo/clip_fraction", ".3f"),
            "approx_kl": show("ppo/approx_kl", ".5f"),
            "rollout_len": show("rollout/steps", ",.0f"),
            "time_elapsed": duration(elapsed),
        },
        f"recent {recent} episodes": {
            "mean_ep_len": show("recent/length_mean", ".1f"),
            "mean_ep_return": show("recent/return_mean", ".2f"),
            "success_rate": show("recent/success_rate", ".3f"),
            "  which counts": counted,
        },
        "trainer": {
            "episodes_count": show("progress/episodes", ",.0f"),
            "timesteps_count": show("progress/steps", ",.0f"),
            "rollouts_count": show("progress/iterations", ",.0f"),
            "total_timesteps": show("progress/total_steps", ",.0f"),
            "clip_range": show("ppo/clip_range"),
            "learning_rate": show("ppo/learning_rate", ".3g"),
            "steps_per_second": show("time/steps_per_second", ",.0f"),
        },
    }


class PlainBlocks:
    """Aligned text now and then, without control characters; the last state always appears."""

    def __init__(self, title: str, recent: int) -> None:
        self._recent = recent
        self._started = time.monotonic()
        self._shown = self._started
        self._pending: Metrics | None = None
        _say(title)

    def write(self, step: int, metrics: Metrics) -> None:
        self._pending = metrics
        if time.monotonic() - self._shown >= PLAIN_SECONDS:
            self._show(metrics)

    def event(self, entry: Mapping[str, Any]) -> None:
        if "message" in entry:
            _say(str(entry["message"]))

    def close(self) -> None:
        if self._pending is not None:
            self._show(self._pending)

    def _show(self, metrics: Metrics) -> None:
        elapsed = time.monotonic() - self._started
        lines = []
        for title, fields in sections(metrics, self._recent, elapsed).items():
            lines += [f"-- {title} {'-' * (36 - len(title))}"]
            lines += [f"  {name:<{WIDTH}}{value:>15}" for name, value in fields.items()]
        _say("\n".join(lines) + "\n")
        self._pending = None
        self._shown = time.monotonic()


class LivePanel:
    """One panel that is redrawn in place: progress, time left, and the three sections."""

    def __init__(self, console: Console, title: str, recent: int) -> None:
        self._title, self._recent = title, recent
        self._started = self._shown = time.monotonic()
        self._before: float | None = None
        self._latest: Metrics | None = None
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()
        self._draw(Text("collecting the first rollout …"))

    def write(self, step: int, metrics: Metrics) -> None:
        self._latest = metrics
        if self._before is None:  # a resumed run has steps behind it that took no time now
            self._before = metrics["progress/steps"] - metrics["rollout/steps"]
        if time.monotonic() - self._shown >= LIVE_SECONDS:
            self._show(metrics)

    def event(self, entry: Mapping[str, Any]) -> None:
        if "message" in entry:
            self._live.console.print(str(entry["message"]), markup=False, highlight=False)

    def close(self) -> None:
        if self._latest is not None:
            self._show(self._latest)
        self._live.stop()

    def _show(self, metrics: Metrics) -> None:
        elapsed = time.monotonic() - self._started
        width = min(WIDEST, self._live.console.width)
        done, total = metrics["progress/steps"], metrics["progress/total_steps"]
        left = elapsed * max(0.0, total - done) / max(done - (self._before or 0.0), 1.0)
        spans = f"{duration(elapsed)} gone, {duration(left)} left"
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        percent = Text(f"{min(1.0, done / total):4.0%}  {spans}")
        bar.add_row(ProgressBar(total=total, completed=min(done, total)), percent)
        body = laid_out(sections(metrics, self._recent, elapsed), width - 4)
        self._draw(Group(bar, Text(), body))
        self._shown = time.monotonic()

    def _draw(self, content: RenderableType) -> None:
        width = min(WIDEST, self._live.console.width)
        self._live.update(Panel(content, title=Text(self._title), width=width), refresh=True)


def laid_out(parts: dict[str, dict[str, str]], width: int) -> Text:
    """Lay sections side by side, as many as fit; a label may be cut, a value never."""
    columns = max(1, min(3, width // 30))
    size = (width - GAP * (columns - 1)) // columns
    rollout, recent, trainer = parts
    order = [rollout, recent, trainer] if columns == 3 else [rollout, trainer, recent]
    blocks = [_block(title, parts[title], size) for title in order]
    text = Text(no_wrap=True)
    for start in range(0, len(blocks), columns):
        for lines in zip_longest(*blocks[start : start + columns], fillvalue=Text(" " * size)):
            text.append_text(Text(" " * GAP).join(lines)).append("\n")
    text.right_crop(1)
    return text


def _block(title: str, fields: dict[str, str], size: int) -> list[Text]:
    lines = [Text(title[:size].ljust(size), style="bold")]
    for name, value in fields.items():
        room = max(0, size - len(value) - 1)
        label = name if len(name) <= room else name[: max(0, room - 1)] + "…"
        lines.append(Text(label.ljust(room + 1), style="dim") + Text(value))
    return lines


def duration(seconds: float) -> str:
    """Write a time span for people: 8.3s, 4:05, 1:02:03."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _say(text: str) -> None:
    """Print, unless nobody listens any more: a closed pipe must not end a training."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
