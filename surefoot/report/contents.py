"""What a report says about one run, as JSON: headline, curves, marks, settings, episodes."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from surefoot.core import tree
from surefoot.core.errors import SurefootError
from surefoot.core.tree import Array
from surefoot.recording import Trajectory
from surefoot.report.history import History, read
from surefoot.run import Run

POINTS = 1_500
"""Of a curve at most."""
TRAJECTORIES, STEPS, CHANNELS = 3, 2_000, 64
"""Episodes that are drawn, and steps and channels of each."""
COURSES = 5
"""Evaluations whose course is drawn."""
METRICS = {"return": "return_mean", "lta": "lta_return_mean"}
"""What the score is called in metrics."""
FILM_BYTES = 3_000_000
"""A film larger than this is not put into the page."""
MARKS = {
    "resume": "resumed",
    "fault": "fault",
    "signal": "stopped by a signal",
    "worker-lost": "worker lost",
    "save-error": "not saved",
    "metrics-missing": "metrics missing",
}
"""Events that a curve shows, and what they are called."""


def contents(run: Run) -> dict[str, Any]:
    """Gather everything; what is damaged is left out."""
    history = read(run)
    axes, metrics = history.thinned(POINTS)
    parts = {f"time/{name}" for name in history.parts}
    settings = run.config.model_dump(mode="json")
    return {
        "name": run.name,
        "headline": headline(run, history),
        "axes": {name: numbers(values, 10) for name, values in axes.items()},
        "metrics": {name: numbers(values, 5) for name, values in metrics.items()},
        "parts": sorted(parts),
        "each": max(1, round(len(history.step) / len(axes["step"]))),
        "marks": marks(run, history),
        "asked": asked(run, history),
        "courses": courses(run),
        "counts": {name: f"{count:,}" for name, count in run.config.counts().items()},
        "best": best(run, history),
        "config": {name: words(value) for name, value in tree.items(settings, separator=".")},
        "episodes": recent_episodes(run),
        "trajectories": trajectories(run),
        "film": film(run),
    }


def headline(run: Run, history: History) -> dict[str, str]:
    """Say in a few words what was trained, how well, and on what."""
    last = history.metrics
    name = METRICS[run.config.score]
    score, recent = _last(last.get(f"eval/{name}")), _last(last.get(f"recent/{name}"))
    what = "average" if run.config.score == "lta" else "return"
    found = {
        "environment": ", ".join([run.config.env, *_given(run.config.env_args)]),
        "algorithm": f"{run.config.algo}, seed {run.config.seed}",
        "state": run.condition,
        "steps": f"{int(history.step[-1]):,}",
        "time": readable(float(history.seconds[-1])),
    }
    if recent is not None:
        found[f"recent {what}"] = f"{recent:.2f}"
    if score is not None:
        found["last evaluation"] = f"{score:.2f}"
    if there := run.checkpoints:
        chosen = run.checkpoint("best")
        if chosen.score is not None:
            found["best checkpoint"] = f"{chosen.score:.2f} at step {chosen.step:,}"
        machine = there[-1].manifest.machine
        versions = [f"{name} {machine[name]}" for name in ("torch", "python") if name in machine]
        found["machine"] = ", ".join([*hardware(run), *versions])
    return found


def _given(arguments: Mapping[str, Any]) -> list[str]:
    """Name the arguments of an environment in a few words."""
    return [f"{k}={v}" for k, v in arguments.items() if not isinstance(v, Mapping)]


def hardware(run: Run) -> list[str]:
    """Find out on what the run was begun, or went on last."""
    known = [entry["machine"] for entry in run.journal() if "machine" in entry]
    return [str(known[-1])] if known else []


def best(run: Run, history: History) -> dict[str, float] | None:
    """Say where the best checkpoint is on the curves."""
    scored = [c for c in run.checkpoints if c.score is not None]
    if not scored:
        return None
    chosen = run.checkpoint("best")
    return {"score": float(chosen.score or 0.0), **_place(history, chosen.step)}


def marks(run: Run, history: History) -> list[dict[str, Any]]:
    """Find where something happened to the run. An event without a step is put between those that
    have one, by its time."""
    journal = run.journal()
    known = [(_when(entry), int(entry["step"])) for entry in journal if "step" in entry]
    found = []
    for entry in journal:
        kind = str(entry.get("event"))
        if kind not in MARKS:
            continue
        if "step" in entry:
            step = float(entry["step"])
        else:
            times, steps = zip(*known, strict=True) if known else ((0.0,), (0,))
            step = float(np.interp(_when(entry), times, steps))
        said = str(entry.get("message") or entry.get("reason") or entry.get("error") or "")
        text = f"{MARKS[kind]}: {said.splitlines()[0]}" if said else MARKS[kind]
        found.append({"kind": MARKS[kind], "text": text[:200], **_place(history, step)})
    return found


def asked(run: Run, history: History) -> list[dict[str, float]]:
    """Find the evaluations that somebody asked for by a key."""
    name = f"eval/{METRICS[run.config.score]}"
    entries = [entry for entry in run.journal() if entry.get("event") == "evaluation"]
    return [
        {"score": float(entry["metrics"][name]), **_place(history, entry["step"])}
        for entry in entries
        if name in entry["metrics"]
    ]


def courses(run: Run) -> list[dict[str, Any]]:
    """Find how averages came about within evaluations: the first, the last, and some between."""
    found = [entry for entry in run.journal() if entry.get("event") == "course"]
    latest = list({entry["step"]: entry for entry in found}.values())
    at = np.unique(np.linspace(0, len(latest) - 1, min(len(latest), COURSES)).astype(int))
    names = ("step", "time", "mean", "std")
    return [{name: latest[place][name] for name in names} for place in at.tolist()]


def _place(history: History, step: float) -> dict[str, float]:
    """Find a step on all axes."""
    return {
        name: float(np.interp(step, history.step, values))
        for name, values in history.axes().items()
    }


def _when(entry: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(entry.get("time"))).timestamp()
    except ValueError:
        return 0.0


def recent_episodes(run: Run) -> dict[str, list[float]]:
    """Return the returns and lengths of the last episodes that were saved."""
    try:
        recent = run.read(run.checkpoint("last"), whole=False)["recent"]
        return {"return": numbers(recent["total"], 6), "length": numbers(recent["length"], 6)}
    except (SurefootError, KeyError, TypeError):
        return {"return": [], "length": []}


def trajectories(run: Run) -> list[dict[str, Any]]:
    """Read the episodes that were recorded last, the first of them."""
    files = list((run.path / "trajectories").glob("*.safetensors"))
    if not files:
        return []
    newest = max(files, key=lambda file: file.stat().st_mtime)
    together = newest.name.partition("_episode_")[0]  # recorded by one command
    found = []
    for file in (file for file in files if file.name.startswith(f"{together}_episode_")):
        try:
            found.append(Trajectory.load(file))
        except SurefootError:
            continue
    found.sort(key=lambda one: int(one.about["episode"]))
    return [_drawn(one) for one in found[:TRAJECTORIES]]


def _drawn(trajectory: Trajectory) -> dict[str, Any]:
    about, steps = trajectory.about, min(trajectory.length, STEPS)
    columns = trajectory.channels()
    channels = {
        name: numbers(column[:steps], 4)
        for name, column in itertools.islice(columns.items(), CHANNELS)
    }
    action = np.asarray(trajectory.action)[:steps].reshape(steps, -1)
    names = about["action_names"]
    chosen, single = trajectory.chances.size > 0, action.shape[1] == 1
    if chosen:
        names = ["option"] if single else [f"choice {n + 1}" for n in range(action.shape[1])]
    shown = {"steps": (steps, trajectory.length), "channels": (len(channels), len(columns))}
    left_out = [f"{some:,} of {all:,} {what}" for what, (some, all) in shown.items() if some < all]
    actions = {name: numbers(column, 4) for name, column in zip(names, action.T, strict=True)}
    return {
        "title": f"step {about['step']:,}, seed {about['seed']}, episode {about['episode']}",
        "return": trajectory.total,
        "length": trajectory.length,
        "note": f"the first {', and '.join(left_out)}" if left_out else "",
        "groups": grouped(list(channels)),
        "channels": channels,
        "actions": actions,
        "options": about["action_names"] if chosen and single else [],
        "reward": numbers(trajectory.reward[:steps], 4),
        "value": numbers(trajectory.value[:steps], 4),
        "returned": numbers(trajectory.returns()[:steps], 4) * about.get("comparable", True),
        "info": {name: numbers(values[:steps], 4) for name, values in trajectory.info.items()},
    }


def grouped(names: Sequence[str], most: int = 8) -> dict[str, list[str]]:
    """Put channels that mean similar things together, a few in each group."""
    found: dict[str, list[str]] = {}
    for name in names:
        title = _group(name)
        found.setdefault(title, []).append(name)
    split: dict[str, list[str]] = {}
    for title, members in found.items():
        for start in range(0, len(members), most):
            part = f" {start // most + 1}" if len(members) > most else ""
            split[f"{title}{part}"] = members[start : start + most]
    return split


def _group(name: str) -> str:
    if "contact" in name:
        return "Contacts"
    if "lidar" in name:
        return "Lidar"
    if "velocity" in name:
        return "Velocities"
    if "speed" in name:
        return "Speeds"
    if "angle" in name:
        return "Angles"
    return "Observations"


def film(run: Run) -> dict[str, str] | None:
    """Put the newest film that is small enough into words."""
    files = sorted((run.path / "videos").glob("*.mp4"), key=lambda file: file.stat().st_mtime)
    for file in reversed(files):
        if file.stat().st_size <= FILM_BYTES:
            return {"name": file.name, "data": base64.b64encode(file.read_bytes()).decode()}
    return None


def numbers(values: Array, digits: int) -> list[Any]:
    """Write numbers as short as they may be; what is absent is null."""
    return [
        None if not np.isfinite(value) else _short(float(value), digits)
        for value in np.asarray(values, float)
    ]


def _short(value: float, digits: int) -> float | int:
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def words(setting: Any) -> str:
    return "none" if setting is None else str(setting)


def readable(seconds: float) -> str:
    """Write a time span in words: 34 s, 5 min, 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _last(values: Array | None) -> float | None:
    present = values[~np.isnan(values)] if values is not None else np.empty(0)
    return float(present[-1]) if len(present) else None
