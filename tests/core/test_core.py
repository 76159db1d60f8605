"""The vocabulary: randomness by address, progress, metrics, specs."""

import numpy as np
import pytest

from surefoot.core import seeding, tree
from surefoot.core.episodes import RecentEpisodes
from surefoot.core.metrics import Averages
from surefoot.core.progress import Progress
from surefoot.core.rollout import Episode
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.spec import Box, Discrete, Spec, differences


def test_an_address_always_gives_the_same_numbers_and_no_two_addresses_agree() -> None:
    def draw(*address: int) -> tuple[float, ...]:
        seed, purpose, *counters = address
        return tuple(seeding.generator(seed, Purpose(purpose), *counters).random(3))

    addresses = [(0, 2, 0), (1, 2, 0), (0, 3, 0), (0, 2, 1), (0, 2, 0, 0), (0, 2)]
    drawn = [draw(*address) for address in addresses]
    assert len(set(drawn)) == len(addresses)
    assert [draw(*address) for address in addresses] == drawn


def test_addresses_are_part_of_a_runs_identity() -> None:
    # Written down, so that a change that would end every old run's exactness is seen.
    assert EpisodeSeeds(7)(row=3, episode=5) == 2803928935
    assert seeding.integer(7, Purpose.WEIGHTS) == 3618983171


def test_progress_knows_how_much_is_spent_and_is_made_of_counts_alone() -> None:
    assert Progress.of(vars(Progress(100, steps=25))) == Progress(100, steps=25)
    for wrong in (-1, 2.0, "5", None, True, 2**70):
        with pytest.raises(ValueError, match="steps is no count"):
            Progress.of({"total_steps": 100, "steps": wrong})
    assert Progress(100, steps=120).fraction == 1.0
    assert Progress(100, steps=100).done


def test_averages_leave_out_what_is_absent() -> None:
    averages = Averages()
    averages.add({"a": np.array([1.0, np.nan]), "b": np.array([np.nan, np.nan])})
    averages.add({"a": np.array([np.nan, 5.0])})
    assert averages.means("env/") == {"env/a": 3.0}


def episode(total: float, **changed: object) -> Episode:
    fields = {
        "row": 0,
        "number": 0,
        "total": total,
        "length": 3,
        "terminated": True,
        "success": None,
    }
    return Episode(**{**fields, **changed})  # type: ignore[arg-type]


def test_recent_episodes_are_a_window_whose_score_waits_until_it_is_full() -> None:
    recent = RecentEpisodes(3)
    assert recent.metrics() == {}
    recent.add([episode(1.0), episode(2.0)])
    assert recent.score is None
    recent.add([episode(6.0, terminated=False), episode(7.0)])
    assert recent.score == 5.0
    metrics = recent.metrics()
    assert metrics["recent/return_mean"] == 5.0
    assert metrics["recent/terminated_rate"] == pytest.approx(2 / 3)
    assert metrics["recent/success_rate"] == pytest.approx(2 / 3)
    recent.add([episode(0.0, success=1.0)])
    assert recent.metrics()["recent/success_rate"] == 1.0
    again = RecentEpisodes(3)
    again.restore(recent.state())
    assert again.metrics() == recent.metrics()


def test_specs_name_the_spaces_that_differ() -> None:
    box = Box(np.zeros(2), np.ones(2), "float32")
    one, other = Spec({"a": box}, Discrete(2), 1), Spec({"a": box}, Discrete(3), 8)
    assert differences(one, one) == []
    assert differences(one, other) == [
        "action is Discrete(2) in the checkpoint, Discrete(3) in the environment"
    ]


def test_trees_map_and_index_at_every_leaf() -> None:
    nested = {"a": np.arange(3), "b": {"c": np.arange(6).reshape(3, 2)}}
    assert [path for path, _ in tree.items(nested)] == ["a", "b/c"]
    picked = tree.index(nested, 1)
    assert (picked["a"], picked["b"]["c"].tolist()) == (1, [2, 3])
    target = {"a": np.zeros(3), "b": {"c": np.zeros((3, 2))}}
    tree.write(target, 1, picked)
    assert target["b"]["c"].tolist() == [[0, 0], [2, 3], [0, 0]]
    assert tree.map(lambda a, b: a + b, 1, 2) == 3
