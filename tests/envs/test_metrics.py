"""A function of the user's takes numbers from every step, wherever the environment is stepped."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import surefoot
from surefoot.cli import main
from surefoot.core.errors import ConfigError, EnvError, RunError
from surefoot.core.protocols import Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.envs import make, probe
from surefoot.envs.make import factory, make_vector
from surefoot.evaluate import play
from surefoot.run import Run
from tests.collect.test_restoration import SavedVector
from tests.counter import Counter
from tests.test_train import lines, small
from tests.toys import learner

FILE = """
def own(info, env):
    return {"doubled": 2 * info["metrics"]["steps"], "length": env.unwrapped.length}

def wrong(observation):
    return {}

number = 3
"""


class Moving(Counter):
    """Says in its info how fast it is, but not at a reset; can be put into an earlier state."""

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        return *result, {**info, "speed": 10.0 * self.steps}

    def get_state(self) -> Any:
        return {
            "steps": self.steps,
            "mark": self.mark,
            "random": self.np_random.bit_generator.state,
        }

    def set_state(self, state: Any) -> None:
        self.steps, self.mark = state["steps"], state["mark"]
        self.np_random.bit_generator.state = state["random"]


class MovingVector(SavedVector):
    """Three that move, and offer their state."""

    def __init__(self, mode: AutoresetMode, lengths: tuple[int, ...] = (3, 3, 3)) -> None:
        envs = [lambda length=length: Moving(length) for length in lengths]
        SyncVectorEnv.__init__(self, envs, autoreset_mode=mode)
        self.forgets = False


def speed(info: dict[str, Any]) -> dict[str, Any]:
    return {"speed": info["speed"]}


def played(env: Any, metrics: Any, steps: int = 1, rows: int = 2, **args: Any) -> Step:
    """Take some steps; return the last one."""
    vector = make_vector(factory(env, args, metrics), rows)
    vector.reset(EpisodeSeeds(3), np.zeros(rows, np.int64))
    return [vector.step(np.zeros(rows, np.int64)) for _ in range(steps)][-1]


def reported(step: Step) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in step.info.items()}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (speed, {"speed": [20.0, 20.0]}),
        (lambda env: {"left": env.unwrapped.length - env.unwrapped.steps}, {"left": [3.0, 3.0]}),
        (
            lambda env, info: {"share": info["speed"] / env.unwrapped.length},
            {"share": [4.0, 4.0]},
        ),
        (lambda info, times=3: {"speed": times * info["speed"]}, {"speed": [60.0, 60.0]}),
        (lambda info: {"many": np.array([7])}, {"many": [7.0, 7.0]}),
        (lambda info: {}, {}),
    ],
)
def test_a_function_of_info_env_or_both_reports_beside_the_environment(
    metrics: Any, expected: dict[str, Any]
) -> None:
    assert reported(played(Moving, metrics, 2)) == {"steps": [2.0, 2.0], **expected}


def test_the_functions_names_win_over_those_of_the_environment() -> None:
    assert reported(played(Moving, lambda info: {"steps": -1})) == {"steps": [-1.0, -1.0]}
    vector = lambda: MovingVector(AutoresetMode.NEXT_STEP, (3, 1, 9))  # noqa: E731
    minus = lambda info: {"steps": -np.ones(3)}  # noqa: E731
    step = played(vector, minus, 2, 3)
    np.testing.assert_equal(step.info["steps"], [-1.0, np.nan, -1.0])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_reports_the_last_step_of_an_episode_and_no_reset(mode: AutoresetMode) -> None:
    make_env = lambda: MovingVector(mode, (3, 2, 9))  # noqa: E731
    vector = make_vector(factory(make_env, {}, speed), 3)
    vector.reset(EpisodeSeeds(3), np.zeros(3, np.int64))
    seen = [vector.step(np.zeros(3, np.int64)).info["speed"] for _ in range(3)]
    resets = [30.0, np.nan if mode is AutoresetMode.NEXT_STEP else 10.0, 30.0]
    np.testing.assert_equal(seen, [[10.0] * 3, [20.0] * 3, resets])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_rows_that_are_all_reset_at_once_have_nothing_to_report(mode: AutoresetMode) -> None:
    vector = make_vector(factory(lambda: MovingVector(mode), {}, speed), 3)
    vector.reset(EpisodeSeeds(3), np.zeros(3, np.int64))
    seen = [vector.step(np.zeros(3, np.int64)).info.get("speed") for _ in range(4)]
    after = None if mode is AutoresetMode.NEXT_STEP else [10.0] * 3
    assert [None if s is None else s.tolist() for s in seen[2:]] == [[30.0] * 3, after]


def test_a_function_of_a_vector_that_has_gone_on_leaves_ended_rows_out() -> None:
    make_env = lambda: MovingVector(AutoresetMode.SAME_STEP, (3, 2, 9))  # noqa: E731
    steps = lambda env: {"now": np.array([e.unwrapped.steps for e in env.unwrapped.envs])}  # noqa: E731
    np.testing.assert_equal(played(make_env, steps, 2, 3).info["now"], [2.0, np.nan, 2.0])


def test_an_environment_with_a_metrics_function_still_offers_its_state() -> None:
    assert probe.find(factory(Moving, {}, speed), 1).kind == "snapshot"
    assert probe.find(factory(Counter, {}, lambda info: {"x": 1}), 1).kind == "replay"


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_put_into_an_earlier_state_reports_as_before(
    mode: AutoresetMode, steps: int
) -> None:
    build = factory(lambda: MovingVector(mode), {}, speed)
    old, new = (make_vector(build, 3) for _ in "ab")
    for vector in (old, new):
        vector.reset(EpisodeSeeds(3), np.zeros(3, np.int64))
    for _ in range(steps):
        old.step(np.zeros(3, np.int64))
    new.recall(old.snapshot())  # type: ignore[attr-defined]
    for _ in range(4):
        one, other = (vector.step(np.zeros(3, np.int64)) for vector in (old, new))
        assert reported(one).keys() == reported(other).keys()
        np.testing.assert_equal(one.info.get("speed"), other.info.get("speed"))


def test_a_function_that_raises_is_named_with_row_episode_step_and_its_traceback() -> None:
    def breaks(env: Any) -> dict[str, float]:
        return {"x": 1 / (env.unwrapped.length - env.unwrapped.steps)}

    message = (
        r"Moving, row 0, episode 0, step 4: the metrics function .*breaks> raised ZeroDivision"
    )
    with pytest.raises(EnvError, match=message) as caught:
        played(Moving, breaks, 9)
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert cause.__traceback__ is not None
    vector = lambda: MovingVector(AutoresetMode.NEXT_STEP)  # noqa: E731
    with pytest.raises(
        EnvError, match=r"all 3 rows: the metrics function .* raised KeyError: 'no'"
    ):
        played(vector, lambda info: {"x": info["no"]}, 1, 3)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (3.0, "returned 3.0, not a dict of numbers by name"),
        (None, "returned None, not a dict"),
        ({1: 2.0}, r"returned \{1: 2.0\}, not a dict"),
        ({"x": "fast"}, "returned 'x' = 'fast', not a number"),
        ({"x": [1, 2]}, r"returned 'x' = \[1, 2\], not a number"),
        ({"x": [[1, 2], [3]]}, r"returned 'x' = \[\[1, 2\], \[3\]\], not a number"),
    ],
)
def test_what_is_no_dict_of_numbers_is_refused_with_its_place(returned: Any, message: str) -> None:
    with pytest.raises(
        EnvError, match=f"row 0, episode 0, step 0: the metrics function .*{message}"
    ):
        played(Moving, lambda info: returned)


def test_a_function_of_a_vector_must_return_a_number_for_each_row() -> None:
    vector = lambda: MovingVector(AutoresetMode.NEXT_STEP)  # noqa: E731
    with pytest.raises(EnvError, match=r"'x' = 1.5, not 3 numbers, one for each row"):
        played(vector, lambda info: {"x": 1.5}, 1, 3)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (3, r"metrics=3: pass a function of `info`, `env` or both"),
        (lambda observation: {}, r"metrics=<.*lambda>+ takes \(observation\); pass a function"),
        (lambda info, reward: {}, r"takes \(info, reward\); pass"),
        (lambda: {}, r"takes \(\); pass"),
        (lambda info, /: {}, r"takes \(info\); pass"),
        (lambda **anything: {}, r"takes \(\*\*anything\); pass"),
        (dict, r"metrics=builtins:dict: its parameters are unknown; pass"),
        ("speed", r"metrics='speed': pass .* or name one as module:function"),
        ("nowhere:speed", r"metrics='nowhere:speed': .*No module named 'nowhere'"),
        ("nowhere.py:speed", r"metrics='nowhere.py:speed': the file .*nowhere.py does not exist"),
        ("tests.toys:spede", r"metrics='tests.toys:spede': tests.toys has no 'spede'"),
        ("tests.toys:ENVS", r"metrics='tests.toys:ENVS': .* is a dict, not a function"),
        ("tests.counter:Counter", r"^metrics=tests.counter:Counter takes \(length: .*; pass"),
    ],
)
def test_what_cannot_measure_is_refused_before_training(
    metrics: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        small(Counter, tmp_path / "run", metrics=metrics)
    assert not (tmp_path / "run").exists()


def test_the_function_travels_with_the_factory(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FILE)
    sent = [
        make.ship(factory("CartPole-v1", {}, lambda env: {"x": env.unwrapped.gravity})),
        make.ship(factory("tests.counter:Counter", {}, f"{tmp_path}/own.py:own")),
    ]
    script = (
        "import pickle, sys\nfrom surefoot.envs import make\n"
        "for packed in pickle.load(sys.stdin.buffer):\n"
        "    env = make.unship(packed)()\n"
        "    env.reset(seed=1)\n"
        "    print(env.step(0)[4]['metrics'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(sent),
        check=True,
        stdout=subprocess.PIPE,
    )
    assert done.stdout.decode().splitlines() == [
        "{'x': 9.8}",
        "{'steps': 1, 'doubled': 2, 'length': 5}",
    ]
    with (tmp_path / "log").open("w") as log:
        writes = lambda info: {"x": log.write("x")}  # noqa: E731
        with pytest.raises(ConfigError, match=r"cannot be sent .* its 'log' is a TextIOWrapper"):
            make.ship(factory(Counter, {}, writes))


def test_a_function_in_a_file_named_from_here_is_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    build = factory(Counter, {}, "own.py:own")
    monkeypatch.chdir("/")
    env = build()
    env.reset(seed=1)
    assert env.step(0)[4]["metrics"]["doubled"] == 2


def test_training_and_evaluation_report_the_function_and_the_environment(tmp_path: Path) -> None:
    run = small(Moving, tmp_path / "run", metrics=speed, total_steps=128, evaluate_every="1it")
    row = lines(run, "metrics.jsonl")[-1]
    # Episodes of five steps: the mean of 1 … 5, which 16 is no multiple of, so not exactly 3 here.
    assert row["env/speed"] == pytest.approx(10 * row["env/steps"])
    assert row["eval/env/speed"] == pytest.approx(30.0)
    assert row["eval/env/steps"] == pytest.approx(3.0)
    assert run.config.metrics == "tests.envs.test_metrics:speed"
    result = Run.open(run.path).evaluate(3)
    assert result.env == {"steps": pytest.approx(3.0), "speed": pytest.approx(30.0)}
    assert result.summary()["env/speed"] == pytest.approx(30.0)


def test_evaluation_averages_over_the_steps_of_counted_episodes_alone() -> None:
    lengths = iter([2, 5])
    vector = make_vector(factory(lambda: Moving(next(lengths))), 2)
    actor = learner(vector.spec).actor()
    # Two episodes of row 0 (1, 2, 1, 2), one of row 1 (1, 2, 3, 4, 5): not what row 0 goes on with.
    assert play(actor, vector, 3, seed=1, step=0).env == {"steps": pytest.approx(21 / 9)}


def test_a_run_without_its_function_says_how_to_pass_it_and_resumes_exactly_with_it(
    tmp_path: Path,
) -> None:
    own = lambda info: {"speed": info["speed"]}  # noqa: E731
    whole = small(Moving, tmp_path / "whole", metrics=own, total_steps=256)
    part = small(Moving, tmp_path / "part", metrics=own, total_steps=256, max_hours=1e-9)
    assert part.config.metrics.endswith("<lambda>>")
    message = r"metrics of .*part are the function .*lambda.* cannot be imported; .*--metrics file"
    with pytest.raises(RunError, match=message):
        surefoot.resume(part.path, max_hours=1)
    with pytest.raises(RunError, match=message):
        Run.open(part.path).evaluate(1)
    assert Run.open(part.path, metrics="").evaluate(1).env.keys() == {"steps"}
    run = surefoot.resume(part.path, max_hours=1, metrics=own)
    assert run.evaluate(1).env.keys() == {"steps", "speed"}
    values = [[row["env/speed"] for row in lines(r, "metrics.jsonl")] for r in (whole, run)]
    assert values[0] == values[1]


def test_a_fork_keeps_its_parents_function_or_takes_another(tmp_path: Path) -> None:
    parent = small(Moving, tmp_path / "run", metrics=speed, total_steps=64)
    kept = surefoot.fork(parent.path, tmp_path / "kept", total_steps=128)
    assert "env/speed" in lines(kept, "metrics.jsonl")[-1]
    other = lambda info: {"other": 1.0}  # noqa: E731
    changed = surefoot.fork(parent.path, tmp_path / "changed", metrics=other, total_steps=128)
    row = lines(changed, "metrics.jsonl")[-1]
    assert row["env/other"] == 1.0
    assert "env/speed" not in row
    assert changed.config.metrics.startswith("<")
    assert changed.evaluate(1).env["other"] == 1.0


def test_the_command_line_names_the_function_by_file_or_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(list(words))
        return (stopped.value.code or 0, *capsys.readouterr())  # type: ignore[return-value]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(FILE)
    few = ["--total-steps", "512", "--envs", "2", "--ppo.horizon", "128", "--hall-of-fame", "0"]
    short = ["--max-hours", "1e-9", "--metrics", "own.py:own"]
    assert command("train", "tests.counter:Counter", *few, *short, "--out", "run")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert command("resume", "../run", "--max-hours", "1")[0] == 0
    assert lines(Run.open("../run"), "metrics.jsonl")[-1]["env/length"] == 5
    shown = json.loads(command("eval", "../run", "--json", "--episodes", "2")[1])
    assert (shown["env/doubled"], shown["env/length"]) == (6.0, 5.0)
    assert "env/length" in command("eval", "../run", "--episodes", "2")[1]
    (tmp_path / "own.py").rename(tmp_path / "moved.py")
    code, _, said = command("eval", "../run")
    assert (code, "elsewhere now, say so with --metrics" in said) == (1, True)
    assert command("eval", "../run", "--metrics", "../moved.py:own")[0] == 0
    longer = ["--total-steps", "1024", "--out", "fork", "--metrics", "../moved.py:own"]
    assert command("fork", "../run", *longer)[0] == 0
    assert Run.open("fork").config.metrics == f"{tmp_path}/moved.py:own"
    code, _, said = command("train", "CartPole-v1", "--metrics", "../moved.py:wrong")
    assert (code, "takes (observation); pass a function of" in said) == (2, True)
