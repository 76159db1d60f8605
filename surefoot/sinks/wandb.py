"""Runs in Weights & Biases (the extra `wandb`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from surefoot.config import WandbConfig
from surefoot.core.metrics import Metrics
from surefoot.core.tree import Array

SECONDS = 15
"""How long a run waits for Weights & Biases before it keeps everything on disk instead."""
FINISH_SECONDS = 45
"""How long the end of a run waits for what is still to be sent; `wandb sync` sends the rest."""
MODELS = {"best": "best_return_pi_ckpt.pth", "final": "final_actor.pth"}


class WeightsAndBiases:
    """One run there, with the id of ours, which a resume goes on with. W&B takes no step twice:
    what was shown before a kill stays, which is what an exact resume shows again."""

    def __init__(
        self,
        settings: WandbConfig,
        identity: str,
        directory: Path,
        config: Mapping[str, Any],
        tell: Callable[[Mapping[str, Any]], None],
    ) -> None:
        import wandb

        self._wandb: Any = wandb
        self._identity, self._directory = identity, directory
        given: dict[str, Any] = {
            "id": identity,
            "resume": "allow",
            "dir": str(directory),
            "name": directory.resolve().name,
            "config": dict(config),
            "settings": wandb.Settings(
                console="off", silent=True, init_timeout=SECONDS, finish_timeout=FINISH_SECONDS
            ),
            **settings.model_dump(include={"project", "entity", "group"}),
            "tags": list(settings.tags),
        }
        mode: Any = settings.mode
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            mode = "offline"
            tell(_note("there is no key, run `wandb login` once", directory))
        try:
            self._run = wandb.init(mode=mode, **given)
        except wandb.errors.Error as error:
            if mode == "offline":
                raise
            tell(_note(str(error).splitlines()[0], directory))
            wandb.teardown()  # it would still hold the run's id
            self._run = wandb.init(mode="offline", **given)

    def write(self, step: int, metrics: Metrics) -> None:
        self._run.log(metrics, step=step)

    def spread(self, step: int, arrays: Callable[[], Mapping[str, Array]]) -> None:
        found = {name: self._wandb.Histogram(values) for name, values in arrays().items()}
        self._run.log(found, step=step)

    def event(self, entry: Mapping[str, Any]) -> None:
        match entry.get("event"):
            case "evaluation":
                self._run.log(entry["metrics"], step=entry["step"])
            case "video":
                video = self._wandb.Video(str(entry["path"]), format="mp4")
                # W&B takes no steps back, and the film is of one that is over.
                self._run.log({"video": video, "video_step": entry["step"]}, commit=False)
            case "finish" | "stop":
                self._keep_models()

    def close(self) -> None:
        self._run.finish()

    def _keep_models(self) -> None:
        for alias, name in MODELS.items():
            file = self._directory / "models" / name
            if file.is_file():
                artifact = self._wandb.Artifact(f"{self._identity}-{alias}", "model")
                artifact.add_file(str(file))
                self._run.log_artifact(artifact, aliases=[alias])


def _note(why: str, directory: Path) -> dict[str, str]:
    message = f"W&B: {why}; everything is kept in {directory / 'wandb'}, `wandb sync` sends it"
    return {"event": "wandb-offline", "message": message}
