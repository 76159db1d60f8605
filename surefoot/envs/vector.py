"""Environments that are vectors already: anything that is a `gymnasium.vector.VectorEnv`.

They reset ended rows in one of three ways; each is a type here. The first episodes get addressed
seeds, and later ones too where the environment leaves resetting to us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from surefoot.core import tree
from surefoot.core.errors import ConfigError, EnvError
from surefoot.core.protocols import Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Box, Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs import snapshot
from surefoot.envs.metrics import MetricsFault
from surefoot.envs.spaces import (
    BadOutput,
    nonfinite,
    reader,
    require_playable,
    some,
    surely_finite,
    to_spec,
)


class Autoreset(Protocol):
    """How a library goes on after the end of an episode."""

    def unused(self, ended_before: Array) -> Array:
        """Mark the rows whose action this step did not use."""

    def settle(self, vector: NativeVector, obs: Any, ended: Array, infos: dict[str, Any]) -> Tree:
        """Leave in `vector.obs` what rows see next; return final observations of ended rows."""


class NextStep:
    """The step after an end resets: it ignores the action and is not a step of the task."""

    def unused(self, ended_before: Array) -> Array:
        return ended_before

    def settle(self, vector: NativeVector, obs: Any, ended: Array, infos: dict[str, Any]) -> Tree:
        vector.take(obs)
        return tree.index(vector.obs, ended)


class SameStep:
    """The step that ends returns the next episode's observation; the true last is in `infos`."""

    def unused(self, ended_before: Array) -> Array:
        return np.zeros_like(ended_before)

    def settle(self, vector: NativeVector, obs: Any, ended: Array, infos: dict[str, Any]) -> Tree:
        vector.take(obs)
        final = vector.spec.empty_observations(int(ended.sum()))
        for k, row in enumerate(np.flatnonzero(ended).tolist()):
            if "final_obs" not in infos:
                vector.fail(row, "infos has no 'final_obs', which same-step autoreset promises")
            last = infos["final_obs"]
            vector.take_row(
                row, last[row] if isinstance(last, np.ndarray) else tree.index(last, row), final, k
            )
        return final


class Disabled:
    """Nothing resets by itself, so we reset the ended rows, with their addressed seeds."""

    def unused(self, ended_before: Array) -> Array:
        return np.zeros_like(ended_before)

    def settle(self, vector: NativeVector, obs: Any, ended: Array, infos: dict[str, Any]) -> Tree:
        vector.take(obs)
        final = tree.index(vector.obs, ended)
        if ended.any():
            vector.reset_rows(ended)
        return final


MODES: dict[Any, Autoreset] = {
    AutoresetMode.NEXT_STEP: NextStep(),
    AutoresetMode.SAME_STEP: SameStep(),
    AutoresetMode.DISABLED: Disabled(),
}


class NativeVector:
    """A Gymnasium vector environment as rows, which may be part of more: `first_row` is where they
    begin."""

    def __init__(
        self,
        name: str,
        env: GymnasiumVectorEnv[Any, Any, Any],
        make: Callable[[], GymnasiumVectorEnv[Any, Any, Any]],
        first_row: int = 0,
        trail: Array | None = None,
        reset_every: int | None = None,
    ) -> None:
        """`reset_every` is the number of steps after which an episode is cut."""
        mode = env.metadata.get("autoreset_mode")
        if mode not in MODES:
            raise ConfigError(
                f"{name}: metadata['autoreset_mode'] is {mode!r}; "
                f"set it to a gymnasium.vector.AutoresetMode"
            )
        self._name, self._env, self._autoreset = name, env, MODES[mode]
        if reset_every is not None and mode is not AutoresetMode.DISABLED:
            raise ConfigError(
                f"reset_every={reset_every}, but {name} is a vector environment that resets its "
                f"rows itself; give it a time limit of its own, or autoreset_mode DISABLED"
            )
        self._limit = reset_every
        self._make, self._used, self._first_row = make, False, first_row
        # A view, since numpy takes longer to write a single number.
        numbers: Any = np.zeros(4, np.int64) if trail is None else trail
        self._trail = memoryview(numbers)
        # Gymnasium's own wrappers of single environments take a seed for each; others take one.
        single = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        single = single or env.metadata.get("seed_for_each_row", False)
        self._seeding: Callable[[list[int], Array], Any] = _all if single else _first
        observation = to_spec(env.single_observation_space, "observation")
        action = to_spec(env.single_action_space, "action")
        self.spec = Spec(observation, action, env.num_envs)
        require_playable(action, env.single_action_space)
        self._plain, self._read = isinstance(observation, Box), reader(observation, "observation")
        self.obs = self.spec.empty_observations(env.num_envs)
        self._ended, self._some_ended = np.zeros(env.num_envs, bool), False
        self._no, self._yes = np.zeros(env.num_envs, bool), np.ones(env.num_envs, bool)
        self._zero, self._one = np.zeros(env.num_envs, np.int64), np.ones(env.num_envs, np.int64)
        self._unknown = np.full(env.num_envs, np.nan)
        self._no_final = self.spec.empty_observations(0)
        self._episode = np.zeros(env.num_envs, np.int64)
        self._step = np.zeros(env.num_envs, np.int64)
        self._seeds = EpisodeSeeds(0)

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        if self._used:
            self._leave_word()
            try:
                self._env.close()
                self._env = self._make()
            except Exception as error:
                self.fail(None, f"building it anew raised {type(error).__name__}: {error}", error)
        self._used = True
        self._seeds, self._episode = seeds, episodes.astype(np.int64)
        self._ended, self._some_ended = np.zeros(self.spec.rows, bool), False
        self._step[:] = 0
        self._reset(np.ones(self.spec.rows, bool), options=None)
        return self.obs

    def reset_rows(self, rows: Array) -> None:
        """Reset the rows of this mask; the others stay as they are."""
        self._episode[rows] += 1
        self._step[rows] = 0
        self._reset(rows, options={"reset_mask": rows.copy()})
        self._episode[rows] -= 1  # `step` counts it like every other end

    def step(self, action: Tree) -> Step:
        self._leave_word()
        try:
            obs, reward, terminated, truncated, infos = self._env.step(self.spec.to_env(action))
        except MetricsFault as fault:
            self.fail(None, str(fault), fault.cause)
        except Exception as error:
            self.fail(None, f"step raised {type(error).__name__}: {error}", error)
        reward = self._column(reward, np.float64, "reward")
        terminated = self._column(terminated, np.bool_, "terminated")
        truncated = self._column(truncated, np.bool_, "truncated")
        if self._limit is not None:
            truncated = truncated | (self._step + 1 >= self._limit)
        some_end = some(terminated) or some(truncated)
        if not self._some_ended and not some_end:
            return self._uneventful(obs, reward, infos)
        ended, reward = terminated | truncated, reward.copy()  # a reset may clear it
        unused = self._autoreset.unused(self._ended)
        self._step = np.where(unused, 0, self._step + 1)
        valid = ~unused
        terminated, truncated, ended = terminated & valid, truncated & valid, ended & valid
        final = self._autoreset.settle(self, obs, ended, infos)
        self._check(reward, self.obs)
        if some_end:
            self._check_final(final, np.flatnonzero(ended))
        self._episode += ended
        self._step[ended] = 0
        self._ended, self._some_ended = ended, bool(ended.any())
        info, success = self._numbers(infos, valid, ended)
        return Step(
            self.obs,
            reward,
            terminated,
            truncated,
            valid,
            self._zero,
            final,
            success,
            info,
            notable=True,
        )

    def _uneventful(self, obs: Any, reward: Array, infos: dict[str, Any]) -> Step:
        """Take a step in which nothing ended and every action was used, as nearly all are."""
        self._step += self._one  # arrays of one shape take half the time
        if not self._fits(obs):
            self.take(obs)
            obs = self.obs
        self._check(reward, obs)
        info, success = self._numbers(infos, self._yes, self._no) if infos else ({}, self._unknown)
        return Step(
            obs,
            reward,
            self._no,
            self._no,
            self._yes,
            self._zero,
            self._no_final,
            success,
            info,
            notable=False,
        )

    def restart(self, rows: Array) -> Tree:
        """Begin the next episode of all rows: a vector can only be built anew as a whole."""
        assert rows.all()
        return self.reset(self._seeds, self._episode + 1)

    def snapshot(self) -> State:
        counts = {"ended": self._ended, "step": self._step, "episode": self._episode}
        return {
            "env": snapshot.take(self._env),
            **{name: value.copy() for name, value in counts.items()},
        }

    def recall(self, state: State) -> None:
        snapshot.put(self._env, state["env"])
        self._ended, self._step = np.array(state["ended"]), np.array(state["step"])
        self._some_ended = bool(self._ended.any())
        self._episode = np.array(state["episode"])

    @property
    def first(self) -> Any:
        """What stands for the environment of the first row."""
        return self._env

    def render(self) -> Any:
        """Return what the first row looks like."""
        pictures: Any = self._env.render()
        return pictures[0] if isinstance(pictures, tuple | list) else pictures

    def close(self) -> None:
        self._env.close()

    def take(self, obs: Any) -> None:
        """Copy observations of all rows."""
        try:
            self._read(obs, self.obs, slice(None))
        except BadOutput as error:
            self.fail(None, str(error), error)

    def take_row(self, row: int, obs: Any, buffer: Tree, where: int) -> None:
        """Copy one row's observation into a place of another buffer."""
        try:
            self._read(obs, buffer, where)
        except BadOutput as error:
            self.fail(row, str(error), error)

    def fail(self, row: int | None, what: str, cause: Exception | None = None) -> NoReturn:
        place = f"{self._name}, all {self.spec.rows} rows"
        if row is not None:
            counts = f"episode {self._episode[row]}, step {self._step[row]}"
            place = f"{self._name}, row {self._first_row + row}, {counts}"
        raise EnvError(f"{place}: {what}") from cause

    def _reset(self, rows: Array, options: dict[str, Any] | None) -> None:
        numbered = enumerate(self._episode.tolist(), self._first_row)
        seeds = [self._seeds(row, episode) for row, episode in numbered]
        self._leave_word()
        try:
            obs, _ = self._env.reset(seed=self._seeding(seeds, rows), options=options)
        except Exception as error:
            self.fail(None, f"reset raised {type(error).__name__}: {error}", error)
        self.take(obs)
        self._check(self._zero, self.obs)

    def _leave_word(self) -> None:
        """Say that a call into the environment begins; the first row stands for all."""
        trail = self._trail
        trail[1], trail[2], trail[3] = self._first_row, self._episode[0], self._step[0]
        trail[0] += 1

    def _fits(self, obs: Any) -> bool:
        """Say whether observations are the very array that is wanted, as they mostly are."""
        array = self._plain and type(obs) is np.ndarray
        return array and obs.dtype == self.obs.dtype and obs.shape == self.obs.shape

    def _column(self, values: Any, dtype: Any, field: str) -> Array:
        try:
            column: Array = np.asarray(values, dtype)
        except (TypeError, ValueError) as error:
            self.fail(None, f"{field} is not an array of numbers", error)
        if column.shape != (self.spec.rows,):
            self.fail(None, f"{field} has shape {column.shape}, not ({self.spec.rows},)")
        return column

    def _check(self, reward: Array, obs: Tree) -> None:
        if self._plain and surely_finite(obs) and surely_finite(reward):  # as mostly
            return
        if (found := nonfinite(reward)) is not None:
            _, row = found
            self.fail(row, f"reward is {reward[row]}")
        if (found := nonfinite(obs)) is not None:
            path, row = found
            self.fail(row, f"observation{'/' + path if path else ''} is not finite")

    def _check_final(self, final: Tree, ended: Array) -> None:
        if (found := nonfinite(final)) is not None:
            path, index = found
            row = int(ended[index])
            self.fail(row, f"final observation{'/' + path if path else ''} is not finite")

    def _numbers(
        self, infos: dict[str, Any], valid: Array, ended: Array
    ) -> tuple[dict[str, Array], Array]:
        """Take metrics and success out of the infos; a last step's may stand in `final_info`."""
        columns: dict[str, Array] = {}
        success = {"is_success": np.full(self.spec.rows, np.nan)}
        for source, rows in ((infos, valid), (infos.get("final_info", {}), ended)):
            metrics = source.get("metrics", {})
            for name in metrics:
                if not name.startswith("_"):
                    self._merge(columns, name, metrics, rows)
            if "is_success" in source:
                self._merge(success, "is_success", source, ended)
        return columns, success["is_success"]

    def _merge(
        self, columns: dict[str, Array], name: str, source: dict[str, Any], rows: Array
    ) -> None:
        """Lay one reported number over a column, for those of `rows` that reported it."""
        values = self._column(source[name], np.float64, f"info metric {name!r}")
        mask = rows & np.asarray(source.get(f"_{name}", True), bool)
        if np.isinf(values[mask]).any():
            self.fail(int((mask & np.isinf(values)).argmax()), f"info metric {name!r} is infinite")
        below = columns.get(name, np.full(len(values), np.nan))
        columns[name] = np.where(mask, values, below)


def _all(seeds: list[int], rows: Array) -> Any:
    return seeds


def _first(seeds: list[int], rows: Array) -> Any:
    """Take the seed of the first row that is reset."""
    return seeds[int(rows.argmax())]
