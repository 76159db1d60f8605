"""An optimizer step, and other functions of an update, each compiled as one graph.

Compiling takes twenty seconds or more, and a few from the cache that torch keeps on disk. Whether
to compile is settled by sizes alone, so that the same command gives the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch import Tensor

from surefoot.config import Config
from surefoot.core import garbage

if TYPE_CHECKING:
    from torch.fx import GraphModule

WORTHWHILE = {"ppo": 5_000_000, "sac": 1_000_000}
"""Samples, each counted as often as it is learned from, whose steps make up for compiling."""
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


def worthwhile(config: Config, done: int = 0) -> bool:
    """Say whether compiling saves time in a run from a step on; a fixed function of its sizes."""
    samples = config.optimizer_steps(done) * config.learning.optimizer_samples
    return samples >= WORTHWHILE[config.algo] and config.policy.hidden_weights() <= LARGEST


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
    """Compile a graph of elementary operations. It is neither `torch.compile` nor what that calls,
    whose bookkeeping takes 0.1 and 0.02 ms a call: types and shapes stay the same while a learner
    lives."""
    from torch._guards import TracingContext, detect_fake_mode, tracing
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner

    mode, buffers = detect_fake_mode(inputs), lift_buffers(graph)
    assert mode is not None
    inputs = [*inputs, *(mode.from_tensor(buffer) for buffer in buffers)]
    with config.patch(OPTIONS), tracing(TracingContext(mode)):
        compiled: Any = compile_fx_inner(graph, inputs, cpp_wrapper=True, is_inference=True)
    run = compiled.current_callable or compiled
    return lambda *leaves: run([*leaves, *buffers])


class Function(Protocol):
    """An optimizer step, or another function: from tensors, in tuples and dicts, to tensors in
    tuples or one tensor."""

    @property
    def how(self) -> str:
        """Who computes it."""

    def __call__(self, *given: Any) -> Any: ...


class Compiled:
    """Runs a function compiled, or otherwise if that cannot be done; which shows at the first call.
    Whatever it is given has the shapes that it had then."""

    def __init__(
        self,
        function: Callable[..., Any],
        otherwise: Function,
        tell: Callable[[Mapping[str, Any]], None],
        make: Callable[[GraphModule, list[Any]], Graph] = by_inductor,
    ) -> None:
        """`function` is what can be compiled; `make` turns a graph and what it is traced with into
        what runs it."""
        self._function = function
        self._otherwise, self._tell, self._make = otherwise, tell, make
        self._graph: Graph | None = None
        self.how, self.compile_seconds = "", 0.0

    def __call__(self, *given: Any) -> Any:
        if self._graph is None:
            return self._first(given)
        given_leaves = [
            leaf for lay, part in zip(self._lay, given, strict=True) for leaf in lay(part)
        ]
        return self._shape(iter(self._graph(*given_leaves)))

    def _first(self, given: tuple[Any, ...]) -> Any:
        """Compile and run it, or run it otherwise."""
        if self.how:
            return self._otherwise(*given)
        begun = time.perf_counter()
        try:
            with garbage.undisturbed():
                graph = self._compiled(given)
                graph(*_leaves(given))  # what cannot be run shows here
            self._graph, self.how = graph, "compiled"
        except Exception as error:
            self.how = self._otherwise.how
            message = f"updates are not compiled as a whole, which is slower: {_first_line(error)}"
            self._tell({"event": "not-compiled", "message": message, "error": str(error)})
        finally:
            self.compile_seconds = time.perf_counter() - begun
        return self(*given)

    def _compiled(self, given: tuple[Any, ...]) -> Graph:
        """Make what runs it on the leaves of what looks like this."""
        self._lay = [_layer_out(part) for part in given]
        traced = traced_with(self._on_leaves(given), _leaves(given))
        set_biases_apart(traced)
        turn_narrow(traced)
        places = [node for node in traced.graph.nodes if node.op == "placeholder"]
        return self._make(traced, [node.meta["val"] for node in places])

    def _on_leaves(self, like: tuple[Any, ...]) -> Callable[..., tuple[Tensor, ...]]:
        """Turn it into a function of what `_leaves` lays out, and back; note the shape of its
        result."""
        shape = _shaper(like)

        def function(*leaves: Tensor) -> tuple[Tensor, ...]:
            result = self._function(*shape(iter(leaves)))
            self._shape = _shaper(result)
            return tuple(_leaves(result))

        return function


def traced_with(function: Callable[..., Any], leaves: Sequence[Tensor]) -> GraphModule:
    """Trace a function as a graph of elementary operations that change nothing in place."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx  # half a second, for those alone

    trace = make_fx(
        torch.func.functionalize(function),
        decomposition_table=select_decomp_table(),
        tracing_mode="fake",
        _allow_non_fake_inputs=True,  # buffers of networks, such as a head's layout
    )
    traced: GraphModule = trace(*leaves)
    return traced


def lift_buffers(traced: GraphModule) -> list[Tensor]:
    """Turn the tensors that a graph holds into its last arguments, and return them: compiled as
    constants, they would stay as they are now."""
    graph, buffers = traced.graph, []
    last = graph.find_nodes(op="placeholder")[-1]
    for node in graph.find_nodes(op="get_attr"):
        buffers.append(getattr(traced, node.target))
        with graph.inserting_after(last):
            last = graph.placeholder(f"buffer_{len(buffers)}")
        last.meta["val"] = node.meta.get("val")
        node.replace_all_uses_with(last)
        graph.erase_node(node)
    traced.recompile()
    return buffers


def set_biases_apart(traced: GraphModule) -> None:
    """Let biases be added where the next function is applied, and not copied to all rows before a
    product. They are subtracted, in fact: a sum would be put together again."""
    graph, aten = traced.graph, torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
        bias, one, other = node.args
        if node.kwargs:  # other factors than 1
            continue
        with graph.inserting_before(node):
            product = graph.call_function(aten.mm.default, (one, other))
            product.meta["val"] = node.meta["val"]
            less = graph.call_function(aten.neg.default, (bias,))
            both = graph.call_function(aten.sub.Tensor, (product, less))
        node.replace_all_uses_with(both)
        graph.erase_node(node)
    traced.recompile()


def turn_narrow(traced: GraphModule) -> None:
    """Let products with few columns be computed transposed: MKL takes up to six times as long for
    them as for those with few rows."""
    graph, aten = traced.graph, torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.mm.default):
        rows, columns = node.meta["val"].shape
        if columns <= NARROW < rows:
            with graph.inserting_before(node):
                one, other = (
                    graph.call_function(aten.permute.default, (part, [1, 0])) for part in node.args
                )
                turned = graph.call_function(node.target, (other, one))
                back = graph.call_function(aten.permute.default, (turned, [1, 0]))
                back = graph.call_function(
                    aten.clone.default, (back,), {"memory_format": torch.contiguous_format}
                )
            node.replace_all_uses_with(back)
            graph.erase_node(node)
    traced.recompile()


def _leaves(part: Any) -> list[Any]:
    """Lay out the tensors of nested tuples and dicts."""
    if isinstance(part, tuple):
        return [leaf for inner in part for leaf in _leaves(inner)]
    if isinstance(part, dict):
        return [leaf for inner in part.values() for leaf in _leaves(inner)]
    return [part]


def _layer_out(part: Any) -> Callable[[Any], Iterable[Any]]:
    """Choose the quickest way to lay out what looks like this."""
    if isinstance(part, Tensor):
        return lambda tensor: (tensor,)
    flat = isinstance(part, tuple) and all(isinstance(inner, Tensor) for inner in part)
    return iter if flat else _leaves


def _shaper(like: Any) -> Callable[[Iterator[Any]], Any]:
    """Make the function that puts leaves, laid out, into the shape of this."""
    if isinstance(like, tuple):
        parts = [_shaper(part) for part in like]
        make: Callable[..., Any] = getattr(like, "_make", tuple)
        return lambda leaves: make([part(leaves) for part in parts])
    if isinstance(like, dict):
        named = {name: _shaper(part) for name, part in like.items()}
        return lambda leaves: {name: part(leaves) for name, part in named.items()}
    return next


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
