"""Films that are made beside a training, in a process of lowest priority."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle  # type: ignore[import-untyped]

from surefoot.core.errors import SurefootError
from surefoot.envs.make import Factory, ship, unship
from surefoot.recording import Player, record
from surefoot.video.shoot import PICTURES, natural_rate, need_no_screen

PATIENCE = 60.0
"""Seconds that a run which ends waits for its last film."""


class Cameras:
    """Makes one film at a time; who asks for another meanwhile is told so."""

    def __init__(
        self,
        make: Factory,
        env: str,
        seed: int,
        directory: Path,
        tell: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._make = make.with_arguments(PICTURES)
        self._env, self._seed, self._directory, self._tell = env, seed, directory, tell
        self._child: subprocess.Popen[bytes] | None = None
        self._said: BinaryIO | None = None
        self._step, self._path = 0, directory

    def shoot(self, player: Player) -> None:
        """Begin a film of the policy as it is."""
        self.look()
        if self._child is not None:
            self._say("is not made: the one before is not finished", player.step)
            return
        self._step = player.step
        self._path = self._directory / f"step_{player.step:012d}.mp4"
        try:
            order = (sys.path, ship(self._make), player, self._env, self._seed, self._path)
            self._said = tempfile.TemporaryFile()  # noqa: SIM115
            with tempfile.TemporaryFile() as letter:  # a pipe would wait for its reader
                letter.write(cloudpickle.dumps(order))
                letter.seek(0)
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "surefoot.video.aside"],
                    stdin=letter,
                    stdout=subprocess.DEVNULL,
                    stderr=self._said,
                    start_new_session=True,  # Ctrl-C is the parent's business
                )
        except (OSError, SurefootError) as error:
            self._say(f"failed: {error}", player.step)
            return
        message = f"filming the policy of step {player.step:,}"
        self._tell({"event": "video-begun", "step": player.step, "message": message})

    def look(self, patience: float = 0.0) -> None:
        """See if a film is finished; tell."""
        if self._child is None:
            return
        try:
            code = self._child.wait(patience) if patience else self._child.poll()
        except subprocess.TimeoutExpired:
            self.close()
            self._say(f"is given up: it took longer than {patience:.0f} s", self._step)
            return
        if code is None:
            return
        self._child = None
        assert self._said is not None
        self._said.seek(0)
        words = self._said.read().decode(errors="replace").strip().splitlines()
        self._said.close()
        if code == 0:
            message = f"film of step {self._step:,}: {self._path}"
            entry = {"event": "video", "step": self._step, "path": str(self._path)}
            self._tell({**entry, "message": message})
        else:
            self._say(f"failed: {words[-1] if words else f'code {code}'}", self._step)

    def wait(self) -> None:
        """Let a film that is under way be finished, unless somebody has no patience."""
        self.look()
        if self._child is not None:
            self._tell({"event": "video-wait", "message": "waiting for the last film; Ctrl-C: not"})
            with suppress(KeyboardInterrupt):
                self.look(PATIENCE)

    def close(self) -> None:
        """Give up a film that is still under way: nobody is left to wait for it."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _say(self, what: str, step: int) -> None:
        message = f"film of step {step:,} {what}"
        self._tell({"event": "video-error", "step": step, "message": message})


def main() -> None:
    os.nice(19)
    with suppress(OSError):  # a kernel that weighs sessions, not threads, asks for theirs
        Path("/proc/self/autogroup").write_text("19")
    path, shipped, player, env, seed, out = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    import torch

    from surefoot.video.film import make_film

    torch.set_num_threads(1)
    need_no_screen()
    make = unship(shipped)
    scene = list(record(player, make, env, 1, seed, film=True))
    make_film(out, [scene], natural_rate(make))


if __name__ == "__main__":
    main()
