"""The command line as a user meets it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import join

import pytest
import yaml

from surefoot.cli import main
from surefoot.run import Run

QUICK = ["--total-steps", "512", "--ppo.horizon", "32", "--ppo.minibatch-size", "64"]

OWN = """
import gymnasium

def make(limit=50):
    return gymnasium.make("CartPole-v1", max_episode_steps=limit)
"""
BREAKS = """
from tests.counter import Counter

class Breaks(Counter):
    def step(self, action):
        return 1 / 0
"""

ODD = """
import time
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Odd(CartPoleEnv):
    def step(self, action):
        obs, *rest = super().step(action)
        return obs + type(obs[0])(time.time() % 1), *rest
"""


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def surefoot(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run a command in an empty directory; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*words: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        return Result(stopped.value.code or 0, captured.out, captured.err)  # type: ignore[arg-type]

    return run


def test_train_then_eval_then_runs(surefoot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    trained = surefoot("train", "CartPole-v1", *QUICK, "--seed", 4, "--out", "here")
    assert trained.code == 0
    assert "surefoot eval here" in trained.out
    played = surefoot("eval", "here", "--episodes", 3, "--json")
    figures = json.loads(played.out)
    assert figures["episodes"] == 3
    assert {"return_mean", "return_std", "return_min", "return_max", "length_mean"} <= set(figures)
    text = surefoot(
        "eval", "here", "--episodes", 3, "--checkpoint", "last", "--stochastic", "--seed", 9
    )
    assert "3 episodes with the policy of step 512" in text.out
    table = surefoot("runs", ".").out.splitlines()
    assert table[0].split() == ["run", "environment", "steps", "best", "score", "state"]
    assert table[1].split() == ["here", "CartPole-v1", "512", table[1].split()[3], "finished"]
    again = surefoot("train", "CartPole-v1", "--out", "here")
    assert again.code == 1
    assert "never overwritten; extend it by `surefoot resume here --total-steps N`" in again.err


def test_a_run_gets_a_directory_of_its_own_by_default(surefoot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for _ in range(2):
        assert surefoot("train", "CartPole-v1", *QUICK).code == 0
    assert len(list((tmp_path / "runs").glob("CartPole-v1-seed0-*"))) == 2
    assert len(surefoot("runs").out.splitlines()) == 3


def test_options_reach_the_run(surefoot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.yaml").write_text("ppo: {epochs: 3}\nenvs: 2\n")
    options = ["--ppo.learning-rate", "linear:1e-3:0", "--policy.hidden", 8, 9, "--env-args"]
    options += ["max_episode_steps=20", "--config", "mine.yaml", "--ppo.normalize-returns"]
    assert surefoot("train", "CartPole-v1", *QUICK, *options, "--out", "run").code == 0
    config = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert config["ppo"]["learning_rate"] == "linear:0.001:0.0"
    assert config["policy"]["hidden"] == [8, 9]
    assert config["env_args"] == {"max_episode_steps": 20}
    assert (config["ppo"]["epochs"], config["envs"]) == (3, 2)
    assert config["ppo"]["normalize_returns"] is True
    assert json.loads(surefoot("eval", "run", "--json").out)["length_max"] <= 20


def test_numbers_none_and_the_files_environment_are_read_as_people_write_them(
    surefoot, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    printed = surefoot("config", "CartPole-v1", "--total-steps", "2e5", "--stop-at", "none").out
    assert "total_steps: 200000  # from flag" in printed
    assert "stop_at: null" in printed
    (tmp_path / "mine.yaml").write_text("env: Pendulum-v1\nseed: 9\n")
    assert "env: Pendulum-v1" in surefoot("config", "--config", "mine.yaml").out
    other = surefoot("train", "CartPole-v1", "--config", "mine.yaml")
    assert (other.code, "has the settings of Pendulum-v1" in other.err) == (2, True)


def test_config_prints_yaml_that_config_reads(surefoot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    printed = surefoot("config", "CartPole-v1", "--ppo.gamma", 0.5).out
    assert "gamma: 0.5  # from flag" in printed
    assert "horizon: 32  # from preset" in printed
    (tmp_path / "all.yaml").write_text(printed)
    again = surefoot("config", "CartPole-v1", "--config", "all.yaml").out
    assert "gamma: 0.5  # from all.yaml" in again
    assert yaml.safe_load(again) == yaml.safe_load(printed)


def test_a_users_own_factory_in_a_file_and_in_a_module(
    surefoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "my_envs.py").write_text(OWN)
    checked = surefoot("check-env", "my_envs.py:make", "--env-args", "limit=7")
    assert checked.code == 0
    assert "resumes exactly: seed and actions repeat" in checked.out
    for name in ("my_envs.py:make", "my_envs:make"):
        out = name.replace(":", "-")
        assert surefoot("train", name, *QUICK, "--env-args", "limit=7", "--out", out).code == 0
        assert json.loads(surefoot("eval", out, "--json").out)["length_mean"] <= 7
    monkeypatch.chdir("/")
    assert surefoot("eval", tmp_path / "my_envs.py-make", "--episodes", 1).code == 0
    monkeypatch.chdir(tmp_path)
    wrong = surefoot("train", "my_envs.py:mak", *QUICK)
    assert (wrong.code, "did you mean 'make'" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("trian CartPole-v1", 2, "no command 'trian'; did you mean 'train'"),
        ("train", 2, "name an environment"),
        ("train CartPole-v9", 2, "no environment 'CartPole-v9'; did you mean 'CartPole-v1'"),
        ("train CartPole-v1 --ppo.gama 1", 2, "--ppo.gamma"),
        ("train CartPole-v1 --ppo.gamma 2", 2, "ppo.gamma=2.0"),
        ("train CartPole-v1 --ppo.gamma x", 2, "--ppo.gamma"),
        ("train CartPole-v1 --threads two", 2, "two is not a whole number"),
        ("train CartPole-v1 --envs inf", 2, "inf is not a whole number"),
        ("train CartPole-v1 --envs 1.5", 2, "1.5 is not a whole number"),
        ("train CartPole-v1 --ppo.learning-rate lin:1:0", 2, "did you mean"),
        ("train CartPole-v1 --rewards normalised", 2, "unknown transform 'normalised'"),
        ("train CartPole-v1 --algo sacc", 2, "--algo"),
        ("train CartPole-v1 --env-args x", 2, "KEY=VALUE"),
        ("train CartPole-v1 --env-args x=1", 2, "does not take these arguments"),
        ("train CartPole-v1 --config no.yaml", 2, "cannot read the config file"),
        ("train CartPole-v1 --device cuda", 2, "--device cpu"),
        ("train no_such_module:make", 2, "No module named 'no_such_module'"),
        ("eval nowhere", 1, "nowhere does not exist"),
        ("eval nowhere --episodes 0", 2, "episodes=0"),
        ("report", 2, "name a run"),
        ("plot", 2, "name a run"),
        ("eval nowhere --record --render", 2, "choose one of them"),
        ("runs nowhere", 2, "no directory nowhere"),
        ("check-env CartPole-v9", 2, "did you mean 'CartPole-v1'"),
    ],
)
def test_a_mistake_gets_one_message_and_no_traceback(
    surefoot, words: str, code: int, message: str
) -> None:  # type: ignore[no-untyped-def]
    result = surefoot(*words.split())
    assert result.code == code
    assert message in result.err.replace("│ ", "").replace("\n", "")
    assert "Traceback" not in result.err
    assert result.out == ""


def test_an_environments_own_exception_keeps_its_traceback(surefoot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "breaks.py").write_text(BREAKS)
    result = surefoot("train", "breaks.py:Breaks", *QUICK, "--out", "run")
    assert result.code == 1
    assert "return 1 / 0" in result.err
    assert "row 0, episode 0, step 0" in result.err.splitlines()[-1]
    assert surefoot("check-env", "breaks.py:Breaks").code == 1


def test_rendering_shows_one_environment(surefoot, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    short = ["--env-args", "max_episode_steps=5", "--out", "run"]
    assert surefoot("train", "CartPole-v1", *QUICK, *short).code == 0
    shown = surefoot("eval", "run", "--render", "--episodes", 2)
    assert (shown.code, "2 episodes" in shown.out) == (0, True)


def test_help_names_every_option_with_its_docstring(surefoot) -> None:  # type: ignore[no-untyped-def]
    overview = surefoot("--help").out
    for command in ("train", "eval", "config", "runs", "check-env"):
        assert command in overview
    shown = " ".join(surefoot("train", "--help").out.replace("│", " ").split())
    assert "--ppo.gae-lambda FLOAT Bias against variance of the advantage" in shown
    assert "--out" in shown
    assert surefoot().code == 2


def test_help_is_wrapped_once(surefoot, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("COLUMNS", "80")
    shown = surefoot("train", "--help").out
    assert "Gymnasium's, or EnvPool's in C++; prefer-envpool" in shown  # its docstring breaks there


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["config", "CartPole-v1"]])
def test_help_loads_neither_torch_nor_gymnasium(words: list[str]) -> None:
    script = (
        f"import sys; sys.argv = ['surefoot', *{words!r}]\n"
        "from surefoot.cli import main\n"
        "try: main()\n"
        "except SystemExit: print('loaded', *({'torch', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded"


def test_ctrl_c_saves_the_run_and_exits_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "surefoot", "train", "CartPole-v1", "--out", "run"]
    process = subprocess.Popen(
        [*command, "--total-steps", "100000000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopped by SIGINT" in out
    assert "Traceback" not in err
    assert list((tmp_path / "run" / "checkpoints").glob("step_*"))


def test_resume_fork_pin_best_and_export_from_the_command_line(surefoot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    every = ("--checkpoint-every", "1it", "--recent-episodes", 3)
    stopped = surefoot(
        "train", "CartPole-v1", *QUICK, *every, "--max-hours", "1e-9", "--out", "runs/a"
    )
    assert stopped.code == 0
    assert "surefoot resume runs/a" in stopped.out
    again = surefoot("train", "CartPole-v1", "--out", "runs/a")
    assert (again.code, again.out) == (1, "")
    assert "interrupted at step 256" in again.err
    assert "go on with it by `surefoot resume runs/a`" in again.err
    resumed = surefoot("resume", "runs/a", "--max-hours", 1)
    assert resumed.code == 0
    assert "resumed at step 256 from runs/a/checkpoints/step_000000000256" in resumed.out
    assert "It was finished before" in surefoot("resume", "runs/a").out
    pinned = surefoot("pin", "runs/a", 256)
    assert (pinned.code, "stays" in pinned.out) == (0, True)
    assert surefoot("pin", "runs/a", 255).code == 1
    forked = surefoot(
        "fork", "runs/a", "--out", "runs/b", "--checkpoint", 256, "--ppo.learning-rate", "1e-5"
    )
    assert forked.code == 0
    assert "forked from runs/a/checkpoints/step_000000000256" in forked.out
    assert yaml.safe_load(Path("runs/b/config.yaml").read_text())["ppo"]["learning_rate"] == 1e-5
    listed = surefoot("best", "CartPole-v1")
    assert listed.code == 0
    assert len(listed.out.splitlines()) == 3
    assert surefoot("best", "Nothing-v0").code == 1
    assert surefoot("eval", "--best", "CartPole-v1", "--episodes", 2).code == 0
    assert surefoot("eval", "--episodes", 2).code == 2
    exported = surefoot("export", "runs/a", "--format", "pth", "--out", "policy.pth")
    assert exported.out == "policy.pth\n"
    assert Path("policy.pth").is_file()


@pytest.mark.slow
@pytest.mark.slow
def test_a_training_whose_output_is_closed_goes_through(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "surefoot", "train", "CartPole-v1", "--total-steps", "1024"]
    closed = f"{join([*words, '--out', str(tmp_path / 'run')])} >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", closed], check=False).returncode == 0
    assert Run.open(tmp_path / "run").condition == "finished"


def test_record_report_plot_and_video_from_the_command_line(surefoot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    surefoot("train", "CartPole-v1", *QUICK, "--out", "run", "--quiet")
    recorded = surefoot("eval", "run", "--record", "--episodes", 2, "--json")
    assert json.loads(recorded.out)["episodes"] == 2
    assert len(list((tmp_path / "run/trajectories").iterdir())) == 2
    assert surefoot("video", "run", "--fps", 10, "--out", "film.mp4").out.strip() == "film.mp4"
    assert surefoot("report", "run", "--out", "page.html").code == 0
    assert "<title>run · surefoot</title>" in (tmp_path / "page.html").read_text()
    assert "recent/return_mean, run" in surefoot("plot", "run").out
    wrong = surefoot("video", "run", "--channels", "pole angel")
    assert wrong.code == 2
    assert "there is no channel 'pole angel'; there are cart position" in wrong.err


def test_intervals_are_steps_or_iterations(surefoot) -> None:  # type: ignore[no-untyped-def]
    words = ("config", "CartPole-v1", "--checkpoint-every")
    assert "checkpoint_every: '20000'" in surefoot(*words, "2e4").out
    assert "checkpoint_every: 200it" in surefoot(*words, "200it").out
    for wrong in ("0", "-5", "soon", "1.5", "it"):
        refused = surefoot(*words, wrong)
        assert refused.code == 2, wrong
        assert "200it" in refused.out + refused.err


@pytest.mark.slow
def test_verify_resume_proves_an_environment_of_ones_own_or_says_why_not(
    surefoot, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "odd.py").write_text(ODD)
    small = ("--steps", 256, "--envs", 2, "--ppo.horizon", 32, "--ppo.minibatch-size", 32)
    proved = surefoot("verify-resume", "own.py:make", *small)
    assert (proved.code, proved.out.splitlines()[-1][:6]) == (0, "exact:")
    assert "come back by replay" in proved.out
    replayed = surefoot("verify-resume", "odd.py:Odd", *small, "--restore", "replay")
    assert (replayed.code, replayed.out.splitlines()[-1]) == (
        1,
        "not exact: replay: set in the configuration",
    )
    assert "row 0 differs from what was recorded" in replayed.out
