"""Commands that look at what was trained."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.core.errors import ConfigError

if TYPE_CHECKING:
    from surefoot.evaluate import Evaluation
    from surefoot.options import EvalOptions
    from surefoot.run import Run

PLAYED = {"episodes", "checkpoint", "seed", "steps"}
"""Options of an evaluation that say what is played."""


def evaluate(words: list[str]) -> int:
    """Play with a trained policy:         surefoot eval RUN"""
    from surefoot.options import EvalOptions
    from surefoot.parsing import parse

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
    """Play by a rule, in queues:          surefoot baseline back_pressure"""
    from surefoot.options import BaselineOptions
    from surefoot.parsing import parse

    options = parse(BaselineOptions, words, "baseline")
    from surefoot.evaluate import evaluate_baseline

    given = (options.env_args, options.episodes, options.steps, options.seed)
    result = evaluate_baseline(options.rule, *given)
    print(json.dumps(result.summary()) if options.json_ else described(result, options.rule))
    return 0


def described(result: Evaluation, by: str = "") -> str:
    """Write an evaluation for people; `by` names a rule that played."""
    figures = result.summary()
    who = by or f"the policy of step {result.step:,}"
    lines = [f"{len(result.episodes)} episodes with {who}"]
    for name, title in (("return", "return"), ("lta_return", "per step"), ("length", "length")):
        mean, std, low, high = (figures[f"{name}_{k}"] for k in ("mean", "std", "min", "max"))
        form = ".3f" if name == "lta_return" else ".2f"
        shown = [format(figure, form) for figure in (mean, std, low, high)]
        lines.append(f"  {title:<9}{shown[0]:>10} ± {shown[1]}   from {shown[2]} to {shown[3]}")
    if result.success_rate is not None:
        lines.append(f"  success  {result.success_rate:10.1%}")
    lines += [f"  env/{name} {value:.4g}" for name, value in result.env.items()]
    return "\n".join(lines)


def video(words: list[str]) -> int:
    """Film a trained policy:              surefoot video RUN"""
    from surefoot.options import VideoOptions
    from surefoot.parsing import parse

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
    from surefoot.options import ReportOptions
    from surefoot.parsing import parse

    options = parse(ReportOptions, words, "report")
    from surefoot.report.page import write_report
    from surefoot.run import Run

    runs = [Run.open(path) for path in _some(options.runs)]
    print(write_report(runs, options.out or runs[0].path / "report.html"))
    return 0


def plot(words: list[str]) -> int:
    """Draw a curve:                       surefoot plot RUN --metric recent/return_mean"""
    from surefoot.options import PlotOptions
    from surefoot.parsing import parse

    options = parse(PlotOptions, words, "plot")
    from surefoot.report.contents import METRICS
    from surefoot.report.plot import curves, draw, to_file
    from surefoot.run import Run

    runs = [Run.open(path) for path in _some(options.runs)]
    metric = options.metric or f"recent/{METRICS[runs[0].config.score]}"
    found = curves(runs, metric, options.over)
    smooth = [curve.smoothed(options.smoothing) for curve in found]
    if options.out:
        print(to_file(smooth, metric, options.over, options.out))
    else:
        print(draw(smooth, metric, options.over))
    return 0


def _some(runs: Sequence[Path]) -> Sequence[Path]:
    if not runs:
        raise ConfigError("name a run, or several")
    return runs


def runs(words: list[str]) -> int:
    """List runs and how far they are:     surefoot runs [DIR]"""
    from surefoot.options import RunsOptions
    from surefoot.parsing import parse

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
    table = [["run", "environment", "steps", "best score", "state"]]
    for row in rows:
        best = "-" if row["best_return"] is None else f"{row['best_return']:.2f}"
        table.append([row["run"], row["environment"], f"{row['steps']:,}", best, row["state"]])
    if len(table) == 1:
        print(f"no runs below {directory}")
        return 0
    _print_table(table, (str.ljust, str.ljust, str.rjust, str.rjust, str.ljust))
    return 0


def best(words: list[str]) -> int:
    """List the best models of all runs:   surefoot best [ENV]"""
    from surefoot.options import BestOptions
    from surefoot.parsing import parse

    options = parse(BestOptions, words, "best")
    from surefoot.envs.names import absolute
    from surefoot.store.hall_of_fame import halls

    table = [["environment", "score", "by", "seed", "step", "run"]]
    for hall in halls(options.runs):
        for entry in hall.entries():
            if not options.env or absolute(options.env) == entry.env:
                shown = {k: "…" if isinstance(v, dict) else v for k, v in entry.env_args.items()}
                given = ", ".join(f"{key}={value}" for key, value in shown.items())
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


def _print_table(table: list[list[str]], sides: Sequence[Callable[[str, int], str]]) -> None:
    from surefoot.sinks.plain import printable

    table = [[printable(cell) for cell in line] for line in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True))
        print("  ".join(cells).rstrip())
