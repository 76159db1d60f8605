"""What a run does because somebody asked for it."""

import sys
from pathlib import Path
from typing import Any

import pytest

import surefoot
import surefoot.resume
from surefoot.core.wishes import Wishes
from surefoot.run import Run

SETTINGS: Any = {"total_steps": 3_000, "output": "quiet", "tensorboard": False}


def train(out: Path, monkeypatch: pytest.MonkeyPatch, *wishes: str, score: str = "return") -> Run:
    class Asked(Wishes):
        def __init__(self) -> None:
            super().__init__()
            for wish in wishes:
                self.ask(wish)

    monkeypatch.setattr(sys.modules["surefoot.train"], "Wishes", Asked)
    return surefoot.train("CartPole-v1", out=out, score=score, **SETTINGS)


def weights(run: Run) -> bytes:
    return (run.path / "models" / "final_actor.pth").read_bytes()


def events(run: Run) -> list[str]:
    return [entry["event"] for entry in run.journal()]


def test_what_is_asked_for_changes_no_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(tmp_path / "plain", monkeypatch)
    asked = train(
        tmp_path / "asked", monkeypatch, "checkpoint", "evaluate", "pause", "pause", "video"
    )
    assert {"saved-on-demand", "evaluation", "pause", "continue", "video"} <= set(events(asked))
    assert weights(asked) == weights(plain)
    # An evaluation that somebody asked for decides nothing.
    assert asked.checkpoint("best").step == plain.checkpoint("best").step


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(tmp_path / "plain", monkeypatch)
    stopped = train(tmp_path / "stopped", monkeypatch, "stop")
    assert (stopped.condition, stopped.ending) == ("interrupted", "stopped at the keyboard")
    assert stopped.checkpoints[-1].step < 3_000
    monkeypatch.undo()
    assert weights(surefoot.resume(stopped.path, output="quiet")) == weights(plain)


@pytest.mark.parametrize(
    ("score", "words"), [("return", "return "), ("lta", "average 1.00 ± 0.00")]
)
def test_an_evaluation_speaks_of_what_counts(
    score: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tmp_path / "run", monkeypatch, "evaluate", score=score)
    (told,) = (entry for entry in run.journal() if entry["event"] == "evaluation")
    assert words in told["message"]
