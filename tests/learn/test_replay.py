"""The replay buffer: what is in it, what is drawn, what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.core import tree
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Box, Discrete, Spec
from surefoot.core.state import differences
from surefoot.learn.replay import Replay, blank, build_replay
from surefoot.learn.transitions import Transitions
from surefoot.store.checkpoint import Boundary, Checkpoints

SPEC = Spec(
    {"a": Box(np.zeros(2, np.uint8), np.full(2, 255, np.uint8), "uint8"), "b": Discrete(5)},
    Discrete(3),
    2,
)


def made(first: int, count: int) -> Transitions:
    """Transitions that are told apart by their number."""
    number = np.arange(first, first + count)
    obs = {"a": np.stack([number % 256, number // 256], 1).astype(np.uint8), "b": number % 5}
    return Transitions(obs, number % 3, number.astype(np.float32), obs, np.full(count, 0.9, "f"))


def replay(capacity: int = 40, chunk: int = 8, allocate: Any = np.zeros) -> Replay:
    return Replay(blank(SPEC), capacity, chunk, allocate)


def numbers(buffer: Replay, draws: int = 4000) -> list[int]:
    """Find out what is in a buffer by drawing from it."""
    drawn = buffer.draw(np.random.default_rng(0), draws)
    number = drawn.reward.astype(int)
    expected = made(0, int(number.max()) + 1).map(lambda leaf: leaf[number])
    for ours, theirs in zip(drawn, expected, strict=True):
        for one, other in zip(tree.leaves(ours), tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(one, other)
    return sorted(set(number.tolist()))


@pytest.mark.parametrize("size", [1, 3, 8, 13, 40])
def test_the_newest_transitions_are_there_and_the_oldest_go_chunk_by_chunk(size: int) -> None:
    buffer = replay()
    for first in range(0, 200, size):
        buffer.add(made(first, size))
        end = first + size
        kept = 48 if end <= 48 else 40 + (end - 1) % 8 + 1
        assert len(buffer) == min(end, kept)
        if first % 40 < size:
            assert numbers(buffer) == list(range(end - len(buffer), end))


def test_transitions_are_drawn_alike_often() -> None:
    buffer = replay()
    buffer.add(made(0, 50))
    drawn = buffer.draw(np.random.default_rng(0), 100, 1000).reward.astype(int)
    shares = np.bincount(drawn.reshape(-1), minlength=50)[-len(buffer) :] / drawn.size
    assert drawn.shape == (100, 1000)
    assert shares == pytest.approx(np.full(len(buffer), 1 / len(buffer)), rel=0.1)


@pytest.mark.parametrize("count", [0, 5, 16, 39, 40, 41, 100, 137])
def test_a_restored_buffer_draws_the_same(count: int) -> None:
    first, second = replay(), replay()
    for start in range(count):
        first.add(made(start, 1))
    second.restore(first.state())
    for step in range(30):
        for buffer in (first, second):
            buffer.add(made(count + step, 1))
        ours, theirs = (b.draw(np.random.default_rng(step), 20) for b in (first, second))
        np.testing.assert_array_equal(ours.reward, theirs.reward)


def test_a_state_stays_as_it_was_while_the_ring_goes_round() -> None:
    buffer, other = replay(), replay()
    buffer.add(made(0, 45))
    state = buffer.state()
    buffer.add(made(45, 100))
    other.restore(state)
    assert numbers(other) == list(range(45 - len(other), 45))


def test_a_buffer_of_another_size_takes_over_the_newest_ones() -> None:
    buffer, small, large = replay(), replay(16, 4), replay(400, 32)
    buffer.add(made(0, 39))
    for other in (small, large):
        other.restore(buffer.state())
        assert numbers(other) == list(range(39 - len(other), 39))
    assert (len(small), len(large)) == (19, 39)


def test_every_chunk_is_written_once_and_read_back(tmp_path: Path) -> None:
    store, buffer = Checkpoints(tmp_path), replay()
    store.directory.mkdir()
    written: dict[Path, int] = {}
    for step in range(1, 15):
        buffer.add(made(10 * step - 10, 10))
        store.write(Boundary(step, {"replay": buffer.state()}, exact=True, score=None))
        for file in (tmp_path / "segments").glob("*.safetensors"):
            assert written.setdefault(file, file.stat().st_mtime_ns) == file.stat().st_mtime_ns
    assert len(written) == 140 // 8
    _, state = store.read(store.paths()[-1])
    again = replay()
    again.restore(state["replay"])
    assert differences(again.state(), buffer.state()) == []
    before = sorted((tmp_path / "segments").iterdir())
    again.add(made(140, 10))
    store.write(Boundary(20, {"replay": again.state()}, exact=True, score=None))
    assert len(sorted((tmp_path / "segments").iterdir())) == len(before) + 1


def test_a_buffer_in_a_file_is_like_one_in_memory_and_leaves_nothing(tmp_path: Path) -> None:
    buffer, told = build_replay(SPEC, 100, 10**9, str(tmp_path))
    buffer.add(made(0, 60))
    assert numbers(buffer) == list(range(60))
    assert list(tmp_path.iterdir()) == []
    assert f"a file in {tmp_path}" in told


def test_what_a_buffer_takes_is_told_and_no_more_than_the_run_needs() -> None:
    _, told = build_replay(SPEC, 1_000_000, 5_000, None)
    assert told == (
        "replay buffer: 5,000 transitions of 36 bytes, as many as the run makes: 180 kB in memory"
    )
    _, told = build_replay(SPEC, 1_000, 5_000, None)
    assert told == "replay buffer: 1,000 transitions of 36 bytes: 36 kB in memory"


def test_a_buffer_larger_than_the_machine_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sac\.replay_steps=.* GB of memory.*sac\.replay_folder"):
        build_replay(SPEC, 10**12, 10**12, None)
    with pytest.raises(ConfigError, match=r"sac\.replay_folder='nowhere': No such file"):
        build_replay(SPEC, 100, 100, "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Not a directory; name a directory"):
        build_replay(SPEC, 100, 100, str(tmp_path / "file"))


@pytest.mark.parametrize(("free", "fits"), [(5000, True), (4000, False)])
def test_a_fifth_of_the_memory_is_left_to_others(
    free: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.core.hardware.free_memory", lambda: free)
    if fits:
        build_replay(SPEC, 96, 10**9, None)  # 108 of 36 bytes with the chunk that is in the making
    else:
        with pytest.raises(ConfigError, match="lower it"):
            build_replay(SPEC, 96, 10**9, None)


@pytest.mark.parametrize(
    "broken",
    [
        {"reward": np.zeros(3, np.float64)},
        {"discount": np.zeros(1, np.float32)},
        {"obs": {"a": np.zeros((3, 1), np.uint8), "b": np.zeros(3, np.int64)}},
        {"obs": {"a": np.zeros((3, 2), np.uint8)}},
        {"action": np.zeros((4,), np.int64)},
    ],
)
def test_what_is_no_transition_of_this_environment_is_refused(broken: Any) -> None:
    buffer = replay()
    buffer.add(made(0, 3))
    state = buffer.state()
    with pytest.raises((ValueError, TypeError)):
        replay().restore({**state, "rest": {**state["rest"], **broken}})
