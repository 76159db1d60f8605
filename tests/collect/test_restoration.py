"""Environments come back to exactly where they were, in every way there is."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from surefoot.collect import restoration
from surefoot.collect.build import build_collector
from surefoot.config import Config, PPOConfig
from surefoot.core import fingerprint
from surefoot.core.errors import ConfigError, EnvError, InexactError
from surefoot.core.protocols import Collector
from surefoot.core.rollout import Rollout
from surefoot.core.state import differences
from surefoot.envs import probe
from surefoot.envs.make import factory
from surefoot.store.checkpoint import Boundary, Checkpoints
from tests.counter import Choices, Counter, Saved, Walk
from tests.toys import learner


class SavedBadly(Saved):
    def get_state(self) -> Any:
        return {**super().get_state(), "steps": 0}


class SavedStrangely(Saved):
    def get_state(self) -> Any:
        return {**super().get_state(), "name": np.array(["x"])}


class SavedButLeaks(Saved):
    """Its state is that of the episode; what survives a reset is not in it."""

    def __init__(self) -> None:
        super().__init__(leak=True)


class SavedVector(SyncVectorEnv):
    """A vector environment that offers its state, or forgets half of it."""

    def __init__(
        self, forgets: bool = False, mode: AutoresetMode = AutoresetMode.NEXT_STEP
    ) -> None:
        super().__init__([Saved] * 3, autoreset_mode=mode)
        self.forgets = forgets

    def get_state(self) -> Any:
        kept = {"ended": self._autoreset_envs, "envs": [env.get_state() for env in self.envs]}
        return {"ended": kept["ended"]} if self.forgets else kept

    def set_state(self, state: Any) -> None:
        self._autoreset_envs = np.array(state["ended"])
        for env, kept in zip(self.envs, state.get("envs", []), strict=False):
            env.set_state(kept)


class Leaking(SyncVectorEnv):
    """Goes on drifting, whatever the seed of a reset, as some libraries do."""

    def __init__(self) -> None:
        super().__init__([lambda: Walk(leak=True)] * 3)


def vector(mode: AutoresetMode) -> Any:
    make = lambda: Counter(length=7, truncate=True)  # noqa: E731
    return lambda: SyncVectorEnv([make] * 3, autoreset_mode=mode)


def built(env: Any, kind: Any = None, horizon: int = 24, **args: Any) -> Collector:
    ppo = PPOConfig(horizon=horizon)
    config = Config(envs=3, seed=5, total_steps=100_000, collector="local", ppo=ppo)
    return build_collector(config, factory(env, args), kind)


def same(one: Rollout, other: Rollout) -> None:
    assert differences(one.arrays(), other.arrays()) == []
    assert one.episodes == other.episodes


WAYS: list[tuple[Any, Any]] = [
    ("CartPole-v1", "replay"),
    ("Pendulum-v1", "replay"),
    ("FrozenLake-v1", "replay"),
    (Choices, "replay"),
    (Walk, "replay"),
    (lambda: Walk(leak=True), "rebuild"),
    (Saved, "snapshot"),
    (lambda: gymnasium.wrappers.TimeLimit(Saved(), 9), "snapshot"),
    (SavedVector, "snapshot"),
    (Walk, "fresh"),
    (lambda: Walk(leak=True), "fresh"),
    (Leaking, "fresh"),
    *((vector(mode), "fresh") for mode in AutoresetMode),
]


@pytest.mark.parametrize(("env", "kind"), WAYS)
def test_a_restored_collector_goes_on_identically(env: Any, kind: Any, tmp_path: Path) -> None:
    collect = built(env, kind)
    actor = learner(collect.spec).actor()
    for _ in range(3):
        collect.collect(actor)
    collect.anchor()
    assert collect.exact
    (tmp_path / "checkpoints").mkdir()
    kept = Checkpoints(tmp_path)
    state = kept.read(kept.write(Boundary(1, collect.state(), True, None)).path)[1]
    ahead = [collect.collect(actor) for _ in range(3)]
    other = built(env, kind)
    other.restore(state)
    assert differences(other.state(), state) == []
    for rollout in ahead:
        same(rollout, other.collect(actor))


def test_what_was_taken_down_does_not_change_when_playing_goes_on() -> None:
    for env, kind in (("CartPole-v1", "replay"), (Saved, "snapshot")):
        collect = built(env, kind)
        actor = learner(collect.spec).actor()
        collect.collect(actor)
        state = collect.state()
        copied = {name: str(value) for name, value in state.items()}
        for _ in range(5):
            collect.collect(actor)
        assert {name: str(value) for name, value in state.items()} == copied


def test_fresh_is_exact_only_right_after_episodes_were_cut() -> None:
    collect = built("CartPole-v1", "fresh", horizon=5)
    actor = learner(collect.spec).actor()
    first = collect.collect(actor)
    assert not collect.exact
    collect.anchor()
    assert collect.exact
    second = collect.collect(actor)
    assert first.episodes == second.episodes == []  # what was cut is no episode
    assert second.episode_step[0].tolist() == [0, 0, 0]
    assert not np.array_equal(first.obs[-1], second.obs[0])


def test_anchoring_changes_nothing_where_episodes_can_be_replayed() -> None:
    one, other = built("CartPole-v1", "replay"), built("CartPole-v1", "replay")
    actor = learner(one.spec).actor()
    for _ in range(4):
        same(one.collect(actor), other.collect(actor))
        one.anchor()


def test_an_episode_too_long_to_replay_is_cut_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoration, "LONGEST_REPLAY", 30)

    class Uneven(Counter):
        made = 0

        def __init__(self) -> None:
            super().__init__(length=10**9 if Uneven.made == 1 else 20)
            Uneven.made += 1

    collect = built(Uneven, "replay", horizon=25)
    actor = learner(collect.spec).actor()
    collect.collect(actor)
    collect.anchor()
    assert collect.collect(actor).episode_step[0].tolist() == [5, 25, 5]
    collect.anchor()
    assert collect.collect(actor).episode_step[0].tolist() == [10, 0, 10]


def test_a_replay_that_differs_names_row_and_step() -> None:
    collect = built(lambda: Walk(chance=True), "replay", horizon=12)
    actor = learner(collect.spec).actor()
    collect.collect(actor)
    other = built(lambda: Walk(chance=True), "replay", horizon=12)
    with pytest.raises(
        InexactError, match=r"row 0 differs from what was recorded at step 1 of \d+"
    ):
        other.restore(collect.state())
    other.renew(collect.state())
    assert (other.collect(actor).episode_step[0] == 0).all()


def test_a_replay_that_ends_early_names_row_and_step() -> None:
    collect = built(Counter, "replay", horizon=12, length=100)
    collect.collect(learner(collect.spec).actor())
    other = built(Counter, "replay", horizon=12, length=8)
    with pytest.raises(InexactError, match="row 0 ended at step 8 of 12 recorded ones"):
        other.restore(collect.state())


def test_an_environment_that_fails_when_it_is_played_again_is_inexact() -> None:
    class Fails(Counter):
        allowed = 10**9

        def step(self, action: Any) -> Any:
            Fails.allowed -= 1
            return super().step(action) if Fails.allowed > 0 else 1 / 0

    class Refuses(Saved):
        def set_state(self, state: Any) -> None:
            raise LookupError("no such state")

    collect = built(lambda: Fails(length=50), "replay", horizon=12)
    collect.collect(learner(collect.spec).actor())
    other = built(lambda: Fails(length=50), "replay", horizon=12)
    Fails.allowed = 5
    with pytest.raises(InexactError, match=r"playing row 0 again failed: .*ZeroDivisionError"):
        other.restore(collect.state())
    collect = built(Saved, "snapshot")
    collect.collect(learner(collect.spec).actor())
    with pytest.raises(InexactError, match="set_state raised LookupError: no such state"):
        built(Refuses, "snapshot").restore(collect.state())


def test_an_environment_that_cannot_be_built_anew_is_named_with_its_row() -> None:
    class Scarce(Counter):
        made = 0

        def __init__(self) -> None:
            super().__init__(length=5)
            Scarce.made += 1
            if Scarce.made > 3:
                raise OSError("no licence left")

    collect = built(Scarce, "rebuild", horizon=8)
    with pytest.raises(EnvError, match=r"row 0, episode 1, .*building it anew .*no licence left"):
        collect.collect(learner(collect.spec).actor())


def test_a_fingerprint_changes_with_every_bit() -> None:
    random = np.random.default_rng(0)
    obs = {"z": random.standard_normal((4, 3)), "a": np.zeros((4, 2), np.uint8)}
    before = fingerprint.of_observations(obs, 1)
    for name, index, bit in (("z", 5, 1), ("z", 0, 64), ("a", 1, 8)):
        changed = {key: value.copy() for key, value in obs.items()}
        raw = changed[name][2].view(np.uint8).reshape(-1)
        raw[min(index, len(raw) - 1)] ^= bit if bit < 64 else 1
        after = fingerprint.of_observations(changed, 1)
        assert (after != before).tolist() == [False, False, True, False]
    assert fingerprint.of_rewards(np.array([0.0])) != fingerprint.of_rewards(np.array([-0.0]))


def test_the_log_keeps_only_running_episodes() -> None:
    collect = built(Counter, "replay", horizon=23, length=5)
    collect.collect(learner(collect.spec).actor())
    kept = collect.state()["environments"]
    assert [len(part) for part in kept["action"].parts] == [3, 3, 3]
    assert [len(part) for part in kept["prints"].parts] == [4, 4, 4]


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ("CartPole-v1", "replay"),
        (Walk, "replay"),
        (lambda: Walk(leak=True), "rebuild"),
        (lambda: Walk(chance=True), "inexact"),
        (Saved, "snapshot"),
        (SavedBadly, "replay"),
        (SavedStrangely, "replay"),
        (SavedButLeaks, "rebuild"),
        (SavedVector, "snapshot"),
        (lambda: SavedVector(mode=AutoresetMode.DISABLED), "snapshot"),
        (lambda: SavedVector(forgets=True), "fresh"),
        (lambda: gymnasium.wrappers.ClipAction(Saved()), "replay"),
        (vector(AutoresetMode.SAME_STEP), "fresh"),
    ],
)
def test_the_probe_finds_the_first_way_that_works(env: Any, kind: str) -> None:
    way = probe.find(factory(env), seed=1)
    assert way.kind == kind
    assert way.because
    assert probe.find(factory(env), seed=1) == way or kind == "inexact"


def test_a_way_that_cannot_be_gone_is_refused() -> None:
    with pytest.raises(ConfigError, match="rows cannot be played one by one"):
        probe.require("replay", factory(vector(AutoresetMode.SAME_STEP)), 0)
    with pytest.raises(ConfigError, match=r"has no get_state\(\) and set_state"):
        probe.require("snapshot", factory("CartPole-v1"), 0)
    with pytest.raises(ConfigError, match="does not come back: it differs"):
        probe.require("snapshot", factory(SavedBadly), 0)
    with pytest.raises(ConfigError, match="does not come back: TypeError: an array of <U1"):
        probe.require("snapshot", factory(SavedStrangely), 0)


def test_episodes_that_nothing_can_repeat_are_not_cut_and_not_restored() -> None:
    collect = built(lambda: Walk(chance=True), "inexact", horizon=5)
    actor = learner(collect.spec).actor()
    collect.collect(actor)
    collect.anchor()
    assert (collect.collect(actor).episode_step[0] > 0).any()
    with pytest.raises(InexactError, match="not deterministic"):
        collect.restore(collect.state())


def test_an_environment_that_fails_under_the_probe_is_left_to_training() -> None:
    class Fails(Counter):
        def step(self, action: Any) -> Any:
            raise RuntimeError("boom")

    assert "boom" in probe.find(factory(Fails), seed=1).because


def test_rows_forget_at_the_end_of_an_episode() -> None:
    class Remembers:
        """Chooses nothing and counts its calls per row."""

        def __init__(self) -> None:
            self.inner = learner(built(Counter, "fresh", length=4).spec).actor()
            self.seen: list[list[int]] = []

        def noise(self, random: Any, *axes: int) -> Any:
            return self.inner.noise(random, *axes)

        def memory(self, rows: int) -> Any:
            return {"count": np.zeros(rows, np.int64)}

        def act(self, obs: Any, mask: Any, memory: Any, noise: Any) -> Any:
            self.seen.append(memory["count"].tolist())
            action, _ = self.inner.act(obs, mask, {}, noise)
            return action, {"count": memory["count"] + 1}

        def log_prob(self, obs: Any, action: Any) -> None:
            return None

    collect, actor = built(Counter, "replay", horizon=6, length=4), Remembers()
    collect.collect(actor)
    other = built(Counter, "replay", horizon=6, length=4)
    other.restore(collect.state())
    other.collect(actor)
    assert [row[0] for row in actor.seen] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
