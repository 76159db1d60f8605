"""What a person should know about a run before it begins."""

from __future__ import annotations

from surefoot.collect.choose import Chosen
from surefoot.config import Config
from surefoot.envs.probe import Way

RESTORE_NOTES = {
    "fresh": "episodes are cut at every checkpoint, after {} iterations (--checkpoint-every), so "
    "that the run resumes exactly",
    "inexact": "this run cannot be resumed exactly",
}


def start_notes(choice: Chosen, config: Config, way: Way) -> list[str]:
    """Say who plays, what the settings come to, and what takes time or cannot be had."""
    notes = [*collector_notes(choice), counted(config)]
    if config.reset_every is not None and config.reset_every > config.row_steps():
        notes.append(
            f"reset_every {config.reset_every:,} is never reached: {config.total_steps:,} steps / "
            f"{config.envs:,} rows = {config.row_steps():,} steps of a row"
        )
    if config.compile == "on":
        notes.append(
            f"{config.optimizer_steps():,} optimizer steps, compiled at the first update: "
            f"twenty seconds or more, and a few from torch's cache"
        )
    if way.kind in RESTORE_NOTES:
        note = RESTORE_NOTES[way.kind].format(config.checkpoint_iterations())
        notes.append(f"{note}: {way.because}")
    return notes


def collector_notes(choice: Chosen) -> list[str]:
    """Say whose environments they are, who steps them, and what follows from it."""
    config, notes = choice.config, []
    because = choice.because and f": {choice.because}"
    if choice.backend:
        notes.append(choice.backend)
    notes.append(f"environments are stepped by {_stepping(config)}{because}")
    if config.min_inference_size is not None:
        notes.append("min_inference_size: this run will not repeat itself bit for bit")
    return notes


def counted(config: Config, done: int = 0) -> str:
    """Say in one line what the settings come to from a step on."""
    return ", ".join(f"{name} {count:,}" for name, count in config.counts(done).items())


def crew(config: Config) -> str:
    """Say who steps the environments."""
    return f"{config.envs} stepped by {_stepping(config)}"


def _stepping(config: Config) -> str:
    if not config.n_proc:
        return "this process"
    return f"{config.n_proc} worker process{'es' * (config.n_proc > 1)}"
