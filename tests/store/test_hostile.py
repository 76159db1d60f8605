"""Whatever is in a checkpoint, loading it ends with a state or with an error of ours."""

import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import surefoot
from surefoot.config import Config
from surefoot.core.errors import CheckpointError, SurefootError
from surefoot.core.state import differences
from surefoot.envs.make import factory
from surefoot.run import Run
from surefoot.train import prepared
from surefoot.training import Training
from tests import mutations

SETTINGS = {
    "total_steps": 512,
    "envs": 2,
    "hall_of_fame": 0,
    "restore": "replay",
    "ppo": {"horizon": 64, "minibatch_size": 64, "epochs": 1, "buffer_steps": 256},
    "policy": {"hidden": [8], "normalize_observations": True},
}
SLACK = 24 << 20
"""What reading the largest JSON that is accepted may take, whatever the size of the file."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return surefoot.train("CartPole-v1", out=tmp_path_factory.mktemp("hostile") / "run", **SETTINGS)


@pytest.fixture
def training(run: Run) -> Iterator[Training]:
    with prepared(run.config, factory("CartPole-v1"), "replay") as training:
        yield training


def load(run: Run, path: Path, training: Training) -> None:
    """All that resume and eval do with what is in a checkpoint."""
    _, state = run.store.read(path)
    training.restore(state)
    training.restore_environments(state)
    Config.from_yaml(run.config.to_yaml())


def attempt(run: Run, path: Path, training: Training) -> str:
    """Load a checkpoint; return what happened, and insist on little memory."""
    files = [file for file in path.iterdir() if file.is_file() and not file.is_symlink()]
    size = sum(file.stat().st_size for file in files)
    tracemalloc.start()
    try:
        load(run, path, training)
        return "loaded"
    except SurefootError as error:
        return type(error).__name__
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * size + SLACK, f"{peak:,} bytes for {size:,}"


def test_500_mutated_checkpoints_load_or_are_refused_by_an_error_of_ours(
    run: Run, training: Training
) -> None:
    original = run.checkpoint("last").path
    _, whole = run.store.read(original)
    path = run.store.directory / "superseded" / original.name
    outcomes: Counter[str] = Counter()
    for number in range(500):
        mutations.copy(original, path)
        way = mutations.mutate(path, random.Random(number))
        outcome = attempt(run, path, training)
        outcomes[outcome] += 1
        if way in mutations.ACCIDENTS and outcome == "loaded":
            assert differences(run.store.read(path)[1], whole) == [], (number, way)
    assert not Path("/tmp/surefoot-was-exploited").exists()
    assert outcomes["CheckpointError"] > 250
    assert outcomes["loaded"] > 0


def test_a_policy_of_a_checkpoint_with_giant_spaces_is_not_built(run: Run, tmp_path: Path) -> None:
    copied = mutations.copy(run.path, tmp_path / "run")
    path = Run.open(copied).checkpoint("last").path
    content = json.loads((path / "state.json").read_text())
    content["spec"]["action"]["n"] = 10**12
    (path / "state.json").write_text(json.dumps(content))
    mutations.reseal(path)
    with pytest.raises(CheckpointError, match="larger than its networks"):
        Run.open(copied).load("last")
