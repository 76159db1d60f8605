"""Where settings become sinks besides the log and the terminal."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from surefoot.config import Config
from surefoot.core.errors import ConfigError
from surefoot.core.protocols import Sink
from surefoot.sinks.aside import Aside, Tell
from surefoot.sinks.averaged import Averaged
from surefoot.sinks.optional import Optional


def build_boards(
    config: Config,
    identity: str,
    directory: Path,
    step: int,
    tell: Tell,
) -> list[Sink]:
    """Make what the settings ask for, for a run in this directory that goes on from a step. They
    are loaded when there is something to show, since that takes longer than many a first rollout.
    """

    settings = config.model_dump(mode="json")

    def tensorboard() -> Sink:
        from surefoot.sinks.tensorboard import TensorBoard

        return Averaged(TensorBoard(directory / "tensorboard", settings, step))

    def wandb(tell: Tell) -> Sink:
        from surefoot.sinks.wandb import WeightsAndBiases

        return WeightsAndBiases(config.wandb, identity, directory, settings, tell)

    boards: list[Sink] = []
    if config.tensorboard:
        boards.append(Optional("TensorBoard", tensorboard, tell))
    if config.wandb.mode != "off":
        aside = Aside("W&B", lambda tell: Optional("W&B", lambda: wandb(tell), tell), tell)
        boards.append(Averaged(aside))
    return boards


def require_boards(config: Config) -> None:
    """Refuse settings that need what is not installed, before anything is trained."""
    if config.wandb.mode != "off" and find_spec("wandb") is None:
        raise ConfigError("wandb is not installed: pip install 'surefoot[wandb]'")
