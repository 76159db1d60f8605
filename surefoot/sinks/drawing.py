"""Pieces of the dashboard: curves, bars and tables as text that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise, zip_longest

from rich.console import RenderableType
from rich.text import Text

from surefoot.core.metrics import Metrics
from surefoot.sinks.statistics import duration

THREE, TWO, GAP = 90, 52, 3
"""Characters for three and two columns at least, and between them."""
LEVELS = "▁▂▃▄▅▆▇█"
COLORS = {
    "environment": "green",
    "acting": "cyan",
    "waiting": "yellow",
    "copying": "blue",
    "update": "magenta",
    "compile": "red",
    "evaluation": "bright_blue",
    "reporting": "white",
    "saving": "bright_green",
    "on_demand": "bright_yellow",
}
"""Parts of the time, in the order of their bar."""
LATE = 60.0
"""Seconds behind from which a mirror says so."""


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw a curve in one line: each character is the mean of its share of the values."""
    columns = min(width, len(values))
    ends = [len(values) * column // columns for column in range(columns + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in pairwise(ends)]
    low, span = min(means), max(means) - min(means)
    top = len(LEVELS) - 1
    return "".join(LEVELS[round(top * (mean - low) / span) if span else 0] for mean in means)


def split_bar(seconds: Mapping[str, float], width: int) -> Text:
    """Draw shares of the time as a bar; name those that can be seen, the largest if not all fit."""
    label, total = "time    ", sum(seconds.values()) or 1.0
    room, end, drawn = width - len(label), 0.0, 0
    bar, names = Text.assemble((label, "dim"), no_wrap=True), dict[str, str]()
    for name, spent in seconds.items():
        end += spent / total * room
        cells = round(end) - drawn
        drawn += cells
        bar.append("█" * cells, style=COLORS[name])
        if cells:
            names[name] = f"{name.replace('_', ' ')} {spent / total:.0%}"
    while sum(len(shown) + 4 for shown in names.values()) - 2 > room:
        names.pop(min(names, key=lambda name: seconds[name]))
    bar.append("\n" + " " * len(label))
    for name, shown in names.items():
        bar.append("■ ", style=COLORS[name]).append(f"{shown}  ")
    bar.right_crop(2)
    return bar


def mirror_line(metrics: Metrics) -> list[Text]:
    """Say how far a copy elsewhere is behind, if there is one."""
    if "mirror/pending_files" not in metrics:
        return []
    files, size = metrics["mirror/pending_files"], metrics["mirror/pending_bytes"]
    waiting = f"{files:.0f} files, {size / 1e6:,.1f} MB to send" if files else "up to date"
    if metrics["mirror/oldest_seconds"] > LATE:
        waiting += f", {duration(metrics['mirror/oldest_seconds'])} behind"
    return [Text.assemble(("mirror  ", "dim"), waiting, no_wrap=True)]


def lines(text: Text) -> int:
    return len(text.plain.splitlines())


def separated(blocks: Sequence[Sequence[RenderableType]], blank: int = 4) -> list[RenderableType]:
    """Put blocks one below another, with so many blank lines between them, from below."""
    shown = [block for block in blocks if block]
    first = len(shown) - blank
    return [
        line
        for place, block in enumerate(shown)
        for line in ([Text(), *block] if place and place >= first else block)
    ]


def summary(metrics: Metrics, width: int) -> Text:
    """Say in a line what matters most, where there is no room for more."""
    shown = {"return": "recent/return_mean", "length": "recent/length_mean"}
    if "recent/return_mean" not in metrics:
        shown = {"per step": "recent/lta_return_mean"}
    known = [f"{name} {metrics[key]:.1f}" for name, key in shown.items() if key in metrics]
    facts = [f"step {metrics['progress/steps']:,.0f}", *known]
    while len(facts) > 1 and len("   ".join(facts)) > width:
        facts.pop()
    return Text("   ".join(facts), no_wrap=True, overflow="ellipsis")


def fitting(parts: dict[str, dict[str, str]], width: int, most: int) -> Text:
    """Lay out sections in so many lines: of those after the first three, what there is room for."""
    first, rest = dict(list(parts.items())[:3]), list(parts.items())[3:]
    shown = first
    fields = zip_longest(*([(title, field) for field in part.items()] for title, part in rest))
    for title, (name, value) in filter(None, chain.from_iterable(fields)):
        more = {**shown, title: {**shown.get(title, {}), name: value}}
        if height(more, width) <= most:
            shown = more
    return laid_out(shown, width)


def columns_in(width: int) -> int:
    return 3 if width >= THREE else 2 if width >= TWO else 1


def height(parts: dict[str, dict[str, str]], width: int) -> int:
    """Count the lines that sections take."""
    columns, sizes = columns_in(width), [1 + len(part) for part in _ordered(parts, width).values()]
    return sum(max(sizes[start : start + columns]) for start in range(0, len(sizes), columns))


def _ordered(parts: dict[str, dict[str, str]], width: int) -> dict[str, dict[str, str]]:
    """Put the two longest of the first three beside each other where there are two columns."""
    rollout, recent, trainer, *others = parts
    order = [rollout, recent, trainer] if columns_in(width) == 3 else [rollout, trainer, recent]
    return {title: parts[title] for title in (*order, *others)}


def laid_out(parts: dict[str, dict[str, str]], width: int) -> Text:
    """Lay sections side by side, as many as fit; a label may be cut, a value never."""
    columns = columns_in(width)
    size = (width - GAP * (columns - 1)) // columns
    blocks = [_block(title, part, size) for title, part in _ordered(parts, width).items()]
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
