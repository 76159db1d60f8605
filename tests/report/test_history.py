"""Metrics of a run as arrays, and curves of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from surefoot.core.errors import ConfigError
from surefoot.report.history import History, read
from surefoot.report.plot import Curve, curves, draw, to_file
from tests.trained import copy, trained


def test_a_history_has_every_row_and_says_what_is_absent() -> None:
    run = trained()
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    history = read(run)
    assert history.step.tolist() == [row["step"] for row in rows]
    for name, values in history.metrics.items():
        expected = [row.get(name, np.nan) for row in rows]
        np.testing.assert_array_equal(values, expected, name)
    spent = [v for row in rows for k, v in row.items() if k.startswith("time/") and "per" not in k]
    assert history.seconds[-1] == pytest.approx(sum(spent))


def test_thinning_takes_means_of_neighbours_and_keeps_the_end() -> None:
    values = np.arange(10.0)
    values[4:6] = np.nan
    history = History(np.arange(10) * 100, {"a": values})
    axes, metrics = history.thinned(5)
    assert axes["step"].tolist() == [100, 300, 500, 700, 900]
    np.testing.assert_array_equal(metrics["a"], [0.5, 2.5, np.nan, 6.5, 8.5])


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    rows = len(read(run).step)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99')
    assert len(read(run).step) == rows


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_curve_is_drawn_into_a_file(tmp_path: Path, suffix: str) -> None:
    found = curves([trained()], "recent/return_mean", "step")
    path = to_file(found, "recent/return_mean", "step", tmp_path / f"curve{suffix}")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") or b"<svg" in content
    assert len(content) > 5_000


def test_a_curve_is_drawn_in_the_terminal() -> None:
    curve = Curve("name", np.array([0.0, 50.0, 100.0]), np.array([0.0, 10.0, 10.0]))
    lines = draw([curve], "metric", "step", width=60).splitlines()
    assert lines[0] == "metric, name"
    body = [line.split("│")[1] for line in lines if "│" in line]
    assert body[0][-1] != "\u2800"  # high on the right
    assert body[-1][0] != "\u2800"  # low on the left
    assert set(body[-1][30:]) == {"\u2800"}
    assert "100 step" in lines[-1]


def test_names_of_any_kind_leave_room_for_the_curves(tmp_path: Path) -> None:
    names = ("_hidden", "costs $5 or $6", "x" * 200)
    some = [Curve(name, np.array([0.0, 1.0]), np.array([0.0, 1.0])) for name in names]
    path = to_file(some, "env/$\\wrong$", "step", tmp_path / "curves.svg")
    drawn = path.read_text()
    assert all(f"<!--  {name} -->" in drawn for name in names[:2])
    assert "x" * 40 not in drawn
    lines = draw(some, "metric", "step", width=60).splitlines()
    assert max(map(len, lines)) <= 60


def test_a_metric_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recent/return_mean"):
        curves([trained()], "recent/return_men", "step")
    with pytest.raises(ConfigError, match=r"ends in \.png"):
        to_file([], "a", "step", tmp_path / "curve.doc")
