"""What environments in worker processes report about themselves, in shared memory.

Every worker has its own list of names, in the order they come up; a name's place in it is where its
values are. A name is there before it is counted, and stays: a worker's successor goes on with it.
What is too long or too much is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.collect.slab import Field
from surefoot.core.spec import Spec
from surefoot.core.tree import Array

METRICS, NAME_BYTES = 256, 128
"""How many different metrics of a worker travel, and the room for the name of each."""
LIMITS = f"workers pass on {METRICS} names of up to {NAME_BYTES} bytes"


def layout(spec: Spec, horizon: int, workers: int) -> dict[str, Field]:
    """Lay out the values, of which few are ever touched, and the names."""
    return {
        "metrics": Field((METRICS, horizon, spec.rows), "float64"),
        "metric_names": Field((workers, METRICS, NAME_BYTES), "uint8"),
        "metric_count": Field((workers,), "int64"),
    }


class Reports:
    """What the rows of one worker report; `rows` lists all that it has."""

    def __init__(self, shared: Mapping[str, Any], worker: int, rows: Sequence[slice]) -> None:
        self._values, self._rows = shared["metrics"], rows
        self._written = shared["metric_names"][worker]
        self._count = shared["metric_count"][worker : worker + 1]
        self._names: dict[str, int] = {}
        self._complained = False
        self._learn()

    def clear(self, rows: slice) -> None:
        self._learn()
        self._values[: len(self._names), :, rows] = np.nan

    def write(self, t: int, rows: slice, info: Mapping[str, Array]) -> None:
        for name, values in info.items():
            if name in self._names or self._add(name):
                self._values[self._names[name], t, rows] = values

    def read(self) -> dict[str, Array]:
        return Gathered([self]).read()

    def read_into(self, gathered: dict[str, Array]) -> None:
        """Put what was reported where it belongs in arrays [T, N] by name; add what is missing."""
        self._learn()
        for name, place in self._names.items():
            if name not in gathered:
                gathered[name] = np.full(self._values.shape[1:], np.nan)
            for rows in self._rows:
                gathered[name][:, rows] = self._values[place, :, rows]

    def _learn(self) -> None:
        """Read the names that somebody else has written."""
        for place in range(len(self._names), int(self._count[0])):
            self._names[self._written[place].tobytes().rstrip(b"\0").decode()] = place

    def _add(self, name: str) -> bool:
        """Give a new name a place, if there is room."""
        text, place = name.encode(), len(self._names)
        if place == METRICS or len(text) > NAME_BYTES:
            if not self._complained:
                print(f"surefoot: metric {name[:40]!r} and maybe others are left out: {LIMITS}")
            self._complained = True
            return False
        self._written[place] = 0  # somebody may have been killed while writing there
        self._written[place, : len(text)] = np.frombuffer(text, np.uint8)
        for rows in self._rows:
            self._values[place, :, rows] = np.nan
        self._names[name] = place
        self._count[0] = place + 1
        return True


class Gathered:
    """What the rows of all workers report, for their parent."""

    def __init__(self, reports: Sequence[Reports]) -> None:
        self._reports = reports

    def clear(self, rows: slice) -> None:
        for reports in self._reports:  # places beyond its own names are nobody's in these rows
            reports.clear(rows)

    def write(self, t: int, rows: slice, info: Mapping[str, Array]) -> None:
        raise AssertionError("workers write it")

    def read(self) -> dict[str, Array]:
        gathered: dict[str, Array] = {}
        for reports in self._reports:
            reports.read_into(gathered)
        return gathered
