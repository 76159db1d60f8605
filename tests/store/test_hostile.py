"""Whatever is in a checkpoint, loading it ends with a state or with an error of ours."""

import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import surefoot
from surefoot.config import Config
from surefoot.core.errors import CheckpointError, SurefootError
from surefoot.core.spec import Spec
from surefoot.core.state import Appended, Piece, differences
from surefoot.envs.make import factory
from surefoot.run import Run
from surefoot.store import format
from surefoot.store.checkpoint import Boundary, Checkpoints
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
    found, state = run.store.read(path)
    training.restore(found.step, state)
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


def test_spaces_that_no_environment_has_are_refused() -> None:
    big = np.array([2 * 10**7, -2 * 10**7, 2])
    for odd in (
        {"kind": "MultiDiscrete", "bins": big, "start": np.zeros(3, np.int64)},
        {"kind": "Discrete", "n": -1, "start": 0},
        {"kind": "Discrete", "n": 2.0, "start": 0},
        {"kind": "Box", "low": np.zeros(2), "high": np.zeros(3), "dtype": "float64"},
        {"kind": "Box", "low": np.zeros(2), "high": np.zeros(2), "dtype": "object"},
    ):
        with pytest.raises(ValueError, match="is not sound"):
            Spec.from_state({"observation": odd, "action": odd, "rows": 1})


def test_a_segment_that_is_named_often_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    kept, piece = Checkpoints(tmp_path), Piece({"x": np.zeros(1 << 18)})
    log = {"log": Appended([piece] * 300)}
    path = kept.write(Boundary(1, log, True, None)).path
    tracemalloc.start()
    state = kept.read(path)[1]
    assert tracemalloc.get_traced_memory()[1] < 10 * (1 << 21)
    tracemalloc.stop()
    assert len(state["log"].pieces) == 300


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        '{"a": "ü"}'.encode(),
        b"{",
        b"[" + b"1," * 50_001 + b"1]",
        b'"' + b"x" * (4 << 20) + b'"',
        b"9" * 5000,
    ],
    ids=range(8),
)
def test_json_that_surefoot_would_not_write_is_refused(text: bytes) -> None:
    with pytest.raises(CheckpointError, match="it"):
        format.from_json(text, "it")


def test_a_link_is_not_followed(run: Run, tmp_path: Path) -> None:
    path = mutations.copy(run.path, tmp_path / "run") / "checkpoints"
    path = path / run.checkpoint("last").path.name
    (path / "state.json").rename(tmp_path / "elsewhere.json")
    (path / "state.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(CheckpointError, match=r"state.json cannot be opened"):
        Run.open(tmp_path / "run").store.read(path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    text = b'{"a":' * 5000 + b"1" + b"}" * 5000  # torch lets recursion go on to 2000
    with pytest.raises(CheckpointError, match=r"nested too deeply|not JSON"):
        format.decode(format.encode({}, str)[0], text, Piece)  # type: ignore[arg-type]
