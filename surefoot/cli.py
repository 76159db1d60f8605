"""One short function per command. Only the command asked for is loaded, so `--help` is quick."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

from surefoot.core import signals
from surefoot.core.errors import ConfigError, EnvError, SurefootError, WorkerTraceback, nearest

if TYPE_CHECKING:
    from surefoot.evaluate import Evaluation
    from surefoot.options import EvalOptions, Shown
    from surefoot.run import Run


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


def train(words: list[str]) -> int:
    """Train an agent:                     surefoot train CartPole-v1"""
    from surefoot.options import TrainOptions, parse, settle

    options = parse(TrainOptions, words, "train")
    config, _ = settle(options, words)
    from surefoot.train import train as start

    shown: dict[str, Any] = {"render": options.render, "output": options.output}
    return _finished(lambda: start(config.env, config, options.out, **shown), options)


def resume(words: list[str]) -> int:
    """Go on with an interrupted run:      surefoot resume RUN"""
    from surefoot.options import ResumeOptions, parse

    options = parse(ResumeOptions, words, "resume")
    from surefoot.resume import resume as go_on
    from surefoot.run import Run
    from surefoot.store.places import is_url

    given = options.model_dump(exclude={"run", "quiet", "json_logs", "wandb"})
    given["wandb"] = options.wandb.model_dump(exclude_none=True) or None
    here = not is_url(options.run) and options.out is None
    before = len(Run.open(options.run).journal()) if here else -1
    code = _finished(lambda: go_on(options.run, output=options.output, **given), options)
    if not here:
        return code
    run = Run.open(options.run)
    if len(run.journal()) == before and options.output == "auto":
        steps = 2 * run.config.total_steps
        print("It was finished before. To extend it:")
        print(f"  surefoot resume {quote(str(run.path))} --total-steps {steps}")
    return code


def fork(words: list[str]) -> int:
    """Branch off with other settings:     surefoot fork RUN --out NEW --ppo.learning-rate 1e-4"""
    from surefoot.options import ForkOptions, given, parse

    options = parse(ForkOptions, words, "fork")
    asked: dict[str, Any] = {"env": None, "metrics": None, **given(options, words)}
    asked |= {"output": options.output}
    from surefoot.resume import fork as branch

    return _finished(lambda: branch(options.run, options.out, options.checkpoint, **asked), options)


def pin(words: list[str]) -> int:
    """Keep a checkpoint for good:         surefoot pin RUN STEP"""
    from surefoot.options import PinOptions, parse

    options = parse(PinOptions, words, "pin")
    from surefoot.run import Run

    found = Run.open(options.run).pin(options.step, not options.remove)
    print(f"{found.path} {'goes with its time again' if options.remove else 'stays'}")
    return 0


def verify_resume(words: list[str]) -> int:
    """Prove that a run resumes exactly:   surefoot verify-resume ENV"""
    from surefoot.options import VerifyOptions, parse, settle

    options = parse(VerifyOptions, words, "verify-resume")
    config, _ = settle(options, words)
    from surefoot.verify import verify

    found, cause = verify(config, options.steps, print)
    for difference in found[:5]:
        print(f"  {difference}")
    if len(found) > 5:
        print(f"  … and {len(found) - 5:,} more differences")
    print(f"not exact: {cause}" if found else "exact: weights, optimizer, counters, metrics")
    return 1 if found else 0


def export(words: list[str]) -> int:
    """Write a policy for other programs:  surefoot export RUN --format onnx"""
    from surefoot.options import ExportOptions, parse

    options = parse(ExportOptions, words, "export")
    from surefoot.run import Run

    print(Run.open(options.run).export(options.format, options.out, options.checkpoint))
    return 0


def best(words: list[str]) -> int:
    """List the best models of all runs:   surefoot best [ENV]"""
    from surefoot.options import BestOptions, parse

    options = parse(BestOptions, words, "best")
    from surefoot.envs.make import absolute
    from surefoot.store.hall_of_fame import halls

    table = [["environment", "score", "by", "seed", "step", "run"]]
    for hall in halls(options.runs):
        for entry in hall.entries():
            if not options.env or absolute(options.env) == entry.env:
                given = ", ".join(f"{key}={value}" for key, value in entry.env_args.items())
                env = f"{entry.env} ({given})" if given else entry.env
                score = f"{entry.score:.2f}"
                place = [str(entry.seed), f"{entry.step:,}", entry.path]
                table.append([env, score, entry.by, *place])
    if len(table) == 1:
        where = options.runs / "hall_of_fame"
        print(f"no models of {options.env or 'any environment'} in {where}; --runs names another")
        return 1
    _print_table(table, (str.ljust, str.rjust, str.ljust, str.rjust, str.rjust, str.ljust))
    return 0


def evaluate(words: list[str]) -> int:
    """Play with a trained policy:         surefoot eval RUN"""
    from surefoot.options import EvalOptions, parse

    options = parse(EvalOptions, words, "eval")
    if (options.run is None) == (options.best is None):
        raise ConfigError("name a run, or an environment with --best ENV")
    if options.record and options.render:
        raise ConfigError("--record and --render: choose one of them")
    from surefoot.run import Run
    from surefoot.runs import champion
    from surefoot.store.places import is_url

    path = options.run or champion(options.runs, options.best or "", options.env_args)
    if options.best and not options.json_:
        print(f"champion of {options.best}: {path}")
    if not is_url(path):
        return _play(Run.open(path, options.env, options.metrics), options)
    if options.record:
        raise ConfigError(f"--record writes into the run: fetch it first by `surefoot pull {path}`")
    from surefoot.elsewhere import to_look_at

    with to_look_at(str(path), options.checkpoint) as fetched:
        return _play(Run.open(fetched.path, options.env, options.metrics), options)


def _play(run: Run, options: EvalOptions) -> int:
    deterministic = not options.stochastic
    given = {"deterministic": deterministic, **options.model_dump(include=PLAYED)}
    play = run.record if options.record else partial(run.evaluate, render=options.render)
    result = play(**given)
    print(json.dumps(result.summary()) if options.json_ else described(result))
    if options.record and not options.json_:
        print(f"Every step is in {run.path / 'trajectories'}; `surefoot report` draws the newest.")
    return 0


def baseline(words: list[str]) -> int:
    """Play by a rule in a queueing network: surefoot baseline back_pressure"""
    from surefoot.options import BaselineOptions, parse

    options = parse(BaselineOptions, words, "baseline")
    from surefoot.evaluate import evaluate_baseline

    given = (options.env_args, options.episodes, options.steps, options.seed)
    result = evaluate_baseline(options.rule, *given)
    print(json.dumps(result.summary()) if options.json_ else described(result, options.rule))
    return 0


def video(words: list[str]) -> int:
    """Film a trained policy:              surefoot video RUN"""
    from surefoot.options import VideoOptions, parse

    options = parse(VideoOptions, words, "video")
    from surefoot.run import Run
    from surefoot.video.shoot import shoot

    given = options.model_dump(exclude={"run", "env", "stochastic"})
    run = Run.open(options.run, options.env)
    if sys.stderr.isatty():
        print("filming, which may take a minute …", file=sys.stderr)
    print(shoot(run, deterministic=not options.stochastic, **given))
    return 0


def report(words: list[str]) -> int:
    """Write a page about runs:            surefoot report RUN [RUN …]"""
    from surefoot.options import ReportOptions, parse

    options = parse(ReportOptions, words, "report")
    from surefoot.report.page import write_report
    from surefoot.run import Run

    runs = [Run.open(path) for path in _some(options.runs)]
    print(write_report(runs, options.out or runs[0].path / "report.html"))
    return 0


def plot(words: list[str]) -> int:
    """Draw a curve:                       surefoot plot RUN --metric recent/return_mean"""
    from surefoot.options import PlotOptions, parse

    options = parse(PlotOptions, words, "plot")
    from surefoot.report.plot import curves, draw, to_file
    from surefoot.run import Run

    runs = [Run.open(path) for path in _some(options.runs)]
    found = curves(runs, options.metric, options.over)
    smooth = [curve.smoothed(options.smoothing) for curve in found]
    if options.out:
        print(to_file(smooth, options.metric, options.over, options.out))
    else:
        print(draw(smooth, options.metric, options.over))
    return 0


def config(words: list[str]) -> int:
    """Show all settings and their origin: surefoot config CartPole-v1"""
    from surefoot.config import annotated
    from surefoot.options import ConfigOptions, parse, settle

    print(annotated(*settle(parse(ConfigOptions, words, "config"), words)))
    return 0


def runs(words: list[str]) -> int:
    """List runs and how far they are:     surefoot runs [DIR]"""
    from surefoot.options import RunsOptions, parse

    directory = parse(RunsOptions, words, "runs").directory
    from surefoot.store.places import is_url

    if is_url(directory):
        from surefoot.elsewhere import summaries as summaries_there

        rows = summaries_there(directory)
    else:
        from surefoot.runs import summaries

        if not Path(directory).is_dir():
            raise ConfigError(f"there is no directory {directory}")
        rows = summaries(Path(directory))
    table = [["run", "environment", "steps", "best return", "state"]]
    for row in rows:
        best = "-" if row["best_return"] is None else f"{row['best_return']:.2f}"
        table.append([row["run"], row["environment"], f"{row['steps']:,}", best, row["state"]])
    if len(table) == 1:
        print(f"no runs below {directory}")
        return 0
    _print_table(table, (str.ljust, str.ljust, str.rjust, str.rjust, str.ljust))
    return 0


def pull(words: list[str]) -> int:
    """Fetch a run from its mirror:        surefoot pull URL"""
    from surefoot.options import PullOptions, parse

    options = parse(PullOptions, words, "pull")
    from surefoot.elsewhere import pull as fetch
    from surefoot.mirroring import transfer

    with transfer(f"fetching {options.url}") as show:
        run = fetch(options.url, options.out, show)
    print(run.path)
    return 0


def push(words: list[str]) -> int:
    """Send a run to a mirror:             surefoot push RUN URL"""
    from surefoot.options import PushOptions, parse

    options = parse(PushOptions, words, "push")
    from surefoot.elsewhere import push as send
    from surefoot.mirroring import transfer

    with transfer(f"sending to {options.url}") as show:
        place = send(options.run, options.url, options.keep, options.take_over, show)
    print(place)
    return 0


def drive(words: list[str]) -> int:
    """Use your Google Drive:              surefoot drive login"""
    from surefoot.options import DriveOptions, parse

    options = parse(DriveOptions, words, "drive")
    from surefoot.store.drive_login import log_in, log_out, require_installed, status

    require_installed()
    if options.action == "login":
        print(log_in(options.client, options.service_account, options.browser, input, print))
    else:
        print(log_out() if options.action == "logout" else status())
    return 0


def check_env(words: list[str]) -> int:
    """Examine an environment:             surefoot check-env ENV"""
    from surefoot.options import CheckOptions, parse

    options = parse(CheckOptions, words, "check-env")
    from surefoot.config import Config
    from surefoot.envs.check import check
    from surefoot.envs.make import factory
    from surefoot.policy.build import build_policy

    findings = check(
        factory(options.env, options.env_args),
        options.seed,
        trainable=lambda spec: build_policy(spec, Config(algo=options.algo, seed=options.seed)),
    )
    for finding in findings:
        print(finding)
    return 1 if any(finding.level == "error" for finding in findings) else 0


def tune_speed(words: list[str]) -> int:
    """Find the fastest settings here:     surefoot tune-speed ENV"""
    from surefoot.options import TuneOptions, parse, settle

    options = parse(TuneOptions, words, "tune-speed")
    config, _ = settle(options, words)
    if options.write and not options.write.parent.is_dir():
        raise ConfigError(f"--write {options.write}: there is no directory {options.write.parent}")
    from surefoot.envs.make import factory
    from surefoot.tuning import STARTING, Trial, tune

    make = factory(config.env, config.env_args, config.metrics, config.reset_every)

    def show(trial: Trial) -> None:
        speeds = f"{trial.training:10,.0f} {trial.collecting:10,.0f}"
        print(f"{speeds if not trial.failed else '':<21}   {trial.flags}", end="")
        print(f"   ({trial.failed})" if trial.failed else "", flush=True)

    print("steps per second of training, and of collecting alone")
    best = tune(config, make, show, options.seconds - STARTING)
    print(f"\nfastest: surefoot train {quote(config.env)} {best.flags}")
    changing = [name for name in best.settings if name in CHANGE_NUMBERS]
    if changing:
        print(f"These change what is learned, not only how fast: {', '.join(changing)}.")
    if options.write:
        options.write.write_text(best.to_yaml())
        print(f"written to {options.write}")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "resume": resume,
    "fork": fork,
    "eval": evaluate,
    "baseline": baseline,
    "video": video,
    "report": report,
    "plot": plot,
    "runs": runs,
    "pull": pull,
    "push": push,
    "drive": drive,
    "best": best,
    "pin": pin,
    "export": export,
    "config": config,
    "check-env": check_env,
    "verify-resume": verify_resume,
    "tune-speed": tune_speed,
}
PLAYED = {"episodes", "checkpoint", "seed", "steps"}
"""Options of an evaluation that say what is played."""
CHANGE_NUMBERS = ("envs", "env_backend", "overlap", "threads", "compile")
"""Settings of speed that a run's numbers depend on, if only in their last bits."""


def described(result: Evaluation, by: str = "") -> str:
    """Write an evaluation for people; `by` names a rule that played."""
    figures = result.summary()
    who = by or f"the policy of step {result.step:,}"
    lines = [f"{len(result.episodes)} episodes with {who}"]
    for name, title in (("return", "return"), ("lta_return", "per step"), ("length", "length")):
        mean, std, low, high = (figures[f"{name}_{k}"] for k in ("mean", "std", "min", "max"))
        lines.append(f"  {title:<9}{mean:10.2f} ± {std:.2f}   from {low:.2f} to {high:.2f}")
    if result.success_rate is not None:
        lines.append(f"  success  {result.success_rate:10.1%}")
    lines += [f"  env/{name} {value:.4g}" for name, value in result.env.items()]
    return "\n".join(lines)


def _finished(work: Callable[[], Run], options: Shown) -> int:
    """Train, and say how it ended and what to do next, if words are welcome."""
    from surefoot.ending import Interrupted

    silent = options.output != "auto"
    try:
        run = work()
    except Interrupted as stopped:
        if not silent:
            name, path = signal.Signals(stopped.signal).name, quote(str(stopped.run.path))
            print(f"Stopped by {name}. To go on:\n  surefoot resume {path}")
            _explain_repetition(stopped.run)
        return 128 + stopped.signal
    if silent:
        return 0
    row = run.summary()
    what = "long-term average" if run.config.score == "lta" else "return"
    best = "" if row["best_return"] is None else f", best {what} {row['best_return']:.2f}"
    print(f"Ended after {row['steps']:,} steps ({run.ending}){best}.")
    path = quote(str(run.path))
    print(f"The run is in {path}. Next:\n  surefoot eval {path}\n  surefoot report {path}")
    if run.condition != "finished":
        print(f"  surefoot resume {path}")
        _explain_repetition(run)
    return 0


def _some(runs: Sequence[Path]) -> Sequence[Path]:
    if not runs:
        raise ConfigError("name a run, or several")
    return runs


def _explain_repetition(run: Run) -> None:
    """Say where a run would go on from, if that is not where it stopped."""
    there = run.checkpoints
    if there and not there[-1].manifest.exact:
        step = max((c.step for c in there if c.manifest.exact), default=0)
        print(
            f"It goes on from the checkpoint of step {step:,} and repeats what came after; "
            f"--allow-inexact\ngoes on from step {there[-1].step:,} with new episodes. "
            f"More checkpoints: --checkpoint-every."
        )


def _print_table(table: list[list[str]], sides: Sequence[Callable[[str, int], str]]) -> None:
    from surefoot.sinks.plain import printable

    table = [[printable(cell) for cell in line] for line in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True))
        print("  ".join(cells).rstrip())


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
