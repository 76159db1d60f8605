"""Compiled steps do what plain ones do, and are only used where that is worth it."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.fx_passes.post_grad import post_grad_passes
from torch.fx.passes.shape_prop import ShapeProp

from surefoot.config import Config, PolicyConfig, PPOConfig
from surefoot.learn.build import _once, build_learner, settle_compile
from surefoot.learn.compiled import (
    Compiled,
    by_inductor,
    differentiated_in_graph,
    set_biases_apart,
    traced_with,
    turn_narrow,
)
from surefoot.learn.ppo import PPO
from surefoot.learn.step import MinibatchStep
from tests.learn.steps import (
    KINDS,
    NOW,
    OPTIONS,
    POLICIES,
    Case,
    assert_same_steps,
    cases,
    covering,
)
from tests.toys import ENVS, collector, in_torch, learner

CASES = cases(KINDS, POLICIES, OPTIONS)


def with_step(ppo: PPO, backend: str, events: list[Any] | None = None) -> PPO:
    ppo._step = compiled(in_torch(ppo), backend, [] if events is None else events)
    return ppo


def compiled(step: MinibatchStep, backend: str, events: list[Any]) -> Compiled:
    """Make a step of a graph that inductor compiles, or that is run as it is."""
    make = by_inductor if backend == "inductor" else lambda graph, inputs: graph
    function = replace(step, gradient=differentiated_in_graph)
    return Compiled(function, step, events.append, make)


def assert_compiled_is_same(case: Case, backend: str) -> None:
    events: list[Any] = []
    assert_same_steps(case, lambda step: compiled(step, backend, events))
    assert events == []


def test_the_collector_of_garbage_rests_while_a_step_is_compiled() -> None:
    collect, rested = collector(ENVS["discrete"]), list[bool]()
    ppo = learner(collect.spec)

    def make(graph: Any, inputs: Any) -> Any:
        rested.append(not gc.isenabled())
        return graph

    function = replace(in_torch(ppo), gradient=differentiated_in_graph)
    ppo._step = Compiled(function, in_torch(ppo), print, make)
    ppo.update(collect.collect(ppo.actor()), NOW)
    assert rested == [True]
    assert gc.isenabled()


def test_every_two_settings_meet_in_some_case() -> None:
    lists = [[{}, {"a": 1}], [{"b": n} for n in range(3)], [{"c": n} for n in range(4)]]
    rows = covering(lists)
    assert len(rows) < 24  # all that there are
    for one, other in combinations(range(3), 2):
        for both in product(lists[one], lists[other]):
            assert any((row[one], row[other]) == both for row in rows)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_as_one_graph_has_the_gradients_of_a_plain_one(case: Case) -> None:
    assert_compiled_is_same(case, "graph")


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")


@needs_compiler
def test_a_compiled_step_has_the_gradients_of_a_plain_one() -> None:
    assert_compiled_is_same(Case("continuous", {}, {}), "inductor")


@needs_compiler
def test_what_was_compiled_once_is_taken_from_the_cache() -> None:
    from torch._dynamo.utils import counters

    given = torch.randn(3), torch.randn(3)
    for _ in range(2):
        before = counters["inductor"]["fxgraph_cache_hit"]
        graph = traced_with(lambda one, other: (one.tanh() * other,), given)
        places = graph.graph.find_nodes(op="placeholder")
        run = by_inductor(graph, [node.meta["val"] for node in places])
        torch.testing.assert_close(run(*given), (given[0].tanh() * given[1],))
    assert counters["inductor"]["fxgraph_cache_hit"] == before + 1


@needs_compiler
@pytest.mark.parametrize("size", [1, 16])
def test_a_buffer_that_changes_is_read_as_it_is(size: int) -> None:
    buffer, given = torch.ones(size), torch.randn(size)
    for _ in range(2):  # from the cache, too
        graph = traced_with(lambda one: (one * buffer + buffer.sum(),), (given,))
        places = graph.graph.find_nodes(op="placeholder")
        run = by_inductor(graph, [node.meta["val"] for node in places])
        for value in (1.0, 3.0):
            buffer.fill_(value)
            torch.testing.assert_close(run(given)[0], given * value + size * value)


@needs_compiler
@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_compiled_steps_have_the_gradients_of_plain_ones(case: Case) -> None:
    assert_compiled_is_same(case, "inductor")


def test_learners_of_one_process_have_graphs_of_their_own() -> None:
    collect = collector(ENVS["discrete"])
    data = collect.collect(learner(collect.spec).actor())
    for width in range(10, 19):  # more than torch keeps graphs of one function
        plain, other = (learner(collect.spec, {"hidden": (width,)}) for _ in range(2))
        events: list[Any] = []
        compiled = with_step(other, "graph", events)
        for ppo in (plain, compiled):
            ppo.update(data, NOW)
        ours, theirs = (ppo._optimizer.flat.vector for ppo in (plain, compiled))
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        assert events == []


class Unusual(nn.Sequential):
    """Looks at numbers, so that no graph can be made of it."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = super().forward(values)
        return result if float(values.detach().sum()) < 1e9 else -result


def test_what_cannot_be_compiled_is_run_as_it_is_and_said_so() -> None:
    collect = collector(ENVS["discrete"])
    plain, other = (learner(collect.spec) for _ in range(2))
    plain._step = in_torch(plain)
    for ppo in (plain, other):
        ppo.policy.actor = Unusual(*ppo.policy.actor)
    events: list[Any] = []
    compiled = with_step(other, "inductor", events)
    data = collect.collect(plain.actor())
    results = [ppo.update(data, NOW) for ppo in (plain, compiled)]
    assert results[1].pop("time/compile") > 0
    assert results[0] == results[1]
    assert compiled.how == plain.how == "torch"
    (event,) = events
    assert event["event"] == "not-compiled"
    assert "\n" not in event["message"]


@pytest.mark.parametrize(
    ("total_steps", "hidden", "expected"),
    [
        (100_000, (64, 64), "off"),
        (1_000_000, (64, 64), "on"),
        (1_000_000, (2048, 2048), "off"),
        (1_000_000, (256, 256), "on"),
    ],
)
def test_compiling_is_settled_by_sizes(
    total_steps: int, hidden: tuple[int, ...], expected: str
) -> None:
    policy, ppo = PolicyConfig(hidden=hidden), PPOConfig(minibatch_size=64, epochs=10)
    config = Config(total_steps=total_steps, device="cpu", policy=policy, ppo=ppo)
    assert settle_compile(config).compile == expected
    assert settle_compile(config, done=total_steps - 1000).compile == "off"  # of what is left
    for said in ("on", "off"):
        asked = config.model_copy(update={"compile": said})
        assert settle_compile(asked).compile == said


def test_a_large_critic_is_not_compiled_either() -> None:
    policy = PolicyConfig(value_hidden=(2048, 2048))
    config = Config(total_steps=10_000_000, device="cpu", policy=policy)
    assert settle_compile(config).compile == "off"


def test_the_setting_decides_what_a_learner_runs() -> None:
    spec = collector(ENVS["discrete"]).spec
    steps = [build_learner(Config(compile=said), spec)._step for said in ("on", "off")]
    assert [isinstance(step, Compiled) for step in steps] == [True, False]


def test_how_a_learner_computes_shows_with_its_first_step() -> None:
    collect = collector(ENVS["discrete"])
    compiled = with_step(learner(collect.spec), "graph")
    assert compiled.how == ""
    compiled.update(collect.collect(compiled.actor()), NOW)
    assert compiled.how == "compiled"


def test_products_with_few_columns_are_computed_transposed() -> None:
    def gradient(above: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return torch.mm(above.t(), given).view(-1)

    given = torch.randn(64, 16), torch.randn(64, 4)
    graph = traced_with(gradient, given)
    turn_narrow(graph)
    torch.testing.assert_close(graph(*given), gradient(*given))
    ShapeProp(graph).propagate(*given)
    (product,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    assert product.meta["tensor_meta"].shape == (4, 16)


def test_biases_are_added_after_products() -> None:
    def layers(given: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.addmm(torch.addmm(bias, given, weight).tanh(), given, weight, beta=0.5)

    given = torch.randn(64, 16), torch.randn(16, 16), torch.randn(16)
    graph = traced_with(layers, given)
    set_biases_apart(graph)
    torch.testing.assert_close(graph(*given), layers(*given))
    post_grad_passes(graph, is_inference=True)  # inductor's, which know sums of products
    left = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
    assert [node.kwargs for node in left] == [{"beta": 0.5}]


def test_one_line_says_that_an_update_is_not_compiled() -> None:
    heard: list[Any] = []
    tell = _once(heard.append)
    for error in ("of the critic's pass", "of a step"):
        tell({"event": "not-compiled", "error": error})
    assert [entry["error"] for entry in heard] == ["of the critic's pass"]
