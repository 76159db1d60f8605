"""An optimizer step compiled as one graph.

Compiling takes ten seconds or more, and a few from the cache that torch keeps on disk. Whether to
compile is settled by sizes alone, so that the same command gives the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from surefoot.config import Config
from surefoot.core import tree
from surefoot.learn.experience import Samples
from surefoot.learn.optimizer import Adam
from surefoot.learn.step import Knobs, MinibatchStep, Step

if TYPE_CHECKING:
    from torch.fx import GraphModule

WORTHWHILE = 5_000_000
"""Samples, each counted in every epoch, whose steps make up for compiling."""
OPTIONS: dict[str, Any] = {
    "cpp_wrapper": True,  # a fifth faster where networks are small
    "cpp.use_decompose_tanh": True,  # by exp, which is three times as fast; its error is 1e-7
    "compile_threads": 1,  # others would be processes that stay, with all their memory
}
Graph: TypeAlias = Callable[..., tuple[Tensor, ...]]
"""A function of tensors alone."""
NARROW = 8
"""Columns of a matrix that is narrow."""
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


def by_inductor(graph: GraphModule, inputs: list[Any]) -> Graph:
    """Compile a graph. It is not `torch.compile`, whose bookkeeping takes 0.1 ms a call: nothing
    that a graph depends on changes while its learner lives."""
    from torch import _inductor

    compiled: Graph = _inductor.compile(graph, inputs, OPTIONS)
    return compiled


class Compiled:
    """Runs a step compiled, or otherwise if that cannot be done; which shows at the first call."""

    def __init__(
        self,
        step: MinibatchStep,
        otherwise: Step,
        tell: Callable[[Mapping[str, Any]], None],
        make: Callable[[GraphModule, list[Any]], Graph] = by_inductor,
    ) -> None:
        """`make` turns a graph and what it is traced with into what runs it."""
        self._step = replace(step, gradient=differentiated_in_graph)
        self._otherwise, self._tell, self._make = otherwise, tell, make
        self._graph: Graph | None = None
        self.how, self.compile_seconds = "", 0.0

    def __call__(
        self, vector: Tensor, adam: Adam, batch: Samples, knobs: Knobs, bias: Tensor
    ) -> tuple[Tensor, Adam, Tensor]:
        if self._graph is None:
            return self._first(vector, adam, batch, knobs, bias)
        vector, first, second, measured = self._graph(*_leaves(vector, adam, batch, knobs, bias))
        return vector, Adam(first, second), measured

    def _first(
        self, vector: Tensor, adam: Adam, batch: Samples, knobs: Knobs, bias: Tensor
    ) -> tuple[Tensor, Adam, Tensor]:
        """Compile and take a step; nothing is changed before, so it can be done otherwise."""
        if self.how:
            return self._otherwise(vector, adam, batch, knobs, bias)
        begun = time.perf_counter()
        try:
            from torch.fx.experimental.proxy_tensor import make_fx  # half a second, for those alone

            given = _leaves(vector, adam, batch, knobs, bias)
            function = _on_leaves(self._step, batch)
            # Buffers that networks use, such as a head's layout, are constants.
            trace = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)
            traced = trace(*given)
            turn_narrow(traced)
            places = [node for node in traced.graph.nodes if node.op == "placeholder"]
            graph = self._make(traced, [node.meta["val"] for node in places])
            graph(*given)  # what cannot be run shows here
            self._graph, self.how = graph, "compiled"
        except Exception as error:
            self.how = self._otherwise.how
            message = f"updates are not compiled, which is slower: {_first_line(error)}"
            self._tell({"event": "not-compiled", "message": message, "error": str(error)})
        finally:
            self.compile_seconds = time.perf_counter() - begun
        return self(vector, adam, batch, knobs, bias)


def turn_narrow(traced: GraphModule) -> None:
    """Let products with few columns be computed transposed: MKL takes up to six times as long for
    them as for those with few rows."""
    graph, transpose = traced.graph, torch.ops.aten.t.default
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
        rows, columns = node.meta["val"].shape
        if columns <= NARROW < rows:
            with graph.inserting_before(node):
                one, other = (graph.call_function(transpose, (part,)) for part in node.args)
                turned = graph.call_function(node.target, (other, one))
                back = graph.call_function(transpose, (turned,))
                back = graph.call_function(torch.ops.aten.contiguous.default, (back,))
            node.replace_all_uses_with(back)
            graph.erase_node(node)
    traced.recompile()


def _leaves(vector: Tensor, adam: Adam, batch: Samples, knobs: Knobs, bias: Tensor) -> list[Tensor]:
    """Lay out all that a step is given."""
    given = (vector, *adam, *batch, *knobs, bias)
    trees = (tree.leaves(part) if isinstance(part, dict) else (part,) for part in given)
    return [leaf for leaves in trees for leaf in leaves]


def _on_leaves(step: MinibatchStep, like: Samples) -> Callable[..., tuple[Tensor, ...]]:
    """Turn a step into a function of what `_leaves` lays out; `like` shows what is a tree."""

    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        left = iter(leaves)
        vector, adam = next(left), Adam(next(left), next(left))
        batch = like.map(lambda _: next(left))
        *knobs, bias = left
        vector, adam, measured = step(vector, adam, batch, Knobs(*knobs), bias)
        return vector, *adam, measured

    return function


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
