"""From a run to a film."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from surefoot.core.errors import ConfigError
from surefoot.envs.make import Factory
from surefoot.recording import Player, Trajectory, record
from surefoot.run import Run

FPS = 30
"""Of an environment that names no rate of its own."""
PICTURES = {"render_mode": "rgb_array"}
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
"""One of them is set where there is a screen, on Linux."""
WITHOUT_SCREEN = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "MUJOCO_GL": "egl"}


def shoot(
    run: Run,
    episodes: int = 1,
    checkpoint: str | int = "best",
    side_by_side: Sequence[str | int] = (),
    fps: int | None = None,
    channels: Sequence[str] = (),
    seed: int | None = None,
    deterministic: bool = True,
    out: Path | None = None,
) -> Path:
    """Film episodes of a checkpoint, or of several side by side in the same episodes."""
    from surefoot.video.film import make_film  # PyAV takes a while, which training does not need
    from surefoot.video.overlay import Panel

    make = run.cut(run.factory(PICTURES))
    natural = natural_rate(make)  # says so if there are no pictures
    players = [run.player(which, deterministic) for which in side_by_side or [checkpoint]]
    seed = run.config.seed if seed is None else seed
    address = 0 if side_by_side else None
    if channels:  # drawing takes long: whether they are there is seen without
        (unseen,) = record(players[0], make, run.config.env, 1, seed, address)
        Panel(unseen, channels)
    columns = [
        list(record(player, make, run.config.env, episodes, seed, address, film=True))
        for player in players
    ]
    scenes: list[Sequence[Trajectory]] = list(zip(*columns, strict=True))
    return make_film(out or default_path(run.path, players), scenes, fps or natural, channels)


def need_no_screen() -> None:
    """Let pygame and MuJoCo draw where there is no screen; who has settled that is left alone."""
    if sys.platform == "linux" and not any(os.environ.get(name) for name in SCREENS):
        for name, value in WITHOUT_SCREEN.items():
            os.environ.setdefault(name, value)


def natural_rate(make: Factory) -> int:
    """Ask an environment how many pictures it shows in a second; it must have some."""
    need_no_screen()
    try:
        env = make()
    except ConfigError as error:
        if "'render_mode'" not in str(error):
            raise
        raise ConfigError(
            f"{make.name} cannot be filmed: what makes the environment must take render_mode, as "
            f"in `def make_env(render_mode=None)`, and hand it on"
        ) from None
    with closing(env):
        metadata = dict(getattr(env, "metadata", None) or {})
        modes = metadata.get("render_modes", [])
        if "rgb_array" not in modes:
            there = ", ".join(map(str, modes)) or "none"
            raise ConfigError(
                f"{make.name} gives no pictures: a film needs render_mode='rgb_array', and it has "
                f"{there} (metadata['render_modes'])"
            )
        with suppress(TypeError, ValueError):
            return max(1, round(float(metadata.get("render_fps", FPS))))
    return FPS


def default_path(run: Path, players: Sequence[Player]) -> Path:
    steps = "_".join(f"{player.step:012d}" for player in players)
    return run / "videos" / f"step_{steps}.mp4"
