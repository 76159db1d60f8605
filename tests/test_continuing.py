"""Tasks that never end: scores by the step, resets, what best and stop_at compare."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

import surefoot
from surefoot.config import resolve
from surefoot.core.episodes import RecentEpisodes
from surefoot.core.errors import ConfigError
from surefoot.core.rollout import Episode
from surefoot.envs.queueing import ID
from surefoot.report.contents import contents
from surefoot.run import Run
from tests.killing import ENDLESS
from tests.learn.test_objective import Cycle

TINY: dict[str, Any] = {**ENDLESS, "env_args": {"instance": "two_queues"}, "total_steps": 1024}


def train(out: Path, env: Any = ID, **more: Any) -> Run:
    return surefoot.train(env, out=out, output="quiet", **{**TINY, **more})


def rows(run: Run) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def test_the_long_term_average_is_of_raw_rewards_and_by_episodes() -> None:
    recent = RecentEpisodes(2, "lta")
    recent.add([Episode(0, 0, -30.0, 10, False, None), Episode(1, 0, -50.0, 50, False, None)])
    assert recent.score == -2.0  # not -80 / 60
    assert recent.metrics()["recent/lta_return_mean"] == -2.0
    assert RecentEpisodes(2).metrics() == {}


def test_without_episodes_the_average_is_that_of_the_last_rollouts(tmp_path: Path) -> None:
    run = train(tmp_path / "run", total_steps=128 * 40)
    measured = rows(run)
    assert "recent/return_mean" not in measured[-1]
    lately = np.mean([row["rollout/reward_mean"] for row in measured[-31:]])
    assert measured[-1]["recent/lta_return_mean"] == pytest.approx(lately)
    assert measured[-1]["best/lta_return"] >= measured[-1]["recent/lta_return_mean"]
    assert run.checkpoint("best").score is not None


def test_the_same_raw_score_is_reported_whatever_is_learned_from(tmp_path: Path) -> None:
    runs = [
        train(tmp_path / f"run{n}", reset_every=64, rewards=words, ppo={**FROZEN})
        for n, words in enumerate([[], ["time_scaled", "scale:0.001"], ["normalized"]])
    ]
    names = ("rollout/reward_mean", "recent/lta_return_mean", "eval/lta_return_mean")
    scores = [[row.get(name) for row in rows(run) for name in names] for run in runs]
    assert scores[0] == scores[1] == scores[2]
    learned = [rows(run)[-1].get("reward/learned_mean") for run in runs]
    assert learned[0] is None
    assert abs(learned[1]) < abs(rows(runs[1])[-1]["reward/raw_mean"]) / 1000  # type: ignore[arg-type]


FROZEN = {"horizon": 32, "minibatch_size": 64, "epochs": 1, "learning_rate": 0.0}


def test_episodes_are_cut_by_truncation_whatever_the_horizon(tmp_path: Path) -> None:
    run = train(tmp_path / "run", reset_every=50, recent_episodes=4)
    episodes = sum(row["rollout/episodes"] for row in rows(run))
    assert episodes == 1024 // 4 // 50 * 4
    assert rows(run)[-1]["recent/length_mean"] == 50.0
    assert rows(run)[-1]["recent/terminated_rate"] == 0.0


@pytest.mark.parametrize("collector", ["local", "processes"])
def test_single_environments_are_cut_as_well(collector: str, tmp_path: Path) -> None:
    given = {"env_args": {}, "collector": collector, "reset_every": 20, "recent_episodes": 4}
    run = train(tmp_path / "run", "tests.learn.test_objective:Cycle", **given)
    assert rows(run)[-1]["recent/length_mean"] == 20.0
    assert rows(run)[-1]["recent/lta_return_mean"] == 1.0


def test_a_vector_that_resets_itself_cannot_be_cut(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reset_every=20, but .* resets its rows itself"):
        train(
            tmp_path / "run",
            lambda: gymnasium.make_vec("CartPole-v1", 4),
            env_args={},
            reset_every=20,
            evaluate_steps=None,
        )


def test_best_models_and_stop_at_compare_what_score_says(tmp_path: Path) -> None:
    given = {"env_args": {}, "reset_every": 20, "recent_episodes": 4, "evaluate_every": None}
    run = train(tmp_path / "run", Cycle, stop_at=0.99, **given)
    assert run.summary()["steps"] < 1024
    assert run.checkpoint("best").score == 1.0
    whole = train(tmp_path / "whole", Cycle, stop_at=30.0, **given)
    assert whole.summary()["steps"] == 1024  # 20 a return, but 1 a step


def test_evaluations_are_cut_where_they_are_told(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    found = run.evaluate(3)
    assert found.lengths == [50] * 3
    assert found.summary()["lta_return_mean"] == pytest.approx(found.return_mean / 50)
    assert run.evaluate(2, steps=30).lengths == [30] * 2
    courses = [entry for entry in run.journal() if entry["event"] == "course"]
    assert courses[-1]["time"][-1] == 50
    last = rows(run)[courses[-1]["step"] // 128 - 1]["eval/lta_return_mean"]
    assert courses[-1]["mean"][-1] == pytest.approx(last)


def test_sizes_are_counted_by_the_words_that_are_used_for_them() -> None:
    config = resolve(
        "CartPole-v1",
        None,
        {
            "envs": 8,
            "total_steps": 100_000,
            "reset_every": 500,
            "ppo": {"horizon": 32, "minibatch_size": 256, "epochs": 20},
        },
    )
    assert config.counts() == {
        "rows": 8,
        "steps per row and rollout": 32,
        "batch": 256,
        "minibatch": 256,
        "minibatches per epoch": 1,
        "epochs": 20,
        "rollouts": 391,
        "optimizer steps": 7820,
        "resets of a row": 25,
    }


def test_a_report_shows_how_averages_came_about_and_what_settings_come_to(tmp_path: Path) -> None:
    shown = contents(train(tmp_path / "run", reset_every=64, recent_episodes=4))
    assert [one["time"][-1] for one in shown["courses"]] == [50, 50]  # when due, and at the end
    assert all(deviation >= 0 for deviation in shown["courses"][0]["std"])
    assert shown["counts"]["batch"] == "128"
    assert "recent average" in shown["headline"]


def test_a_run_needs_no_file_but_its_own(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    link = {"from": "a", "to": "b", "capacity": 2}
    kind = {"name": "x", "from": "a", "to": "b", "arrivals": 1}
    file.write_text(yaml.safe_dump({"links": [link], "classes": [kind]}))
    run = train(tmp_path / "run", env_args={"instance": str(file)})
    file.unlink()
    assert Run.open(run.path).evaluate(2).lengths == [50, 50]
    longer = surefoot.resume(run.path, total_steps=2048, output="quiet")
    assert longer.summary()["steps"] == 2048


def test_a_reset_that_never_comes_is_told_with_the_arithmetic(tmp_path: Path) -> None:
    run = train(tmp_path / "run", total_steps=128 * 40, reset_every=1281)
    told = run.journal()[0]["message"]
    assert "reset_every 1,281 is never reached: 5,120 steps / 4 rows = 1,280 steps" in told
    assert "recent/lta_return_mean" in rows(run)[-1]  # of rollouts, as there are no episodes


def test_evaluations_that_cannot_be_cut_are_an_error_before_training(tmp_path: Path) -> None:
    given = {"env_args": {}, "evaluate_steps": 20, "reset_every": None, "envs": 2}
    with pytest.raises(ConfigError, match=r"reset_every=20, but .* resets its rows itself"):
        train(tmp_path / "run", "tests.counter:cartpole_vector", **given)
    assert not (tmp_path / "run").exists()


def test_the_average_objective_refuses_tasks_that_end(tmp_path: Path) -> None:
    ppo = {**FROZEN, "objective": "average"}
    with pytest.raises(ConfigError, match=r"is for tasks that never end, but an episode termin"):
        train(tmp_path / "run", "CartPole-v1", env_args={}, ppo=ppo)


def test_a_fork_by_another_score_begins_with_no_score(tmp_path: Path) -> None:
    parent = train(tmp_path / "run", total_steps=128 * 36)
    assert parent.checkpoint("last").score is not None
    more = {"score": "return", "reset_every": 64, "total_steps": 128 * 38}
    child = surefoot.fork(parent.path, out=tmp_path / "fork", output="quiet", **more)
    assert "best/return" not in rows(child)[0]
    with pytest.raises(ConfigError, match=r"ppo.objective and whether there is ppo.popart"):
        surefoot.fork(parent.path, out=tmp_path / "b", output="quiet", ppo={"popart": 0.1})
