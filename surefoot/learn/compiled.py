"""An optimizer step compiled as one graph.

Compiling takes ten seconds or more, and a few from the cache that torch keeps on disk. Whether to
compile is settled by sizes alone, so that the same command gives the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from surefoot.config import Config
from surefoot.learn.experience import Samples
from surefoot.learn.optimizer import Adam
from surefoot.learn.step import Knobs, MinibatchStep, Step

WORTHWHILE = 5_000_000
"""Samples, each counted in every epoch, whose steps make up for compiling."""
OPTIONS: dict[str, Any] = {
    "cpp_wrapper": True,  # a fifth faster where networks are small
    "compile_threads": 1,  # others would be processes that stay, with all their memory
    # Nothing that a graph depends on changes while its learner lives.
    "guard_filter_fn": torch.compiler.skip_all_guards_unsafe,
}
LARGEST = 2_000_000
"""Weights between hidden layers beyond which a step is all arithmetic, and compiling saves little.
"""


def worthwhile(config: Config) -> bool:
    """Say whether compiling saves time in a whole run; a fixed function of its sizes."""
    weights = sum(one * other for one, other in pairwise(config.policy.hidden))
    samples = config.optimizer_steps() * config.ppo.minibatch_size
    return samples >= WORTHWHILE and weights <= LARGEST


def differentiated(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    """Turn a function of a vector into one that returns its gradient, and what else it gives."""

    def differentiate(vector: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        variable = vector.detach().requires_grad_()
        value, other = function(variable, *arguments)
        (gradient,) = torch.autograd.grad(value, variable)
        return gradient, other.detach()

    return differentiate


def differentiated_in_graph(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    """The same in a form that can be compiled."""
    in_graph: Callable[..., Any] = torch.func.grad(function, has_aux=True)
    return in_graph


class Compiled:
    """Runs a step compiled, or otherwise if that cannot be done; which shows at the first call."""

    def __init__(
        self,
        step: MinibatchStep,
        otherwise: Step,
        tell: Callable[[Mapping[str, Any]], None],
        backend: str = "inductor",
    ) -> None:
        settings: dict[str, Any] = {
            "fullgraph": True,
            "dynamic": False,
            "backend": backend,
            "isolate_recompiles": True,  # every learner has a graph of its own
            "options": OPTIONS if backend == "inductor" else None,
        }
        in_graph = replace(step, gradient=differentiated_in_graph)
        self._run: Callable[..., tuple[Tensor, Adam, Tensor]] = torch.compile(in_graph, **settings)
        self._otherwise, self._tell, self._tried = otherwise, tell, False
        self.how, self.compile_seconds = "compiled", 0.0

    def __call__(
        self, vector: Tensor, adam: Adam, batch: Samples, knobs: Knobs, bias: Tensor
    ) -> tuple[Tensor, Adam, Tensor]:
        if self._tried:
            return self._run(vector, adam, batch, knobs, bias)
        self._tried, begun = True, time.perf_counter()
        try:
            return self._run(vector, adam, batch, knobs, bias)
        except Exception as error:  # nothing is changed yet, so it can be done otherwise
            self._run, self.how = self._otherwise, self._otherwise.how
            message = f"updates are not compiled, which is slower: {_first_line(error)}"
            self._tell({"event": "not-compiled", "message": message, "error": str(error)})
            return self._run(vector, adam, batch, knobs, bias)
        finally:
            self.compile_seconds = time.perf_counter() - begun


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
