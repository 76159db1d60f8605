"""surefoot trains reinforcement-learning agents: fast, exact, correct, clear.

Names are resolved when they are first used, so `import surefoot` loads neither torch nor gymnasium.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.config import Config, PolicyConfig, PPOConfig, SACConfig, resolve
    from surefoot.core.errors import ConfigError, EnvError, NonFiniteError, RunError, SurefootError
    from surefoot.envs.queueing import register_envs
    from surefoot.evaluate import Evaluation, evaluate_baseline
    from surefoot.fork import fork
    from surefoot.policy.agent import Agent
    from surefoot.resume import resume
    from surefoot.run import Run, load
    from surefoot.train import train

__version__ = "0.1.0"

_HOMES = {
    "surefoot.config": ("Config", "PPOConfig", "PolicyConfig", "SACConfig", "resolve"),
    "surefoot.core.errors": (
        "ConfigError",
        "EnvError",
        "NonFiniteError",
        "RunError",
        "SurefootError",
    ),
    "surefoot.envs.queueing": ("register_envs",),
    "surefoot.evaluate": ("Evaluation", "evaluate_baseline"),
    "surefoot.fork": ("fork",),
    "surefoot.policy.agent": ("Agent",),
    "surefoot.resume": ("resume",),
    "surefoot.run": ("Run", "load"),
    "surefoot.train": ("train",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Agent",
    "Config",
    "ConfigError",
    "EnvError",
    "Evaluation",
    "NonFiniteError",
    "PPOConfig",
    "PolicyConfig",
    "Run",
    "RunError",
    "SACConfig",
    "SurefootError",
    "evaluate_baseline",
    "fork",
    "load",
    "register_envs",
    "resolve",
    "resume",
    "train",
]


class _Package(ModuleType):
    """Keeps `surefoot.train` the function: importing the module of that name would replace it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
