"""The panel on a terminal, drawn to a file here; with tmux in test_keys."""

import io
from typing import Any

import pytest
from rich.console import Console

from surefoot.core.wishes import Wishes
from surefoot.sinks import dashboard
from surefoot.sinks.dashboard import Dashboard, History
from surefoot.sinks.drawing import sparkline, split_bar
from tests.sinks.test_plain import METRICS

CREW = "16 stepped by 2 worker processes"
TIMES = {"time/environment": 6.0, "time/update": 3.0, "time/saving": 0.001}


def shown(width: int = 100, height: int = 50, events: int = 0, **metrics: float) -> str:
    """Draw a dashboard; return its last picture."""
    screen = io.StringIO()
    console = Console(
        file=screen, force_terminal=True, width=width, height=height, color_system=None
    )
    panel = Dashboard(console, "surefoot · [x]", 100, CREW, Wishes())
    for number in range(events):
        panel.event({"event": "note", "message": f"[bold]event {number}"})
    panel.write(50_000, {**METRICS, **TIMES, **metrics})
    panel.close()
    return screen.getvalue().split("╭")[-1]


def test_it_shows_statistics_the_curve_the_time_the_crew_events_and_keys() -> None:
    picture = shown(events=7, **{"collect/workers_replaced": 3.0})
    for part in (
        "surefoot · [x]",
        "50%",
        "1,000 steps/s",
        "mean_ep_return",
        "20.25",
        "return  ▁  20.25 to 20.25",
        "environment 67%",
        "update 33%",
        f"{CREW}, 3 lost and replaced",
        "[bold]event 6",
        "p pause",
        "q stop",
    ):
        assert part in picture, part
    assert "event 1" not in picture  # the last ones alone
    assert "saving" not in picture  # too little to be seen


@pytest.mark.parametrize(("before", "left"), [(0, "1:30"), (40_000, "7:30")])
def test_time_left_goes_by_the_steps_of_this_process(
    before: int, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(dashboard.time, "monotonic", lambda: now[0])
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=50, color_system=None)
    panel = Dashboard(console, "title", 100, CREW, Wishes())
    first = before + METRICS["rollout/steps"]
    panel.write(int(first), {**METRICS, "progress/steps": first})
    now[0] = 90.0
    panel.write(50_000, METRICS)
    panel.close()
    assert f"1:30 gone, {left} left" in screen.getvalue()


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 140])
def test_no_value_is_cut_at_any_width(width: int) -> None:
    more: Any = {"progress/total_steps": 12_345_678.0, "rollout/reward_mean": -123.4}
    picture = shown(width, **more)
    for value in ("12,345,678", "50,000", "-123.4", "0.0003", "21.50", "20.25", "0.500"):
        assert value in picture, value
    assert max(map(len, picture.splitlines())) <= width


@pytest.mark.parametrize("height", [8, 10, 16, 20, 24])
def test_it_fits_into_a_terminal_that_is_not_high(height: int) -> None:
    picture = shown(80, height, events=5)
    assert picture.count("│\n") + 2 < height
    assert "q stop" in picture
    assert ("mean_ep_return" in picture) == (height >= 20)


def test_many_metrics_of_an_environment_leave_room_for_what_everybody_needs() -> None:
    many = {f"env/part {number}": 1.0 for number in range(20)}
    picture = shown(80, 24, **many, **{"eval/return_mean": 5.0})
    for field in ("mean_ep_return", "success_rate", "learning_rate", "q stop"):
        assert field in picture, field
    assert picture.count("│\n") + 2 < 24


def test_the_last_evaluation_stays() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=50, color_system=None)
    panel = Dashboard(console, "title", 100, CREW, Wishes())
    panel.write(1, {**METRICS, "eval/return_mean": 123.0})
    panel.write(2, METRICS)
    panel.close()
    assert "123" in screen.getvalue().split("╭")[-1]


def test_a_terminal_that_goes_away_is_no_fault() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("Input/output error")

    console = Console(file=Gone(), force_terminal=True, width=80, height=24)
    panel = Dashboard(console, "title", 100, CREW, Wishes())
    with pytest.raises(OSError, match="Input/output"):
        console.file.write("")
    panel.write(1, METRICS)
    panel.close()


def test_it_says_what_is_going_to_happen() -> None:
    screen, wishes = io.StringIO(), Wishes()
    console = Console(file=screen, force_terminal=True, width=100, height=40, color_system=None)
    panel = Dashboard(console, "title", 100, CREW, wishes)
    wishes.ask("pause")
    panel.event({"event": "note", "message": "something"})
    panel.close()
    assert "after this iteration: pause" in screen.getvalue()


def test_a_pause_does_not_count_when_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(dashboard.time, "monotonic", lambda: now[0])
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=50, color_system=None)
    panel = Dashboard(console, "title", 100, CREW, Wishes())
    panel.write(2048, {**METRICS, "progress/steps": 2048.0})
    now[0] = 90.0
    panel.write(50_000, METRICS)
    panel.event({"event": "pause"})
    now[0] = 190.0
    panel.event({"event": "continue"})
    panel.close()
    assert "3:10 gone, 1:30 left" in screen.getvalue()


def test_a_tiny_terminal_shows_what_matters_most() -> None:
    picture = shown(50, 15)
    assert "step 50,000   return 20.2   length 80.0" in picture
    assert "keys  p c e v q" in picture
    smaller = shown(30, 6)
    assert "step 50,000  " in smaller
    assert "left" in smaller


def test_a_usual_terminal_has_room_for_every_part() -> None:
    evaluation = {"eval/return_mean": 440.0, "eval/return_std": 3.0}
    picture = shown(80, 24, events=5, **evaluation)
    for part in ("440", "return  ▁", "environment 67%", CREW, "event 3", "event 4", "q stop"):
        assert part in picture, part


def test_scheduled_saves_do_not_hide_what_else_happened() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=50, color_system=None)
    panel = Dashboard(console, "title", 100, CREW, Wishes())
    panel.event({"event": "note", "message": "a worker was replaced"})
    for step in range(10):
        panel.event({"event": "save", "step": step, "seconds": 0.1})
    panel.write(1, METRICS)
    panel.close()
    picture = screen.getvalue().split("╭")[-1]
    assert "a worker was replaced" in picture
    assert picture.count("saved step") == 1
    assert "saved step 9" in picture


def test_a_curve_is_as_wide_as_there_is_room() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, 1, 5, 5], 2) == "▁█"
    assert sparkline([3.0], 10) == "▁"
    assert len(sparkline(list(range(1000)), 33)) == 33


def test_a_long_history_keeps_its_shape_in_few_numbers() -> None:
    history = History(most=8)
    for value in range(1000):
        history.add(value)
    assert len(history.values) < 8
    assert history.values == sorted(history.values)
    assert history.values[0] < 200
    assert history.values[-1] > 700


def test_names_below_the_bar_of_time_are_whole_and_those_of_the_largest_parts() -> None:
    spent = {"environment": 5.0, "acting": 1.0, "update": 9.0, "evaluation": 2.0, "on_demand": 2.0}
    _, names = split_bar(spent, 60).plain.splitlines()
    assert names.strip() == "■ environment 26%  ■ update 47%  ■ on demand 11%"
    assert len(names) <= 60


def test_the_bar_of_time_is_full() -> None:
    bar = split_bar({"environment": 1.0, "acting": 1.0, "update": 1.0}, 48).plain
    line, names = bar.splitlines()
    assert line.count("█") == 40
    assert "acting 33%" in names
