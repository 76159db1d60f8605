"""Runs that learn by SAC: the same commands, and a buffer that comes along or is left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot
from surefoot.cli import main
from surefoot.core.errors import ConfigError
from surefoot.core.state import Appended
from surefoot.run import Run
from surefoot.trials import Trial
from surefoot.tuning import tune
from tests.killing import SOFT
from tests.trained import copy, trained

TRAIN = [
    *("train", "Pendulum-v1", "--algo", "sac", "--total-steps", "640", "--envs", "4"),
    *("--sac.learning-starts", "100", "--sac.batch-size", "16", "--policy.hidden", "16"),
    *("--checkpoint-every", "320", "--hall-of-fame", "0"),
]


def succeeds(*words: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 0


@pytest.fixture(scope="module")
def run() -> Run:
    return trained(
        "Pendulum-v1", **{k: v for k, v in SOFT.items() if k not in ("seed", "hall_of_fame")}
    )


def test_one_command_trains_and_the_others_use_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    succeeds(*TRAIN, "--out", str(out))
    shown = capsys.readouterr().out
    assert "replay buffer: 672 transitions of 36 bytes, as many as the run makes: 24 kB" in shown
    assert "alpha" in shown
    succeeds("eval", str(out), "--episodes", "2", "--json", "--record")
    figures = json.loads(capsys.readouterr().out)
    assert figures["step"] == 640
    succeeds("report", str(out))
    succeeds("plot", str(out), "--metric", "update/optimizer_steps", "--out", str(out / "a.png"))
    names = {path.name for path in (out / "models").iterdir()}
    assert {"final_actor.pth", "final_critic.pth", "pi_ckpt1.pth"} <= names


def test_a_trained_policy_is_loaded_and_exported(run: Run, tmp_path: Path) -> None:
    agent = surefoot.load(run.path, "last")
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    action = agent.act(obs)
    program = torch.export.load(run.export("pt2", tmp_path / "policy.pt2", "last")).module()
    np.testing.assert_allclose(program(torch.from_numpy(obs)).numpy(), action, atol=1e-5)
    assert (np.abs(action) <= 2).all()


def test_the_buffer_is_in_the_checkpoint_in_segments(run: Run) -> None:
    state = run.read(run.checkpoint("last"))
    kept = state["learner"]["experience"]["replay"]
    assert isinstance(kept["chunks"], Appended)
    sizes = [len(piece.arrays["reward"]) for piece in kept["chunks"].pieces]
    assert len(set(sizes)) == 1
    assert 600 <= sum(sizes) + len(kept["rest"]["reward"]) <= 675
    assert len(list((run.path / "segments").iterdir())) >= len(sizes)


def test_a_run_without_its_buffer_resumes_and_says_that_this_is_not_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    succeeds(*TRAIN, "--no-save-replay", "--out", str(out))
    assert "it is not saved, so a resume will not be exact" in capsys.readouterr().out
    assert not (out / "segments").exists()
    succeeds("resume", str(out), "--total-steps", "960")
    assert "not exact: the replay buffer was left behind" in capsys.readouterr().out
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    learned = [row["step"] for row in steps if row.get("update/optimizer_steps")]
    assert 640 in learned
    assert min(step for step in learned if step > 640) >= 640 + 96
    assert learned[-1] == 960


def test_a_fork_keeps_the_buffer_in_another_size_but_not_another_algorithm(
    run: Run, tmp_path: Path
) -> None:
    parent = copy(run, tmp_path / "parent")
    with pytest.raises(ConfigError, match="algo is sac in the parent and cannot be ppo"):
        surefoot.fork(parent.path, tmp_path / "other", algo="ppo", total_steps=4000)
    sac = {"replay_steps": 100, "updates_per_step": 0.01}
    child = surefoot.fork(parent.path, tmp_path / "child", sac=sac, total_steps=2200)
    kept = child.read(child.checkpoint("last"))["learner"]["experience"]["replay"]
    sizes = [len(piece.arrays["reward"]) for piece in kept["chunks"].pieces]
    assert sum(sizes) + len(kept["rest"]["reward"]) <= 113


def test_a_fork_with_another_discount_or_other_rows_learns_from_what_fits_it(
    run: Run, tmp_path: Path
) -> None:
    parent = copy(run, tmp_path / "parent")
    sac = {"gamma": 0.5}
    child = surefoot.fork(parent.path, tmp_path / "gamma", sac=sac, total_steps=2176)
    kept = child.read(child.checkpoint("last"))["learner"]["experience"]["replay"]
    pieces = [*(piece.arrays for piece in kept["chunks"].pieces), kept["rest"]]
    discounts = {round(float(d), 3) for piece in pieces for d in piece["discount"]}
    assert discounts == {0.125}
    surefoot.fork(parent.path, tmp_path / "rows", envs=2, total_steps=2112)


def test_a_fork_into_another_task_begins_with_an_empty_buffer(run: Run, tmp_path: Path) -> None:
    parent = copy(run, tmp_path / "parent")
    child = surefoot.fork(
        parent.path, tmp_path / "child", env_args={"g": 5.0}, total_steps=2112, save_replay=True
    )
    kept = child.read(child.checkpoint("last"))["learner"]["experience"]["replay"]
    assert len(kept["chunks"].pieces) * 75 + len(kept["rest"]["reward"]) <= 64


@pytest.mark.slow
def test_speed_is_tuned_for_sac_too() -> None:
    from surefoot.config import resolve
    from surefoot.envs.make import factory

    config = resolve("Pendulum-v1", None, {"algo": "sac", "envs": 2, "policy": {"hidden": [8]}})
    trials: list[Trial] = []
    best = tune(config, factory("Pendulum-v1"), trials.append, budget=6.0)
    assert best.speed.training > 0
    assert len(trials) > 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algo", "sac", "--ppo.epochs", "3"], "ppo.epochs means nothing with algo=sac"),
        (["--sac.tau", "0.1"], "sac.tau means nothing with algo=ppo; drop it, or use --algo sac"),
    ],
)
def test_settings_of_the_other_algorithm_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "Pendulum-v1", *words, "--out", str(tmp_path / "run")])
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_environment_is_examined_for_an_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check-env", "tests.counter:Unbounded", "--algo", "sac"])
    assert left.value.code == 1
    assert "without bounds" in capsys.readouterr().out
    succeeds("check-env", "tests.counter:Unbounded")


def test_a_typo_or_a_setting_for_the_other_algorithm_is_refused_in_python_too() -> None:
    settings: dict[str, Any] = {"algo": "sac", "ppo": {"epochs": 3}}
    with pytest.raises(ConfigError, match=r"ppo.epochs means nothing with algo=sac"):
        surefoot.resolve("Pendulum-v1", None, settings)
    with pytest.raises(ConfigError, match=r"unknown setting 'sac.n_step'; did you mean 'n_steps'"):
        surefoot.resolve("Pendulum-v1", None, {"algo": "sac", "sac": {"n_step": 3}})
