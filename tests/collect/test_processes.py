"""Worker processes give what the local collector gives, and are looked after."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.collect import care, reports
from surefoot.collect.build import build_collector
from surefoot.collect.crew import Lost, Member
from surefoot.collect.lanes import deal
from surefoot.config import Config, PPOConfig
from surefoot.core import tree
from surefoot.core.errors import ConfigError, EnvError, InexactError
from surefoot.core.rollout import CHUNK, Rollout
from surefoot.core.seeding import EpisodeSeeds
from surefoot.envs.make import factory
from surefoot.policy.lean import Lean
from surefoot.policy.unscored import Unscored
from tests.counter import Counter
from tests.faulty import (
    Careless,
    Faulty,
    Marked,
    Mixed,
    Pensive,
    Renaming,
    Reporting,
    SlowToSave,
    SlowVector,
)
from tests.toys import ENVS, learner

PATIENCE = 20.0
"""Seconds within which every fault has to show, on a busy machine."""


@contextmanager
def collecting(
    env: Any, kind: Any = "replay", events: Any = None, **settings: Any
) -> Iterator[Any]:
    args = settings.pop("args", {})
    ppo = PPOConfig(horizon=settings.pop("horizon", 40))
    defaults: dict[str, Any] = {"collector": "processes", "n_proc": 2, "envs": 6, "seed": 3}
    config = Config(**{**defaults, **settings}, ppo=ppo)
    tell = (lambda entry: None) if events is None else events.append
    collector = build_collector(config, factory(env, args), kind, tell)
    try:
        yield collector
    finally:
        collector.close()


class Heavy(Lean):
    """An actor that cannot be sent to workers, so that they are sent step by step."""

    def light(self) -> Any:
        return None


def actor_for(collector: Any, acting: str = "workers") -> Any:
    actor: Any = learner(collector.spec).actor()
    return actor if acting == "workers" else Heavy(**vars(actor))


def play(env: Any, rollouts: int = 3, acting: str = "workers", **settings: Any) -> list[Rollout]:
    with collecting(env, **settings) as collector:
        actor = actor_for(collector, acting)
        return [collector.collect(actor) for _ in range(rollouts)]


WHO_ACTS = pytest.mark.parametrize("acting", ["workers", "parent"])


def assert_same(one: Rollout, other: Rollout) -> None:
    mine, theirs = one.arrays(), other.arrays()
    assert mine.keys() == theirs.keys()
    for name in mine:
        for a, b in zip(tree.leaves(mine[name]), tree.leaves(theirs[name]), strict=True):
            assert a.dtype == b.dtype, name
            assert np.array_equal(a, b), name
    assert one.episodes == other.episodes
    assert one.metrics == other.metrics


@WHO_ACTS
@pytest.mark.parametrize("kind", [*ENVS, "marked", "mixed"])
def test_workers_give_the_rollouts_of_the_local_collector(kind: str, acting: str) -> None:
    env: Any = {**ENVS, "marked": Marked, "mixed": Mixed}[kind]
    reference = play(env, collector="local", n_proc=None)
    if kind in ("discrete", "marked", "mixed"):
        assert sum(len(rollout.episodes) for rollout in reference) > 5
    for workers in (1, 2, 4):
        for one, other in zip(reference, play(env, n_proc=workers, acting=acting), strict=True):
            assert_same(one, other)


class Unjudging(Lean):
    """An actor whose log-probabilities only those find who play."""

    def light(self) -> Lean:
        return Lean(**vars(self))

    def log_prob(self, obs: Any, action: Any) -> Any:
        raise AssertionError("left to the parent")


def test_log_probabilities_of_a_lost_worker_are_found_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("surefoot.collect.build.cores", lambda: 2)
    with collecting(Marked, n_proc=1, overlap=True, horizon=20_000) as collector:
        actor = Unjudging(**vars(actor_for(collector)))
        collector.collect(actor, ahead=True)
        os.kill(collector._stage._workers[0].pid, signal.SIGSTOP)
        assert collector._stage._record.made[0] < 20_000  # it is in the middle of it
        os.kill(collector._stage._workers[0].pid, signal.SIGKILL)
        rollout = collector.collect(actor)
        assert collector._stage.replaced == 1
        np.testing.assert_array_equal(
            rollout.log_prob, actor.light().log_prob(rollout.obs, rollout.action)
        )


def test_a_worker_that_takes_long_to_find_log_probabilities_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("surefoot.collect.build.cores", lambda: 2)
    settings: dict[str, Any] = {"n_proc": 1, "overlap": True, "step_timeout": 0.5}
    with collecting(Marked, **settings) as collector:
        actor = Pensive(**vars(actor_for(collector)), seconds=1.5)
        assert collector.collect(actor).log_prob is not None
        assert collector._stage.replaced == 0


def test_a_worker_that_never_finds_log_probabilities_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("surefoot.collect.build.cores", lambda: 2)
    monkeypatch.setattr("surefoot.collect.processes.JUDGING_SECONDS", 0.1)
    settings: dict[str, Any] = {"n_proc": 1, "overlap": True, "step_timeout": 2.0}
    with collecting(Marked, **settings) as collector:
        actor = Pensive(**vars(actor_for(collector)), seconds=6.0)
        # It has made all steps, so that the parent finds what is missing.
        assert collector.collect(actor).log_prob is not None
        assert collector._stage.replaced == 1


@pytest.mark.parametrize(
    ("settings", "cores", "left"),
    [
        ({"n_proc": 1, "overlap": True}, 2, True),
        ({"n_proc": 1, "overlap": True}, 1, False),
        ({"n_proc": 2, "overlap": True}, 3, False),
        ({"n_proc": 1, "overlap": False}, 2, False),
    ],
    ids=str,
)
def test_log_probabilities_are_left_to_a_worker_that_plays_all_rows_and_leaves_the_learner_a_core(
    settings: Any, cores: int, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.collect.build.cores", lambda: cores)
    horizon = CHUNK // 6 + 1  # in two batches
    (reference,) = play(Marked, rollouts=1, collector="local", n_proc=None, horizon=horizon)
    with collecting(Marked, horizon=horizon, **settings) as collector:
        actor = Unjudging(**vars(actor_for(collector)))
        if left:
            assert_same(collector.collect(actor), reference)
        else:
            with pytest.raises(AssertionError, match="left to the parent"):
                collector.collect(actor)


@WHO_ACTS
@pytest.mark.parametrize(("rows", "workers", "width"), [(1, 1, None), (5, 3, 2), (3, 3, 4)])
def test_uneven_shares_give_the_same(
    rows: int, workers: int, width: int | None, acting: str
) -> None:
    settings: dict[str, Any] = {"envs": rows, "inference_rows": width, "rollouts": 2}
    settings["acting"] = acting
    reference = play(Marked, collector="local", n_proc=None, **settings)
    for one, other in zip(reference, play(Marked, n_proc=workers, **settings), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("rows", range(1, 12))
@pytest.mark.parametrize("lanes", [1, 2, 20])
def test_every_row_has_one_worker_and_shares_differ_by_one_at_most(rows: int, lanes: int) -> None:
    for workers in range(1, rows + 1):
        dealt = deal(rows, workers, lanes)
        assert [row for lane in dealt for row in range(rows)[lane.rows]] == list(range(rows))
        sizes = [sum(x.size for x in dealt if x.worker == worker) for worker in range(workers)]
        assert max(sizes) - min(sizes) <= 1
        assert {x.number for x in dealt if x.worker == 0} == set(range(min(lanes, sizes[0])))


def test_a_vector_environment_goes_to_one_worker_as_a_whole() -> None:
    env = "tests.counter:cartpole_vector"
    reference = play(env, kind="fresh", envs=4, collector="local", n_proc=None)
    for one, other in zip(reference, play(env, kind="fresh", envs=4, n_proc=1), strict=True):
        assert_same(one, other)
    with pytest.raises(ConfigError, match="cannot be dealt out; use --collector local"):
        play(env, kind="fresh", envs=4, n_proc=2)


def assert_own_sequences(rollouts: list[Rollout], seed: int = 3) -> int:
    """Check that every column is one row's own sequence of whole steps; return how many count."""
    seeds = EpisodeSeeds(seed)
    known: list[dict[float, int]] = [{} for _ in range(rollouts[0].valid.shape[1])]

    def numbers(row: int, mark: float) -> int:
        while mark not in known[row]:
            known[row][seeds(row, len(known[row]))] = len(known[row])
            assert len(known[row]) < 10_000
        return known[row][mark]

    seen: set[tuple[int, int, int]] = set()
    for rollout in rollouts:
        for t, row in np.argwhere(rollout.valid).tolist():
            mark, step, _ = rollout.obs[t, row]
            assert step == rollout.episode_step[t, row]
            number = numbers(row, mark)
            assert (row, number, int(step)) not in seen
            seen.add((row, number, int(step)))
            assert rollout.reward[t, row] == rollout.action[t, row] + 10 * (step + 1)
            ended = rollout.ended[t, row]
            after = (
                rollout.final_obs[rollout.final_index[t, row]] if ended else rollout.obs[t + 1, row]
            )
            assert after.tolist() == [mark, step + 1, 0]
            assert ended or t == rollout.horizon - 1 or rollout.valid[t + 1, row]
    for row, number, step in seen:  # no gap inside an episode
        assert step == 0 or (row, number, step - 1) in seen
    return len(seen)


@pytest.mark.parametrize("minimum", [1, 3, 6])
def test_rows_at_their_own_pace_fill_their_own_columns(minimum: int) -> None:
    rollouts = play(Marked, min_inference_size=minimum)
    assert assert_own_sequences(rollouts) == 3 * 40 * 6
    assert len({e.row for rollout in rollouts for e in rollout.episodes}) == 6


FAULTS = {
    "init:raise": (ConfigError, "the environment is tired"),
    "init:exit": (EnvError, "exit code 3 while one was built"),
    "reset:raise": (
        EnvError,
        r"reset\(seed=\d+\) raised ZeroDivisionError: the environment is tired",
    ),
    "reset:segfault": (EnvError, "killed by SIGSEGV while episodes began"),
    "step:raise": (EnvError, r"row \d, episode 0, step 2: step\(.*ZeroDivisionError"),
    "step:stubborn": (EnvError, "raised Stubborn: stubborn"),
    "step:exit": (EnvError, "first ended with exit code 3"),
    "step:segfault": (EnvError, "first was killed by SIGSEGV"),
    "step:loop": (EnvError, "first was in one call for over 1 s"),
    "shape": (EnvError, r"row \d, episode 0, step 3: observation has shape \(3,\)"),
    "dtype": (EnvError, "observation has dtype <U1"),
    "nan": (EnvError, "observation is not finite"),
    "none": (EnvError, "step returned None, not"),
    "reward": (EnvError, "reward is None, not a number"),
    "info": (EnvError, "info is None; it and its 'metrics' must be dicts"),
    "step:sys.exit": (EnvError, "SystemExit: 5"),
}


@WHO_ACTS
@pytest.mark.parametrize("how", FAULTS)
def test_a_fault_gives_its_message_in_time(how: str, acting: str) -> None:
    kind, message = FAULTS[how]
    settings: dict[str, Any] = {"n_proc": 1, "envs": 2, "worker_restarts": 0, "step_timeout": 1}
    begun = time.monotonic()
    with pytest.raises(kind, match=message):
        play(Faulty, args={"how": how}, acting=acting, **settings)
    assert time.monotonic() - begun < PATIENCE


@pytest.mark.parametrize("how", ["step:raise", "reset:raise", "init:raise", "step:stubborn"])
def test_an_exception_comes_with_the_workers_own_traceback(how: str) -> None:
    with pytest.raises((EnvError, ConfigError)) as caught:
        play(Faulty, args={"how": how}, n_proc=1, envs=2)
    said = str(caught.value.__cause__)
    assert "tests/faulty.py" in said
    assert "in _stubborn" in said or "in _raise" in said


@pytest.mark.parametrize(
    ("how", "words"), [("step:segfault", "in _segfault"), ("step:loop", "in _loop")]
)
def test_a_crash_and_a_hang_come_with_the_stack_they_happened_in(
    how: str, words: str, tmp_path: Path
) -> None:
    events: list[Any] = []
    once = {"how": how, "once": str(tmp_path / "broken")}
    play(Faulty, args=once, n_proc=1, envs=2, step_timeout=1, events=events)
    (lost,) = events
    assert words in lost["traceback"]
    assert words in lost["message"]
    assert "row 0, episode 0, step 2" in lost["message"]


def test_a_huge_info_costs_nothing() -> None:
    (rollout,) = play(Faulty, rollouts=1, args={"how": "large"}, n_proc=1, envs=1, horizon=8)
    assert rollout.valid.all()


def test_a_factory_that_cannot_travel_is_refused_with_a_remedy() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"cannot be sent to a worker process.*--collector local"):
        play(lambda: Counter(length=5 + lock.locked()))


@WHO_ACTS
@pytest.mark.parametrize("how", ["step:exit", "step:raise", "nan"])
def test_a_lost_worker_costs_its_rows_their_episodes_and_nothing_else(
    how: str, acting: str, tmp_path: Path
) -> None:
    events: list[Any] = []
    settings: dict[str, Any] = {"horizon": 12, "envs": 4, "on_env_error": "restart"}
    args = {"how": how, "at": 8, "once": str(tmp_path / "broken")}
    (rollout, after) = play(Faulty, 2, acting, args=args, events=events, **settings)
    (lost,) = events
    mine = [0, 1] if lost["worker"] == 0 else [2, 3]
    others = [row for row in range(4) if row not in mine]
    assert rollout.valid[:, others].all()
    assert rollout.valid[:5, mine].all()  # an episode that was over stays
    broken = ~rollout.valid
    assert broken[5:8, mine].any(axis=0).all()
    assert rollout.steps == 48 - broken.sum()
    assert after.valid.all()
    numbers = {
        row: [e.number for e in (*rollout.episodes, *after.episodes) if e.row == row]
        for row in range(4)
    }
    assert all(1 not in numbers[row] and 2 in numbers[row] for row in mine)
    assert all(numbers[row] == [0, 1, 2, 3] for row in others)
    assert "not comparable bit for bit" in lost["message"]
    assert rollout.metrics["collect/workers_replaced"] == 1


def lasting(collector: Any, rollouts: list[Rollout]) -> None:
    """Check that rows are where the tally says, and that going back leads to the same future."""
    actor, state = learner(collector.spec).actor(), collector.state()
    rollouts.append(collector.collect(actor))
    assert_own_sequences(rollouts)
    future = collector.collect(actor)
    collector.restore(state)
    assert_same(rollouts[-1], collector.collect(actor))
    assert_same(future, collector.collect(actor))


@WHO_ACTS
@pytest.mark.parametrize("deaths", ["step", "step\nreset", "step\nreset\nreset", "reset"])
@pytest.mark.parametrize("kind", ["replay", "fresh"])
def test_whoever_dies_where_rows_stay_in_step_with_their_episodes(
    deaths: str, kind: str, acting: str, tmp_path: Path
) -> None:
    file = tmp_path / "deaths"
    with collecting(Careless, kind, args={"file": str(file)}, envs=4, horizon=30) as collector:
        actor = actor_for(collector, acting)
        rollouts = [collector.collect(actor)]
        file.write_text(deaths)
        rollouts.append(collector.collect(actor))
        assert not file.read_text()
        collector.anchor()
        lasting(collector, rollouts)


def test_a_loss_while_episodes_are_cut_leaves_rows_in_step(tmp_path: Path) -> None:
    file = tmp_path / "deaths"
    with collecting(Careless, "fresh", args={"file": str(file)}, envs=4, horizon=30) as collector:
        rollouts = [collector.collect(learner(collector.spec).actor())]
        file.write_text("reset\nreset")
        collector.anchor()
        assert not file.read_text()
        assert collector.exact
        lasting(collector, rollouts)


@pytest.mark.parametrize("kind", ["replay", "fresh"])
def test_a_loss_between_rollouts_costs_no_valid_step(kind: str) -> None:
    with collecting(Marked, kind, envs=4, horizon=30) as collector:
        actor = learner(collector.spec).actor()
        rollouts = [collector.collect(actor)]
        os.kill(collector._stage._workers[0].pid, signal.SIGKILL)
        collector._stage._workers[0]._process.wait()
        collector._stage._attend()  # as while another lane is waited for
        collector.anchor()
        assert collector.exact
        lasting(collector, rollouts)


def test_a_loss_after_the_last_step_of_a_rollout_leaves_the_next_one_whole() -> None:
    """Whoever is lost when its part is done must not seem to be done with the next rollout."""
    with collecting(Marked, envs=4, horizon=30) as collector:
        actor, stage = actor_for(collector), collector._stage
        rollouts = [collector.collect(actor)]
        hear, heard = stage._hear, []

        def kill_after(index: int) -> None:
            hear(index)
            if not heard:
                heard.append(index)
                os.kill(stage._workers[index].pid, signal.SIGKILL)
                stage._workers[index]._process.wait()
                time.sleep(0.1)  # the other is still playing, or done
                stage._replace(index, Lost("was killed"))

        stage._hear = kill_after
        rollouts += [collector.collect(actor) for _ in range(3)]
    assert rollouts[-1].metrics["collect/workers_replaced"] == 1
    assert sum(rollout.steps for rollout in rollouts) == 4 * 4 * 30
    assert_own_sequences(rollouts)


def test_new_episodes_can_begin_where_old_ones_kill_whoever_plays_them_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "deaths"
    with collecting(Careless, args={"file": str(file)}, envs=4, horizon=30) as collector:
        actor = learner(collector.spec).actor()
        collector.collect(actor)
        state = collector.state()
        file.write_text("step")
        with pytest.raises(InexactError, match=r"exit code 7 while an episode was played again"):
            collector.restore(state)
        collector.renew(state)
        assert collector.collect(actor).valid.all()


def test_an_environment_may_take_longer_to_build_than_a_step() -> None:
    events: list[Any] = []
    play(Faulty, 1, args={"how": "init:doze"}, n_proc=1, envs=1, step_timeout=0.5, events=events)
    assert events == []


def test_what_takes_long_but_not_too_long_is_left_alone() -> None:
    events: list[Any] = []
    limits = {"n_proc": 1, "step_timeout": 0.9, "events": events}
    play(SlowVector, 1, kind="fresh", envs=2, horizon=5, **limits)
    with collecting(SlowToSave, "snapshot", envs=4, horizon=2, **limits) as collector:
        collector.collect(learner(collector.spec).actor())
        collector.restore(collector.state())
    assert events == []


def test_workers_outlive_the_thread_that_started_them() -> None:
    made: list[Any] = []
    context = collecting(Marked, horizon=4)
    thread = threading.Thread(target=lambda: made.append(context.__enter__()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    rollout = made[0].collect(learner(made[0].spec).actor())
    context.__exit__(None, None, None)
    assert rollout.valid.all()
    assert "collect/workers_replaced" not in rollout.metrics


def test_an_environment_that_always_breaks_ends_the_run_with_the_first_traceback() -> None:
    events: list[Any] = []
    with pytest.raises(EnvError, match=r"lost.*: 3, more than worker_restarts=2.*resume") as caught:
        play(
            Faulty,
            args={"how": "step:segfault"},
            n_proc=1,
            envs=1,
            worker_restarts=2,
            events=events,
        )
    assert "in _segfault" in str(caught.value.__cause__)
    assert len(events) == 3


@pytest.mark.parametrize("minimum", [None, 2])
def test_a_metric_that_turns_up_late_arrives_like_the_others(minimum: int | None) -> None:
    settings = {"min_inference_size": minimum, "horizon": 8, "rollouts": 2}
    first, second = play(Reporting, **settings)
    assert first.metrics == {"env/steps": 4.5}
    assert second.metrics == {"env/steps": 12.5, "env/late": 1.0}


def test_a_new_worker_names_its_metrics_anew(tmp_path: Path) -> None:
    args = {"file": str(tmp_path / "broken")}
    (rollout,) = play(Renaming, rollouts=1, n_proc=1, envs=1, horizon=12, args=args)
    assert rollout.metrics == {"env/after": 1.0, "collect/workers_replaced": 1.0}


def test_metrics_beyond_what_the_slab_holds_are_left_out() -> None:
    (rollout,) = play(Reporting, rollouts=1, args={"many": 300}, horizon=4)
    assert len(rollout.metrics) == reports.METRICS
    assert rollout.metrics["env/n7"] == 7.0


def test_a_function_of_the_users_measures_in_the_worker() -> None:
    config = Config(collector="processes", n_proc=2, envs=4, seed=3, ppo=PPOConfig(horizon=4))
    measure = lambda info, env: {"own": info["metrics"]["steps"] + env.unwrapped.length}  # noqa: E731
    collector = build_collector(config, factory(Reporting, {}, measure), "replay")
    rollout = collector.collect(learner(collector.spec).actor())
    collector.close()
    assert rollout.metrics["env/own"] == 52.5


@pytest.mark.parametrize("scored", [True, False], ids=["PPO", "SAC"])
def test_a_worker_loads_no_torch_and_its_start_leaves_no_descriptor_behind(scored: bool) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with collecting(Marked) as collector:
        actor = learner(collector.spec).actor()
        collector.collect(actor if scored else Unscored(actor))
        for worker in collector._stage._workers.values():
            maps = Path(f"/proc/{worker.pid}/maps").read_text()
            assert "numpy" in maps
            assert "torch" not in maps
    before = descriptors()
    for _ in range(3):
        play(Marked, rollouts=1)
    assert descriptors() <= before


def test_a_parent_that_was_stopped_does_not_take_its_workers_for_hung() -> None:
    worker = Member(5.0)
    try:
        for _ in range(3):
            worker.watch(1000.0)  # Ctrl-Z, a suspended laptop
    finally:
        worker.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acting", "minimum", "seconds", "between"),
    [("workers", None, 30, (2, 2)), ("parent", None, 8, (0.2, 1)), ("parent", 2, 8, (0.2, 1))],
)
def test_a_run_survives_that_workers_are_killed_again_and_again(
    acting: str, minimum: int | None, seconds: float, between: tuple[float, float]
) -> None:
    """Whatever is killed when: what counts is counted once, and has no gap inside an episode."""
    chance, rollouts = random.Random(5), []
    settings: dict[str, Any] = {"min_inference_size": minimum, "worker_restarts": 1000}
    with collecting(Marked, envs=6, horizon=64, **settings) as collector:
        actor = actor_for(collector, acting)
        stage = collector._stage
        done = threading.Event()

        def killer() -> None:
            while not done.wait(chance.uniform(*between)):
                with suppress(ProcessLookupError):
                    os.kill(stage._workers[chance.randrange(2)].pid, signal.SIGKILL)

        thread = threading.Thread(target=killer)
        thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            rollouts.append(collector.collect(actor))
            time.sleep(0.01)
        done.set()
        thread.join()
    assert sum(rollout.steps for rollout in rollouts) == assert_own_sequences(rollouts)
    assert rollouts[-1].metrics["collect/workers_replaced"] > 3


def test_who_achieves_nothing_again_and_again_is_replaced_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(care.time, "sleep", slept.append)
    losses = care.Losses("env", restarts=100, workers=2, tell=lambda entry: None)
    for worker in (0,) * 9:
        losses.note(worker, Lost("died"), np.zeros(4, np.int64), first=False)
    assert slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]  # none before the first
    losses.fruit(0)
    for worker in (0, 1):
        losses.note(worker, Lost("died"), np.zeros(4, np.int64), first=False)
    assert len(slept) == 8
