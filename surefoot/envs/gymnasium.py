"""Gymnasium environments stepped side by side by our own loop.

Gymnasium's vector classes reset an ended environment without a seed; this one gives every episode
its addressed seed, which is what makes a run repeatable from any point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import gymnasium
import numpy as np

from surefoot.core import fingerprint, tree
from surefoot.core.errors import EnvError
from surefoot.core.protocols import Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs import snapshot
from surefoot.envs.metrics import MetricsFault
from surefoot.envs.spaces import BadOutput, nonfinite, reader, require_playable, to_spec

Env: TypeAlias = gymnasium.Env[Any, Any]
RESET, STEP = "(obs, info)", "(obs, reward, terminated, truncated, info)"


class GymnasiumVector:
    """One row per environment; an ended one starts its next episode at once.

    `make` builds an environment anew; with `rebuild` that happens before every episode, for
    environments in which something survives `reset`. Its rows may be part of more: `first_row` is
    the number of the first, and `trail` where it leaves word for whoever watches from outside: how
    many calls it has made into an environment, and the row, episode and step of the last one.
    """

    def __init__(
        self,
        name: str,
        envs: Sequence[Env],
        make: Callable[[], Env],
        rebuild: bool = False,
        first_row: int = 0,
        trail: Array | None = None,
    ) -> None:
        first = envs[0]
        self._name, self._envs = name, list(envs)
        self._make, self._rebuild, self._first_row = make, rebuild, first_row
        # A view, since numpy takes longer to write a single number.
        numbers: Any = np.zeros(4, np.int64) if trail is None else trail
        self._trail = memoryview(numbers)
        self._used = [False] * len(envs)
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
        self._valid, self._none = np.ones(rows, bool), np.zeros(rows, bool)
        self._lost = np.zeros(rows, np.int64)
        self._unknown = np.full(rows, np.nan)
        self._episode = [0] * rows
        self._step = [0] * rows
        self._seeds = EpisodeSeeds(0)

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        self._seeds = seeds
        self._episode = episodes.tolist()
        for row in range(len(self._envs)):
            self._replace(row)
            self._begin(row)
        self._require_finite(self._obs, "observation")
        return self._obs

    def step(self, action: Tree) -> Step:
        actions = self.spec.to_env(action)
        rewards = [0.0] * len(self._envs)
        terminated = truncated = self._none
        info: dict[str, Array] = {}
        success = self._unknown
        ended: list[int] = []
        for row in range(len(self._envs)):
            extra, rewards[row], term, trunc = self._play(row, actions[row])
            if extra or type(extra) is not dict:
                self._report(row, extra, info)
            if term or trunc:
                if not ended:
                    terminated, truncated = terminated.copy(), truncated.copy()
                terminated[row], truncated[row] = term, trunc
                ended.append(row)
                if "is_success" in extra:
                    success = success.copy()
                    success[row] = self._number(row, extra["is_success"], "info is_success")
        self._check(rewards)
        final = self._restart(ended) if ended else self._none_final
        reward = np.array(rewards)
        return Step(
            self._obs,
            reward,
            terminated,
            truncated,
            self._valid,
            self._lost,
            final,
            success,
            info,
            bool(ended),
        )

    def restart(self, rows: Array) -> Tree:
        for row in np.flatnonzero(rows).tolist():
            self._episode[row] += 1
            self._replace(row)
            self._begin(row)
        self._require_finite(self._obs, "observation of reset")
        return self._obs

    def replay(self, row: int, action: Tree) -> tuple[Tree, Array]:
        """Play the episode that a row has just begun again, with these actions [L]; return what
        the row sees at the end, and fingerprints [L+1] of all it saw: fewer if it ended early."""
        actions = self.spec.to_env(action)
        obs = tree.index(self._obs, slice(row, row + 1))
        prints = [fingerprint.of_observations(obs, 1)]
        for taken in actions:
            _, reward, terminated, truncated = self._play(row, taken)
            if terminated or truncated:
                break
            seen = fingerprint.of_observations(obs, 1)
            prints.append(seen + fingerprint.of_rewards(np.array([reward])))
        return tree.index(self._obs, row), np.concatenate(prints)

    def snapshot(self) -> State:
        """Take down the state of every environment."""
        states = {}
        for row, env in enumerate(self._envs):
            self._leave_word(row)
            states[str(self._first_row + row)] = snapshot.take(env)
        return states

    def recall(self, state: State) -> None:
        """Put every environment, which has just begun an episode, into the state it had."""
        for row, env in enumerate(self._envs):
            self._leave_word(row)
            snapshot.put(env, state[str(self._first_row + row)])

    @property
    def first(self) -> Env:
        """The environment of the first row."""
        return self._envs[0]

    def render(self) -> Any:
        """Return what the first row looks like."""
        return self.first.render()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _play(self, row: int, action: Any) -> tuple[Any, float, bool, bool]:
        """Step one row and leave what it sees in the buffer; return info, reward and flags."""
        self._leave_word(row)
        try:
            returned = self._envs[row].step(action)
        except MetricsFault as fault:
            self._fail(row, str(fault), fault.cause)
        except Exception as error:
            self._fail(row, f"step({_short(action)}) raised {_say(error)}", error)
        self._step[row] += 1
        if type(returned) is not tuple or len(returned) != 5:
            self._fail(row, f"step returned {_short(returned)}, not {STEP}")
        obs, reward, terminated, truncated, extra = returned
        if not isinstance(reward, float):
            reward = self._number(row, reward, "reward")
        try:
            self._read(obs, self._obs, row)
        except BadOutput as error:
            self._fail(row, str(error))
        if terminated is not False:
            terminated = self._flag(row, terminated, "terminated")
        if truncated is not False:
            truncated = self._flag(row, truncated, "truncated")
        return extra, reward, terminated, truncated

    def _leave_word(self, row: int) -> None:
        trail = self._trail
        trail[1], trail[2], trail[3] = self._first_row + row, self._episode[row], self._step[row]
        trail[0] += 1

    def _replace(self, row: int) -> None:
        """Exchange a used environment for a new one."""
        if self._used[row]:
            self._leave_word(row)
            try:
                self._envs[row].close()
                self._envs[row] = self._make()
            except Exception as error:
                self._fail(row, f"building it anew raised {_say(error)}", error)
            self._used[row] = False

    def _restart(self, ended: list[int]) -> Tree:
        """Begin the next episode of the rows that ended; return how the old ones ended."""
        final = tree.index(self._obs, ended)
        for row in ended:
            self._episode[row] += 1
            self._begin(row)
        self._require_finite(self._obs, "observation of reset")
        return final

    def _begin(self, row: int) -> None:
        if self._rebuild:
            self._replace(row)
        self._used[row] = True
        self._step[row] = 0
        seed = self._seeds(self._first_row + row, self._episode[row])
        self._leave_word(row)
        try:
            returned = self._envs[row].reset(seed=seed)
        except Exception as error:
            self._fail(row, f"reset(seed={seed}) raised {_say(error)}", error)
        if type(returned) is not tuple or len(returned) != 2:
            self._fail(row, f"reset returned {_short(returned)}, not {RESET}")
        try:
            self._read(returned[0], self._obs, row)
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
            if not isinstance(name, str):
                self._fail(row, f"info metric {name!r} is not named by a string")
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
        where = f"row {self._first_row + row}, episode {self._episode[row]}"
        raise EnvError(f"{self._name}, {where}, step {self._step[row]}: {what}") from cause


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _short(value: Any) -> str:
    text = np.array2string(value, threshold=8) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
