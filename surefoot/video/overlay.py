"""What a film shows besides the environment: a panel below each picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from surefoot.core.errors import ConfigError
from surefoot.core.tree import Array
from surefoot.recording import Trajectory

NARROWEST = 480
"""Pixels of a column at least: a smaller picture is enlarged, so that text has room."""
WIDEST = 960
"""Pixels of a column at most."""
LINE, MARGIN, GRAPH = 20, 10, 56
"""Pixels of a line of text, around the panel, and of the graph of rewards."""
RARE = 0.01
"""The share of rewards, at either end, that the graph has no room for."""
MOST_BARS = 18
"""Options or numbers of an action that have a bar."""
BACK, FRONT, DIM = (22, 24, 30), (235, 235, 240), (150, 155, 165)
REWARD, VALUE, TAKEN, OTHER = (95, 200, 130), (110, 170, 255), (255, 180, 80), (90, 100, 125)


@dataclass(frozen=True)
class Panel:
    """Draws the steps of one trajectory; `channels` are what it shows by name besides."""

    trajectory: Trajectory
    channels: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.channels:
            if name not in self.known:
                known = ", ".join(self.known)
                raise ConfigError(f"there is no channel {name!r}; there are {known}")

    @cached_property
    def known(self) -> dict[str, Array]:
        """Everything that can be shown by name: numbers observed, and reported."""
        return {**self.trajectory.channels(), **self.trajectory.info}

    @cached_property
    def size(self) -> tuple[int, int]:
        """Pixels of a picture with its panel, both even, as films need them."""
        width, height = self._picture_size
        lines = 3 + -(-len(self.channels) // 2)
        panel = 2 * MARGIN + lines * LINE + max(GRAPH, len(self._bars) * 14)
        return width, height + panel + (height + panel) % 2

    @cached_property
    def _picture_size(self) -> tuple[int, int]:
        width, height = self._frame(0).size
        scale = max(1.0, NARROWEST / width) if width < WIDEST else WIDEST / width
        wide = round(width * scale)
        return wide + wide % 2, round(height * scale)

    @cached_property
    def _bars(self) -> list[str]:
        names: list[str] = self.trajectory.about["action_names"]
        return names[:MOST_BARS]

    @cached_property
    def _outline(self) -> list[int]:
        return outline(self.trajectory.reward, self.size[0] // 2 - 2 * MARGIN)

    def draw(self, t: int) -> Array:
        """Draw the step t, or the last if there is none; [height, width, 3]."""
        trajectory, over = self.trajectory, t >= self.trajectory.length
        t = min(t, trajectory.length - 1)
        width, height = self.size
        canvas = Image.new("RGB", (width, height), BACK)
        frame = self._frame(t)
        enlarged = frame.width < NARROWEST
        how = Image.Resampling.NEAREST if enlarged else Image.Resampling.BILINEAR
        canvas.paste(frame.resize(self._picture_size, how), (0, 0))
        self._write(ImageDraw.Draw(canvas), t, over)
        return np.asarray(canvas)

    def _frame(self, t: int) -> Image.Image:
        return Image.open(io.BytesIO(self.trajectory.frames[t]))

    def _write(self, draw: ImageDraw.ImageDraw, t: int, over: bool) -> None:
        trajectory, (width, _) = self.trajectory, self.size
        top, font = self._picture_size[1] + MARGIN, _font(15)
        so_far = float(trajectory.reward[: t + 1].sum())
        ended = "  ended" if over else ""
        head = f"return {so_far:,.1f}    step {t + 1:,}{ended}"
        draw.text((MARGIN, top), head, FRONT, font)
        policy = f"policy of step {trajectory.about['step']:,}"
        draw.text((width - MARGIN, top + LINE), policy, DIM, _font(13), anchor="ra")
        figures = {"value": trajectory.value[t], "entropy": trajectory.entropy[t]}
        shown = "    ".join(f"{name} {value:.2f}" for name, value in figures.items())
        draw.text((MARGIN, top + LINE), shown, VALUE, _font(13))
        top += 2 * LINE
        for place, name in enumerate(self.channels):
            row, column = divmod(place, 2)
            x = MARGIN + column * (width // 2)
            text = f"{name} {self.known[name][t]:.3g}"
            draw.text((x, top + row * LINE), text, FRONT, _font(13))
        top += LINE * -(-len(self.channels) // 2)
        middle = width // 2
        self._graph(draw, t, (MARGIN, top, middle - MARGIN, top + LINE + GRAPH))
        self._actions(draw, t, (middle + MARGIN, top, width - MARGIN))

    def _graph(self, draw: ImageDraw.ImageDraw, t: int, place: tuple[int, int, int, int]) -> None:
        """Draw the rewards so far, over the time of the whole episode."""
        left, top, right, bottom = place
        draw.text((left, top), f"reward {self.trajectory.reward[t]:.2f}", DIM, _font(13))
        top += LINE
        reward = self.trajectory.reward
        low, high = scale(reward)
        span = (high - low) or 1.0
        across = (right - left) / max(1, len(reward) - 1)

        def point(at: int) -> tuple[float, float]:
            inside = min(max(float(reward[at]), low), high)
            return left + at * across, bottom - (inside - low) / span * (bottom - top)

        zero = bottom + low / span * (bottom - top)
        draw.line([(left, zero), (right, zero)], OTHER)
        past = [at for at in self._outline if at < t]
        if past:
            draw.line([point(at) for at in (*past, t)], REWARD, 2)
        x, y = point(t)
        draw.ellipse((x - 3, y - 3, x + 3, y + 3), REWARD)

    def _actions(self, draw: ImageDraw.ImageDraw, t: int, place: tuple[int, int, int]) -> None:
        """Draw how probable options were, or how large the numbers of the action are."""
        left, top, right = place
        chances = self.trajectory.chances[t]
        action = np.asarray(self.trajectory.action[t]).reshape(-1)
        label = "probabilities" if chances.size else "action"
        draw.text((left, top), label, DIM, _font(13))
        top, start = top + LINE, left + min(130, (right - left) // 2)
        shares, taken = (chances, self._taken(action)) if chances.size else (action, [])
        most = max(1.0, float(np.abs(self.trajectory.action).max()))
        for number, name in enumerate(self._bars):
            y = top + 14 * number
            color = TAKEN if number in taken or not chances.size else OTHER
            draw.text((left, y - 1), name[:18], FRONT, _font(11))
            if chances.size:
                end = start + shares[number] * (right - start)
                draw.rectangle((start, y + 2, end, y + 10), color)
            else:
                middle, half = (start + right) / 2, (right - start) / 2
                end = middle + half * float(shares[number]) / most
                draw.rectangle((min(middle, end), y + 2, max(middle, end), y + 10), color)
                draw.line([(middle, y), (middle, y + 12)], DIM)

    def _taken(self, action: Array) -> list[int]:
        """Find the bars of the options that were taken: those of one choice follow another's."""
        if len(action) == 1:
            return [int(action[0])]
        names = self.trajectory.about["action_names"]
        return [names.index(f"choice {n}: {option}") for n, option in enumerate(action.tolist(), 1)]


def scale(values: Array) -> tuple[float, float]:
    """Find from where to where a curve goes, 0 included: a single large value, such as that of a
    fall, is drawn at the edge, and does not flatten all others."""
    low, high = np.quantile(values, [RARE, 1 - RARE]).tolist()
    if low == high:
        low, high = float(values.min()), float(values.max())
    return min(0.0, low), max(0.0, high)


def outline(values: Array, pixels: int) -> list[int]:
    """Find the steps that a curve of so many pixels can show: of each pixel the first, the lowest
    and the highest."""
    if len(values) <= pixels:
        return list(range(len(values)))
    ends = np.linspace(0, len(values), pixels + 1).astype(int).tolist()
    found: set[int] = set()
    for start, end in pairwise(ends):
        part = values[start:end]
        found |= {start, start + int(part.argmin()), start + int(part.argmax())}
    return sorted(found)


@cache
def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)
