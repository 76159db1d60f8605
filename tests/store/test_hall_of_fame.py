"""The best models over all runs."""

import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import surefoot
from surefoot.config import Config
from surefoot.core.errors import RunError
from surefoot.core.spec import Box, Discrete, Spec
from surefoot.core.state import State
from surefoot.learn.build import build_learner
from surefoot.run import Run
from surefoot.runs import champion, summaries
from surefoot.store.hall_of_fame import Entry, HallOfFame

SPEC = Spec(Box(-np.ones(2), np.ones(2), "float32"), Discrete(2), 1)


def model() -> State:
    return {"spec": SPEC.state(), "learner": build_learner(Config(), SPEC).state()}


def entry(run: str, score: float, step: int = 10, **changed: Any) -> Entry:
    facts = {"by": "return", "env": "E", "env_args": {}, "seed": 0, "path": f"runs/{run}"}
    facts |= {"model": "0" * 12}
    return Entry(run=run, step=step, score=score, **{**facts, **changed})


def offer(runs: Path, name: str, score: float, size: int = 3) -> None:
    HallOfFame(runs, "problem", size).offer(entry(name, score), Config(env="E"), model())


def ranks(runs: Path) -> list[tuple[str, int, float]]:
    return [(e.run, e.step, e.score) for e in HallOfFame(runs, "problem", 3).entries()]


def test_the_best_are_kept_in_order_one_per_run(tmp_path: Path) -> None:
    hall, boundary = HallOfFame(tmp_path, "problem", 3), model()
    scores = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 0.5, "e": 4.0}
    taken = [hall.offer(entry(n, s), Config(env="E"), boundary) for n, s in scores.items()]
    assert taken == [True, True, True, False, True]
    assert ranks(tmp_path) == [("b", 10, 5.0), ("e", 10, 4.0), ("c", 10, 3.0)]
    assert hall.offer(entry("c", 6.0, step=20), Config(env="E"), boundary)
    assert not hall.offer(entry("c", 2.0, step=30), Config(env="E"), boundary)
    assert ranks(tmp_path) == [("c", 20, 6.0), ("b", 10, 5.0), ("e", 10, 4.0)]
    kept = {path.name for path in hall.directory.iterdir() if path.is_dir()}
    assert kept == {f"{name}-{'0' * 12}" for name in ("c-20", "b-10", "e-10")}


def test_the_same_model_again_is_no_second_one(tmp_path: Path) -> None:
    for _ in range(2):
        offer(tmp_path, "a", 1.0)
    assert ranks(tmp_path) == [("a", 10, 1.0)]


def test_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tests.warm"])
    jobs = [server.Process(target=offer, args=(tmp_path, f"r{k}", float(k), 5)) for k in range(8)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert [job.exitcode for job in jobs] == [0] * 8
    assert [name for name, _, _ in ranks(tmp_path)] == ["r7", "r6", "r5", "r4", "r3"]


SMALL: dict[str, Any] = {
    "total_steps": 1280,
    "envs": 4,
    "recent_episodes": 5,
    "restore": "replay",
    "ppo": {"horizon": 16, "minibatch_size": 32, "epochs": 2},
    "policy": {"hidden": [16]},
}


def test_runs_enter_with_their_best_and_a_resume_does_not_enter_twice(tmp_path: Path) -> None:
    runs = [
        surefoot.train("CartPole-v1", out=tmp_path / f"r{seed}", seed=seed, **SMALL)
        for seed in (1, 2)
    ]
    other = surefoot.train(
        "CartPole-v1", out=tmp_path / "short", env_args={"max_episode_steps": 20}, **SMALL
    )
    hall = HallOfFame(tmp_path, runs[0].identity["problem"], 5)
    best = {run.identity["id"]: run.checkpoint("best") for run in runs}
    assert {e.run: (e.step, e.score) for e in hall.entries()} == {
        name: (found.step, found.score) for name, found in best.items()
    }
    first = runs[0].checkpoints[0].step
    surefoot.resume(runs[0].path, checkpoint=first)
    assert len(hall.entries()) == 2
    assert len(HallOfFame(tmp_path, other.identity["problem"], 5).entries()) == 1
    # the champion plays, even when its run is gone
    path = champion(tmp_path, "CartPole-v1", {})
    winner = max(runs, key=lambda run: best[run.identity["id"]].score or 0)
    expected = winner.evaluate(3, seed=7).returns
    shutil.rmtree(winner.path)
    assert Run.open(path).evaluate(3, seed=7).returns == expected
    assert champion(tmp_path, "CartPole-v1", {"max_episode_steps": 20}) != path
    by_step = {"score": "lta", "total_steps": 2_000, "recent_episodes": 2}
    again = surefoot.train("CartPole-v1", out=tmp_path / "lta", tensorboard=False, **by_step)
    with pytest.raises(RunError, match=r"by different arguments or scores; .*\n  surefoot eval"):
        champion(tmp_path, "CartPole-v1", {})
    with pytest.raises(RunError, match="no champion of Pendulum-v1"):
        champion(tmp_path, "Pendulum-v1", {})
    assert {Path(row["run"]).name for row in summaries(tmp_path)} == {
        run.path.name for run in (*runs, other, again) if run.path.exists()
    }


def test_a_hall_of_fame_that_cannot_be_used_does_not_stop_a_run(tmp_path: Path) -> None:
    run = surefoot.train("CartPole-v1", out=tmp_path / "a", **SMALL)
    (tmp_path / "hall_of_fame" / run.identity["problem"] / "entries.json").write_text("{")
    run = surefoot.train("CartPole-v1", out=tmp_path / "b", **SMALL)
    assert run.condition == "finished"
    assert any("hall of fame" in e.get("message", "") for e in run.journal())


def test_a_runs_evaluation_counts_more_than_its_return(tmp_path: Path) -> None:
    hall, state = HallOfFame(tmp_path, "problem", 3), model()
    hall.offer(entry("a", 500.0), Config(env="E"), state)
    assert hall.offer(entry("a", 480.0, step=20, by="evaluation"), Config(env="E"), state)
    assert ranks(tmp_path) == [("a", 20, 480.0)]


def test_another_policy_of_the_same_run_and_step_replaces_the_model(tmp_path: Path) -> None:
    hall, old, new = HallOfFame(tmp_path, "problem", 3), model(), model()
    for array in new["learner"]["policy"].values():
        array += 1
    hall.offer(entry("a", 1.0), Config(env="E"), old)
    hall.offer(entry("a", 2.0, model="1" * 12), Config(env="E"), new)
    (kept,) = [path for path in hall.directory.iterdir() if path.is_dir()]
    assert kept.name == hall.entries()[0].directory
    weights = torch.load(kept / "actor.pth", weights_only=True)
    expected = new["learner"]["policy"]
    assert all(np.array_equal(value, expected[name]) for name, value in weights.items())


def test_functions_without_a_name_are_not_compared(tmp_path: Path) -> None:
    surefoot.train(lambda: gymnasium.make("CartPole-v1"), out=tmp_path / "a", **SMALL)
    assert not (tmp_path / "hall_of_fame").exists()


def test_a_run_killed_before_it_could_offer_its_best_does_so_when_resumed(tmp_path: Path) -> None:
    run = surefoot.train("CartPole-v1", out=tmp_path / "a", **SMALL)
    shutil.rmtree(tmp_path / "hall_of_fame")
    lines = (run.path / "journal.jsonl").read_text().splitlines(keepends=True)
    (run.path / "journal.jsonl").write_text("".join(lines[:-1]))  # it could not say "finish"
    (run.path / "models" / "final_actor.pth").unlink()
    surefoot.resume(run.path)
    assert len(HallOfFame(tmp_path, run.identity["problem"], 5).entries()) == 1
    assert (run.path / "models" / "final_actor.pth").exists()
    assert run.condition == "finished"


def test_no_hall_is_made_when_none_is_wanted(tmp_path: Path) -> None:
    surefoot.train("CartPole-v1", out=tmp_path / "a", hall_of_fame=0, **SMALL)
    assert not (tmp_path / "hall_of_fame").exists()
