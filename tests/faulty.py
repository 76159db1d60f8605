"""Environments and actors that break, each in its own way, for those who have to cope."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv

from surefoot.policy.lean import Lean
from tests.counter import Counter, Saved


class Stubborn(Exception):
    """Cannot be pickled, nor made from its message."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__("stubborn")
        self.handle = lambda: one + other


class Faulty(Counter):
    """A Counter that breaks in one place; with `once`, a file, only until that file exists."""

    def __init__(self, how: str, at: int = 3, once: str | None = None, length: int = 5) -> None:
        super().__init__(length=length)
        self.how, self.at, self.once = how, at, once
        self.taken = 0
        self._break("init")

    def reset(self, **given: Any) -> Any:
        self._break("reset")
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        self.taken += 1
        obs, reward, terminated, truncated, info = super().step(action)
        if self.taken >= self.at:
            if self.how in PASSIVE and self._claim():
                return PASSIVE[self.how](obs, reward, info)
            self._break("step")
        return obs, reward, terminated, truncated, info

    def _break(self, where: str) -> None:
        place, _, act = self.how.partition(":")
        if place == where and self._claim():
            ACTIVE[act]()

    def _claim(self) -> bool:
        """Say whether to break: always, or for whoever comes first."""
        if not self.once:
            return True
        try:
            Path(self.once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _raise() -> None:
    raise ZeroDivisionError("the environment is tired")


def _stubborn() -> None:
    raise Stubborn(1, 2)


def _segfault() -> None:
    ctypes.string_at(0)


def _loop() -> None:
    while True:
        time.sleep(0.01)


ACTIVE = {
    "raise": _raise,
    "stubborn": _stubborn,
    "exit": lambda: os._exit(3),
    "segfault": _segfault,
    "loop": _loop,
    "sys.exit": lambda: sys.exit(5),
    "doze": lambda: time.sleep(1.5),
}
PASSIVE: dict[str, Any] = {
    "shape": lambda obs, reward, info: (np.zeros(3, np.float32), reward, False, False, info),
    "dtype": lambda obs, reward, info: (np.array(["a", "b"]), reward, False, False, info),
    "nan": lambda obs, reward, info: (obs * np.nan, reward, False, False, info),
    "none": lambda obs, reward, info: None,
    "reward": lambda obs, reward, info: (obs, None, False, False, info),
    "info": lambda obs, reward, info: (obs, reward, False, False, None),
    "large": lambda obs, reward, info: (obs, reward, False, False, {"blob": bytes(100_000_000)}),
}


class Marked(Counter):
    """Says in every observation which row, episode and step it is of, as far as it knows: a mark
    that the seed gives, and the steps; episodes end at lengths that the seed gives, too."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-1e9, 1e9, (3,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seed = float(seed or 0)
        super().reset(seed=seed, options=options)
        self.length = int(self.np_random.integers(1, 30))
        self.truncate = bool(self.np_random.integers(2))
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.action = float(action)
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.action + 10 * self.steps, terminated, truncated, info

    def _obs(self) -> Any:
        return np.array([self.seed, self.steps, 0.0], np.float64)


class Mixed(Marked):
    """Reports metrics that come and go, and a dict to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = self.observation_space
        self.observation_space = gymnasium.spaces.Dict(
            a=self.flat,
            b=gymnasium.spaces.Discrete(40),
            c=gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
        )

    def _obs(self) -> Any:
        image = np.full((2, 2), self.steps, np.uint8)
        return {"a": super()._obs(), "b": self.steps, "c": image}

    def step(self, action: Any) -> Any:
        *facts, info = super().step(action)
        info["metrics"] = {f"at_{self.steps % 3}": self.steps, "length": self.length}
        return *facts, info


class Careless(Marked):
    """Dies in the steps and resets that a file lists: every line is one, as `step` or `reset`."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = Path(file)

    def reset(self, **given: Any) -> Any:
        self._maybe_die("reset")
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        self._maybe_die("step")
        return super().step(action)

    def _maybe_die(self, where: str) -> None:
        if self.file.exists():
            first, _, rest = self.file.read_text().partition("\n")
            if first == where:
                self.file.write_text(rest)
                os._exit(7)


class SlowVector(SyncVectorEnv):
    """A vector whose steps take long, but not too long."""

    def __init__(self) -> None:
        super().__init__([Counter] * 2)

    def step(self, actions: Any) -> Any:
        time.sleep(0.3)
        return super().step(actions)


class SlowToSave(Saved):
    """Takes its time to build, and to say what state it is in."""

    def __init__(self) -> None:
        super().__init__()
        time.sleep(0.4)

    def get_state(self) -> Any:
        time.sleep(0.4)
        return super().get_state()


class Chatty(Counter):
    """Has something to say when it is first stepped."""

    def __init__(self) -> None:
        super().__init__(length=100)

    def step(self, action: Any) -> Any:
        if not self.steps:
            print("out of an environment")
            print("err of an environment", file=sys.stderr)
        return super().step(action)


class Renaming(Counter):
    """Reports one metric until it breaks, and another one in its second life."""

    def __init__(self, file: str) -> None:
        super().__init__(length=50)
        self.file = Path(file)
        self.name = "after" if self.file.exists() else "before"

    def step(self, action: Any) -> Any:
        if self.steps == 5 and self.name == "before":
            self.file.touch()
            os._exit(1)
        *facts, _ = super().step(action)
        return *facts, {"metrics": {self.name: 1.0}}


class Reporting(Counter):
    """Reports a metric from the start, one from its tenth step on, one that says nothing at times,
    and, with `many`, more than anybody can take."""

    def __init__(self, many: int = 0) -> None:
        super().__init__(length=50)
        self.many = many

    def step(self, action: Any) -> Any:
        *facts, info = super().step(action)
        info["metrics"] = {"steps": self.steps, **{f"n{k}": k for k in range(self.many)}}
        if self.steps >= 10:
            info["metrics"]["late"] = True
        if self.many:
            info["metrics"]["x" * 200] = 1.0
        return *facts, info


class Unforgiving(Saved):
    """Cannot be put back, and in the end cannot even be looked at."""

    def __init__(self, dies: bool = False) -> None:
        super().__init__()
        self.dies = dies

    def get_state(self) -> Any:
        if self.dies:
            os._exit(9)
        return super().get_state()

    def set_state(self, state: Any) -> None:
        raise RuntimeError("no")


class Moody(Marked):
    """Does once what `file` is there for, and removes it: raise in reset, or hang in a step."""

    def __init__(self, file: str, hang: bool = False) -> None:
        super().__init__()
        self.file, self.hang = Path(file), hang

    def _in_the_mood(self) -> bool:
        try:
            self.file.unlink()
        except FileNotFoundError:
            return False
        return True

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if not self.hang and self._in_the_mood():
            raise RuntimeError("once")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.hang and self._in_the_mood():
            time.sleep(60)
        return super().step(action)


class Closing(Counter):
    """Takes its time, and leaves a mark when it is closed."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = Path(file)

    def step(self, action: Any) -> Any:
        time.sleep(0.005)
        return super().step(action)

    def close(self) -> None:
        with self.file.open("a") as file:
            file.write("closed\n")


@dataclass(frozen=True)
class Pensive(Lean):
    """An actor that takes its time to find log-probabilities."""

    seconds: float = 0.0

    def log_prob(self, obs: Any, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().log_prob(obs, action)
