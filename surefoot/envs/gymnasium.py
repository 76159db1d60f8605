"""Gymnasium environments stepped side by side by our own loop.

Gymnasium's vector classes reset an ended environment without a seed; this one gives every episode
its addressed seed, which is what makes a run repeatable from any point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np

from surefoot.core import tree
from surefoot.core.errors import EnvError
from surefoot.core.protocols import Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.tree import Array, Tree
from surefoot.envs.spaces import BadOutput, nonfinite, reader, require_playable, to_spec

RESET, STEP = "(obs, info)", "(obs, reward, terminated, truncated, info)"


class GymnasiumVector:
    """One row per environment; an ended one starts its next episode at once."""

    def __init__(self, name: str, envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
        first = envs[0]
        self._name, self._envs = name, list(envs)
        self.spec = Spec(
            to_spec(first.observation_space, "observation"),
            to_spec(first.action_space, "action"),
            len(envs),
        )
        require_playable(self.spec.action, first.action_space)
        self._read = reader(self.spec.observation, "observation")
        rows = len(envs)
        self._obs = self.spec.empty_observations(rows)
        self._none_final = self.spec.empty_observations(0)
        self._valid = np.ones(rows, bool)
        self._unknown = np.full(rows, np.nan)
        self._episode = [0] * rows
        self._step = [0] * rows
        self._seeds = EpisodeSeeds(0)

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        self._seeds = seeds
        self._episode = episodes.tolist()
        for row in range(len(self._envs)):
            self._begin(row)
        self._require_finite(self._obs, "observation")
        return self._obs

    def step(self, action: Tree) -> Step:
        actions = self.spec.to_env(action)
        rewards = [0.0] * len(self._envs)
        terminated = np.zeros(len(self._envs), bool)
        truncated = np.zeros(len(self._envs), bool)
        info: dict[str, Array] = {}
        success = self._unknown
        ended: list[int] = []
        for row, env in enumerate(self._envs):
            try:
                returned = env.step(actions[row])
            except Exception as error:
                self._fail(row, f"step({_short(actions[row])}) raised {_say(error)}", error)
            self._step[row] += 1
            if type(returned) is not tuple or len(returned) != 5:
                self._fail(row, f"step returned {_short(returned)}, not {STEP}")
            obs, reward, term, trunc, extra = returned
            rewards[row] = reward if type(reward) is float else self._number(row, reward, "reward")
            self._take(row, obs, self._obs)
            if extra:
                self._report(row, extra, info)
            term = self._flag(row, term, "terminated")
            trunc = self._flag(row, trunc, "truncated")
            if term or trunc:
                terminated[row], truncated[row] = term, trunc
                ended.append(row)
                if "is_success" in extra:
                    success = success.copy()
                    success[row] = self._number(row, extra["is_success"], "info is_success")
        self._check(rewards)
        final = self._restart(ended) if ended else self._none_final
        reward = np.array(rewards)
        return Step(self._obs, reward, terminated, truncated, self._valid, final, success, info)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _restart(self, ended: list[int]) -> Tree:
        """Begin the next episode of the rows that ended; return how the old ones ended."""
        final = tree.index(self._obs, ended)
        for row in ended:
            self._episode[row] += 1
            self._begin(row)
        self._require_finite(self._obs, "observation of reset")
        return final

    def _begin(self, row: int) -> None:
        self._step[row] = 0
        seed = self._seeds(row, self._episode[row])
        try:
            returned = self._envs[row].reset(seed=seed)
        except Exception as error:
            self._fail(row, f"reset(seed={seed}) raised {_say(error)}", error)
        if type(returned) is not tuple or len(returned) != 2:
            self._fail(row, f"reset returned {_short(returned)}, not {RESET}")
        self._take(row, returned[0], self._obs)

    def _take(self, row: int, obs: Any, buffer: Tree) -> None:
        try:
            self._read(obs, buffer, row)
        except BadOutput as error:
            self._fail(row, str(error))

    def _number(self, row: int, value: Any, what: str) -> float:
        try:
            number = np.asarray(value)
        except ValueError as error:
            self._fail(row, f"{what} is {_short(value)}, not a number", error)
        if number.size != 1 or number.dtype.kind not in "fiub":
            self._fail(row, f"{what} is {_short(value)}, not a number")
        return float(number.reshape(()))

    def _flag(self, row: int, value: Any, what: str) -> bool:
        if value is True or value is False:
            return value
        if not isinstance(value, bool | int | np.bool_ | np.integer):
            self._fail(row, f"{what} is {_short(value)}, not true or false")
        return bool(value)

    def _report(self, row: int, extra: Any, info: dict[str, Array]) -> None:
        """Take the numbers out of an info dict that we pass on."""
        metrics = extra.get("metrics", {}) if isinstance(extra, dict) else None
        if not isinstance(metrics, dict):
            self._fail(row, f"info is {_short(extra)}; it and its 'metrics' must be dicts")
        for name, value in metrics.items():
            if name not in info:
                info[name] = self._unknown.copy()
            info[name][row] = self._number(row, value, f"info metric {name!r}")
            if np.isinf(info[name][row]):
                self._fail(row, f"info metric {name!r} is infinite")

    def _check(self, rewards: list[float]) -> None:
        if not math.isfinite(sum(rewards)):
            for row, reward in enumerate(rewards):
                if not math.isfinite(reward):
                    self._fail(row, f"reward is {reward}")
        self._require_finite(self._obs, "observation")

    def _require_finite(self, obs: Tree, what: str) -> None:
        if (found := nonfinite(obs)) is not None:
            path, row = found
            values = dict(tree.items(tree.index(obs, row)))[path]
            self._fail(row, f"{what}{'/' + path if path else ''} is not finite: {_short(values)}")

    def _fail(self, row: int, what: str, cause: Exception | None = None) -> NoReturn:
        place = f"{self._name}, row {row}, episode {self._episode[row]}, step {self._step[row]}"
        raise EnvError(f"{place}: {what}") from cause


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _short(value: Any) -> str:
    text = np.array2string(value, threshold=8) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
