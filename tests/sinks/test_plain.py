"""What standard output gets where no terminal shows it live: blocks, JSON lines, or nothing."""

import json

import pytest

from surefoot.core.wishes import Wishes
from surefoot.sinks import plain
from surefoot.sinks.plain import JsonLogs, PlainBlocks
from surefoot.sinks.statistics import duration, sections
from surefoot.sinks.terminal import terminal

METRICS = {
    "rollout/episode_length_mean": 87.25,
    "rollout/episode_return_mean": 21.5,
    "rollout/reward_mean": 0.25,
    "rollout/steps": 2048.0,
    "recent/length_mean": 80.0,
    "recent/return_mean": 20.25,
    "recent/success_rate": 0.5,
    "recent/success_reported": 1.0,
    "ppo/clip_fraction": 0.125,
    "ppo/approx_kl": 0.0123456,
    "ppo/clip_range": 0.2,
    "ppo/learning_rate": 3e-4,
    "progress/steps": 50_000.0,
    "progress/total_steps": 100_000.0,
    "progress/episodes": 1_234.0,
    "progress/iterations": 25.0,
    "time/steps_per_second": 1_000.0,
}
FIELDS = {
    "rollout": {
        "mean_ep_len": "87.2",
        "mean_ep_return": "21.50",
        "mean_reward": "0.25",
        "mean_clipped_ratio": "0.125",
        "approx_kl": "0.01235",
        "rollout_len": "2,048",
        "time_elapsed": "0.0s",
    },
    "recent 100 episodes": {
        "mean_ep_len": "80.0",
        "mean_ep_return": "20.25",
        "success_rate (is_success)": "0.500",
    },
    "trainer": {
        "episodes_count": "1,234",
        "timesteps_count": "50,000",
        "rollouts_count": "25",
        "total_timesteps": "100,000",
        "clip_range": "0.2",
        "learning_rate": "0.0003",
    },
}


def blocks(text: str) -> dict[str, dict[str, str]]:
    """Read plain blocks back."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("-- "):
            fields = found.setdefault(line.strip("- "), {})
        elif line.startswith("  "):
            name, value = line.rsplit(maxsplit=1)
            fields[name.strip()] = value
    return found


def test_plain_blocks_have_exactly_these_fields(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PlainBlocks("title", recent=100)
    sink.write(50_000, METRICS)
    sink.close()
    out = capsys.readouterr().out
    assert blocks(out) == FIELDS
    assert all(character.isprintable() or character == "\n" for character in out)
    lines = [line for line in out.splitlines() if line[:2] in ("--", "  ")]
    assert len({len(line) for line in lines}) == 1  # aligned


def test_a_metric_that_is_absent_is_a_dash() -> None:
    shown = sections({}, 100, 0.0)
    absent = {name: value for part in shown.values() for name, value in part.items()}
    assert absent.pop("time_elapsed") == "0.0s"
    assert set(absent.values()) == {"-"}


def test_what_the_environment_reports_and_evaluations_have_sections_of_their_own() -> None:
    more = {"env/speed": 1.25, "eval/return_mean": 300.0}
    shown = sections({**METRICS, **more}, 100, 0.0)
    assert shown["environment"] == {"speed": "1.25"}
    assert shown["evaluation"] == {"return_mean": "300"}


def test_sac_has_fields_of_its_own_which_stay_until_there_are_new_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = PlainBlocks("title", 100, "sac")
    told = {"sac/alpha": 0.25, "sac/entropy": -1.5, "sac/td_error_abs": 0.125}
    sink.write(1000, {**METRICS, **told, "progress/optimizer_steps": 900.0})
    sink.write(1008, {**METRICS, "progress/optimizer_steps": 908.0})
    sink.close()
    found = blocks(capsys.readouterr().out)
    assert (found["rollout"]["entropy"], found["rollout"]["td_error"]) == ("-1.500", "0.125")
    assert (found["trainer"]["alpha"], found["trainer"]["updates_count"]) == ("0.25", "908")
    assert not {"approx_kl", "clip_range"} & {name for part in found.values() for name in part}


def test_success_is_labelled_by_what_it_counts() -> None:
    inferred = sections({**METRICS, "recent/success_reported": 0.0}, 100, 0.0)
    assert inferred["recent 100 episodes"]["success_rate (terminated)"] == "0.500"


def test_blocks_come_at_a_readable_rate_and_the_last_always(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(plain.time, "monotonic", lambda: now[0])
    sink = PlainBlocks("title", recent=100)
    for step in range(100):
        now[0] = step * 0.1
        sink.write(step, {**METRICS, "progress/steps": float(step)})
    sink.close()
    out = capsys.readouterr().out
    assert out.count("-- trainer --") == 2
    assert out.rindex("99") > out.rindex("-- trainer --")


def test_the_last_evaluation_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = PlainBlocks("title", recent=100)
    sink.write(1, {**METRICS, "eval/return_mean": 300.0})
    sink.write(2, METRICS)
    sink.close()
    assert blocks(capsys.readouterr().out)["evaluation"] == {"return_mean": "300"}


def test_names_and_messages_of_others_do_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PlainBlocks("title", recent=100)
    sink.event({"event": "note", "message": "one\x1b[2J\ntwo"})
    sink.write(1, {**METRICS, f"env/{'long ' * 20}": 1.0})
    sink.close()
    out = capsys.readouterr().out
    assert "one?[2J\ntwo\n" in out
    lines = [line for line in out.splitlines() if line[:2] in ("--", "  ")]
    assert len({len(line) for line in lines}) == 1


def test_a_pipe_is_no_terminal_whatever_is_said_about_colors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(terminal("auto", "title", 100, "", Wishes()), PlainBlocks)


def test_json_logs_are_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    sink = JsonLogs()
    sink.event({"event": "start", "message": "two\nlines"})
    sink.write(50_000, METRICS)
    sink.close()
    start, metrics = map(json.loads, capsys.readouterr().out.splitlines())
    assert (start["event"], start["message"]) == ("start", "two\nlines")
    assert metrics.pop("time")
    assert metrics == {"step": 50_000, **METRICS}


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    sink = terminal("quiet", "title", 100, "", Wishes())
    sink.event({"event": "note", "message": "something"})
    sink.write(50_000, METRICS)
    sink.close()
    assert capsys.readouterr() == ("", "")


def test_nobody_listening_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    for listener in (open("/dev/full", "w"), None):  # noqa: SIM115
        monkeypatch.setattr("sys.stdout", listener)
        for sink in (PlainBlocks("title", recent=100), JsonLogs()):
            sink.write(1, METRICS)
            sink.close()


def test_where_there_is_no_standard_output_nobody_stumbles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert isinstance(terminal("auto", "title", 100, "", Wishes()), PlainBlocks)


@pytest.mark.parametrize(("seconds", "text"), [(8.34, "8.3s"), (245, "4:05"), (3723, "1:02:03")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text
