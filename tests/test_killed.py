"""Kill -9 at any moment, resume: the same bits as the run that nobody killed."""

import random
from pathlib import Path

import pytest

from surefoot.run import Run
from tests import killing


@pytest.fixture(scope="module", params=list(killing.CASES))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody kills; its directory is named after the case."""
    out = tmp_path_factory.mktemp("whole") / request.param
    killing.finish(killing.train, request.param, out)
    return out


KILLS = {
    "cartpole": 12,
    "walker": 4,
    "fresh": 4,
    "workers": 4,
    "workers-fresh": 2,
    "workers-snapshot": 2,
    "envpool": 2,
    "overlap": 3,
    "envpool-overlap": 3,
    "compiled": 2,
    "sac": 6,
    "sac-choices": 3,
    "sac-fresh": 3,
    "sac-overlap": 3,
    "endless": 3,
    "average-replay": 2,
    "average-fresh": 2,
    "popart-replay": 2,
    "endless-popart": 3,
    "transformed": 4,
    "transformed-fresh": 4,
    "sac-transformed": 2,
}
WAYS = {
    "cartpole": "replay",
    "walker": "rebuild",
    "fresh": "fresh",
    "workers": "replay",
    "workers-fresh": "fresh",
    "workers-snapshot": "snapshot",
    "envpool": "fresh",
    "overlap": "replay",
    "envpool-overlap": "fresh",
    "compiled": "replay",
    "sac": "replay",
    "sac-choices": "replay",
    "sac-fresh": "fresh",
    "sac-overlap": "replay",
    "endless": "snapshot",
    "average-replay": "replay",
    "average-fresh": "fresh",
    "popart-replay": "replay",
    "endless-popart": "snapshot",
    "transformed": "replay",
    "transformed-fresh": "fresh",
    "sac-transformed": "replay",
}


def test_a_killed_run_ends_bit_for_bit_as_the_run_nobody_killed(
    whole: Path, tmp_path: Path
) -> None:
    case, chance = whole.name, random.Random(whole.name)
    again = tmp_path / "again"
    seconds = killing.finish(killing.train, case, again)
    assert killing.run_differences(Run.open(whole), Run.open(again)) == []
    kills, resumed = [0, 0], []
    while sum(kills) < KILLS[case]:
        out = tmp_path / f"killed-{sum(kills)}-{chance.random()}"
        aimed = kills[0] <= kills[1]
        killed = (
            killing.kill_inside_a_save(case, out, chance)
            if aimed
            else killing.kill_anywhere(case, out, chance, seconds)
        )
        if killed and (out / "run.json").exists():
            kills[not aimed] += 1
            assert killing.difference_after_resuming(out, whole) == []
            entries = Run.open(out).journal()
            resumed += [entry["step"] for entry in entries if entry["event"] == "resume"]
    assert max(resumed) > 0  # not all of them began again
    state = Run.open(whole).store.read(Run.open(whole).checkpoint("last").path)[1]
    assert state["restore"] == WAYS[case]
