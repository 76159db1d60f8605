"""Compiled updates of SAC do what plain ones do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch

from surefoot.config import Config, SACConfig
from surefoot.core.progress import Progress
from surefoot.learn.build import build_sac, settle_compile
from surefoot.learn.compiled import Compiled, by_inductor, differentiated_in_graph
from surefoot.learn.sac import SAC
from tests.learn.steps import Case, Settings, cases
from tests.learn.test_sac import ENVS, trained
from tests.toys import collector, soft_learner

POLICIES: Settings = [
    [{"activation": name} for name in ("tanh", "relu", "elu", "silu", "leaky_relu", "gelu")],
    [{}, {"value_hidden": (8,)}],
    [{}, {"hidden": ()}],
    [{}, {"normalize_observations": True}],
]
OPTIONS: Settings = [
    [{}, {"max_grad_norm": 0.1}],
    [{}, {"temperature": 0.3}, {"target_entropy": 0.1}],
    [{}, {"value_learning_rate": 1e-3}],
    [{}, {"n_steps": 3, "tau": 0.5}],
]
KINDS = {**ENVS, "place": "FrozenLake-v1"}
CASES = cases(KINDS, POLICIES, OPTIONS)


def assert_same_updates(case: Case, backend: str) -> None:
    """Compare gradients tensor by tensor, what is measured, and where updates lead."""
    kind, policy, options = case
    collect = collector(KINDS[kind], rows=4, horizon=8)
    plain, rival = (soft_learner(collect.spec, policy, **options) for _ in range(2))
    events: list[Any] = []
    make = by_inductor if backend == "inductor" else lambda graph, inputs: graph
    function = replace(rival._step, gradient=differentiated_in_graph)
    rival._step = Compiled(function, rival._step, events.append, make)
    trained(plain, collect, 2)
    rival.restore(plain.state())
    assert_same_step(plain, rival)
    data = collect.collect(plain.actor())
    for sac in (plain, rival):
        sac.update(data, Progress(10**6))
    ours, theirs = (sac._optimizer.flat.vector for sac in (plain, rival))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert events == []
    assert rival.how == "compiled"


def assert_same_step(plain: SAC, rival: SAC) -> None:
    optimizer = plain._optimizer
    _, batches, luck = plain._draw(0, 1)
    given = (
        type(batches)(*(part[0] for part in batches)),
        type(luck)(luck.now[0], luck.then[0]),
        torch.tensor([1e-3, 2e-3, 3e-3]),
        optimizer.biases(1)[0],
    )
    blank = type(optimizer.adam).blank(optimizer.flat.vector)
    results = [
        sac._step(optimizer.flat.vector, blank, plain._target, *given) for sac in (plain, rival)
    ]
    (_, mine, target, said), (_, theirs, also_target, also_said) = results
    for name, gradient in optimizer.flat.unpack(mine.first).items():
        difference = optimizer.flat.unpack(theirs.first)[name] - gradient
        assert difference.norm() <= 1e-5 * (gradient.norm() + 0.03 * mine.first.norm()), name
    torch.testing.assert_close(said, also_said, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(target, also_target, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_update_as_one_graph_has_the_gradients_of_a_plain_one(case: Case) -> None:
    assert_same_updates(case, "graph")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")
@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_updates_have_the_gradients_of_plain_ones(case: Case) -> None:
    assert_same_updates(case, "inductor")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")
def test_a_compiled_update_has_the_gradients_of_a_plain_one() -> None:
    assert_same_updates(Case("continuous", {}, {}), "inductor")


def test_compiling_is_settled_by_sizes() -> None:
    for total_steps, expected in ((3_000, "off"), (20_000, "on")):
        config = Config(algo="sac", total_steps=total_steps, device="cpu")
        assert settle_compile(config).compile == expected
    slow = Config(algo="sac", total_steps=20_000, device="cpu", sac=SACConfig(updates_per_step=0.1))
    assert settle_compile(slow).compile == "off"


def test_the_setting_decides_what_a_learner_runs() -> None:
    spec = collector("Pendulum-v1").spec
    steps = [build_sac(Config(algo="sac", compile=said), spec)._step for said in ("on", "off")]
    assert [isinstance(step, Compiled) for step in steps] == [True, False]
