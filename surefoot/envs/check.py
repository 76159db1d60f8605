"""Examine an environment before training: what would go wrong, and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from surefoot.core import seeding, tree
from surefoot.core.errors import ConfigError, SurefootError
from surefoot.core.protocols import Step, VectorEnv
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.spec import Box, Spec
from surefoot.core.tree import Tree
from surefoot.envs import probe
from surefoot.envs.make import Factory, lay_out

SECONDS = 2.0
"""How long each part of the examination may play."""
STEPS = 5_000
REPLAY_STEPS = 10_000
"""What may be played to find out whether episodes repeat."""


@dataclass(frozen=True)
class Finding:
    level: Literal["ok", "note", "warning", "error"]
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.level:<9}{self.what}"
        return f"{text}\n{'':<9}→ {self.remedy}" if self.remedy else text


def check(
    make: Factory, seed: int = 0, trainable: Callable[[Spec], object] = lambda _: None
) -> list[Finding]:
    """Play with random actions and report everything that matters for training.

    `trainable` raises a ConfigError for spaces that no policy can be built for.
    """
    return list(_findings(make, seed, trainable))


def _findings(make: Factory, seed: int, trainable: Callable[[Spec], object]) -> Iterator[Finding]:
    try:
        env = make()
        native = isinstance(env, GymnasiumVectorEnv)
        vector = lay_out(make, env, 1)
        trainable(vector.spec)
    except ConfigError as error:
        yield Finding("error", str(error))
        return
    yield Finding("ok", f"observations {_shown(vector.spec.observation)}")
    yield Finding("ok", f"actions {_shown(vector.spec.action)}")
    try:
        seen = _play(vector, seed)
    except SurefootError as error:
        yield Finding("error", str(error), _remedy(error))
        return
    finally:
        vector.close()
    yield from _about_actions(vector.spec)
    yield from _about_observations(vector.spec, seen)
    yield from _about_rewards(seen)
    limit = None if native or env.spec is None else env.spec.max_episode_steps
    yield from _about_endings(seen, limit)
    yield from _about_info(seen)
    try:
        if not native:
            yield from _about_types(make, seed)
        yield from _about_restoring(make, seed)
    except Exception as error:
        yield Finding("error", f"a new environment failed: {type(error).__name__}: {error}")
    yield Finding("ok", f"{seen.steps / seen.seconds:,.0f} steps per second on one core")


@dataclass
class Seen:
    """What some thousand random steps showed."""

    steps: int = 0
    seconds: float = 0.0
    rewards: list[float] = field(default_factory=list)
    terminated: int = 0
    truncated: int = 0
    names: set[str] = field(default_factory=set)
    low: Tree = None
    high: Tree = None

    def add(self, step: Step) -> None:
        self.steps += len(step.reward)
        self.rewards += step.reward[step.valid].tolist()
        self.terminated += int(step.terminated.sum())
        self.truncated += int(step.truncated.sum())
        self.names |= set(step.info)
        if not np.isnan(step.success).all():
            self.names.add("is_success")
        low, high = (tree.map(lambda x, f=f: f(x, 0), step.obs) for f in (np.min, np.max))
        self.low = low if self.low is None else tree.map(np.minimum, self.low, low)
        self.high = high if self.high is None else tree.map(np.maximum, self.high, high)


def _play(env: VectorEnv, seed: int) -> Seen:
    """Step with random actions; the vector classes check everything that comes back."""
    seen = Seen()
    random = seeding.generator(seed, Purpose.CHECK)
    env.reset(EpisodeSeeds(seed, Purpose.CHECK), np.zeros(env.spec.rows, np.int64))
    while seen.steps < STEPS and seen.seconds < SECONDS:
        action = probe.random_action(env.spec, random, env.spec.rows)
        begun = time.perf_counter()
        step = env.step(action)
        seen.seconds += time.perf_counter() - begun
        seen.add(step)
    return seen


def _about_actions(spec: Spec) -> Iterator[Finding]:
    for path, space in tree.items(spec.action):
        if isinstance(space, Box):
            low, high = (bound.reshape(-1).astype(float) for bound in (space.low, space.high))
            half = (high - low) / 2
            far = (low > 1) | (high < -1) | (half < 0.1) | ((half > 10) & np.isfinite(half))
            for index in np.flatnonzero(far)[:3].tolist():
                yield Finding(
                    "warning",
                    f"action{'/' + path if path else ''}[{index}] is from {low[index]:g} to "
                    f"{high[index]:g}, but a policy starts around 0 with a deviation of 1, and "
                    f"what is outside is clipped",
                    "rescale actions to -1 … 1 (gymnasium.wrappers.RescaleAction)",
                )


def _about_observations(spec: Spec, seen: Seen) -> Iterator[Finding]:
    lows, highs = tree.leaves(seen.low), tree.leaves(seen.high)
    for (path, space), low, high in zip(tree.items(spec.observation), lows, highs, strict=True):
        name = f"observation{'/' + path if path else ''}"
        if isinstance(space, Box):
            if (low < space.low - 1e-6).any() or (high > space.high + 1e-6).any():
                yield Finding(
                    "warning",
                    f"{name} left its declared bounds: seen {low.min():g} to {high.max():g}",
                    "correct the bounds of the observation space",
                )
            if max(abs(float(low.min())), abs(float(high.max()))) > 20:
                yield Finding(
                    "warning",
                    f"{name} has values up to {max(abs(low.min()), abs(high.max())):g}",
                    "train with --policy.normalize-observations",
                )


def _about_rewards(seen: Seen) -> Iterator[Finding]:
    rewards = np.array(seen.rewards)
    shown = f"rewards from {rewards.min():g} to {rewards.max():g}, mean {rewards.mean():.3g}"
    if rewards.std() == 0 and rewards.mean() == 0:
        yield Finding(
            "warning",
            "every reward was 0 under random actions",
            "fine if rewards are rare, but PPO must find one by chance to learn",
        )
    elif np.abs(rewards).max() > 50:
        yield Finding("warning", shown, "train with --ppo.normalize-returns")
    else:
        yield Finding("ok", shown)


def _about_endings(seen: Seen, limit: int | None) -> Iterator[Finding]:
    counts = f"{seen.terminated} terminated, {seen.truncated} truncated in {seen.steps:,} steps"
    if seen.terminated + seen.truncated == 0:
        yield Finding(
            "warning",
            f"no episode ended in {seen.steps:,} steps",
            "evaluation needs an end: train with --reset-every, or give it a time limit",
        )
    elif seen.truncated == 0 and limit is not None:
        yield Finding("ok", f"episodes: {counts}; truncated after {limit:,} steps at the latest")
    elif seen.truncated == 0:
        yield Finding(
            "note",
            f"episodes: {counts}; truncation was never used",
            "an end by time limit should be truncated, not terminated: it bootstraps",
        )
    else:
        yield Finding("ok", f"episodes: {counts}")


def _about_info(seen: Seen) -> Iterator[Finding]:
    if seen.names:
        yield Finding("ok", f"info reports {', '.join(sorted(seen.names))}")


def _about_types(make: Factory, seed: int) -> Iterator[Finding]:
    """Look at what comes back before anything converts it."""
    env = make()
    env.action_space.seed(seed)
    obs, _ = env.reset(seed=seed)
    env.close()
    space = env.observation_space
    if isinstance(space, gymnasium.spaces.Box) and np.asarray(obs).dtype != space.dtype:
        got = np.asarray(obs).dtype
        yield Finding(
            "note",
            f"observations come as {got}, but the space says {space.dtype}; they are converted",
            "return the dtype of the space to save the conversion",
        )


def _about_restoring(make: Factory, seed: int) -> Iterator[Finding]:
    """Find out how a run could go on after a restart."""
    way = probe.find(make, seed, REPLAY_STEPS)
    match way.kind:
        case "snapshot" | "replay":
            yield Finding("ok", f"resumes exactly: {way.because}")
        case "rebuild":
            yield Finding(
                "note",
                f"resumes exactly when rebuilt for every episode: {way.because}",
                "something survives reset(); set all state there to save the rebuilding",
            )
        case "fresh":
            yield Finding(
                "note",
                f"resumes with fresh episodes, which are cut at every checkpoint: {way.because}",
                "give it get_state() and set_state(state) to keep them whole",
            )
        case "inexact":
            yield Finding(
                "warning",
                f"cannot be resumed exactly: {way.because}",
                "draw all randomness from self.np_random after super().reset(seed=seed); "
                "until then a run cannot be repeated",
            )


def _shown(spec: Tree) -> str:
    return ", ".join(f"{path}: {space}" if path else str(space) for path, space in tree.items(spec))


def _remedy(error: SurefootError) -> str:
    text = str(error)
    if "returned" in text:
        return "the old Gym API returned less; wrap it, or return what Gymnasium expects"
    if "unexpected keyword argument 'seed'" in text:
        return "reset must accept seed and options as keywords"
    if "shape" in text or "dtype" in text or "outside" in text:
        return "return what observation_space declares, or correct the declaration"
    if "finite" in text or "reward is" in text:
        return "find where the environment divides by zero, overflows or forgets a value"
    return "correct the environment; training would stop here"
