"""The dashboard in a real terminal, and its keys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import join, quote

import pytest

from surefoot.run import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
PATIENCE = 60.0
TRAIN = [sys.executable, "-m", "surefoot", "train", "CartPole-v1"]


class Tmux:
    """A terminal of 100 × 40 characters in which a command runs."""

    def __init__(self, command: str) -> None:
        self._server = f"surefoot-{os.getpid()}-{time.monotonic_ns()}"
        # A shell with job control: whatever is stopped goes on at once, in the foreground.
        again = "code=$?; if [ $code -eq 148 ]; then fg; code=$?; fi"
        shown = f"env -u COLUMNS -u LINES {command}; {again}; echo code=$code; sleep 1000"
        kept = f"bash -mc {quote(shown)}"
        self._tmux("new-session", "-d", "-x", "100", "-y", "40", kept)

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def wait(self, there: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows something; return all it shows."""
        found = there if callable(there) else lambda screen: there in screen
        end = time.monotonic() + PATIENCE
        while not found(screen := self.screen()):
            assert time.monotonic() < end, f"{there} is not to be seen:\n{screen}"
            time.sleep(0.1)
        return screen

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._server, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Tmux]:
    budget = ["--total-steps", "50_000_000", "--compile", "off"]
    there = Tmux(join([*TRAIN, *budget, "--out", str(tmp_path / "run")]))
    there.wait("mean_ep_return")
    yield there
    there.close()


def steps(screen: str) -> str:
    (found,) = re.findall(r"timesteps_count +([\d,]+)", screen)
    return str(found)


def test_p_pauses_and_goes_on(terminal: Tmux) -> None:
    terminal.press("p")
    terminal.wait("paused, p goes on")
    before = steps(terminal.screen())
    time.sleep(1.5)
    assert steps(terminal.screen()) == before
    terminal.press("p")
    terminal.wait(lambda screen: steps(screen) != before)


def test_c_saves_e_evaluates_and_q_stops_a_run_that_can_be_resumed(
    terminal: Tmux, tmp_path: Path
) -> None:
    terminal.press("c")
    screen = terminal.wait("checkpoint of step")
    (saved,) = re.findall(r"checkpoint of step ([\d,]+)", screen)
    terminal.press("e")
    terminal.wait("evaluation of step")
    terminal.press("q")
    terminal.wait("surefoot resume")
    terminal.wait("code=0")
    run = Run.open(tmp_path / "run")
    assert run.ending == "stopped at the keyboard"
    assert run.condition == "interrupted"
    assert int(saved.replace(",", "")) in [checkpoint.step for checkpoint in run.checkpoints]
    assert run.checkpoints[-1].manifest.exact
    (entry,) = [entry for entry in run.journal() if entry["event"] == "evaluation"]
    assert "eval/return_mean" in entry["metrics"]


def test_v_films_the_policy_while_training_goes_on(terminal: Tmux, tmp_path: Path) -> None:
    terminal.press("v")
    terminal.wait("film of step")
    (film,) = (tmp_path / "run" / "videos").glob("*.mp4")
    assert film.stat().st_size > 1_000


def test_keys_work_again_after_the_shell_had_the_terminal(terminal: Tmux) -> None:
    terminal.press("C-z")
    time.sleep(1)
    terminal.press("p")
    terminal.wait("paused, p goes on")


def test_ctrl_c_says_that_it_saves_and_leaves_the_terminal_as_it_was(terminal: Tmux) -> None:
    terminal.press("C-c")
    screen = terminal.wait("code=130")
    assert "surefoot resume" in screen
    assert screen.count("╭") == 1  # one panel, drawn in one place
    terminal.press("x")
    terminal.wait(lambda screen: screen.rstrip().endswith("x"))  # it echoes again
