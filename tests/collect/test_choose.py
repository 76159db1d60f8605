"""Who steps the environments is settled once, by what is faster, and written down."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.collect import choose as choosing
from surefoot.collect.choose import choose
from surefoot.config import Config
from surefoot.core.errors import ConfigError
from surefoot.envs.make import Factory, factory
from surefoot.run import Run
from tests.counter import Counter, Slow


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "cores", lambda: 4)
    monkeypatch.setattr(choosing, "whole_cores", lambda: True)


def chosen(make: Factory, **settings: Any) -> tuple[str, int | None]:
    config = choose(Config(**settings), make).config
    return config.collector, config.n_proc


def test_environments_that_take_long_get_a_worker_per_core() -> None:
    assert chosen(factory(Slow)) == ("processes", 4)
    assert chosen(factory(Slow), envs=3) == ("processes", 3)


@pytest.mark.parametrize(
    ("seconds", "envs", "total", "workers", "expected"),
    [
        (200e-6, 16, 1_000_000, 2, True),  # BipedalWalker: 3.2 ms against 1.85
        (10e-6, 8, 100_000, 4, False),  # CartPole: not even a second is saved
        (10e-6, 8, 10_000_000, 4, True),  # but 75 here
        (10e-6, 2, 100_000_000, 2, False),  # 0.12 ms against 0.11
        (200e-6, 16, 10_000, 2, False),  # not even a second is saved
        (5e-3, 2, 10_000, 2, True),
    ],
)
def test_workers_are_worthwhile_if_they_save_a_share_and_some_seconds(
    seconds: float, envs: int, total: int, workers: int, expected: bool
) -> None:
    assert choosing.worthwhile(seconds, envs, total, workers) == expected


def test_a_choice_changes_nothing_but_the_collector() -> None:
    config = Config(seed=7)
    for make in (factory(Slow), factory(Counter)):
        settled = {"collector": "auto", "n_proc": None}
        assert choose(config, make).config.model_copy(update=settled) == config


def untouchable() -> Any:
    raise AssertionError("nobody was to build it")


@pytest.mark.parametrize(
    ("settings", "because"),
    [({"total_steps": 1_999}, "1,999 steps"), ({"envs": 1}, "one environment")],
    ids=str,
)
def test_nothing_is_timed_where_it_could_not_matter(settings: Any, because: str) -> None:
    choice = choose(Config(**settings), factory(untouchable))
    assert choice.config.collector == "local"
    assert because in choice.because


def test_one_core_is_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "cores", lambda: 1)
    assert choose(Config(), factory(untouchable)).config.collector == "local"


@pytest.mark.parametrize(
    "settings",
    [{"n_proc": 3}, {"min_inference_size": 2}, {"on_env_error": "restart"}, {"step_timeout": 2}],
    ids=str,
)
def test_what_only_workers_can_do_gets_workers(settings: Any) -> None:
    make = factory(untouchable)
    assert chosen(make, **settings) == ("processes", settings.get("n_proc", 4))
    with pytest.raises(ConfigError, match=r"is for worker processes; drop it, or use --collector"):
        choose(Config(collector="local", **settings), make)


def test_timing_takes_half_a_second_at_most() -> None:
    class Slower(Counter):
        def step(self, action: Any) -> Any:
            time.sleep(0.1)
            return super().step(action)

    steps: list[int] = []
    make = factory(lambda: Counted(Slower(), steps))
    assert choosing.seconds_per_step(make, 0) == (pytest.approx(0.1, rel=0.5), False)
    assert len(steps) <= 6


class Counted(Counter):
    def __init__(self, env: Any, steps: list[int]) -> None:
        super().__init__()
        self.env, self.taken = env, steps

    def reset(self, **given: Any) -> Any:
        return self.env.reset(**given)

    def step(self, action: Any) -> Any:
        self.taken.append(1)
        return self.env.step(action)


def test_vector_environments_step_themselves() -> None:
    choice = choose(Config(envs=4), factory("tests.counter:cartpole_vector"))
    assert choice.config.collector == "local"


@pytest.mark.parametrize("setting", ["n_proc", "min_inference_size"])
def test_more_than_there_are_environments_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting}=9 exceeds envs=8; lower it or raise envs"):
        choose(Config(**{setting: 9}), factory(Counter))


def test_the_choice_is_written_into_the_run_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"total_steps": 16_000, "stop_at": 0.0, "recent_episodes": 1}
    settings["restore"] = "fresh"
    ppo = {"horizon": 8, "minibatch_size": 16, "epochs": 1}
    run = surefoot.train(Slow, out=tmp_path / "run", envs=2, ppo=ppo, **settings)
    assert (
        "environments are stepped by 2 worker processes: an environment" in capsys.readouterr().out
    )
    kept = Run.open(run.path, Slow).config
    assert (kept.collector, kept.n_proc) == ("processes", 2)


def test_overlap_has_as_many_workers_as_are_asked_for() -> None:
    settings: Any = {"overlap": True, "n_proc": 2, "ppo": {"epochs": 10_000}}
    assert chosen(factory(Slow), **settings) == ("processes", 2)
    assert chosen(factory("CartPole-v1"), env_backend="envpool", **settings) == ("processes", 2)


@pytest.mark.parametrize(("epochs", "workers"), [(10, 4), (10_000, 3)])
def test_overlap_leaves_the_learner_a_core_if_it_has_more_to_do(epochs: int, workers: int) -> None:
    settings: Any = {"overlap": True, "ppo": {"epochs": epochs}}
    assert chosen(factory(Slow), **settings) == ("processes", workers)


@pytest.mark.parametrize("collector", ["auto", "processes"])
def test_several_threads_of_torch_have_cores_of_their_own_beside_workers(collector: str) -> None:
    settings: Any = {"collector": collector, "overlap": True, "ppo": {"epochs": 10}}
    assert chosen(factory(Slow), threads=2, **settings) == ("processes", 2)
    assert chosen(factory(Slow), threads=3, **settings) == ("processes", 1)


@pytest.mark.parametrize("collector", ["auto", "processes"])
def test_a_learner_has_a_core_all_the_time_where_none_can_be_given_for_an_update(
    collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {"collector": collector, "overlap": True}
    assert chosen(factory(Slow), ppo={"epochs": 1}, **settings) == ("processes", 4)
    monkeypatch.setattr(choosing, "whole_cores", lambda: False)
    assert chosen(factory(Slow), ppo={"epochs": 1}, **settings) == ("processes", 3)
    pool = Config(env_backend="envpool", overlap=True)
    assert choosing.pool_threads(pool, factory("BipedalWalker-v3")) == 3


def test_an_environment_that_fails_is_left_to_workers_that_overlap() -> None:
    class Failing(Counter):
        def step(self, action: Any) -> Any:
            raise RuntimeError

    settings: Any = {"overlap": True, "on_env_error": "restart"}
    assert chosen(factory(Failing), **settings) == ("processes", 4)


@pytest.mark.parametrize(
    ("threads", "overlap", "remedy"),
    [
        (4, False, None),
        (3, True, None),
        (5, False, r"threads=5 is too many where there are 4 cores; lower it to 4$"),
        (4, True, r"4 cores, one of which is for .* \(overlap\); lower it to 3, or drop overlap$"),
        (5, True, r"lower it to 3$"),
    ],
)
def test_more_threads_than_there_are_cores_for_are_refused(
    threads: int, overlap: bool, remedy: str | None
) -> None:
    config = Config(threads=threads, overlap=overlap)
    with pytest.raises(ConfigError, match=remedy) if remedy else nullcontext():
        choosing.require_cores(config)


def test_a_fork_with_more_threads_has_fewer_workers_beside_them(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"total_steps": 600, "collector": "processes", "overlap": True}
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    fork = surefoot.fork(run.path, out=tmp_path / "fork", total_steps=1_200, threads=3)
    assert (run.config.n_proc, fork.config.n_proc) == (4, 1)


def test_a_fork_without_overlap_does_not_keep_the_workers_it_needed(tmp_path: Path) -> None:
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", total_steps=600, overlap=True)
    fork = surefoot.fork(run.path, out=tmp_path / "fork", total_steps=1_200, overlap=False)
    assert (run.config.collector, fork.config.collector) == ("processes", "local")


def test_one_core_is_enough_for_one_thread_and_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "cores", lambda: 1)
    choosing.require_cores(Config(overlap=True))


def test_a_run_keeps_its_threads_where_there_are_fewer_cores_and_a_new_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"total_steps": 600, "threads": 3, "compile": "off"}
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    monkeypatch.setattr(choosing, "cores", lambda: 2)
    surefoot.resume(run.path, total_steps=1_200)
    (resumed,) = [entry for entry in run.journal() if entry["event"] == "resume"]
    assert "threads=3 is too many where there are 2 cores: exact, but slow" in resumed["message"]
    for anew in (
        lambda: surefoot.train("CartPole-v1", out=tmp_path / "new", **settings),
        lambda: surefoot.fork(run.path, out=tmp_path / "new", total_steps=2_400),
    ):
        with pytest.raises(ConfigError, match="lower it to 2"):
            anew()
    assert not (tmp_path / "new").exists()
