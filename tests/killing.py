"""Runs that are killed: train in a process of its own, end it in the middle, resume, compare.

Processes come from a server that has loaded torch already, so one costs milliseconds, not seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import surefoot
from surefoot.ending import Interrupted
from surefoot.run import Run
from surefoot.verify import run_differences

server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["gymnasium.envs.box2d", "tests.killing", "tests.warm"])
PATIENCE = 300.0
"""Seconds after which a process that does not end is a failure."""
CALLS = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir")
"""What a save asks of the operating system."""


SMALL: dict[str, Any] = {
    "seed": 3,
    "envs": 4,
    "hall_of_fame": 0,
    "recent_episodes": 20,
    "ppo": {"horizon": 32, "minibatch_size": 64, "epochs": 2, "normalize_returns": True},
    "policy": {"normalize_observations": True, "hidden": [32]},
}
EVERYTHING = {**SMALL["ppo"], "learning_rate": "adaptive:1e-3:0.01", "buffer_steps": 384}
WORKERS = {
    **SMALL,
    "total_steps": 2560,
    "checkpoint_every": "4it",
    "collector": "processes",
    "n_proc": 2,
}
SOFT: dict[str, Any] = {
    "algo": "sac",
    "seed": 3,
    "envs": 4,
    "hall_of_fame": 0,
    "recent_episodes": 20,
    "total_steps": 2048,
    "checkpoint_every": "12it",
    "sac": {
        "n_steps": 3,
        "batch_size": 16,
        "learning_starts": 100,
        "replay_steps": 600,
        "updates_per_step": 0.25,
        "learning_rate": "linear:1e-3:0",
    },
    "policy": {"hidden": [16]},
}
FOUR = {"total_steps": 2560, "checkpoint_every": "4it"}
QUEUES = "surefoot/QueueNetwork-v0"
AVERAGE = {"objective": "average", "eta": "learned"}
ENDLESS: dict[str, Any] = {
    **SMALL,
    **FOUR,
    "env_args": {"instance": "diamond"},
    "reset_every": None,
    "score": "lta",
    "evaluate_every": "7it",
    "evaluate_steps": 50,
    "evaluate_episodes": 2,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    # all that has state: normalizers, reward scale, FIFO experience, adaptive rate, evaluation
    "cartpole": (
        "CartPole-v1",
        {
            **SMALL,
            "total_steps": 3840,
            "checkpoint_every": "4it",
            "evaluate_every": "10it",
            "evaluate_episodes": 2,
            "ppo": EVERYTHING,
        },
    ),
    "walker": (
        "BipedalWalker-v3",
        {
            **SMALL,
            "total_steps": 2048,
            "checkpoint_every": "4it",
            "restore": "auto",
            "env_backend": "gymnasium",
        },
    ),
    "fresh": (
        "tests.counter:cartpole_vector",
        {**SMALL, "total_steps": 3840, "checkpoint_every": "5it"},
    ),
    "workers": ("CartPole-v1", {**WORKERS, "restore": "auto"}),
    "workers-fresh": ("CartPole-v1", {**WORKERS, "restore": "fresh"}),
    "workers-snapshot": ("tests.counter:Saved", WORKERS),
    "envpool": (
        "CartPole-v1",
        {**SMALL, "total_steps": 3840, "checkpoint_every": "5it", "env_backend": "envpool"},
    ),
    "overlap": ("CartPole-v1", {**WORKERS, "restore": "auto", "overlap": True}),
    # as for most speed: a worker that finds log-probabilities, and a critic that is compiled
    "envpool-overlap": (
        "CartPole-v1",
        {
            **SMALL,
            "envs": 64,
            "total_steps": 12 * 64 * 65,
            "checkpoint_every": "3it",
            "env_backend": "envpool",
            "overlap": True,
            "compile": "on",
            "ppo": {**SMALL["ppo"], "horizon": 65, "minibatch_size": 512, "epochs": 4},
        },
    ),
    "compiled": (
        "CartPole-v1",
        {**SMALL, "total_steps": 2560, "checkpoint_every": "4it", "compile": "on"},
    ),
    # a ring that goes round, transitions of several steps that wait, a learned temperature
    "sac": ("Pendulum-v1", {**SOFT, "policy": {"hidden": [16], "normalize_observations": True}}),
    "sac-choices": ("CartPole-v1", {**SOFT, "evaluate_every": "20it", "evaluate_episodes": 2}),
    "sac-fresh": (
        "Pendulum-v1",
        {
            **SOFT,
            "collector": "processes",
            "n_proc": 2,
            "restore": "fresh",
            "sac": {**SOFT["sac"], "replay_folder": tempfile.gettempdir()},
        },
    ),
    "sac-overlap": ("Pendulum-v1", {**SOFT, "overlap": True, "n_proc": 1}),
    # a task that never ends, by snapshot; the estimates of an average; transforms with state
    "endless": (
        QUEUES,
        {**ENDLESS, "rewards": ["replace:delivered"], "ppo": {**SMALL["ppo"], **AVERAGE}},
    ),
    "average-replay": (
        "Pendulum-v1",
        {**SMALL, **FOUR, "restore": "replay", "ppo": {**SMALL["ppo"], **AVERAGE}},
    ),
    "average-fresh": (
        "Pendulum-v1",
        {**WORKERS, "restore": "fresh", "ppo": {**SMALL["ppo"], **AVERAGE, "eta": "mean"}},
    ),
    "popart-replay": (
        "CartPole-v1",
        {**WORKERS, "restore": "replay", "ppo": {**SMALL["ppo"], "popart": 0.1}},
    ),
    "endless-popart": (
        QUEUES,
        {
            **ENDLESS,
            "reset_every": 70,
            "rewards": ["add:delivered:0.5", "no_state_penalty", "time_scaled", "normalized"],
            "ppo": {"horizon": 32, "minibatch_size": 64, "popart": 0.1},
        },
    ),
    "transformed": (
        "CartPole-v1",
        {
            **WORKERS,
            "restore": "replay",
            "reset_every": 25,
            "rewards": ["no_state_penalty", "normalized:0.2", "clip:-5:5"],
        },
    ),
    "transformed-fresh": (
        "CartPole-v1",
        {**SMALL, **FOUR, "restore": "fresh", "rewards": ["time_scaled", "per_horizon"]},
    ),
    "sac-transformed": (
        "Pendulum-v1",
        {**SOFT, "reset_every": 50, "rewards": ["scale:0.1", "no_state_penalty", "floor:-2"]},
    ),
}


def train(case: str, out: Path) -> None:
    env, settings = CASES[case]
    surefoot.train(env, out=out, **settings)


def train_and_exit(case: str, out: Path) -> None:
    """Train, and end as the command line does."""
    try:
        train(case, out)
    except Interrupted as stopped:
        os._exit(128 + stopped.signal)


def resume(out: Path) -> None:
    surefoot.resume(out)


def dying(calls: int, work: Callable[..., None], *arguments: Any) -> None:
    """Work until the so-manieth call of a save, and kill this process right before it."""
    left = [calls]

    def doomed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if any("/checkpoints" in str(word) for word in given) or function is os.fsync:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return call

    for name in CALLS:
        setattr(os, name, doomed(getattr(os, name)))
    work(*arguments)


def start(work: Callable[..., None], *arguments: Any) -> Any:
    """Start a process that works silently."""
    process = server.Process(target=_quietly, args=(work, *arguments))
    process.start()
    return process


def finish(work: Callable[..., None], *arguments: Any) -> float:
    """Work in a process to the end; return how long it took."""
    begun = time.monotonic()
    process = start(work, *arguments)
    process.join(PATIENCE)
    assert process.exitcode == 0
    return time.monotonic() - begun


def kill_inside_a_save(case: str, out: Path, chance: random.Random) -> bool:
    """Let a training die at a random call of a random save; say whether it did."""
    process = start(dying, chance.randrange(120), train, case, out)
    process.join(PATIENCE)
    return bool(process.exitcode == -signal.SIGKILL)


def kill_anywhere(case: str, out: Path, chance: random.Random, seconds: float) -> bool:
    """Kill a training that takes so many seconds at a random moment; say whether it still ran."""
    process = start(train, case, out)
    process.join(chance.uniform(0.05, seconds))
    process.kill()
    process.join()
    return bool(process.exitcode == -signal.SIGKILL)


def difference_after_resuming(out: Path, reference: Path) -> list[str]:
    """Resume a killed run to its end; return in what it differs from the run nobody killed."""
    finish(resume, out)
    return run_differences(Run.open(reference), Run.open(out))


def _quietly(work: Callable[..., None], *arguments: Any) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    work(*arguments)
