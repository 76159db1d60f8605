"""`surefoot tune-speed` tries what could be fast, keeps to its time, and says how to use it."""

from __future__ import annotations

import shlex
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from surefoot import tuning
from surefoot.cli import main
from surefoot.config import Config, PolicyConfig, PPOConfig, resolve
from surefoot.core.errors import ConfigError
from surefoot.core.hardware import cores
from surefoot.envs.make import factory
from surefoot.options import TrainOptions
from surefoot.parsing import parse, settle
from surefoot.trials import Compiler, Trial
from surefoot.tuning import WORTH, tune
from tests.counter import Counter, Slow

NORMALIZED = PolicyConfig(normalize_observations=True)
SMALL = Config(envs=4, ppo=PPOConfig(horizon=64, minibatch_size=32, epochs=1))


def tuned(env: Any, budget: float) -> tuple[Trial, list[Trial], float]:
    trials: list[Trial] = []
    begun = time.monotonic()
    best = tune(SMALL, factory(env), trials.append, budget)
    return best, trials, time.monotonic() - begun


def test_slow_environments_are_left_to_workers() -> None:
    best, trials, _ = tuned(Slow, 14.0)  # it sleeps, so that more workers are always faster
    assert best.settings["collector"] == "processes"
    assert best.speed.training * WORTH >= max(trial.speed.training for trial in trials)
    assert {"collector": "local"} in [trial.settings for trial in trials]


@pytest.mark.parametrize("budget", [7.5, 12.0])
def test_a_probe_ends_in_time(budget: float) -> None:
    _, trials, seconds = tuned(Counter, budget)
    assert seconds < budget + 4.0
    assert any(trial.speed.training for trial in trials)


@pytest.mark.slow
def test_a_probe_ends_in_time_where_learning_takes_long() -> None:
    config = Config(envs=4, policy={"hidden": (1024, 1024)})
    begun, trials = time.monotonic(), list[Trial]()
    tune(config, factory(Counter), trials.append, 12.0)
    assert time.monotonic() - begun < 16.0
    assert any(trial.speed.training for trial in trials)


def test_a_preset_is_named_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags are laid over the preset, which prefers EnvPool here."""
    monkeypatch.setattr("surefoot.envs.envpool.installed", lambda: False)
    config = SMALL.model_copy(update={"env_backend": "prefer-envpool"})
    best = tune(config, factory("CartPole-v1"), budget=9.0)
    assert "--env-backend gymnasium" in best.flags


@pytest.mark.slow
def test_compiling_goes_on_meanwhile_whatever_is_set_for_workers() -> None:
    config = SMALL.model_copy(update={"step_timeout": 120.0, "compile": "on"})
    trials: list[Trial] = []
    tune(config, factory(Counter), trials.append, 240.0)  # which a busy machine may need
    plain, compiled = (
        [t for t in trials if (t.settings.get("compile") == "on") == on] for on in (False, True)
    )
    for trial in compiled:
        assert trial.failed == ""
        assert trial.speed.training > 0
    assert "threads" not in compiled[0].settings
    assert compiled[-1].settings.get("threads", 1) == cores()
    # What helps before compiling may hurt after it.
    assert all("threads" not in trial.settings for trial in plain)


def test_a_run_that_does_not_compile_is_not_told_to() -> None:
    trials: list[Trial] = []
    config = SMALL.model_copy(update={"compile": "off"})
    best = tune(config, factory(Counter), trials.append, 12.0)
    assert "compile" not in best.settings
    assert any("threads" in trial.settings for trial in trials) == (cores() > 1)


@pytest.mark.parametrize(
    ("cores", "overlap", "expected"),
    [
        (1, False, []),
        (2, False, [(2, False)]),
        (2, True, [(2, False)]),
        (4, True, [(3, True), (4, False)]),
    ],
)
def test_torch_is_tried_on_all_cores_that_it_can_have(
    cores: int, overlap: bool, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.collect.choose.cores", lambda: cores)
    settings = {"overlap": overlap, "collector": "processes", "n_proc": 4}
    changed = [{**settings, **change} for change in tuning._more_threads(SMALL, settings)]
    assert [(each["threads"], each["overlap"]) for each in changed] == expected
    # Those who play leave several threads their cores only if nobody counts them.
    assert all((each["n_proc"] is None) == overlap for each in changed)


def test_what_depends_on_settings_of_speed_is_said() -> None:
    trial = Trial({"envs": 8, "threads": 2, "n_proc": 2, "compile": "on"})
    assert trial.consequences() == [
        "These change what is learned, not only how fast: envs.",
        "These change last bits, not only how fast: threads, compile.",
    ]
    assert Trial({"collector": "local"}).consequences() == []


def test_why_nothing_could_be_compiled_is_said() -> None:
    config = SMALL.model_copy(update={"total_steps": 1, "policy": NORMALIZED})
    with closing(Compiler(config, factory(Counter), 120.0)) as compiler:
        trial = compiler.tried({}, time.monotonic() + 120.0)
    assert "total_steps=1 ends with the first rollout" in trial.failed
    assert compiler.needs() == 0.0  # it is not waited for


def test_what_cannot_be_sent_to_a_process_is_said_not_to_be_compiled() -> None:
    held = threading.Lock()
    with closing(Compiler(SMALL, factory(lambda: held and Counter()), 120.0)) as compiler:
        trial = compiler.tried({}, time.monotonic() + 120.0)
    assert trial.failed
    assert "--seconds" not in trial.failed  # more of them would not help


def test_too_little_time_is_said() -> None:
    with pytest.raises(ConfigError, match="could not be tried in this time"):
        tune(SMALL, factory(Counter), budget=1.0)


def test_flags_and_file_lead_to_what_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fast.yaml"
    own = ["--ppo.learning-rate", "linear:1e-3:0", "--envs=4", "--ppo.epochs", "3"]
    with pytest.raises(SystemExit) as ended:
        main(["tune-speed", "--seconds", "13", "CartPole-v1", *own, "--write", str(file)])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("fastest: surefoot train ")]
    words = shlex.split(line.removeprefix("fastest: surefoot train "))
    by_flags, _ = settle(parse(TrainOptions, words, "train"), words)
    assert by_flags == resolve("CartPole-v1", file)
    assert by_flags.ppo.epochs == 3


def test_a_mistake_is_told_before_anything_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tune-speed", "CartPole-v1", "--collector", "local", "--n-proc", "2"])
    assert ended.value.code == 2
    assert "n_proc=2 is for worker processes" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told_before_anything_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tune-speed", "CartPole-v1", "--write", str(tmp_path / "none" / "fast.yaml")])
    assert ended.value.code == 2
    assert "there is no directory" in capsys.readouterr().err
