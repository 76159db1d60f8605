"""What the commands take: a docstring under a field is an option's help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from tyro.conf import Positional, arg

from surefoot.config import Config, Output
from surefoot.core.errors import ConfigError
from surefoot.schedules import Interval, Model


class Shown(Model):
    """What a command that trains prints."""

    quiet: bool = False
    """Print nothing but errors."""
    json_logs: bool = False
    """Print one JSON object per line: metrics every five seconds, and every event."""

    @property
    def output(self) -> Output:
        if self.quiet and self.json_logs:
            raise ConfigError("--quiet and --json-logs: choose one of them")
        return "quiet" if self.quiet else "json" if self.json_logs else "auto"


class TrainOptions(Config, Shown):
    """Train an agent. Settings come from defaults, the environment's preset, --config, flags."""

    config: Path | None = None
    """YAML file with settings."""
    out: Path | None = None
    """Directory of the run; none: a new one under runs/."""
    render: bool = False
    """Show episodes of the first environment in a window, at their natural pace, while training; a
    preset that prefers EnvPool, which shows nothing, gives way."""


class ConfigOptions(Config):
    """Print the resolved settings as YAML, each with its help and where it came from."""

    config: Path | None = None
    """YAML file with settings."""


class WandbAnew(Model):
    """Where to show a run in Weights & Biases from now on."""

    mode: Literal["off", "online", "offline"] | None = None
    """online, offline or off; none: as before."""


class ResumeOptions(Shown):
    """Go on with an interrupted run exactly where it was, or extend a finished one."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory, or the URL of its mirror, from which it is fetched."""
    out: Path | None = None
    """Directory to fetch it into; none: runs/NAME. With it RUN may be a mirror's directory."""
    take_over: bool = False
    """Go on although another machine seems to go on with this run, or its mirror is ahead."""
    checkpoint: str | None = None
    """Go back to this step, or to best, and set aside what came after; none: the newest."""
    total_steps: PositiveInt | None = None
    """New budget, larger than the steps so far; schedules follow it. none: as it was."""
    max_hours: PositiveFloat | None = None
    """Stop after this many hours from now; none: as the run was started."""
    stop_at: float | None = None
    """Finish once the recent return reaches this, this time; none: as the run was started."""
    allow_inexact: bool = False
    """Go on from the last that was saved; begin new episodes where old ones do not come back."""
    render: bool = False
    """Show episodes of the first environment in a window, at their natural pace, while training;
    not of EnvPool's, which shows nothing."""
    collector: Literal["auto", "local", "processes"] | None = None
    """Who steps the environments from now on; none: as before. It changes no number."""
    n_proc: PositiveInt | None = None
    """Worker processes from now on; none: as before."""
    step_timeout: PositiveFloat | None = None
    """Seconds that one call into an environment may take from now on; none: as before."""
    worker_restarts: NonNegativeInt | None = None
    """Workers that may be lost within ten minutes from now on; none: as before."""
    on_env_error: Literal["stop", "restart"] | None = None
    """What to do when an environment raises from now on; none: as before."""
    tensorboard: bool | None = None
    """Whether to write for TensorBoard from now on; none: as before."""
    wandb: WandbAnew = WandbAnew()
    """Weights & Biases."""
    video_every: Interval | None = None
    """Film an episode after this many steps, or iterations as 50it, from now on; none: as before.
    """
    mirror: str | None = None
    """Where else to keep the run from now on; none: as before, '': nowhere."""
    mirror_keep: PositiveInt | None = None
    """How many of the last checkpoints stay there from now on; none: as before."""
    mirror_wait: NonNegativeFloat | None = None
    """Seconds that the end waits for it at most from now on; none: as before."""
    env: str | None = None
    """The environment, for runs whose own was a function that cannot be imported."""
    metrics: str | None = None
    """The metrics function, for runs whose own cannot be imported; '': go on without."""


class ForkOptions(Config, Shown):
    """Start a new run from a checkpoint of another one, with other settings."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory of the parent."""
    env: str = ""
    """The environment, if another one or a function that cannot be imported."""
    checkpoint: str = "last"
    """best, last, or a step."""
    out: Path | None = None
    """Directory of the new run; none: a new one under runs/."""


class PinOptions(Model):
    """Keep a checkpoint for good, however many come after it."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    step: Annotated[Positional[str], arg(metavar="STEP")]
    """Step of the checkpoint, or best, or last."""
    remove: bool = False
    """Take the pin away."""


class VerifyOptions(Config):
    """Train twice N steps; then N steps, kill -9, resume, N steps; and compare everything."""

    steps: PositiveInt = 5_000
    """N: where the second run is killed, roughly."""
    config: Path | None = None
    """YAML file with settings."""


class TuneOptions(Config):
    """Try for up to 20 seconds which settings train fastest on this machine."""

    config: Path | None = None
    """YAML file with settings."""
    seconds: Annotated[float, Field(ge=10)] = 20.0
    """Time to take; compiling for the first time needs 60."""
    write: Path | None = None
    """Write what is fastest to this file, for `surefoot train ENV --config FILE`."""


class ExportOptions(Model):
    """Write a trained policy, normalizer included, for use without surefoot."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    format: Literal["pth", "onnx", "pt2"] = "pth"
    """pth: weights as a state dict; onnx, pt2 (torch.export): observations in, actions out."""
    checkpoint: str = "best"
    """best, last, or a step."""
    out: Path | None = None
    """File to write; none: models/exported.FORMAT in the run."""


class BestOptions(Model):
    """List the best models over all runs, problem by problem."""

    env: Annotated[Positional[str], arg(metavar="ENV")] = ""
    """Only those of this environment."""
    runs: Path = Path("runs")
    """Directory of the runs."""


class EvalOptions(Model):
    """Play episodes with a trained policy and summarize their returns and lengths."""

    run: Annotated[Positional[str | None], arg(metavar="RUN")] = None
    """Run directory, or the URL of its mirror."""
    best: Annotated[str | None, arg(metavar="ENV")] = None
    """Play the champion of all runs in this environment instead of a run's policy."""
    env_args: dict[str, Any] = {}
    """With --best: the environment's arguments, where there are champions for several."""
    runs: Path = Path("runs")
    """With --best: directory of the runs."""
    episodes: PositiveInt = 20
    """How many whole episodes to play."""
    steps: PositiveInt | None = None
    """Cut episodes after this many steps; none: as evaluations in training did."""
    checkpoint: str = "best"
    """best (by evaluation if there is one, else by recent return), last, or a step."""
    stochastic: bool = False
    """Sample actions instead of taking the most probable one."""
    seed: NonNegativeInt | None = None
    """Seed of the episodes; none: the run's."""
    env: str | None = None
    """Play in this environment: for runs whose own was a function that cannot be imported."""
    metrics: str | None = None
    """The metrics function, for runs whose own cannot be imported; '': play without."""
    render: bool = False
    """Show the episodes in a window."""
    record: bool = False
    """Write every step of the episodes into the run's trajectories/, for `surefoot report`."""
    json_: Annotated[bool, arg(name="json")] = False
    """Print one JSON object instead of text."""


class BaselineOptions(Model):
    """Play episodes in a queueing network by a rule that needs no training."""

    rule: Annotated[Positional[str], arg(metavar="RULE")]
    """back_pressure, max_weight, longest_queue or random."""
    env_args: dict[str, Any] = {}
    """Arguments for the network, KEY=VALUE …, as in training: instance=two_queues."""
    episodes: PositiveInt = 20
    """How many episodes to play."""
    steps: PositiveInt = 10_000
    """Cut episodes after this many steps."""
    seed: NonNegativeInt = 0
    """Seed of the episodes."""
    json_: Annotated[bool, arg(name="json")] = False
    """Print one JSON object instead of text."""


class VideoOptions(Model):
    """Film episodes of a trained policy: an mp4 file with return, rewards, actions and values."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    episodes: PositiveInt = 1
    """How many episodes, one after another."""
    checkpoint: str = "best"
    """best, last, or a step."""
    side_by_side: Annotated[tuple[str, ...], arg(metavar="STEP")] = ()
    """Show these checkpoints beside each other, in the same episodes."""
    fps: PositiveInt | None = None
    """Pictures per second; none: as many as the environment says, or 30."""
    channels: Annotated[tuple[str, ...], arg(metavar="NAME")] = ()
    """Numbers to show by name: of the observation ('hull angle'), or reported ones."""
    stochastic: bool = False
    """Sample actions instead of taking the most probable one."""
    seed: NonNegativeInt | None = None
    """Seed of the episodes; none: the run's."""
    env: str | None = None
    """The environment, for runs whose own was a function that cannot be imported."""
    out: Path | None = None
    """File to write; none: videos/step_….mp4 in the run."""


class ReportOptions(Model):
    """Write one HTML page about a run, or several beside each other; it needs no network."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN")]
    """Run directories. Those that differ in their seed alone are shown as a band."""
    out: Path | None = None
    """File to write; none: report.html in the first run."""


class PlotOptions(Model):
    """Draw a curve of a run, or several in one picture; without --out in the terminal, one below
    another."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN")]
    """Run directories."""
    metric: str | None = None
    """What to draw, as in metrics.jsonl; none: recent/return_mean, or recent/lta_return_mean where
    that is the score."""
    over: Literal["step", "time", "episode"] = "step"
    """What to draw it over."""
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """From 0 to 1: how much of the mean so far each point keeps."""
    out: Path | None = None
    """File to write, .png, .svg or .pdf; none: draw in the terminal."""


class RunsOptions(Model):
    """List the runs below a directory or URL: environment, steps, best score, state."""

    directory: Annotated[Positional[str], arg(metavar="DIR")] = "runs"
    """Where to look."""


class PullOptions(Model):
    """Fetch a whole run from its mirror."""

    url: Annotated[Positional[str], arg(metavar="URL")]
    """Where the run is: a directory, gdrive://folder/run, s3://bucket/run, …"""
    out: Path | None = None
    """Directory to fetch it into; none: runs/NAME."""


class PushOptions(Model):
    """Send a run to a mirror, or what a mirror lacks."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    url: Annotated[Positional[str], arg(metavar="URL")]
    """Where to: a directory, gdrive://folder/run, s3://bucket/run, …; with a / at the end, under
    the run's name."""
    keep: PositiveInt | None = None
    """How many of the last checkpoints stay there, besides the best and those pinned; none: as the
    run's mirror_keep says."""
    take_over: bool = False
    """Send although another machine seems to, or the place is ahead."""


class DriveOptions(Model):
    """Let surefoot keep runs in your Google Drive, in files that it made and no others."""

    action: Annotated[Positional[Literal["login", "logout", "status"]], arg(metavar="ACTION")]
    """login, logout or status."""
    client: Path | None = None
    """For login: the file of an OAuth client of type "Desktop app", from Google's Cloud console."""
    service_account: Path | None = None
    """For login: the key file of a service account instead, for shared drives."""
    browser: bool = True
    """For login: open a browser here; without one, paste the address it ends at."""


class CheckOptions(Model):
    """Examine an environment before training; exit code 1 where training would go wrong."""

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Gymnasium id, package.module:factory, or path/to/file.py:factory."""
    algo: Literal["ppo", "sac"] = "ppo"
    """The algorithm that is to learn in it."""
    env_args: dict[str, Any] = {}
    """Arguments for the environment, KEY=VALUE …; values are read as YAML."""
    seed: NonNegativeInt = 0
    """Seed of the episodes that are played."""
