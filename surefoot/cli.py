"""The command line: finds the command, and turns errors into messages and exit codes."""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from surefoot.commands import keeping, looking, training
from surefoot.core import signals
from surefoot.core.errors import ConfigError, EnvError, SurefootError, WorkerTraceback, nearest

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": training.train,
    "resume": training.resume,
    "fork": training.fork,
    "eval": looking.evaluate,
    "baseline": looking.baseline,
    "video": looking.video,
    "report": looking.report,
    "plot": looking.plot,
    "runs": looking.runs,
    "pull": keeping.pull,
    "push": keeping.push,
    "drive": keeping.drive,
    "best": looking.best,
    "pin": keeping.pin,
    "export": keeping.export,
    "config": training.config,
    "check-env": training.check_env,
    "verify-resume": training.verify_resume,
    "tune-speed": training.tune_speed,
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 done, 1 failed, 2 asked for wrongly, 130 / 143 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_streams()
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        sys.exit(0 if words else 2)
    if words[0] == "--version":
        from surefoot import __version__

        print(f"surefoot {__version__}")
        sys.exit(0)
    if words[0] not in COMMANDS:
        hint = nearest(words[0], COMMANDS) or "; see surefoot --help"
        _complain(f"there is no command {words[0]!r}{hint}")
        sys.exit(2)
    faulthandler.enable(2)  # an environment that crashes says where
    sys.path.insert(0, "")  # package.module:factory may lie in the working directory
    with signals.leaving():
        code = _guarded(COMMANDS[words[0]], words[1:])
    if code > 128:
        signals.ignore()  # an impatient third Ctrl-C
    sys.exit(code)


def overview() -> str:
    """List the commands with what they do."""
    lines = ["usage: surefoot COMMAND …", "", "Train reinforcement-learning agents.", ""]
    lines += [f"  {name:<15}{command.__doc__}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "Every command explains itself: surefoot COMMAND --help"])


def _guarded(command: Callable[[list[str]], int], words: list[str]) -> int:
    """Turn errors that surefoot understands into one message and an exit code."""
    try:
        return command(words)
    except ConfigError as error:
        _complain(str(error))
        return 2
    except SurefootError as error:
        if isinstance(error.__cause__, WorkerTraceback):
            print(error.__cause__, file=sys.stderr)
        elif isinstance(error, EnvError) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        _complain(str(error))
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads; say nothing about it on the way out either
        return 0
    except OSError as error:
        _complain(f"{type(error).__name__}: {error}")
        return 1
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130


def _open_streams() -> None:
    """Open what the shell has closed (`>&-`): else a file of the run would take its place."""
    for wire in range(3):
        try:
            os.fstat(wire)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _complain(message: str) -> None:
    print(f"surefoot: {message}", file=sys.stderr)
