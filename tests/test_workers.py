"""Whole runs with worker processes: what users see when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.cli import main
from surefoot.core.errors import ConfigError, EnvError
from surefoot.run import Run
from surefoot.verify import run_differences
from tests import killing
from tests.faulty import Faulty

SMALL: dict[str, Any] = {
    "seed": 3,
    "envs": 4,
    "n_proc": 2,
    "collector": "processes",
    "hall_of_fame": 0,
    "total_steps": 640,
    "restore": "replay",
    "ppo": {"horizon": 32, "minibatch_size": 64, "epochs": 1},
}


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for something to be true; return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found


def workers_of(parent: int) -> list[int]:
    """List the worker processes of a process."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
                born_by = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if born_by == parent and b"surefoot.collect.worker" in words:
                found.append(int(path.name))
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_runs_with_and_without_workers_end_the_same(tmp_path: Path) -> None:
    alone = {**SMALL, "collector": "local", "n_proc": None}
    runs = [
        surefoot.train("CartPole-v1", out=tmp_path / str(n), **settings)
        for n, settings in enumerate([alone, SMALL, {**SMALL, "n_proc": 3}])
    ]
    assert run_differences(runs[0], runs[1]) == []
    assert run_differences(runs[0], runs[2]) == []


def test_a_run_that_lost_a_worker_finishes_and_says_what_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "env_args": {"how": "step:segfault", "once": str(tmp_path / "x")}}
    run = surefoot.train(Faulty, out=tmp_path / "run", **settings)
    assert run.condition == "finished"
    (lost,) = [entry for entry in run.journal() if entry["event"] == "worker-lost"]
    assert lost["how"] == "was killed by SIGSEGV"
    assert "in _segfault" in lost["traceback"]
    assert re.search(
        r"lost worker \d, which was killed by SIGSEGV: tests.faulty:Faulty, row \d", lost["message"]
    )
    told = capsys.readouterr().out
    assert lost["message"] in told
    assert "not comparable bit for bit" in told
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["rollout/steps"] for line in lines]
    assert sum(steps) == json.loads(lines[-1])["progress/steps"] == run.summary()["steps"]
    assert min(steps) < 128


def test_a_run_whose_environment_always_breaks_ends_resumable(tmp_path: Path) -> None:
    path, broken = tmp_path / "run", tmp_path / "mended"
    args = {"how": "step:exit", "at": 100, "once": str(broken)}
    broken.touch()
    settings = {**SMALL, "total_steps": 1280, "worker_restarts": 1, "max_hours": 1e-9}
    surefoot.train("tests.faulty:Faulty", out=path, env_args=args, **settings)
    broken.unlink()
    # It leaves its mark when it breaks, and so every mark is wiped away again.
    process = killing.start(wipe, broken)
    try:
        with pytest.raises(
            EnvError, match=r"more than worker_restarts=1. The first ended with exit"
        ):
            surefoot.resume(path, max_hours=1)
    finally:
        process.kill()
        process.join()
    assert Run.open(path).condition == "interrupted"
    broken.touch()
    assert surefoot.resume(path, max_hours=1).condition == "finished"


def wipe(mark: Path) -> None:
    while True:
        mark.unlink(missing_ok=True)
        time.sleep(0.001)


def train_stuck(out: Path, mark: str) -> None:
    surefoot.train("tests.faulty:Faulty", out=out, env_args={"how": "step:loop", "at": 40}, **SMALL)


def test_workers_end_with_their_parent_even_in_the_middle_of_a_step(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    for attempt in range(10):
        process = killing.start(train_stuck, tmp_path / str(attempt), "")
        workers = until(lambda process=process: len(w := workers_of(process.pid)) == 2 and w)
        if attempt % 2:  # in the middle of a step; else while they start
            until(lambda n=attempt: (tmp_path / str(n) / "run.json").exists())
            time.sleep(0.2)
        process.kill()
        process.join()
        until(lambda workers=workers: not any(map(lives, workers)), seconds=2.0)
    assert set(os.listdir("/dev/shm")) <= before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_everybody_gives_one_message_and_no_traceback(
    number: signal.Signals, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "surefoot", "train", "CartPole-v1", "--total-steps", "1000000"]
    options = ["--collector", "processes", "--n-proc", "2", "--out", str(tmp_path / "run")]
    with (tmp_path / "said").open("wb") as file:
        process = subprocess.Popen(
            [*command, *options], stdout=file, stderr=file, start_new_session=True
        )
    metrics = tmp_path / "run" / "metrics.jsonl"
    until(lambda: (metrics.exists() and metrics.stat().st_size) or process.poll() is not None)
    workers = workers_of(process.pid)
    os.killpg(process.pid, number)
    for worker in workers:
        os.kill(worker, signal.SIGINT)  # they have a session of their own, and do not mind
    assert process.wait(20) == 128 + number
    said = (tmp_path / "said").read_text()
    assert said.count("saving and stopping") == 1
    assert "Traceback" not in said
    assert len(workers) == 2
    assert not any(map(lives, workers))


def test_an_environments_error_is_told_with_its_own_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [
        "train",
        "tests.faulty:Faulty",
        "--env-args",
        "how=step:raise",
        "--out",
        str(tmp_path / "r"),
    ]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--collector", "processes", "--n-proc", "1", "--restore", "replay"])
    assert ended.value.code == 1
    said = capfd.readouterr().err
    assert 'raise ZeroDivisionError("the environment is tired")' in said
    assert re.search(
        r"surefoot: tests.faulty:Faulty, row \d, episode 0, step 2: step\(.*\) raised", said
    )
    assert said.count("Traceback") == 1


@pytest.mark.parametrize("how", ["step:loop", "step:segfault"])
def test_an_environment_that_breaks_when_it_is_tried_out_is_met_again_by_those_who_play(
    how: str, tmp_path: Path
) -> None:
    args = {"how": how, "once": str(tmp_path / "broken")}
    settings = {**SMALL, "restore": "auto", "step_timeout": 1.0, "env_args": args}
    run = surefoot.train(Faulty, out=tmp_path / "run", **settings)
    start = run.journal()[0]
    assert start["restore"] == "replay"
    assert "the probe failed: its worker process was" in start["because"]


def test_an_environment_that_nobody_can_build_ends_the_run(tmp_path: Path) -> None:
    settings = {**SMALL, "restore": "auto", "env_args": {"how": "init:segfault"}}
    with pytest.raises(EnvError, match=r"was killed by SIGSEGV while it was tried out") as caught:
        surefoot.train(Faulty, out=tmp_path / "run", **settings)
    assert "in _segfault" in str(caught.value.__cause__)


def test_a_fork_may_leave_the_workers_of_its_parent(tmp_path: Path) -> None:
    parent = surefoot.train("CartPole-v1", out=tmp_path / "parent", step_timeout=9, **SMALL)
    for name, changed in {"here": {"collector": "local"}, "one": {"envs": 1}}.items():
        settings = {"total_steps": 800, "ppo": {"minibatch_size": 32}, **changed}
        fork = surefoot.fork(parent.path, out=tmp_path / name, **settings)
        assert fork.condition == "finished"
        kept = (fork.config.n_proc, fork.config.step_timeout)
        assert kept == ((None, 60) if name == "here" else (1, 9))


def test_a_replaced_worker_is_remembered_over_a_resume(tmp_path: Path) -> None:
    args = {"how": "step:exit", "once": str(tmp_path / "x")}
    path = tmp_path / "run"
    surefoot.train("tests.faulty:Faulty", out=path, env_args=args, **{**SMALL, "max_hours": 1e-9})
    run = surefoot.resume(path, max_hours=1)
    last = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["collect/workers_replaced"] == 1


def test_a_resume_may_change_who_steps_the_environments(tmp_path: Path) -> None:
    whole = surefoot.train("CartPole-v1", out=tmp_path / "whole", **SMALL)
    for name, changed in {
        "three": {"n_proc": 3, "step_timeout": 9.0},
        "here": {"collector": "local"},
    }.items():
        path = tmp_path / name
        surefoot.train("CartPole-v1", out=path, **{**SMALL, "max_hours": 1e-9})
        run = surefoot.resume(path, max_hours=1, **changed)
        assert run_differences(whole, run) == []
        assert run.config.n_proc == changed.get("n_proc")
    with pytest.raises(ConfigError, match=r"resume cannot change 'envs'; `surefoot fork` can"):
        surefoot.resume(path, envs=2)


def test_a_resume_does_without_workers_only_where_that_changes_no_number(tmp_path: Path) -> None:
    settings = {**SMALL, "overlap": True, "max_hours": 1e-9}
    surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    with pytest.raises(ConfigError, match=r"this run has overlap=True, which needs workers"):
        surefoot.resume(tmp_path / "run", collector="local")
    changed: dict[str, Any] = {"collector": "local", "max_hours": 1}
    fork = surefoot.fork(tmp_path / "run", out=tmp_path / "fork", **changed)
    assert not fork.config.overlap


def test_what_workers_print_comes_out_where_their_parent_prints(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "surefoot",
        "train",
        "tests.faulty:Chatty",
        "--total-steps",
        "64",
    ]
    options = ["--collector", "processes", "--n-proc", "2", "--envs", "2", "--restore", "replay"]
    more = ["--ppo.horizon", "32", "--ppo.minibatch-size", "64", "--out", str(tmp_path / "run")]
    done = subprocess.run([*command, *options, *more], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines.count("out of an environment") == 2
    assert lines.count("err of an environment") == 2
    assert done.stderr == ""


def test_a_run_that_will_not_repeat_itself_says_so_when_it_starts_and_when_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "min_inference_size": 2, "max_hours": 1e-9}
    surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    assert "this run will not repeat itself bit for bit" in capsys.readouterr().out
    surefoot.resume(tmp_path / "run", max_hours=1)
    assert "this run will not repeat itself bit for bit" in capsys.readouterr().out


def test_a_training_on_the_command_line_can_be_watched(tmp_path: Path) -> None:
    """This environment has no window to show, and that is said: so somebody looked for one."""
    words = ["train", "tests.counter:Slow", "--total-steps", "1400", "--envs", "2", "--render"]
    more = ["--collector", "local", "--restore", "replay", "--ppo.horizon", "32"]
    with pytest.raises(SystemExit) as ended:
        main([*words, *more, "--out", str(tmp_path / "run")])
    assert ended.value.code == 0
    assert "render-stopped" in {e["event"] for e in Run.open(tmp_path / "run").journal()}
