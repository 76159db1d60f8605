"""Curves without a browser: as a picture, or in the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from surefoot.core.errors import ConfigError, RunError, nearest
from surefoot.core.tree import Array
from surefoot.report.history import read
from surefoot.run import Run

LABELS = {"step": "step", "time": "minutes of training", "episode": "episode"}
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Which bit of a braille character is which of its 4 × 2 dots."""
ROWS, EDGE = 18, 12
"""Lines of a drawing, and characters left of it."""
LONGEST = 40
"""Characters of a name in a picture."""
FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Curve:
    name: str
    x: Array
    y: Array

    def smoothed(self, weight: float) -> Curve:
        """Let each point keep so much of the mean so far."""
        mean, total, found = 0.0, 0.0, []
        for value in self.y.tolist():
            mean = weight * mean + (1 - weight) * value
            total = weight * total + (1 - weight)
            found.append(mean / total)
        return replace(self, y=np.array(found))


def curves(runs: Sequence[Run], metric: str, over: str) -> list[Curve]:
    """Read a metric of each run."""
    found = []
    for run in runs:
        history = read(run)
        if metric not in history.metrics:
            hint = nearest(metric, history.metrics) or f"; there are {', '.join(history.metrics)}"
            raise ConfigError(f"{run.path} has no metric {metric!r}{hint}")
        values = history.metrics[metric]
        there = ~np.isnan(values)
        axis = history.axes()[over] / (60.0 if over == "time" else 1.0)
        found.append(Curve(run.name, axis[there], values[there]))
    return found


def to_file(found: Sequence[Curve], metric: str, over: str, path: Path) -> Path:
    """Draw curves as a picture; the file's name says of which kind."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: name a file that ends in {', '.join(FORMATS)}")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for curve in found:
        lone = "o" if len(curve.x) == 1 else ""
        # A label that begins with an underscore would not be shown.
        named = f" {cut(curve.name, LONGEST)}"
        axes.plot(curve.x, curve.y, marker=lone, label=named, linewidth=1.5)
    axes.set_xlabel(LABELS[over])
    texts = [axes.set_ylabel(cut(metric, LONGEST))]
    axes.grid(alpha=0.3)
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    if len(found) > 1:
        texts += axes.legend(fontsize="small").get_texts()
    else:
        texts += [axes.set_title(cut(found[0].name, 2 * LONGEST), fontsize="medium")]
    for text in texts:
        text.set_parse_math(False)  # a dollar is one
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
    return path


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def draw(found: Sequence[Curve], metric: str, over: str, width: int | None = None) -> str:
    """Draw curves with braille dots, one below another."""
    columns = max(20, (width or shutil.get_terminal_size().columns) - EDGE - 2)
    low = min(float(curve.y.min()) for curve in found)
    high = max(float(curve.y.max()) for curve in found)
    start = min(float(curve.x.min()) for curve in found)
    end = max(float(curve.x.max()) for curve in found)
    pages = [_page(curve, (start, end), (low, high), columns) for curve in found]
    lines = []
    for curve, page in zip(found, pages, strict=True):
        lines += [cut(f"{metric}, {curve.name}", EDGE + 2 + columns)]
        for row, cells in enumerate(page):
            label = {0: f"{high:.4g}", ROWS - 1: f"{low:.4g}"}.get(row, "")
            lines.append(f"{label:>{EDGE}} │{cells}")
        lines.append(" " * EDGE + " └" + "─" * columns)
        last = f"{end:,.2f}" if over == "time" else f"{end:,.0f}"
        left, right = f"{start:,.4g}", f"{last} {LABELS[over]}"
        lines.append(" " * (EDGE + 2) + left + right.rjust(columns - len(left)))
    return "\n".join(lines)


def _page(
    curve: Curve, across: tuple[float, float], up: tuple[float, float], columns: int
) -> list[str]:
    """Put a curve into lines of braille; values between its points are interpolated."""
    wide, high = 2 * columns, 4 * ROWS
    xs = np.linspace(*across, wide)
    inside = (xs >= curve.x[0]) & (xs <= curve.x[-1])
    ys = np.interp(xs, curve.x, curve.y)
    span = (up[1] - up[0]) or 1.0
    levels = np.rint((high - 1) * (1 - (ys - up[0]) / span)).astype(int)
    cells = np.zeros((ROWS, columns), int)
    before: int | None = None
    for column in np.flatnonzero(inside).tolist():
        level = int(levels[column])
        step = 0 if before is None else level - before
        for y in range(level - step, level + (1 if step >= 0 else -1), 1 if step >= 0 else -1):
            cells[y // 4, column // 2] |= DOTS[y % 4][column % 2]
        before = level
    return ["".join(chr(0x2800 + cell) for cell in row) for row in cells.tolist()]
