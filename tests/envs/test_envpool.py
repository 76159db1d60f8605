"""EnvPool's environments are Gymnasium's, and what EnvPool does differently does not show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import surefoot
from surefoot.collect import choose as choosing
from surefoot.collect.build import build_collector
from surefoot.collect.choose import choose, pool_threads, settle_backend
from surefoot.collect.local import local_collector
from surefoot.config import Config, PPOConfig
from surefoot.core.errors import ConfigError
from surefoot.core.hardware import whole_cores
from surefoot.core.rollout import Rollout
from surefoot.core.spec import differences
from surefoot.envs import envpool as pools
from surefoot.envs.envpool import pooled
from surefoot.envs.make import factory, make_vector
from tests.counter import Counter
from tests.toys import learner

EVERY_CORE = set(range(os.cpu_count() or 1))
WITHOUT_BOUNDS = ("BipedalWalker-v3", "LunarLander-v3")
"""Those of whose observations EnvPool does not say how large they get."""
ENVS = ["CartPole-v1", "BipedalWalker-v3", "Pendulum-v1", "LunarLander-v3", "Acrobot-v1"]


def collector(env: str, rows: int = 4, horizon: int = 200, threads: int = 1) -> Any:
    vector = make_vector(pooled(factory(env), rows, threads), rows)
    return local_collector(vector, horizon, seed=5)


def play(env: str, rollouts: int = 2, **settings: Any) -> list[Rollout]:
    collect = collector(env, **settings)
    actor = learner(collect.spec).actor()
    played = [collect.collect(actor) for _ in range(rollouts)]
    collect.close()
    return played


@pytest.mark.parametrize("env", ENVS)
def test_spaces_and_time_limit_are_gymnasiums(env: str) -> None:
    import envpool

    ours = make_vector(factory(env), 2)
    theirs = make_vector(pooled(factory(env), 2, 1), 2)
    assert differences(ours.spec, theirs.spec) == []
    single, spec = gymnasium.make(env), envpool.make_spec(env)
    assert spec.config.max_episode_steps == gymnasium.spec(env).max_episode_steps
    assert_same_space(spec.gymnasium_action_space, single.action_space)
    seen = spec.gymnasium_observation_space
    assert_same_space(seen, single.observation_space, bounded=env not in WITHOUT_BOUNDS)


def assert_same_space(one: Any, other: Any, bounded: bool = True) -> None:
    assert (type(one), one.shape, one.dtype) == (type(other), other.shape, other.dtype)
    bounds = ("low", "high") if isinstance(other, gymnasium.spaces.Box) else ("n",)
    for bound in bounds if bounded else ():
        np.testing.assert_allclose(getattr(one, bound), getattr(other, bound), rtol=1e-5)


@pytest.mark.parametrize("env", ENVS)
def test_rewards_lie_in_gymnasiums_range(env: str) -> None:
    local = local_collector(make_vector(factory(env), 4), 300, seed=5)
    reference = local.collect(learner(local.spec).actor())
    (rollout,) = play(env, 1, horizon=300)
    rewards, expected = rollout.reward[rollout.valid], reference.reward[reference.valid]
    spread = max(1e-6, float(np.ptp(expected)))
    assert rewards.min() >= expected.min() - spread
    assert rewards.max() <= expected.max() + spread
    assert np.median(rewards) == pytest.approx(np.median(expected), abs=0.3 * spread)


def test_the_step_after_an_end_does_not_count_and_final_observations_are_true() -> None:
    first, second = play("CartPole-v1")
    ended = np.concatenate([first.ended, second.ended])
    valid = np.concatenate([first.valid, second.valid])
    assert ended.sum() > 20
    assert (valid[1:] == ~ended[:-1]).all()
    fell = np.abs(first.final_obs[:, 0]) > 2.4
    fell |= np.abs(first.final_obs[:, 2]) > 12 * np.pi / 180
    assert fell.all()
    after = first.obs[2:][first.ended[:-1]]
    assert (np.abs(after) <= 0.05 + 1e-6).all()  # the first observation of the next episode
    for episode in first.episodes:
        assert episode.total == episode.length
        assert episode.terminated


def test_an_episode_is_truncated_at_the_time_limit() -> None:
    (rollout,) = play("Pendulum-v1", 1, horizon=402)
    assert set(np.flatnonzero(rollout.truncated.any(1)).tolist()) == {199, 400}
    assert not rollout.terminated.any()
    assert {episode.length for episode in rollout.episodes} == {200}


@pytest.mark.parametrize("env", ENVS)
def test_pools_are_stepped_directly_as_through_their_wrapper(env: str) -> None:
    import envpool

    one, other = (envpool.make_gymnasium(env, num_envs=3, seed=[1, 2, 3]) for _ in range(2))
    step = pools.direct(one)
    assert step is not None
    reference = pools.wrapped(other)
    assert np.array_equal(one.reset()[0], other.reset()[0])
    random = np.random.default_rng(0)
    for _ in range(300):
        if isinstance(one.action_space, gymnasium.spaces.Discrete):
            actions: Any = random.integers(0, one.action_space.n, 3)
        else:
            actions = random.uniform(-1, 1, (3, *one.action_space.shape))
        for ours, theirs in zip(step(actions), reference(actions), strict=True):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.filterwarnings("error:.*precision lowered")
def test_pools_say_nothing_of_their_own(env: str) -> None:
    pool = pools.Pool(env, rows=2, threads=1)
    pool.reset(seed=[1, 2])
    pool.step(pool.action_space.sample())
    pool.close()


def test_a_pool_that_is_not_as_known_is_stepped_through_its_wrapper() -> None:
    class Other:
        _state_keys = ("obs:image", "reward", "done", "trunc")
        _action_keys = ("env_id", "players.env_id", "action")

    assert pools.direct(Other()) is None
    assert pools.direct(object()) is None


def test_threads_change_nothing_and_seeds_everything() -> None:
    (one,), (other,) = (play("BipedalWalker-v3", 1, threads=n, horizon=60) for n in (1, 2))
    assert np.array_equal(one.obs, other.obs)
    assert np.array_equal(one.reward, other.reward)
    assert not np.array_equal(one.obs[0, 0], one.obs[0, 1])


def test_a_trained_policy_scores_alike_on_both(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"total_steps": 100_000, "env_backend": "envpool", "hall_of_fame": 0}
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    assert run.config.env_backend == "envpool"
    there = run.evaluate(20).return_mean
    collect = collector("CartPole-v1", rows=8, horizon=1100)
    made = learner(collect.spec, {"hidden": run.config.policy.hidden})
    made.policy.load_state_dict(surefoot.load(run.path).network.state_dict())
    here = np.mean([episode.total for episode in collect.collect(made.player()).episodes])
    assert there > 400
    assert here > 400
    assert here == pytest.approx(there, abs=50)


def test_what_envpool_lacks_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    remedy = r"use --env-backend gymnasium"
    with pytest.raises(ConfigError, match=rf"no environment arguments \(gravity\); {remedy}"):
        pooled(factory("LunarLander-v3", {"gravity": -5.0}), 2, 1)
    with pytest.raises(ConfigError, match=rf"no info for the metrics function.*{remedy}"):
        pooled(factory("CartPole-v1", metrics=lambda info: {}), 2, 1)
    with pytest.raises(ConfigError, match=rf"not one of Gymnasium's own environments; {remedy}"):
        pooled(factory(Counter), 2, 1)
    with pytest.raises(ConfigError, match=rf"EnvPool has no Taxi-v4; {remedy}"):
        make_vector(pooled(factory("Taxi-v4"), 2, 1), 2)
    monkeypatch.setattr(pools, "installed", lambda: False)
    with pytest.raises(ConfigError, match=rf"pip install 'surefoot\[envpool\]', or {remedy}"):
        pooled(factory("CartPole-v1"), 2, 1)


def test_a_preference_gives_way_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(env_backend="prefer-envpool", collector="local")
    settled, said = settle_backend(config, factory("CartPole-v1"))
    assert (settled.env_backend, settled.restore) == ("envpool", "fresh")
    assert said == "EnvPool's environment"
    settled, said = settle_backend(config, factory("LunarLander-v3", {"gravity": -5.0}))
    assert settled.env_backend == "gymnasium"
    assert "no environment arguments" in said
    settled, said = settle_backend(config, factory("CartPole-v1"), render=True)
    assert settled.env_backend == "gymnasium"
    assert "shows nothing" in said
    monkeypatch.setattr(pools, "installed", lambda: False)
    assert "not installed" in choose(config, factory("CartPole-v1")).backend


@pytest.mark.parametrize(
    ("backend", "said"),
    [("gymnasium", "Gymnasium's environment"), ("envpool", "EnvPool's environment")],
)
def test_whose_environment_it_is_is_printed_at_the_start_and_when_it_goes_on(
    backend: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: Any = {"total_steps": 600, "max_hours": 1e-9, "env_backend": backend}
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    assert f"{said}\n" in capsys.readouterr().out
    surefoot.resume(run.path, max_hours=1, allow_inexact=True)
    assert f"{said}\n" in capsys.readouterr().out


def test_episodes_of_a_pool_cannot_be_shown(tmp_path: Path) -> None:
    """They would be played again in Gymnasium's environment, and be others."""
    settings: Any = {"total_steps": 600, "env_backend": "envpool", "max_hours": 1e-9}
    with pytest.raises(ConfigError, match="shows nothing: leave out --render"):
        surefoot.train("CartPole-v1", out=tmp_path / "shown", render=True, **settings)
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    with pytest.raises(ConfigError, match="shows nothing: leave out --render"):
        surefoot.resume(run.path, render=True, allow_inexact=True)


def test_checkpoints_of_a_pool_name_the_version_of_envpool(tmp_path: Path) -> None:
    for backend, named in (("gymnasium", False), ("envpool", True)):
        settings: Any = {"total_steps": 300, "env_backend": backend}
        run = surefoot.train("CartPole-v1", out=tmp_path / backend, **settings)
        assert ("envpool" in run.checkpoint("last").manifest.machine) == named


def test_another_version_of_envpool_is_said_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {"total_steps": 1000, "env_backend": "envpool", "checkpoint_every": "1it"}
    run = surefoot.train("CartPole-v1", out=tmp_path / "run", **settings)
    monkeypatch.setattr(pools, "version", lambda: "9.9")
    surefoot.resume(run.path, total_steps=1300)
    notes = next(e for e in run.journal() if e["event"] == "resume")["notes"]
    assert any("envpool was 1." in note and "and is 9.9" in note for note in notes)


@pytest.mark.parametrize("backends", [("gymnasium", "envpool"), ("envpool", "gymnasium")])
def test_a_fork_may_change_to_another_backend_with_new_episodes(
    backends: tuple[str, str], tmp_path: Path
) -> None:
    before, after = backends
    settings: Any = {"total_steps": 600, "env_backend": before, "restore": "fresh"}
    parent = surefoot.train("CartPole-v1", out=tmp_path / "parent", **settings)
    more: Any = {"total_steps": 1200, "env_backend": after}
    fork = surefoot.fork(parent.path, out=tmp_path / "fork", **more)
    assert fork.condition == "finished"
    assert fork.config.env_backend == after
    assert "every row begins a new episode" in fork.journal()[0]["message"]
    state = fork.store.read(fork.checkpoint("last").path)[1]
    assert state["restore"] == {"envpool": "fresh", "gymnasium": "replay"}[after]


def test_pools_share_out_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.collect.choose.cores", lambda: 8)
    threads = {None: 8, 1: 8, 2: 4, 3: 2, 8: 1, 16: 1}
    for workers, expected in threads.items():
        assert pool_threads(Config(n_proc=workers), factory("CartPole-v1")) == expected


@pytest.mark.parametrize(
    ("env", "settings", "expected"),
    [
        ("CartPole-v1", {}, 7),
        ("CartPole-v1", {"threads": 3}, 5),
        ("CartPole-v1", {"overlap": False}, 8),
        ("CartPole-v1", {"n_proc": 2}, 3),
        ("BipedalWalker-v3", {"ppo": PPOConfig(epochs=3)}, 8),
        ("BipedalWalker-v3", {"ppo": PPOConfig(epochs=3), "threads": 2}, 6),
        ("BipedalWalker-v3", {"algo": "sac"}, 7),
    ],
    ids=str,
)
def test_a_pool_leaves_cores_to_a_learner_that_has_more_to_do_or_several_threads(
    env: str, settings: Any, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.collect.choose.cores", lambda: 8)
    config = Config(**{"overlap": True, "n_proc": 1, **settings})
    assert pool_threads(config, factory(env)) == expected


@pytest.mark.parametrize(
    ("total_steps", "overlap", "expected"),
    [
        (10**4, False, ("local", None)),
        (10**6, False, ("processes", 2)),
        (10**4, True, ("processes", 1)),
        (10**6, True, ("processes", 1)),
    ],
)
def test_long_runs_divide_a_pool_among_workers(
    total_steps: int, overlap: bool, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.collect.choose.cores", lambda: 2)
    config = Config(env_backend="envpool", envs=4, total_steps=total_steps, overlap=overlap)
    chosen = choose(config, factory("CartPole-v1")).config
    assert (chosen.collector, chosen.n_proc) == expected


def bound_cores(threads: int) -> set[int]:
    """Make a pool; return the cores that one of its threads alone is bound to."""
    before = set(os.listdir("/proc/self/task"))
    rows = 2 * threads
    pool = pools.Pool("CartPole-v1", rows, threads)
    pool.reset(seed=range(rows))
    new = set(os.listdir("/proc/self/task")) - before
    allowed = [os.sched_getaffinity(int(thread)) for thread in new]
    pool.close()
    return {core for cores in allowed if len(cores) == 1 for core in cores}


needs_cores = pytest.mark.skipif(
    not whole_cores() or os.sched_getaffinity(0) != EVERY_CORE or len(EVERY_CORE) < 2,
    reason="needs Linux, and all of several cores",
)


@needs_cores
def test_a_pool_with_a_thread_for_every_core_binds_each_to_one() -> None:
    assert bound_cores(len(EVERY_CORE)) == EVERY_CORE
    assert bound_cores(len(EVERY_CORE) - 1) == set()


def test_workers_with_parts_of_a_pool_change_nothing() -> None:
    config = Config(env_backend="envpool", envs=5, ppo=PPOConfig(horizon=80), seed=3)
    found = []
    for settings in ({"collector": "local"}, {"collector": "processes", "n_proc": 2}):
        divided = build_collector(config.model_copy(update=settings), factory("LunarLander-v3"))
        actor = learner(divided.spec).actor()
        found.append([divided.collect(actor) for _ in range(2)])
        divided.close()
    for one, other in zip(*found, strict=True):
        assert one.ended.any()
        for name in ("obs", "action", "reward", "ended", "valid", "final_obs", "log_prob"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_a_pool_is_stepped_while_learning() -> None:
    config = Config(env_backend="envpool", overlap=True, envs=4, ppo=PPOConfig(horizon=8))
    chosen = choose(config, factory("CartPole-v1")).config
    overlapping = build_collector(chosen, factory("CartPole-v1"))
    actor = learner(overlapping.spec).actor()
    overlapping.collect(actor, ahead=True)
    assert overlapping.collect(actor).valid.any()
    overlapping.close()


def cores_of_threads(process: int) -> dict[int, set[int]]:
    threads = map(int, os.listdir(f"/proc/{process}/task"))
    return {thread: os.sched_getaffinity(thread) for thread in threads}


@needs_cores
@pytest.mark.parametrize(
    "settings",
    [{}, {"n_proc": len(EVERY_CORE)}, {"env_backend": "gymnasium", "n_proc": len(EVERY_CORE)}],
    ids=str,
)
def test_a_learner_has_a_core_to_itself_beside_those_who_would_fill_all(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "LEARNING", 0.0)  # it never has more to do than they
    rows = max(8, len(EVERY_CORE))
    config = Config(env_backend="envpool", overlap=True, envs=rows, ppo=PPOConfig(horizon=8))
    chosen = choose(config.model_copy(update=settings), factory("LunarLander-v3")).config
    overlapping: Any = build_collector(chosen, factory("LunarLander-v3"))
    with closing(overlapping):
        actor, workers = learner(overlapping.spec).actor(), overlapping._stage.pids()
        before = [cores_of_threads(worker) for worker in workers]
        with overlapping.beside():  # nothing is played
            assert os.sched_getaffinity(0) == EVERY_CORE
        overlapping.collect(actor, ahead=True)
        with overlapping.beside():
            (own,) = os.sched_getaffinity(0)
            for worker in workers:
                for cores in cores_of_threads(worker).values():
                    assert cores
                    assert own not in cores
        assert os.sched_getaffinity(0) == EVERY_CORE
        assert [cores_of_threads(worker) for worker in workers] == before


@needs_cores
@pytest.mark.parametrize("settings", [{"threads": 2}, {"n_proc": 1}], ids=str)
def test_a_learner_beside_those_who_leave_it_cores_keeps_them_all(settings: Any) -> None:
    config = Config(env_backend="envpool", overlap=True, envs=4, ppo=PPOConfig(horizon=8))
    chosen = choose(config.model_copy(update=settings), factory("CartPole-v1")).config
    before = os.sched_getaffinity(0)
    with closing(build_collector(chosen, factory("CartPole-v1"))) as overlapping:
        overlapping.collect(learner(overlapping.spec).actor(), ahead=True)
        with overlapping.beside():
            assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("playing", [False, True], ids=["between rollouts", "in a rollout"])
def test_a_part_of_a_pool_that_is_lost_begins_anew(playing: bool) -> None:
    config = Config(env_backend="envpool", envs=4, collector="processes", n_proc=2, seed=3)
    config = config.model_copy(update={"ppo": PPOConfig(horizon=50)})
    divided: Any = build_collector(config, factory("Pendulum-v1"))
    actor = learner(divided.spec).actor()
    before = divided.collect(actor)
    worker = divided._stage._workers[1]
    if playing:  # it is asked to play and never does
        os.kill(worker.pid, signal.SIGSTOP)
        threading.Timer(1.0, os.kill, (worker.pid, signal.SIGKILL)).start()
    else:
        os.kill(worker.pid, signal.SIGKILL)
        worker._process.wait()
    after = divided.collect(actor)
    divided.close()
    assert divided._stage.replaced == 1
    assert np.array_equal(after.obs[0, :2], before.obs[-1, :2])  # the others go on
    assert after.valid[:, :2].all()
    assert (~after.valid[:, 2:]).sum(0).tolist() == [playing, playing]  # the steps that were lost


def test_what_the_usual_environments_do_not_need_is_not_loaded() -> None:
    said = (
        "import sys; from surefoot.envs.envpool import loaded;"
        "print('CartPole-v1' in loaded('CartPole-v1').list_all_envs());"
        "print('matplotlib' in sys.modules);"
        "print('Pong-v5' in loaded('Pong-v5').list_all_envs())"
    )
    child = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True)
    assert child.stdout.split() == ["True", "False", "True"], child.stderr
