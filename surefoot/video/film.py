"""From trajectories with frames to an H.264 file that browsers play."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from surefoot.core.tree import Array
from surefoot.recording import Trajectory
from surefoot.video.overlay import BACK, Panel

QUALITY = "23"
"""Of x264: smaller is better."""
LINE = 4
"""Pixels between pictures side by side."""
PAUSE = 0.7
"""Seconds that the end of an episode stays to be seen."""


def make_film(
    path: Path, scenes: Sequence[Sequence[Trajectory]], fps: int, channels: Sequence[str] = ()
) -> Path:
    """Write scenes one after another; the trajectories of a scene are seen side by side."""
    shown = [[Panel(trajectory, channels) for trajectory in scene] for scene in scenes]
    width = max(sum(panel.size[0] for panel in scene) for scene in shown)
    height = max(panel.size[1] for scene in shown for panel in scene)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    write(beside, (padded(picture, height, width) for picture in _pictures(shown, fps)), fps)
    beside.replace(path)
    return path


def _pictures(scenes: Sequence[Sequence[Panel]], fps: int) -> Iterable[Array]:
    for scene in scenes:
        longest = max(panel.trajectory.length for panel in scene)
        for t in range(longest + round(PAUSE * fps)):
            yield beside_each_other([panel.draw(t) for panel in scene])


def beside_each_other(pictures: Sequence[Array]) -> Array:
    height = max(len(picture) for picture in pictures)
    filled = [padded(p, height, p.shape[1]).copy() for p in pictures]
    for picture in filled[1:]:
        picture[:, :LINE] = BACK  # two worlds, not one
    return np.concatenate(filled, axis=1)


def padded(picture: Array, height: int, width: int) -> Array:
    """Fill up a picture, which stays at the top and in the middle."""
    if picture.shape[:2] == (height, width):
        return picture
    canvas = np.full((height, width, 3), BACK, np.uint8)
    left = (width - picture.shape[1]) // 2
    canvas[: len(picture), left : left + picture.shape[1]] = picture
    return canvas


def write(path: Path, pictures: Iterable[Array], fps: int) -> None:
    """Encode pictures of one even size."""
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as file:
        stream = file.add_stream("libx264", rate=Fraction(fps), options={"crf": QUALITY})
        stream.pix_fmt = "yuv420p"  # what every browser knows
        for number, picture in enumerate(pictures):
            if not number:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
