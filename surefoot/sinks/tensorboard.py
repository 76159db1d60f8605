"""Every metric in TensorBoard, with histograms, settings and pictures."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.event_file_writer import (  # type: ignore[import-untyped]
    EventFileWriter,
)
from torch.utils.tensorboard import summary as summaries

from surefoot.core import tree
from surefoot.core.metrics import Metrics
from surefoot.core.tree import Array

BINS = 50
FLUSH_SECONDS = 5
SCORES = tuple(
    f"{when}/{what}_mean" for what in ("return", "lta_return") for when in ("recent", "eval")
)
"""What runs are compared by in the table of settings."""
SIDE, FRAMES = 256, 60
"""Pixels and frames of a moving picture at most: TensorBoard plays no videos."""


class TensorBoard:
    """One event file. All metrics of a write are one record: a fraction of a millisecond, where a
    call for each would take some."""

    def __init__(self, directory: Path, settings: Mapping[str, Any], step: int) -> None:
        """`step` is where the run goes on: what was written after it counts no more."""
        self._file = EventFileWriter(str(directory), flush_secs=FLUSH_SECONDS)
        self._aside = ThreadPoolExecutor(1, "pictures")
        self._pictures: list[Future[None]] = []
        log = SessionLog(status=SessionLog.START)
        self._file.add_event(Event(wall_time=time.time(), step=step + 1, session_log=log))
        for part in hyperparameters(settings):
            self._add(step, part)

    def write(self, step: int, metrics: Metrics) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(step, Summary(value=values))

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        for name, values in arrays().items():
            self._add(step, histogram(name, values))

    def event(self, entry: Mapping[str, Any]) -> None:
        match entry.get("event"):
            case "save":  # what a run may go on from is to be on disk
                self._file.flush()
            case "evaluation":
                self.write(entry["step"], entry["metrics"])
            case "video":
                made = self._aside.submit(self._show, entry["step"], Path(entry["path"]))
                self._pictures.append(made)

    def close(self) -> None:
        self._aside.shutdown()
        self._file.close()
        for made in self._pictures:
            made.result()  # raises what went wrong

    def _show(self, step: int, film: Path) -> None:
        picture = Summary.Image(encoded_image_string=moving_picture(film))
        self._add(step, Summary(value=[Summary.Value(tag="video", image=picture)]))

    def _add(self, step: int, summary: Summary) -> None:
        self._file.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def histogram(name: str, values: Array) -> Summary:
    numbers = values.astype(np.float64).reshape(-1)
    counts, edges = np.histogram(numbers, BINS)
    result: Summary = summaries.histogram_raw(  # type: ignore[no-untyped-call]
        name,
        min=numbers.min(),
        max=numbers.max(),
        num=numbers.size,
        sum=numbers.sum(),
        sum_squares=(numbers * numbers).sum(),
        bucket_limits=edges[1:].tolist(),
        bucket_counts=counts.tolist(),
    )
    return result


def hyperparameters(settings: Mapping[str, Any]) -> tuple[Summary, Summary, Summary]:
    """Write settings for the table in which runs are compared."""
    named = {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in tree.items(settings, separator=".")
        if value is not None
    }
    found: tuple[Summary, Summary, Summary]
    found = summaries.hparams(named, dict.fromkeys(SCORES, 0.0))  # type: ignore[no-untyped-call]
    return found


def moving_picture(path: Path) -> bytes:
    """Turn a video into an animated picture."""
    import av

    chosen: list[Any] = []
    with av.open(str(path)) as video:
        stream = video.streams.video[0]
        every, rate = max(1, -(-stream.frames // FRAMES)), float(stream.average_rate or 30)
        for number, frame in enumerate(video.decode(stream)):
            if number % every == 0:
                chosen.append(frame.to_image())  # type: ignore[no-untyped-call]
                chosen[-1].thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    pace = {"duration": 1000 * every / rate, "loop": 0}
    chosen[0].save(file, "GIF", save_all=True, append_images=chosen[1:], **pace)
    return file.getvalue()
