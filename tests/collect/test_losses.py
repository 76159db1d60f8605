"""Workers that are lost, stuck or in the middle of something at awkward moments."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from surefoot.collect import build, care, processes, slab
from surefoot.collect.crew import Lost
from surefoot.collect.record import Record
from surefoot.collect.reports import Reports, layout
from surefoot.core.errors import EnvError, InexactError
from surefoot.core.spec import Discrete, Spec
from tests.collect.test_processes import (
    WHO_ACTS,
    actor_for,
    assert_own_sequences,
    assert_same,
    collecting,
    lasting,
    play,
)
from tests.counter import Counter
from tests.faulty import Closing, Faulty, Marked, Moody, Unforgiving
from tests.toys import learner


@WHO_ACTS
def test_who_dies_between_its_last_step_and_saying_so_is_through(acting: str) -> None:
    with collecting(Marked, envs=4, horizon=30) as collector:
        actor, stage = actor_for(collector, acting), collector._stage
        rollouts, attend, killed = [collector.collect(actor)], stage._attend, []
        mine, least = stage._of[0], 0 if acting == "workers" else 29

        def made() -> int:
            return min(int(stage._record.made[lane.rows.start]) for lane in mine)

        def after_the_last_step(*patience: float) -> None:
            if not killed and stage._due.intersection(mine) and made() >= least:
                end = time.monotonic() + 0.2  # it may also wait for us
                while made() < 30 and time.monotonic() < end:
                    time.sleep(0.001)
                if made() == 30:
                    killed.append(os.kill(stage._workers[0].pid, signal.SIGKILL))
                    stage._workers[0]._process.wait()
                    stage._look_after(0.1)
            attend(*patience)

        stage._attend = after_the_last_step
        rollouts += [collector.collect(actor) for _ in range(2)]
        assert killed
        assert rollouts[1].valid.all()
        lasting(collector, rollouts)


@WHO_ACTS
@pytest.mark.parametrize("workers", [1, 2])
def test_after_a_fault_a_collector_can_be_restored(
    acting: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "cores", lambda: 9)  # so that a worker may have two lanes
    args = {"how": "step:raise", "at": 20, "once": str(tmp_path / "broken")}
    with collecting(Faulty, args=args, n_proc=workers, envs=4, horizon=12) as collector:
        actor = actor_for(collector, acting)
        collector.collect(actor)
        state = collector.state()
        with pytest.raises(EnvError, match="tired"):
            collector.collect(actor)
        collector.restore(state)
        futures = [collector.collect(actor) for _ in range(2)]
        collector.restore(state)
        for one in futures:
            assert_same(one, collector.collect(actor))


def test_new_episodes_can_begin_where_environments_cannot_be_put_back() -> None:
    with collecting(Unforgiving, "snapshot", envs=4, horizon=12) as collector:
        actor = actor_for(collector)
        collector.collect(actor)
        state = collector.state()
        with pytest.raises(InexactError, match="set_state raised"):
            collector.restore(state)
        collector.renew(state)
        assert collector.collect(actor).valid.all()


def test_new_episodes_can_begin_where_old_ones_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mood"
    args = {"file": str(file), "hang": True}
    with collecting(Moody, args=args, envs=4, horizon=30, step_timeout=3) as collector:
        actor = actor_for(collector)
        collector.collect(actor)
        state = collector.state()
        file.touch()
        monkeypatch.setattr(processes, "START_SECONDS", 3.0)
        with pytest.raises(InexactError, match="in one call for over 3 s"):
            collector.restore(state)
        monkeypatch.undo()
        collector.renew(state)
        assert collector.collect(actor).valid.all()


def test_an_answer_to_an_earlier_question_is_never_taken_for_a_later_one(tmp_path: Path) -> None:
    file = tmp_path / "mood"
    with collecting(Moody, args={"file": str(file)}, envs=4, horizon=50) as collector:
        actor = actor_for(collector)
        collector.collect(actor)
        state = collector.state()
        for _ in range(4):
            file.touch()
            with pytest.raises(EnvError, match="once"):
                collector.restore(state)
            collector.renew(state)
            assert_own_sequences([collector.collect(actor), collector.collect(actor)])


def test_who_is_given_up_while_alive_plays_no_episode_that_another_plays_again() -> None:
    with collecting(Marked, envs=4, horizon=1000) as collector:
        actor, stage = actor_for(collector), collector._stage
        rollouts, attend, dismiss = [collector.collect(actor)], stage._attend, stage._dismiss
        given_up: list[Any] = []

        def late(index: int) -> None:
            time.sleep(0.03)
            dismiss(index)

        def give_up(*patience: float) -> None:
            if not given_up and stage._record.made[0] > 100:
                stage._dismiss = late
                given_up.append(stage._replace(0, Lost("was in one call for over 1 s")))
                stage._dismiss = dismiss
            attend(*patience)

        stage._attend = give_up
        rollouts.append(collector.collect(actor))
        assert given_up
        lasting(collector, rollouts)


def test_a_worker_that_reads_nothing_is_replaced_in_time() -> None:
    events: list[Any] = []
    with collecting(Marked, envs=4, horizon=4, step_timeout=1, events=events) as collector:
        actor = learner(collector.spec, {"hidden": (512, 512)}).actor()  # more than a pipe holds
        collector.collect(actor)
        os.kill(collector._stage._workers[0].pid, signal.SIGSTOP)
        collector.collect(actor)
    assert "in one call for over 1 s" in events[0]["message"]


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"])
def test_workers_have_one_thread_whatever_the_shell_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(Counter):
        def step(self, action: Any) -> Any:
            *usual, info = super().step(action)
            return *usual, {**info, "metrics": {"threads": float(os.environ[name])}}

    monkeypatch.setenv(name, "2")
    with collecting(Told, envs=2, horizon=4) as collector:
        rollout = collector.collect(learner(collector.spec).actor())
    assert rollout.metrics["env/threads"] == 1.0


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_of_matrix_products_change_no_action(
    threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import surefoot

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.setattr("surefoot.collect.choose.cores", lambda: 2)
    ppo = {"horizon": 8, "minibatch_size": 64, "epochs": 1}
    settings: dict[str, Any] = {"envs": 16, "total_steps": 256, "threads": threads, "ppo": ppo}
    settings |= {"policy": {"hidden": [256, 256]}, "hall_of_fame": 0}
    with threadpool_limits(limits=2, user_api="blas"):
        runs = [
            surefoot.train("Pendulum-v1", out=tmp_path / str(number), **settings, **collector)
            for number, collector in enumerate(
                [{"collector": "local"}, {"collector": "processes", "n_proc": 2}]
            )
        ]
    one, other = (run.read(run.checkpoint("last"))["learner"]["policy"] for run in runs)
    assert all(np.array_equal(one[name], other[name]) for name in one)


@WHO_ACTS
def test_a_collector_that_is_closed_in_a_rollout_closes_its_environments(
    acting: str, tmp_path: Path
) -> None:
    file = tmp_path / "closed"

    def interrupt(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with collecting(Closing, args={"file": str(file)}, envs=2, horizon=2000) as collector:
            actor = actor_for(collector, acting)
            file.unlink(missing_ok=True)  # looking at it has closed one
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(TimeoutError):
                collector.collect(actor)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert file.read_text().count("closed") == 2


def test_who_dies_of_saving_is_replaced_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(care.time, "sleep", lambda s: slept.append(s) if s in DELAYS else None)
    with collecting(
        Unforgiving, "snapshot", args={"dies": True}, n_proc=1, envs=2, worker_restarts=4
    ) as collector:
        collector.collect(actor_for(collector))
        with pytest.raises(EnvError, match="more than worker_restarts=4"):
            collector.state()
    assert slept == [0.1, 0.2, 0.4]


DELAYS = (0.1, 0.2, 0.4, 0.8)


def test_a_metric_whose_name_was_half_written_gets_its_own() -> None:
    spec = Spec(Discrete(2), Discrete(2), 2)
    shared = slab.blank(layout(spec, horizon=3, workers=1))
    shared["metric_names"][0, 0, :6] = np.frombuffer(b"before", np.uint8)  # and never counted
    Reports(shared, 0, [slice(0, 2)]).write(0, slice(0, 2), {"ab": np.ones(2)})
    assert list(Reports(shared, 0, [slice(0, 2)]).read()) == ["ab"]


def test_final_observations_take_as_much_memory_as_there_are_in_a_rollout() -> None:
    """Not as many as there are places where an episode could end."""
    (rollout,) = play(Marked, 1, collector="local", n_proc=None, horizon=400)
    assert rollout.ended.sum() > 50
    with collecting(Marked, collector="local", n_proc=None, horizon=400) as collector:
        actor = actor_for(collector)
        for _ in range(20):
            collector.collect(actor)
        record: Record = collector._stage._record
    most = int(record.facts.ended.sum(0).max())
    assert not record._final_obs[most:].any()
