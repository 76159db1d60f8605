"""What people see: plain blocks in a pipe, one live panel on a terminal."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from surefoot.sinks import terminal
from surefoot.sinks.jsonl import JsonLines
from surefoot.sinks.terminal import LivePanel, PlainBlocks, duration, sections

METRICS = {
    "rollout/episode_return_mean": 21.5,
    "rollout/steps": 2048.0,
    "recent/return_mean": 20.25,
    "recent/success_rate": 0.5,
    "recent/success_reported": 1.0,
    "ppo/clip_fraction": 0.125,
    "ppo/learning_rate": 3e-4,
    "progress/steps": 50_000.0,
    "progress/total_steps": 100_000.0,
}


def test_plain_blocks_show_three_sections_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = PlainBlocks("title", recent=100)
    sink.write(50_000, METRICS)
    sink.close()
    out = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in out)
    for title in ("rollout", "recent 100 episodes", "trainer"):
        assert f"-- {title} --" in out
    rows = {line[2:24].strip(): line[24:].strip() for line in out.splitlines() if line[:2] == "  "}
    assert rows["mean_clipped_ratio"] == "0.125"
    assert rows["timesteps_count"] == "50,000"
    assert rows["approx_kl"] == "-"


def test_blocks_come_at_a_readable_rate_and_the_last_always(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    sink = PlainBlocks("title", recent=100)
    for step in range(100):
        now[0] = step * 0.1
        sink.write(step, {**METRICS, "progress/steps": float(step)})
    sink.close()
    out = capsys.readouterr().out
    assert out.count("-- trainer --") == 2
    assert out.rindex("99") > out.rindex("-- trainer --")


def test_success_is_labelled_by_what_it_counts() -> None:
    reported = sections(METRICS, 100, 0.0)["recent 100 episodes"]
    assert (reported["success_rate"], reported["  which counts"]) == ("0.500", "is_success")
    inferred = sections({**METRICS, "recent/success_reported": 0.0}, 100, 0.0)
    assert inferred["recent 100 episodes"]["  which counts"] == "terminated"


@pytest.mark.parametrize(("before", "left"), [(0, "1:30"), (40_000, "7:30")])
def test_the_live_panel_shows_progress_and_time_left_by_the_steps_of_this_process(
    before: int, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    panel = LivePanel(console, "surefoot · [x]", recent=100)
    first = before + METRICS["rollout/steps"]
    panel.write(int(first), {**METRICS, "progress/steps": first})
    now[0] = 90.0
    panel.write(50_000, METRICS)
    panel.event({"event": "note", "message": "[bold]as it is"})
    panel.close()
    shown = screen.getvalue()
    assert "surefoot · [x]" in shown
    assert "50%" in shown
    assert f"1:30 gone, {left} left" in shown
    assert "[bold]as it is" in shown


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 140])
def test_no_value_is_cut_at_any_width(width: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    panel = LivePanel(console, "title", recent=100)
    metrics = {**METRICS, "progress/total_steps": 12_345_678.0, "rollout/reward_mean": -123.4}
    panel.write(50_000, metrics)
    panel.close()
    shown = screen.getvalue()
    for value in ("12,345,678", "50,000", "-123.4", "0.0003", "21.50", "20.25", "is_success"):
        assert value in shown.split("collecting")[-1], value


def test_nobody_listening_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    for listener in (open("/dev/full", "w"), None):  # noqa: SIM115
        monkeypatch.setattr("sys.stdout", listener)
        sink = PlainBlocks("title", recent=100)
        sink.write(1, METRICS)
        sink.close()


@pytest.mark.parametrize(("seconds", "text"), [(8.34, "8.3s"), (245, "4:05"), (3723, "1:02:03")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_json_lines_hold_every_iteration_and_timed_events(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path)
    for step in (1, 2):
        sink.write(step, {"a": step / 2})
    sink.event({"event": "start"})
    sink.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"step": 1, "a": 0.5}, {"step": 2, "a": 1.0}]
    (entry,) = map(json.loads, (tmp_path / "journal.jsonl").read_text().splitlines())
    assert entry["event"] == "start"
    assert "time" in entry
