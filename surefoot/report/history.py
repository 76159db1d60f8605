"""A run's past as arrays: what reports and plots are drawn from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from surefoot.core.errors import RunError
from surefoot.core.tree import Array
from surefoot.run import Run

OLD = "evaluate/"
"""What names of metrics of evaluations began with once."""
RATES = ("time/steps_per_second",)
"""Metrics about time that are no part of it."""


@dataclass(frozen=True)
class History:
    """R rows of metrics.jsonl, or means of neighbouring ones."""

    step: Array
    """[R]"""
    metrics: dict[str, Array]
    """[R] each; NaN where a row has none."""

    @property
    def parts(self) -> dict[str, Array]:
        """Seconds that each part of an iteration took, [R] each, without `time/`."""
        names = [n for n in self.metrics if n.startswith("time/") and n not in RATES]
        return {name.removeprefix("time/"): np.nan_to_num(self.metrics[name]) for name in names}

    @cached_property
    def seconds(self) -> Array:
        """[R]: how long training had taken, pauses between processes left out."""
        parts = list(self.parts.values())
        return np.cumsum(np.sum(parts, axis=0)) if parts else np.zeros(len(self.step))

    @property
    def episodes(self) -> Array:
        """[R]: how many had ended."""
        none = np.zeros(len(self.step))
        return np.nan_to_num(self.metrics.get("progress/episodes", none))

    def axes(self) -> dict[str, Array]:
        """What curves can be drawn over."""
        return {"step": self.step, "time": self.seconds, "episode": self.episodes}

    def thinned(self, most: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return axes and metrics with at most so many points, each the mean of neighbours."""
        axes = self.axes()
        if len(self.step) <= most:
            return axes, self.metrics
        ends = np.linspace(0, len(self.step), most + 1).astype(int)
        ended = {name: values[ends[1:] - 1] for name, values in axes.items()}
        return ended, {name: _means(values, ends) for name, values in self.metrics.items()}


def _means(values: Array, ends: Array) -> Array:
    """Average what lies between ends; the mean of nothing is absent."""
    present = ~np.isnan(values)
    sums = np.add.reduceat(np.where(present, values, 0.0), ends[:-1])
    counts = np.add.reduceat(present.astype(float), ends[:-1])
    means: Array = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def read(run: Run) -> History:
    """Read all metrics of a run; a line that was torn is left out."""
    rows = _rows(run.path / "metrics.jsonl")
    if not rows:
        raise RunError(f"{run.path} has no metrics yet")
    rows = [{_name(name): value for name, value in row.items()} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    columns = {name: np.array([row.get(name, np.nan) for row in rows], float) for name in names}
    return History(np.array([row["step"] for row in rows]), columns)


def _name(name: str) -> str:
    """Call a metric what it is called now."""
    return f"eval/{name.removeprefix(OLD)}" if name.startswith(OLD) else name


def _rows(file: Path) -> list[dict[str, float]]:
    rows = []
    if file.is_file():
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and "step" in row:
                    rows.append(row)
    return rows
