"""Rollouts that are played while the one before is learned from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.collect.build import build_collector
from surefoot.collect.choose import choose
from surefoot.collect.overlap import OverlapCollector, apart
from surefoot.config import Config, PPOConfig
from surefoot.core import hardware
from surefoot.core.errors import ConfigError
from surefoot.core.progress import Progress
from surefoot.envs.make import factory
from surefoot.learn.ppo import PPO
from tests.collect.test_processes import assert_own_sequences, assert_same
from tests.counter import Slow
from tests.faulty import Marked
from tests.toys import learner

needs_cores = pytest.mark.skipif(
    not hardware.whole_cores() or hardware.cores() < 2,
    reason="needs several cores to bind threads to",
)
OVERLAP: dict[str, Any] = {"collector": "processes", "n_proc": 2, "overlap": True}


def build(kind: Any = "replay", env: Any = Marked, **settings: Any) -> Any:
    config = Config(envs=4, seed=3, ppo=PPOConfig(horizon=20), **{**OVERLAP, **settings})
    return build_collector(config, factory(env), kind)


def actors(collector: Any, count: int, **policy: Any) -> list[Any]:
    """Make actors that differ as they would after so many updates."""
    return [learner(collector.spec, policy, seed=seed).actor() for seed in range(count)]


@pytest.mark.parametrize("activation", ["tanh", "gelu"])  # in numpy, and in torch
def test_a_rollout_begun_ahead_is_that_of_its_actor(activation: str) -> None:
    overlapping = build()
    plain = build(overlap=False, n_proc=None, collector="local")
    first, second, third = actors(plain, 3, activation=activation)
    try:
        got = [overlapping.collect(first, ahead=True)]
        got.append(overlapping.collect(second, ahead=True))
        got.append(overlapping.collect(third))
        got.append(overlapping.collect(third))  # nothing was begun: it is on policy
        expected = [plain.collect(actor) for actor in (first, first, second, third)]
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    finally:
        overlapping.close()
        plain.close()


@pytest.mark.parametrize("kind", ["replay", "fresh"])
def test_a_collector_is_exact_when_nothing_is_under_way(kind: str) -> None:
    collector = build(kind)
    (actor,) = actors(collector, 1)
    rollouts = []
    try:
        for _ in range(3):
            rollouts.append(collector.collect(actor, ahead=True))
            assert not collector.exact
            assert collector.state()["environments"] == {}
        rollouts.append(collector.collect(actor))
        collector.anchor()
        assert collector.exact
        state = collector.state()
        future = [collector.collect(actor) for _ in range(2)]
        collector.restore(state)
        for one, other in zip(future, [collector.collect(actor) for _ in range(2)], strict=True):
            assert_same(one, other)
    finally:
        collector.close()
    assert_own_sequences([*rollouts, *future])


def test_a_rollout_under_way_when_the_run_ends_is_left_out() -> None:
    collector = build()
    (actor,) = actors(collector, 1)
    try:
        rollouts = [collector.collect(actor, ahead=True)]
        collector.anchor()
        assert collector.exact
        state = collector.state()
        rollouts.append(collector.collect(actor))
        assert (rollouts[-1].episode_step[0] == 0).all()
        assert_own_sequences(rollouts)
        collector.restore(state)
        assert_same(rollouts[-1], collector.collect(actor))
    finally:
        collector.close()


def train(out: Path, **settings: Any) -> surefoot.Run:
    ppo = {"horizon": 32, "minibatch_size": 32, "epochs": 2}
    fixed = {"envs": 4, "seed": 1, "hall_of_fame": 0, "checkpoint_every": "3it", "ppo": ppo}
    return surefoot.train("CartPole-v1", out=out, **{**fixed, **OVERLAP, **settings})


def test_the_last_rollout_is_the_last_that_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    collect = OverlapCollector.collect

    def count(self: Any, actor: Any, ahead: bool) -> Any:
        rollout = collect(self, actor, ahead)
        begun.extend([self._iteration] * ahead)
        return rollout

    monkeypatch.setattr(OverlapCollector, "collect", count)
    run = train(tmp_path / "run", total_steps=8 * 128)
    assert run.condition == "finished"
    assert begun == [1, 2, 4, 5, 7]  # not across checkpoints at 3 and 6, nor after 8


def test_stop_at_ends_a_run_that_has_begun_more(tmp_path: Path) -> None:
    run = train(tmp_path / "run", total_steps=100_000, stop_at=1.0)
    assert run.condition == "finished"
    step = run.checkpoint("last").step
    assert surefoot.resume(run.path, total_steps=step + 256, stop_at=1e9).condition == "finished"


def test_overlap_learns(tmp_path: Path) -> None:
    settings = {"total_steps": 25_600, "ppo": {"horizon": 128, "minibatch_size": 64, "epochs": 6}}
    run = train(tmp_path / "run", checkpoint_every="10it", **settings)
    assert run.evaluate(20).return_mean > 100


@needs_cores
def test_cores_are_shared_again_after_a_fault_and_a_lost_worker() -> None:
    every = os.sched_getaffinity(0)
    workers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    lost, there = (worker.pid for worker in workers)

    def break_off() -> None:
        with apart(lambda: (lost, there)):
            assert os.sched_getaffinity(0) == every - os.sched_getaffinity(there)
            workers[0].kill()
            workers[0].wait()
            raise KeyError

    try:
        with pytest.raises(KeyError):
            break_off()
        assert os.sched_getaffinity(0) == os.sched_getaffinity(there) == every
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@needs_cores
def test_a_run_learns_on_a_core_of_its_own_while_others_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, update = list[int](), PPO.update

    def watched(self: PPO, *given: Any) -> Any:
        found.append(len(os.sched_getaffinity(0)))
        return update(self, *given)

    monkeypatch.setattr(PPO, "update", watched)
    every = hardware.cores()
    config = Config(**{**OVERLAP, "n_proc": every}, envs=every, total_steps=768 * every)
    surefoot.train("CartPole-v1", config=config, out=tmp_path / "run", output="quiet")
    assert found == [1, 1, every]  # nobody plays beside the last


@needs_cores
def test_what_an_environment_starts_beside_an_update_has_all_cores_afterwards() -> None:
    program = "import subprocess; input(); p = subprocess.Popen(['sleep', '10']); print(p.pid)"
    every, pipe = os.sched_getaffinity(0), subprocess.PIPE
    command = [sys.executable, "-uc", f"{program}; p.wait()"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as worker:
        assert worker.stdin
        assert worker.stdout
        with apart(lambda: (worker.pid,)):
            print(file=worker.stdin, flush=True)
            started = int(worker.stdout.readline())
            assert os.sched_getaffinity(started) == every - os.sched_getaffinity(0)
        assert os.sched_getaffinity(started) == every
        os.kill(started, signal.SIGKILL)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="overlap=True is for worker processes"):
        choose(Config(overlap=True, collector="local"), factory(Marked))
    with pytest.raises(ConfigError, match=r"min_inference_size=2.*overlap"):
        choose(Config(overlap=True, min_inference_size=2), factory(Marked))


def test_auto_picks_one_worker_where_there_would_be_none() -> None:
    fast = choose(Config(overlap=True, total_steps=10_000), factory(Marked))
    assert (fast.config.collector, fast.config.n_proc) == ("processes", 1)
    slow = choose(Config(overlap=True), factory(Slow))
    assert (slow.config.n_proc or 0) > 1


def test_the_end_of_the_budget_is_seen_before_the_update() -> None:
    collector = build(overlap=False, n_proc=None, collector="local")
    rollout = collector.collect(actors(collector, 1)[0])
    assert not Progress(total_steps=161, steps=80).done_with(rollout)
    assert Progress(total_steps=160, steps=80).done_with(rollout)
