"""Going on: resume, fork, and what stands in the way."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot
from surefoot.core.errors import CheckpointError, ConfigError, EnvError, RunError, SaveError
from surefoot.core.state import differences
from surefoot.ending import Interrupted
from surefoot.run import Run
from surefoot.store import checkpoint
from surefoot.verify import run_differences
from tests.counter import Counter

SMALL: dict[str, Any] = {
    "total_steps": 1280,
    "seed": 1,
    "envs": 4,
    "restore": "replay",
    "recent_episodes": 10,
    "checkpoint_every": "2it",
    "hall_of_fame": 0,
    "ppo": {
        "horizon": 16,
        "minibatch_size": 32,
        "epochs": 2,
        "learning_rate": 3e-4,
        "clip_range": 0.2,
    },
    "policy": {"hidden": [16]},
}


def small(out: Path, env: Any = "CartPole-v1", **changed: Any) -> Run:
    return surefoot.train(env, out=out, **{**SMALL, **changed})


def state(run: Run, which: str | int = "last") -> dict[str, Any]:
    return run.store.read(run.checkpoint(which).path)[1]


def steps(run: Run) -> list[int]:
    return [c.step for c in run.checkpoints]


def metric(run: Run, name: str) -> list[float]:
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [row.get(name) for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def run(whole: Run, tmp_path: Path) -> Run:
    """A copy of a finished run, to do things to."""
    return Run.open(shutil.copytree(whole.path, tmp_path / "run"))


def test_going_back_repeats_what_came_after_and_leaves_no_gap(run: Run, whole: Run) -> None:
    first = steps(run)[0]
    surefoot.resume(run.path, checkpoint=first)
    assert run_differences(run, whole) == []
    assert metric(run, "step") == list(range(64, 1281, 64))
    superseded = sorted(path.name for path in (run.path / "checkpoints/superseded").iterdir())
    assert superseded == [f"step_{step:012d}" for step in steps(whole) if step > first]
    (entry,) = [e for e in run.journal() if e["event"] == "resume"]
    assert entry["step"] == first
    assert steps(run) == steps(whole)


def test_a_finished_run_is_left_alone(run: Run) -> None:
    before = (run.path / "journal.jsonl").read_bytes()
    surefoot.resume(run.path)
    assert (run.path / "journal.jsonl").read_bytes() == before


def test_a_resume_says_whether_the_run_gets_longer_or_shorter(run: Run) -> None:
    first = steps(run)[0]
    surefoot.resume(run.path, checkpoint=first, total_steps=first + 64)
    surefoot.resume(run.path, total_steps=first + 128)
    said = [entry["message"] for entry in run.journal() if entry["event"] == "resume"]
    assert f"shortened to {first + 64:,} steps" in said[0]
    assert f"extended to {first + 128:,} steps" in said[1]


def test_a_finished_run_can_be_extended_and_schedules_follow(tmp_path: Path) -> None:
    ppo = {**SMALL["ppo"], "learning_rate": "linear:1e-3:0"}
    run = small(tmp_path / "run", ppo=ppo)
    with pytest.raises(ConfigError, match=r"goes on from step 1,280; give more"):
        surefoot.resume(run.path, total_steps=100)
    surefoot.resume(run.path, total_steps=2560)
    rates = metric(run, "ppo/learning_rate")
    assert rates[19] == pytest.approx(1e-3 * (1 - 1216 / 1280))
    assert rates[20] == pytest.approx(1e-3 * (1 - 1280 / 2560))
    assert metric(run, "step") == list(range(64, 2561, 64))
    assert Run.open(run.path).config.total_steps == 2560
    assert any("schedules follow" in e.get("message", "") for e in run.journal())


def test_extending_without_schedules_is_as_if_it_had_been_planned(tmp_path: Path) -> None:
    long = small(tmp_path / "long", total_steps=1920, num_checkpoints=0)
    short = small(tmp_path / "short", num_checkpoints=0)
    surefoot.resume(short.path, total_steps=1920)
    assert run_differences_but_total(long, short) == []


def run_differences_but_total(one: Run, other: Run) -> list[str]:
    return [d for d in run_differences(one, other) if "total_steps" not in d]


@pytest.mark.parametrize("fault", ["torn", "flipped", "missing", "no manifest"])
def test_a_damaged_checkpoint_is_passed_by_and_named(run: Run, whole: Run, fault: str) -> None:
    newest, older = run.checkpoints[-1], run.checkpoints[-2]
    file = newest.path / ("manifest.json" if fault == "no manifest" else "tensors.safetensors")
    content = bytearray(file.read_bytes())
    if fault == "torn":
        file.write_bytes(content[:100])
    elif fault == "flipped":
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
    else:
        file.unlink()
    surefoot.resume(run.path)
    entry = next(e for e in run.journal() if e["event"] == "resume")
    assert entry["step"] == older.step
    assert str(newest.path) in entry["message"]
    assert file.name in entry["message"]
    assert run_differences(run, whole) == []
    assert (run.path / "checkpoints/superseded" / newest.path.name).is_dir()


def test_without_a_whole_checkpoint_nothing_is_changed(run: Run) -> None:
    for kept in run.checkpoints:
        (kept.path / "state.json").write_text("{}")
    before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.name != "lock"}
    with pytest.raises(CheckpointError, match=r"none of the \d checkpoints can be used"):
        surefoot.resume(run.path)
    assert {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.name != "lock"} == before


def test_another_format_is_not_passed_by(run: Run) -> None:
    file = run.checkpoints[-1].path / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["seal"]
    file.write_bytes(checkpoint.seal({**manifest, "format": 3}))
    with pytest.raises(CheckpointError, match="has format 3; this surefoot reads 2"):
        surefoot.resume(run.path)


def test_another_environment_is_named_with_both_spaces(run: Run) -> None:
    with pytest.raises(
        CheckpointError, match=r"observation is Box\(\(4,\).*in the checkpoint, Box\(\(2,\)"
    ):
        surefoot.resume(run.path, env=Counter, checkpoint=steps(run)[0])
    assert steps(run)[-1] == 1280


def test_another_machine_goes_on_and_says_what_differs(run: Run) -> None:
    file = run.checkpoints[0].path / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["seal"]
    machine = {**manifest["machine"], "torch": "1.0", "threads": 64}
    file.write_bytes(checkpoint.seal({**manifest, "machine": machine}))
    surefoot.resume(run.path, checkpoint=steps(run)[0])
    notes = next(e for e in run.journal() if e["event"] == "resume")["notes"]
    (note,) = [note for note in notes if "not bit for bit" in note]
    assert "torch was 1.0 and is" in note
    assert "threads was 64 and is 1" in note


class Odd(Counter):
    """Depends on the clock of the whole process, not only on its seed."""

    lives = 0

    def step(self, action: Any) -> Any:
        Odd.lives += 1
        obs, *rest = super().step(action)
        return obs + Odd.lives, *rest


def test_an_environment_that_does_not_repeat_itself_is_refused_unless_allowed(
    tmp_path: Path,
) -> None:
    run = small(tmp_path / "run", env=Odd, env_args={"length": 30})
    before = steps(run)
    with pytest.raises(RunError, match=r"row 0 differs .* at step 1 of .*--allow-inexact"):
        surefoot.resume(run.path, checkpoint=before[0])
    assert steps(run) == before
    surefoot.resume(run.path, checkpoint=before[0], allow_inexact=True)
    note, *_ = next(e for e in run.journal() if e["event"] == "resume")["notes"]
    assert "not exact: row 0" in note
    assert metric(run, "step")[-1] == 1280


def test_a_run_that_nothing_can_repeat_goes_on_with_new_episodes_and_says_so(
    tmp_path: Path,
) -> None:
    Odd.lives = 0
    run = small(tmp_path / "run", env=Odd, restore="auto", max_hours=1e-9)
    assert "cannot be resumed exactly: it is not deterministic" in run.journal()[0]["message"]
    surefoot.resume(run.path, max_hours=1.0)
    note, *_ = next(e for e in run.journal() if e["event"] == "resume")["notes"]
    assert "not exact: the environment is not deterministic" in note
    assert metric(run, "step") == list(range(64, 1281, 64))


def test_a_snapshot_of_the_model_is_gone_on_from_only_when_that_is_allowed(tmp_path: Path) -> None:
    settings = {"restore": "fresh", "checkpoint_every": "4it", "max_hours": 1e-9}
    run = small(tmp_path / "run", **settings)
    assert [(c.step, c.manifest.exact) for c in run.checkpoints] == [(64, False)]
    assert run.load("last")
    surefoot.resume(run.path)
    opening = [e for e in run.journal() if e["event"] == "resume"][-1]
    assert "snapshot of the model" in opening["message"]
    assert "starting at step 0" in opening["message"]
    assert steps(run) == [64]
    surefoot.resume(run.path, allow_inexact=True)
    assert metric(run, "step") == [64, 128]
    surefoot.resume(run.path, max_hours=1.0)
    whole = small(tmp_path / "whole", **{**settings, "max_hours": None})
    assert run_differences(run, whole) == []


def test_a_run_without_a_checkpoint_starts_over_and_says_so(tmp_path: Path, whole: Run) -> None:
    run = Run.create(tmp_path / "run", whole.config)
    surefoot.resume(run.path)
    assert "starting at step 0" in run.journal()[0]["message"]
    assert run_differences(run, whole) == []


def test_an_environment_of_ones_own_is_given_again(tmp_path: Path) -> None:
    make = lambda: Counter(length=9)  # noqa: E731
    whole = small(tmp_path / "whole", env=make)
    run = small(tmp_path / "run", env=make, max_hours=1e-9)
    with pytest.raises(RunError, match="env=function"):
        surefoot.resume(run.path)
    config = run.config.model_copy(update={"max_hours": None})
    run.configure(config)
    surefoot.resume(run.path, env=make)
    assert run_differences(run, whole) == []


def test_a_resume_may_change_how_a_run_is_watched_and_nothing_else(run: Run, whole: Run) -> None:
    first = steps(run)[0]
    shutil.rmtree(run.path / "tensorboard")
    changed: Any = {"tensorboard": False, "video_every": 10**9, "wandb": {"group": "g"}}
    resumed = surefoot.resume(run.path, checkpoint=first, **changed)
    assert run_differences(resumed, whole) == []
    assert not (run.path / "tensorboard").exists()
    kept = Run.open(run.path).config
    assert (kept.wandb.group, str(kept.video_every)) == ("g", str(10**9))


def test_max_hours_stops_a_run_that_resumes_exactly(tmp_path: Path, whole: Run) -> None:
    run = small(tmp_path / "run", max_hours=1e-9)
    assert steps(run) == [64]
    surefoot.resume(run.path, max_hours=1e-9)
    assert steps(run)[-1] == 128
    surefoot.resume(run.path, max_hours=1.0)
    assert run_differences(run, whole) == []


def test_a_second_process_cannot_resume_a_running_run(run: Run) -> None:
    with run.lock(), pytest.raises(RunError, match="in use by another process"):
        surefoot.resume(run.path, total_steps=5000)


def test_a_fault_of_the_environment_leaves_a_run_that_resumes_exactly(
    tmp_path: Path,
) -> None:
    class Breaks(Counter):
        lives = 0

        def step(self, action: Any) -> Any:
            Breaks.lives += 1
            return 1 / 0 if Breaks.lives == 700 else super().step(action)

    whole = small(tmp_path / "whole", env=Counter)
    with pytest.raises(EnvError):
        small(tmp_path / "run", env=lambda: Breaks(5))
    run = surefoot.resume(tmp_path / "run", env=Counter)
    assert run_differences(run, whole) == []


def test_a_fork_remembers_its_parent_and_goes_on_with_other_settings(run: Run) -> None:
    out = run.path.with_name("fork")
    ppo = {"learning_rate": 1e-5, "value_learning_rate": 1e-4}
    child = surefoot.fork(run.path, out, checkpoint=steps(run)[0], ppo=ppo)
    assert child.identity["parent"]["id"] == run.identity["id"]
    assert child.identity["parent"]["step"] == steps(run)[0]
    assert child.identity["id"] != run.identity["id"]
    assert metric(child, "step")[0] == steps(run)[0] + 64
    assert set(metric(child, "ppo/learning_rate")) == {1e-5}
    assert set(metric(child, "ppo/value_learning_rate")) == {1e-4}
    opening = child.journal()[0]
    assert opening["changed"]["ppo.learning_rate"] == [3e-4, 1e-5]
    assert "environments are stepped by this process" in opening["message"]
    assert f"rollouts {(1280 - steps(run)[0]) // 64}, " in opening["message"]  # those to go
    assert child.config.ppo.horizon == 16
    assert steps(run)[-1] == 1280


def test_a_fork_with_nothing_changed_is_the_parent(run: Run, whole: Run) -> None:
    child = surefoot.fork(run.path, run.path.with_name("fork"), checkpoint=steps(run)[0])
    mine, theirs = state(child), state(whole)
    for name in ("learner", "collector", "progress", "recent"):
        assert differences(mine[name], theirs[name]) == []


def test_a_fork_can_be_resumed_without_its_parent(run: Run) -> None:
    out = run.path.with_name("fork")
    settings = {"ppo": {"learning_rate": 1e-5}, "total_steps": 1920}
    whole = surefoot.fork(run.path, run.path.with_name("whole"), **settings)
    child = surefoot.fork(run.path, out, max_hours=1e-9, **settings)
    shutil.rmtree(run.path)
    child.configure(child.config.model_copy(update={"max_hours": None}))
    surefoot.resume(child.path)
    assert run_differences(child, whole) == []


def test_a_fork_may_change_rows_and_scaling_but_not_the_networks(run: Run) -> None:
    child = surefoot.fork(
        run.path,
        run.path.with_name("wide"),
        envs=6,
        total_steps=1600,
        ppo={"normalize_returns": True},
    )
    assert "every row begins a new episode" in child.journal()[0]["message"]
    assert metric(child, "rollout/steps") == [96.0] * 4
    with pytest.raises(ConfigError, match=r"policy.hidden is \(16,\) in the parent and cannot be"):
        surefoot.fork(run.path, run.path.with_name("x"), policy={"hidden": [17]}, total_steps=2000)
    with pytest.raises(ConfigError, match=r"policy.activation is tanh"):
        surefoot.fork(run.path, run.path.with_name("x"), policy={"activation": "relu"})
    assert not run.path.with_name("x").exists()
    with pytest.raises(ConfigError, match="is spent at step 1,280"):
        surefoot.fork(run.path, run.path.with_name("x"))


def test_pinned_checkpoints_and_the_best_they_knew_stay(run: Run) -> None:
    # the newest that no other names as its best, so that nothing else keeps it
    bests = {c.manifest.best for c in run.checkpoints}
    chosen = max(c.step for c in run.checkpoints if c.step not in bests)
    known = run.checkpoint(chosen).manifest.best
    run.pin(chosen)
    surefoot.resume(run.path, total_steps=2560)
    assert {chosen, known} <= set(steps(run))
    run.pin(chosen, pinned=False)
    surefoot.resume(run.path, total_steps=2816)
    assert chosen not in steps(run)
    with pytest.raises(RunError, match="no checkpoint 5"):
        run.pin(5)


def test_keep_says_how_many_of_the_last_stay(tmp_path: Path) -> None:
    # of equal scores the later one is best, so nothing but the last two needs to stay
    run = small(tmp_path / "run", env=Counter, keep=2)
    assert steps(run) == [1152, 1280]


def test_evaluation_during_training_decides_what_is_best(tmp_path: Path) -> None:
    settings = {"evaluate_every": "4it", "evaluate_episodes": 3, "total_steps": 3840}
    run = small(tmp_path / "run", **settings)
    plain = small(tmp_path / "plain", total_steps=3840)
    scores = metric(run, "eval/return_mean")
    assert [s is not None for s in scores] == [(i + 1) % 4 == 0 for i in range(60)]
    assert [t is None for t in metric(run, "time/evaluation")] == [s is None for s in scores]
    best = max(score for score in scores if score is not None)
    last = max(i for i, score in enumerate(scores) if score == best)
    found = run.checkpoint("best")
    assert (found.step, found.score) == (64 * (last + 1), best)
    assert run.evaluate(3, checkpoint=found.step).return_mean == best
    # and it disturbs nothing
    assert differences(state(run)["learner"], state(plain)["learner"]) == []


def test_model_files_are_there_at_their_moments(tmp_path: Path) -> None:
    run = small(tmp_path / "run", checkpoint_every="1it", keep=20, num_checkpoints=4)
    files = {file.name for file in (run.path / "models").iterdir()}
    assert files == {
        *(f"pi_ckpt{i}.pth" for i in range(1, 5)),
        "best_return_pi_ckpt.pth",
        "final_actor.pth",
        "final_critic.pth",
    }

    def loaded(name: str) -> dict[str, torch.Tensor]:
        content: dict[str, torch.Tensor] = torch.load(run.path / "models" / name, weights_only=True)
        return content

    def same(content: dict[str, torch.Tensor], step: int) -> bool:
        policy = state(run, step)["learner"]["policy"]
        return all(np.array_equal(value.numpy(), policy[name]) for name, value in content.items())

    for i in range(1, 5):
        assert same(loaded(f"pi_ckpt{i}.pth"), 256 * i)
    actor, critic = loaded("final_actor.pth"), loaded("final_critic.pth")
    assert same(actor, 1280)
    assert same(critic, 1280)
    assert not any(name.startswith("critic") for name in actor)
    assert any(name.startswith("critic") for name in critic)
    returns = metric(run, "recent/return_mean")
    counts = metric(run, "progress/episodes")
    scored = [(r, 64 * (i + 1)) for i, r in enumerate(returns) if counts[i] >= 10]
    assert same(loaded("best_return_pi_ckpt.pth"), max(scored)[1])
    agent = run.load("last")
    agent.save_policy_net(tmp_path / "actor.pth")
    agent.save_value_net(tmp_path / "critic.pth")
    again = torch.load(tmp_path / "actor.pth", weights_only=True)
    assert all(torch.equal(again[name], value) for name, value in actor.items())
    assert torch.load(tmp_path / "critic.pth", weights_only=True).keys() == critic.keys()


def limited(path: Path, size: int, **settings: Any) -> int:
    """Train in a child that may write no file larger than this; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            small(path, **settings)
        except SaveError as error:
            os.write(2, str(error).encode())
            code = 41 if str(path) in str(error) and "surefoot resume" in str(error) else 42
        except BaseException:
            code = 43
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_full_disk_stops_training_cleanly_and_the_run_resumes(tmp_path: Path, whole: Run) -> None:
    size = (whole.path / "metrics.jsonl").stat().st_size
    assert limited(tmp_path / "run", size // 2) == 41
    run = Run.open(tmp_path / "run")
    assert 0 < run.checkpoints[-1].step < 1280
    assert not list((run.path / "checkpoints").glob(".staging*"))
    surefoot.resume(run.path)
    assert run_differences(run, whole) == []


def test_training_goes_on_with_a_full_disk_if_asked_to(tmp_path: Path, whole: Run) -> None:
    size = (whole.path / "metrics.jsonl").stat().st_size
    # it goes to the end, and fails there: the end must be saved
    assert limited(tmp_path / "run", size // 2, on_save_error="continue") == 41
    run = Run.open(tmp_path / "run")
    assert run.checkpoints[-1].step < 1280
    assert run.condition == "interrupted"
    surefoot.resume(run.path)
    assert run_differences(run, whole) == []


COMMAND = ["--seed", "1", "--envs", "4", "--ppo.horizon", "64", "--total-steps", "1e8"]


def started(out: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "surefoot", "train", "CartPole-v1", *COMMAND, *words]
    process = subprocess.Popen(
        [*command, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # as a shell does to background jobs
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    wait_for_metrics(out, process)
    return process


def wait_for_metrics(out: Path, process: "subprocess.Popen[Any]") -> None:
    deadline = time.monotonic() + 60
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").stat().st_size:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_with_its_code_and_says_how_to_go_on(
    tmp_path: Path, number: int
) -> None:
    # one iteration takes far longer than a signal may
    process = started(tmp_path / "run", "--ppo.epochs", "4")
    process.send_signal(number)
    begun = time.monotonic()
    out, _ = process.communicate()
    assert time.monotonic() - begun < 5
    assert process.returncode == 128 + number
    assert f"surefoot resume {tmp_path / 'run'}" in out
    run = Run.open(tmp_path / "run")
    assert run.journal()[-1]["event"] == "signal"
    kept = run.checkpoints[-1]
    assert kept.manifest.exact
    assert kept.step in (metric(run, "step")[-1], metric(run, "step")[-1] - 256)


def test_a_signal_abandons_a_long_iteration(tmp_path: Path) -> None:
    class Slow(Counter):
        lives = 0

        def step(self, action: Any) -> Any:
            Slow.lives += 1
            if Slow.lives == 100:
                os.kill(os.getpid(), signal.SIGTERM)
            assert Slow.lives <= 101, "went on after the signal"
            return super().step(action)

    whole = small(tmp_path / "whole", env=Counter)
    with pytest.raises(Interrupted) as caught:
        small(tmp_path / "run", env=lambda: Slow(5))
    assert caught.value.signal == signal.SIGTERM
    run = surefoot.resume(tmp_path / "run", env=Counter)
    assert run_differences(run, whole) == []


def test_metrics_cut_short_by_a_kill_go_on_after_a_whole_line(run: Run, whole: Run) -> None:
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 99999, "torn')
    surefoot.resume(run.path, checkpoint=steps(run)[0])
    assert run_differences(run, whole) == []
    with (run.path / "journal.jsonl").open("ab") as file:
        file.write(b'{"event": "to')
    surefoot.resume(run.path, total_steps=1400)
    assert [e["event"] for e in run.journal()].count("resume") == 2
    assert run.journal()[-1]["event"] == "finish"


def test_lost_metrics_are_reported(run: Run) -> None:
    (run.path / "metrics.jsonl").write_text("")
    surefoot.resume(run.path, checkpoint=steps(run)[0])
    assert any("metrics.jsonl lacks" in e.get("message", "") for e in run.journal())


def test_a_run_whose_checkpoints_are_gone_is_not_started_over(run: Run) -> None:
    before = (run.path / "metrics.jsonl").read_bytes()
    for kept in run.checkpoints:
        shutil.rmtree(kept.path)
    with pytest.raises(RunError, match="its journal says that some were saved"):
        surefoot.resume(run.path)
    assert (run.path / "metrics.jsonl").read_bytes() == before


def test_a_fork_killed_before_it_was_saved_is_not_started_from_nothing(run: Run) -> None:
    child = Run.create(run.path.with_name("fork"), run.config, parent={"id": "x", "step": 5})
    with pytest.raises(RunError, match="fork again"):
        surefoot.resume(child.path)


def test_a_score_that_was_reached_does_not_end_a_run_again_that_is_extended(
    tmp_path: Path,
) -> None:
    run = small(tmp_path / "run", env=Counter, stop_at=15.0, total_steps=10_000)
    ended = metric(run, "step")[-1]
    assert ended < 1000
    lines = (run.path / "journal.jsonl").read_text().splitlines(keepends=True)
    (run.path / "journal.jsonl").write_text("".join(lines[:-1]))
    surefoot.resume(run.path)  # it had ended, and could not say so
    assert metric(run, "step")[-1] == ended
    assert run.condition == "finished"
    surefoot.resume(run.path, total_steps=int(ended) + 640)
    assert metric(run, "step")[-1] == ended + 640
    child = surefoot.fork(run.path, tmp_path / "fork", total_steps=int(ended) + 1280)
    assert metric(child, "step")[-1] == ended + 1280


def test_an_extension_that_is_interrupted_still_goes_to_its_end(tmp_path: Path) -> None:
    run = small(tmp_path / "run", env=Counter, stop_at=15.0, total_steps=10_000)
    ended = int(metric(run, "step")[-1])
    surefoot.resume(run.path, total_steps=ended + 640, max_hours=1e-9)
    surefoot.resume(run.path)
    assert metric(run, "step")[-1] == ended + 640


def test_settings_decide_how_far_a_run_goes_whatever_the_journal_says(run: Run) -> None:
    # killed after the new settings were written, and before anything else
    run.configure(run.config.model_copy(update={"total_steps": 1920}))
    surefoot.resume(run.path)
    assert metric(run, "step")[-1] == 1920


def test_a_session_that_reached_its_own_score_does_not_end_the_run(tmp_path: Path) -> None:
    run = small(tmp_path / "run", env=Counter, max_hours=1e-9)
    surefoot.resume(run.path, stop_at=1.0, max_hours=1.0)
    assert metric(run, "step")[-1] < 1280
    surefoot.resume(run.path, max_hours=1.0)
    assert metric(run, "step")[-1] == 1280


def test_going_back_takes_back_the_models_of_what_is_given_up(run: Run) -> None:
    first = run.checkpoints[0]
    known = state(run, first.step)["best"]["return"]["step"]
    surefoot.resume(run.path, checkpoint=first.step, max_hours=1e-9)
    models = {file.name for file in (run.path / "models").iterdir()}
    assert "final_actor.pth" not in models
    best = state(run)["best"]["return"]["step"]
    if known in steps(run) and best == known:
        kept = torch.load(run.path / "models" / "best_return_pi_ckpt.pth", weights_only=True)
        policy = state(run, known)["learner"]["policy"]
        assert all(np.array_equal(value, policy[name]) for name, value in kept.items())


def test_two_that_want_one_directory_do_not_both_get_it(run: Run, tmp_path: Path) -> None:
    before = (run.path / "config.yaml").read_text()
    with pytest.raises(RunError, match="holds a run"):
        Run.create(run.path, run.config.model_copy(update={"seed": 99}))
    assert (run.path / "config.yaml").read_text() == before
    (tmp_path / "new").mkdir()
    with Run(tmp_path / "new", run.config).lock(), pytest.raises(RunError, match="in use"):
        Run.create(tmp_path / "new", run.config)


def test_a_signal_abandons_the_building_of_environments(tmp_path: Path) -> None:
    class Slow(Counter):
        made = 0

        def __init__(self) -> None:
            super().__init__(length=50)
            Slow.made += 1
            if Slow.made == 11:  # one to look at, twice; four rows, the fifth anew
                os.kill(os.getpid(), signal.SIGTERM)
            assert Slow.made <= 11, "went on after the signal"

    settings = {"restore": "fresh", "checkpoint_every": "4it"}
    whole = small(tmp_path / "whole", env=lambda: Counter(50), **settings)
    with pytest.raises(Interrupted):
        small(tmp_path / "run", env=Slow, **settings)
    run = surefoot.resume(tmp_path / "run", env=lambda: Counter(50))
    assert run_differences(run, whole) == []


def test_a_run_that_could_never_be_saved_is_refused_before_it_starts(tmp_path: Path) -> None:
    class Wordy(Counter):
        def get_state(self) -> Any:
            return {"steps": self.steps, "mark": self.mark, "words": list(range(20_000))}

        def set_state(self, state: Any) -> None:
            self.steps, self.mark = state["steps"], state["mark"]

    with pytest.raises(ConfigError, match="this run could not be saved: a state has too many"):
        small(tmp_path / "run", env=Wordy, restore="snapshot")
    assert not (tmp_path / "run").exists()


def test_a_fork_into_another_task_forgets_scores_and_episodes(run: Run) -> None:
    child = surefoot.fork(
        run.path, run.path.with_name("fork"), env_args={"max_episode_steps": 12}, total_steps=2560
    )
    assert max(filter(None, metric(child, "recent/return_mean"))) <= 12
    assert child.checkpoint("best").step > 1280
    assert child.identity["problem"] != run.identity["problem"]


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    train = [sys.executable, "-m", "surefoot", "train", "CartPole-v1", *COMMAND]
    process = subprocess.Popen(
        ["nohup", *train, "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for_metrics(tmp_path / "run", process)
    process.send_signal(signal.SIGHUP)
    before = (tmp_path / "run" / "metrics.jsonl").stat().st_size
    deadline = time.monotonic() + 30
    while (tmp_path / "run" / "metrics.jsonl").stat().st_size == before:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait() == 143
