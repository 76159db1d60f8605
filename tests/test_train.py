"""Whole runs: what they write, how they end, and that they repeat."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import surefoot
from surefoot.core.errors import ConfigError, EnvError, NonFiniteError, RunError
from surefoot.ending import Interrupted
from surefoot.learn.ppo import PPO
from surefoot.run import Run
from surefoot.runs import summaries
from tests.counter import Choices, Counter
from tests.learn.test_compiled import needs_compiler

SMALL: dict[str, Any] = {
    "total_steps": 1280,
    "seed": 1,
    "envs": 4,
    "restore": "replay",
    "ppo": {"horizon": 16, "minibatch_size": 32, "epochs": 2},
    "policy": {"hidden": [16]},
}
METRICS = {
    "rollout": "episode_return_mean episode_length_mean reward_mean steps episodes",
    "recent": "return_mean lta_return_mean length_mean success_rate terminated_rate "
    "success_reported",
    "progress": "steps total_steps iterations episodes epochs optimizer_steps",
    "ppo": "policy_loss value_loss entropy approx_kl approx_kl_k1 clip_fraction ratio_first "
    "explained_variance value_mean target_mean target_var value_error_abs advantage_std "
    "learning_rate clip_range entropy_coefficient",
    "grad": "policy_norm value_norm",
    "optim": "policy_first_moment policy_second_moment value_first_moment value_second_moment",
    "update": "policy_norm value_norm epochs optimizer_steps",
    "time": "environment acting copying update reporting steps_per_second",
    "env": "steps",
}


def small(env: Any, out: Path, **changed: Any) -> Run:
    return surefoot.train(env, out=out, **{**SMALL, **changed})


def lines(run: Run, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / name).read_text().splitlines()]


def last_state(run: Run) -> dict[str, Any]:
    return run.store.read(run.checkpoint("last").path)[1]


def weights(run: Run) -> dict[str, np.ndarray]:
    state = last_state(run)["learner"]
    return {**state["policy"], **state["optimizer"]["learning_rate"]["adam"]["exp_avg"]}


def test_every_metric_is_written_for_every_iteration(tmp_path: Path) -> None:
    run = small(Counter, tmp_path / "run")
    rows = lines(run, "metrics.jsonl")
    expected = {f"{group}/{name}" for group, names in METRICS.items() for name in names.split()}
    assert [row["step"] for row in rows] == list(range(64, 1281, 64))
    for number, row in enumerate(rows):
        saved = {"time/saving"} if number else set()  # of the iteration before
        best = {"best/return"} & set(row)  # there is none until the window is full
        assert set(row) == expected | saved | best | {"step"}
    assert rows[-1]["progress/epochs"] == 40
    assert rows[-1]["progress/optimizer_steps"] == 80
    assert rows[-1]["progress/episodes"] == sum(row["rollout/episodes"] for row in rows)


def test_metrics_without_a_value_are_absent(tmp_path: Path) -> None:
    run = small(Counter, tmp_path / "run", total_steps=64, env_args={"length": 1000})
    (row,) = lines(run, "metrics.jsonl")
    assert "rollout/episode_return_mean" not in row
    assert "recent/return_mean" not in row
    assert row["rollout/episodes"] == 0


def test_the_directory_holds_identity_settings_journal_and_checkpoints(tmp_path: Path) -> None:
    run = small("CartPole-v1", tmp_path / "run")
    identity = json.loads((run.path / "run.json").read_text())
    assert {"id", "parent", "problem", "created"} == set(identity)
    assert Run.open(run.path).config == run.config
    events = [entry["event"] for entry in lines(run, "journal.jsonl")]
    assert events == ["start", "save", "finish"]
    assert run.checkpoint("last").step == 1280
    assert run.summary()["state"] == "finished"


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", Choices, "FrozenLake-v1"])
def test_the_same_seed_gives_bit_identical_weights_after_20_iterations(
    env: Any, tmp_path: Path
) -> None:
    settings = {"normalize_observations": env == "Pendulum-v1", "hidden": [16]}
    one, two = (small(env, tmp_path / name, policy=settings) for name in "ab")
    other = small(env, tmp_path / "c", policy=settings, seed=2)
    assert lines(one, "metrics.jsonl")[-1]["progress/iterations"] == 20
    for name, values in weights(one).items():
        assert np.array_equal(values, weights(two)[name]), name
    assert not np.array_equal(
        weights(one)["head.linear.weight"], weights(other)["head.linear.weight"]
    )


def test_two_processes_give_bit_identical_weights(tmp_path: Path) -> None:
    here = small("CartPole-v1", tmp_path / "a")
    script = (
        f"import surefoot; surefoot.train('CartPole-v1', out={str(tmp_path / 'b')!r}, **{SMALL!r})"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
    there = weights(Run.open(tmp_path / "b"))
    for name, values in weights(here).items():
        assert np.array_equal(values, there[name]), name


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_training_uses_the_threads_it_was_given_in_torch_and_numpy(tmp_path: Path) -> None:
    used = []

    class Watched(Counter):
        def step(self, action: Any) -> Any:
            used.append((torch.get_num_threads(), blas_threads()))
            return super().step(action)

    with threadpool_limits(limits=2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has no threads to count")
        small(Watched, tmp_path / "run", total_steps=64)
        assert used[-1] == (1, {1})
        assert blas_threads() == {2}


def test_training_leaves_the_callers_threads_and_generators_alone(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    before, random = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    small("CartPole-v1", tmp_path / "run", total_steps=64)
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), before)
    assert str(np.random.get_state()) == random  # noqa: NPY002
    torch.set_num_threads(1)


def test_evaluation_repeats_and_another_seed_differs(tmp_path: Path) -> None:
    run = small("CartPole-v1", tmp_path / "run")
    first, again, other = (run.evaluate(6, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.returns != other.returns
    assert len(first.episodes) == 6
    assert first.return_mean == pytest.approx(np.mean(first.returns))
    assert first.summary()["return_std"] == pytest.approx(np.std(first.returns))
    assert run.evaluate(6, deterministic=False).returns != run.evaluate(6).returns
    assert first.success_rate is None


def test_evaluation_reports_success_and_plays_each_row_its_share(tmp_path: Path) -> None:
    run = small(Counter, tmp_path / "run", env_args={"length": 5})
    result = run.evaluate(episodes=21)
    assert len(result.episodes) == 21
    assert result.success_rate == 1.0
    assert result.summary()["length_mean"] == 5


def test_a_policy_loads_without_its_environment(tmp_path: Path) -> None:
    run = small(lambda: Counter(5), tmp_path / "run")
    assert run.config.env.startswith("<")
    policy = surefoot.load(run.path)
    assert policy.act(np.zeros(2)) in (0, 1)
    assert policy.act(np.zeros((3, 2))).shape == (3,)
    with pytest.raises(RunError, match=r"cannot be imported; say where it is with --env"):
        Run.open(run.path).evaluate(1)
    assert Run.open(run.path, env=lambda: Counter(5)).evaluate(2).return_mean == 15.0
    assert run.evaluate(2).return_mean == 15.0


def test_an_importable_factory_is_stored_by_name(tmp_path: Path) -> None:
    run = small(Choices, tmp_path / "run")
    assert run.config.env == "tests.counter:Choices"
    assert Run.open(run.path).evaluate(2).length_mean == 6


def test_a_whole_config_is_used_as_it_is(tmp_path: Path) -> None:
    config = surefoot.Config(total_steps=64, envs=2, ppo=surefoot.PPOConfig(horizon=32))
    run = surefoot.train("CartPole-v1", config, out=tmp_path / "run")
    settled = {"env": "CartPole-v1", "collector": "local", "compile": "off"}
    assert run.config == config.model_copy(update=settled)
    with pytest.raises(ConfigError, match="a function that makes the environment"):
        surefoot.train(Counter())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pass a surefoot.Config"):
        surefoot.train("CartPole-v1", {"seed": 3})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not both"):
        surefoot.train("CartPole-v1", config, seed=3)


def test_an_existing_directory_is_never_overwritten(tmp_path: Path) -> None:
    run = small("CartPole-v1", tmp_path / "run", total_steps=64)
    before = (run.path / "run.json").read_text()
    with pytest.raises(
        RunError, match=r"holds a run .* finished at .*surefoot resume .* --total-steps"
    ):
        small("CartPole-v1", tmp_path / "run")
    assert (run.path / "run.json").read_text() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    with pytest.raises(RunError, match="exists and is not empty"):
        small("CartPole-v1", tmp_path / "other")


def test_a_wrong_setting_leaves_no_directory_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        small("CartPole-v1", tmp_path / "run", ppo={"minibatch_size": 10**6})
    with pytest.raises(ConfigError, match="only primes"):
        small(
            "CartPole-v1", tmp_path / "run", total_steps=64, policy={"normalize_observations": True}
        )
    assert not (tmp_path / "run").exists()


def test_stop_at_ends_a_run_when_the_recent_episodes_reach_the_score(tmp_path: Path) -> None:
    settings = {"stop_at": 15.0, "recent_episodes": 10, "total_steps": 10**6}
    run = small(Counter, tmp_path / "run", **settings)
    rows = lines(run, "metrics.jsonl")
    assert rows[-1]["step"] < 1000
    assert "stop_at" in lines(run, "journal.jsonl")[-1]["reason"]


def test_max_hours_ends_a_run_that_could_go_on(tmp_path: Path) -> None:
    run = small("CartPole-v1", tmp_path / "run", max_hours=1e-9, total_steps=10**6)
    assert len(lines(run, "metrics.jsonl")) == 1
    assert run.summary()["state"] == "interrupted"
    assert run.checkpoint("last").step == 64


def test_best_is_the_highest_recent_return_and_of_equals_the_last(tmp_path: Path) -> None:
    run = small("CartPole-v1", tmp_path / "run", total_steps=6400, recent_episodes=5)
    rows = lines(run, "metrics.jsonl")
    scored = [
        (row["recent/return_mean"], row["step"]) for row in rows if row["progress/episodes"] >= 5
    ]
    best = run.checkpoint("best")
    assert (best.score, best.step) == max(scored)
    assert run.checkpoint("last").step == rows[-1]["step"]
    assert len(run.checkpoints) <= 4
    with pytest.raises(RunError, match="there are best, last"):
        run.checkpoint("7")


def test_a_fault_of_the_environment_keeps_what_was_learned(tmp_path: Path) -> None:
    class Breaks(Counter):
        life = 0

        def step(self, action: Any) -> Any:
            self.life += 1
            if self.life == 100:
                raise RuntimeError("boom")
            return super().step(action)

    with pytest.raises(EnvError, match=r"row 0, episode 19, step 4: .*boom"):
        small(Breaks, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.checkpoint("last").step == 384
    assert run.load().act(np.zeros(2)) in (0, 1)
    assert lines(run, "journal.jsonl")[-1]["event"] == "fault"
    assert run.summary()["state"] == "interrupted"


def test_non_finite_learning_leaves_evidence_and_no_bad_checkpoint(tmp_path: Path) -> None:
    ppo = {**SMALL["ppo"], "learning_rate": 1e30, "max_grad_norm": None}
    with pytest.raises(NonFiniteError, match=r"iteration 1, epoch (.|\n)*faults/step_"):
        small("CartPole-v1", tmp_path / "run", ppo=ppo)
    run = Run.open(tmp_path / "run")
    (fault,) = (run.path / "faults").iterdir()
    assert {file.name for file in fault.iterdir()} == {
        "arrays.safetensors",
        "facts.json",
        "config.yaml",
    }
    assert run.checkpoints == []


def test_a_second_process_cannot_have_the_same_run(tmp_path: Path) -> None:
    run = small("CartPole-v1", tmp_path / "run", total_steps=64)
    with run.lock():
        assert run.summary()["state"] == "running"
        with pytest.raises(RunError, match="in use by another process"), run.lock():
            pass


def test_a_signal_abandons_the_iteration_and_saves_what_was_before_it(tmp_path: Path) -> None:
    class Signals(Counter):
        lives = 0

        def step(self, action: Any) -> Any:
            Signals.lives += 1
            if Signals.lives == 160:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().step(action)

    with pytest.raises(Interrupted) as caught:
        small(Signals, tmp_path / "run")
    assert caught.value.signal == 15
    assert caught.value.run.checkpoint("last").step == 128
    assert caught.value.run.summary()["state"] == "interrupted"


def test_runs_are_found_below_a_directory(tmp_path: Path) -> None:
    small("CartPole-v1", tmp_path / "x" / "one", total_steps=64)
    small(Counter, tmp_path / "two", total_steps=64)
    assert [Path(row["run"]).name for row in summaries(tmp_path)] == ["one", "two"]


def test_a_run_that_cannot_be_read_says_why_and_hides_no_other(tmp_path: Path) -> None:
    for name in ("fine", "torn", "future"):
        small("CartPole-v1", tmp_path / name, total_steps=64)
    (tmp_path / "torn" / "config.yaml").write_text("ppo: {")
    manifest = next((tmp_path / "future").glob("checkpoints/*/manifest.json"))
    manifest.write_text("[]")
    states = {Path(row["run"]).name: row["state"] for row in summaries(tmp_path)}
    assert states["fine"] == "finished"
    assert "config.yaml cannot be used" in states["torn"]
    assert states["future"] == "finished, 1 damaged"


def test_settings_that_cannot_be_written_down_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="env_args cannot be written down"):
        small(lambda odd: Counter(5), tmp_path / "run", env_args={"odd": object()})
    assert not (tmp_path / "run").exists()


def test_a_directory_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"cannot make the run directory"):
        small("CartPole-v1", tmp_path / "file" / "run")


def test_a_second_signal_acts_at_once_and_keeps_its_number(tmp_path: Path) -> None:
    class Impatient(Counter):
        lives = 0

        def step(self, action: Any) -> Any:
            Impatient.lives += 1
            if Impatient.lives in (160, 161):
                os.kill(os.getpid(), signal.SIGTERM)
            return super().step(action)

    with pytest.raises(Interrupted) as caught:
        small(Impatient, tmp_path / "run")
    assert caught.value.signal == signal.SIGTERM
    assert Impatient.lives < 170
    assert lines(caught.value.run, "journal.jsonl")[-1] | {"time": ""} == {
        "time": "",
        "event": "signal",
        "reason": "SIGTERM",
    }


def test_what_is_saved_after_a_fault_is_the_last_boundary(tmp_path: Path) -> None:
    class Breaks(Counter):
        lives = 0

        def step(self, action: Any) -> Any:
            Breaks.lives += 1
            return 1 / 0 if Breaks.lives == 4 * 40 else super().step(action)

    with pytest.raises(EnvError):
        small(Breaks, tmp_path / "run")
    state = last_state(Run.open(tmp_path / "run"))
    assert state["progress"]["steps"] == 128  # two iterations of 4 rows × 16
    tally = {name: counts.tolist() for name, counts in state["collector"]["tally"].items()}
    # 32 steps make 6 episodes of 5, and two steps of the next, rewarded 1 and 2
    assert tally == {"number": [6] * 4, "length": [2] * 4, "total": [3.0] * 4}
    assert state["collector"]["iteration"] == 2


def test_the_last_policy_is_evaluated_too(tmp_path: Path) -> None:
    ppo = {"horizon": 64, "minibatch_size": 64}
    given = {"total_steps": 1280, "envs": 4, "evaluate_every": "2it", "evaluate_episodes": 1}
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", ppo=ppo, **given)
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    evaluated = [row["step"] for row in map(json.loads, lines) if "eval/return_mean" in row]
    assert evaluated == [512, 1024, 1280]


@pytest.mark.parametrize(
    "settings",
    [
        {"collector": "local"},
        {"collector": "processes", "n_proc": 2},
        {"collector": "processes", "n_proc": 2, "min_inference_size": 2},
        {"collector": "processes", "n_proc": 1, "overlap": True},
        {"collector": "local", "env_backend": "envpool"},
        {"collector": "local", "algo": "sac", "sac": {"horizon": 64, "updates_per_step": 0.05}},
        pytest.param({"collector": "local", "compile": "on"}, marks=needs_compiler),
    ],
    ids=str,
)
def test_time_is_divided_without_a_remainder(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, stamps, parts = importlib.import_module("surefoot.train"), [], []
    report = loop.report

    def watch(*arguments: Any) -> Any:
        stamps.append(time.perf_counter())
        metrics = report(*arguments)
        split = {k: v for k, v in metrics.items() if k.startswith("time/") and "per_" not in k}
        parts.append(split)
        return metrics

    monkeypatch.setattr(loop, "report", watch)
    fixed: Any = {"total_steps": 4096, "envs": 4}
    fixed |= {"checkpoint_every": "4it", "evaluate_every": "5it"}
    fixed["policy"] = {"normalize_observations": True}  # so that the second iteration compiles
    if "sac" not in settings:
        fixed["ppo"] = {"horizon": 64, "minibatch_size": 64, "epochs": 2}
    surefoot.train("CartPole-v1", out=tmp_path / "run", **fixed, **settings)
    assert all(seconds >= 0 for split in parts for seconds in split.values()), parts
    divided = sum(sum(split.values()) for split in parts[1:])
    # the test's stamps come a little after the loop's: on a busy machine up to some milliseconds
    assert divided == pytest.approx(stamps[-1] - stamps[0], rel=0.03, abs=0.02)
    names = {name.removeprefix("time/") for split in parts for name in split}
    waiting = {"waiting"} if settings["collector"] == "processes" else set()
    compiling = {"compile"} if "compile" in settings else set()
    always = {"environment", "acting", "copying", "update", "evaluation", "reporting", "saving"}
    assert names == always | waiting | compiling


@pytest.mark.parametrize(
    "settings",
    [{"collector": "local"}, {"n_proc": 2}, {"n_proc": 1, "overlap": True}],
    ids=str,
)
def test_updates_have_the_threads_that_are_asked_for_whoever_collects(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, seen = PPO.update, set()

    def watched(*given: Any) -> Any:
        seen.add(torch.get_num_threads())
        return update(*given)

    monkeypatch.setattr(PPO, "update", watched)
    monkeypatch.setattr("surefoot.collect.choose.cores", lambda: 4)
    for threads in (1, 2):
        given: Any = {**SMALL, "total_steps": 256, "threads": threads, **settings}
        surefoot.train("CartPole-v1", out=tmp_path / str(threads), **given)
        assert seen == {threads}
        seen.clear()


def test_a_word_after_the_end_does_not_undo_it(tmp_path: Path) -> None:
    run = surefoot.train("CartPole-v1", total_steps=600, out=tmp_path / "run", output="quiet")
    with (run.path / "journal.jsonl").open("a") as journal:
        journal.write('{"event": "wandb-offline", "message": "late"}\n')
    assert run.condition == "finished"
