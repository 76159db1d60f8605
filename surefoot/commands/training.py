"""Commands that train, and those that prepare for it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from shlex import join, quote
from typing import TYPE_CHECKING, Any

from surefoot.core.errors import ConfigError

if TYPE_CHECKING:
    from surefoot.config import Config
    from surefoot.options import Shown
    from surefoot.run import Run


def train(words: list[str]) -> int:
    """Train an agent:                     surefoot train CartPole-v1"""
    from surefoot.options import TrainOptions
    from surefoot.parsing import parse, settle

    options = parse(TrainOptions, words, "train")
    config, _ = settle(options, words)
    from surefoot.train import train as start

    shown: dict[str, Any] = {"render": options.render, "output": options.output}
    return _finished(lambda: start(config.env, config, options.out, **shown), options)


def resume(words: list[str]) -> int:
    """Go on with an interrupted run:      surefoot resume RUN"""
    from surefoot.options import ResumeOptions
    from surefoot.parsing import parse

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
    from surefoot.options import ForkOptions
    from surefoot.parsing import given, parse

    options = parse(ForkOptions, words, "fork")
    asked: dict[str, Any] = {"env": None, "metrics": None, **given(options, words)}
    asked |= {"output": options.output}
    from surefoot.fork import fork as branch

    return _finished(lambda: branch(options.run, options.out, options.checkpoint, **asked), options)


def verify_resume(words: list[str]) -> int:
    """Prove that a run resumes exactly:   surefoot verify-resume ENV"""
    from surefoot.options import VerifyOptions
    from surefoot.parsing import parse, settle

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


def config(words: list[str]) -> int:
    """Show all settings and their origin: surefoot config CartPole-v1"""
    from surefoot.config import annotated
    from surefoot.options import ConfigOptions
    from surefoot.parsing import parse, settle

    print(annotated(*settle(parse(ConfigOptions, words, "config"), words)))
    return 0


def check_env(words: list[str]) -> int:
    """Examine an environment:             surefoot check-env ENV"""
    from surefoot.options import CheckOptions
    from surefoot.parsing import parse

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
    from surefoot.options import TuneOptions
    from surefoot.parsing import parse, settle

    options = parse(TuneOptions, words, "tune-speed")
    config, _ = settle(options, words)
    if options.write and not options.write.parent.is_dir():
        raise ConfigError(f"--write {options.write}: there is no directory {options.write.parent}")
    from surefoot.envs.make import factory
    from surefoot.trials import Trial
    from surefoot.tuning import STARTING, to_yaml, tune

    make = factory(config.env, config.env_args, config.metrics, config.reset_every)

    def show(trial: Trial) -> None:
        speeds = f"{trial.speed.training:10,.0f} {trial.speed.collecting:10,.0f}"
        print(f"{speeds if not trial.failed else '':<21}   {trial.flags}", end="")
        said = trial.failed or trial.remark
        print(f"   ({said})" if said else "", flush=True)

    print("steps per second of training, and of collecting alone (with overlap, of waiting for it)")
    best = tune(config, make, show, options.seconds - STARTING)
    own = _own_words(words, (*best.settings, "seconds", "write"), options.env)
    print(f"\nfastest: surefoot train {join([options.env, *own])} {best.flags}".rstrip())
    for line in best.consequences():
        print(line)
    if options.write:
        options.write.write_text(to_yaml({**_own_settings(config), **best.settings}))
        print(f"written to {options.write}")
    return 0


def _own_words(words: list[str], names: Collection[str], env: str) -> list[str]:
    """Return words of the command line without the environment, and without the options of these
    names and what belongs to them."""
    dropped = {f"--{part}{name}".replace("_", "-") for name in names for part in ("", "no-")}
    place, kept, keeping = words.index(env), list[str](), True
    for word in [*words[:place], *words[place + 1 :]]:
        if word.startswith("--"):
            keeping = word.partition("=")[0].replace("_", "-") not in dropped
        if keeping:
            kept.append(word)
    return kept


def _own_settings(config: Config) -> dict[str, Any]:
    """Return the settings that are not as the environment's preset has them."""
    from surefoot.config import resolve

    preset = resolve(config.env, None, {"algo": config.algo}).model_dump(mode="json")
    differing = _differing(preset, config.model_dump(mode="json"))
    return {**({} if config.algo == "ppo" else {"algo": config.algo}), **differing}


def _differing(usual: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return what is given that is not as usual, group by group."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        groups = isinstance(value, dict) and isinstance(usual[name], dict)
        if groups and value.keys() == usual[name].keys():
            found |= {name: inner} if (inner := _differing(usual[name], value)) else {}
        elif value != usual[name]:
            found[name] = value
    return found


def _finished(work: Callable[[], Run], options: Shown) -> int:
    """Train, and say how it ended and what to do next, if words are welcome."""
    from surefoot.core.episodes import SCORE_NAMES
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
    what = SCORE_NAMES[run.config.score]
    best = "" if row["best_return"] is None else f", best {what} {row['best_return']:.2f}"
    print(f"Ended after {row['steps']:,} steps ({run.ending}){best}.")
    path = quote(str(run.path))
    print(f"The run is in {path}. Next:\n  surefoot eval {path}\n  surefoot report {path}")
    if run.condition != "finished":
        print(f"  surefoot resume {path}")
        _explain_repetition(run)
    return 0


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
