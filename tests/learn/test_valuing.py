"""Values are the same whoever computes them, and follow the parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from surefoot.config import Config
from surefoot.core.rollout import CHUNK
from surefoot.core.spec import Discrete, Spec
from surefoot.learn.build import build_ppo
from surefoot.learn.compiled import Compiled, by_inductor
from surefoot.learn.ppo import PPO
from surefoot.learn.valuing import PlainCritic, Valuing, as_function
from tests.learn.steps import NOW
from tests.learn.test_compiled import Unusual, needs_compiler
from tests.policy.test_lean import box
from tests.toys import collector, learner

PAIR = Spec({"a": box(3), "b": box(2, 2), "c": Discrete(3)}, Discrete(2), 4)
POLICIES: list[dict[str, Any]] = [
    {},
    {"shared_trunk": True, "activation": "silu"},
    {"normalize_observations": True, "value_hidden": (8,), "activation": "gelu"},
]
BACKENDS = ["graph", pytest.param("inductor", marks=needs_compiler)]


def compiled(ppo: PPO, events: list[Any], backend: str = "graph") -> Valuing:
    """Value chunks by a graph that inductor compiles, or that is run as it is."""
    make: Any = by_inductor if backend == "inductor" else lambda graph, inputs: graph
    policy, flat = ppo.policy, ppo._optimizer.flat
    critic = Compiled(as_function(policy, flat), PlainCritic(policy), events.append, make)
    return Valuing(policy, flat, critic)


def observed(count: int) -> Any:
    torch.manual_seed(0)
    choice = torch.arange(count) % 3
    return {"a": torch.randn(count, 3), "b": torch.randn(count, 2, 2), "c": choice}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("policy", "popart"), [*((p, None) for p in POLICIES), ({}, 0.1)], ids=str)
@torch.no_grad()
def test_whole_chunks_are_valued_as_by_the_policy(policy: Any, popart: Any, backend: str) -> None:
    ppo, seen = learner(PAIR, policy, popart=popart), observed(CHUNK)
    events: list[Any] = []
    value = compiled(ppo, events, backend)
    for _ in range(2):
        prepared = ppo.policy.prepare(seen)
        expected = ppo.policy.value(prepared)
        few_bits = 2e-6 * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(value(prepared), expected, rtol=0, atol=few_bits)
        assert (events, value.compile_seconds > 0) == ([], True)
        ppo._optimizer.flat.vector.mul_(1.5)  # as an update would
        ppo.policy.critic_scale.follow(3 + torch.randn(50), ppo.policy.last_of_critic)


@torch.no_grad()
def test_what_is_no_whole_chunk_is_not_compiled() -> None:
    ppo = learner(PAIR, popart=0.1)
    ppo.policy.critic_scale.follow(3 + torch.randn(50), ppo.policy.last_of_critic)
    value = compiled(ppo, [])
    for count in (1, CHUNK - 1):
        seen = observed(count)
        assert torch.equal(value(seen), ppo.policy.value(seen))
    assert value.compile_seconds == 0


@torch.no_grad()
def test_a_critic_that_cannot_be_compiled_is_run_as_it_is() -> None:
    ppo, seen, events = learner(PAIR), observed(CHUNK), list[Any]()
    ppo.policy.critic[0] = Unusual(*ppo.policy.critic[0])
    assert torch.equal(compiled(ppo, events)(seen), ppo.policy.value(seen))
    assert len(events) == 1


@needs_compiler
def test_values_are_compiled_where_steps_are_and_what_cannot_be_is_told_of_once() -> None:
    settings: dict[str, Any] = {"envs": 64, "device": "cpu", "ppo": {"horizon": CHUNK // 64}}
    collect = collector("CartPole-v1", rows=64, horizon=CHUNK // 64)
    for way, unusual, expected in (("off", False, 0), ("on", False, 0), ("on", True, 1)):
        events: list[Any] = []
        ppo = build_ppo(Config(compile=way, **settings), collect.spec, events.append)
        if unusual:
            ppo.policy.critic[0] = Unusual(*ppo.policy.critic[0])
        ppo.update(collect.collect(ppo.actor()), NOW)
        assert (ppo._value.compile_seconds > 0) == (way == "on")
        assert len(events) == expected
        assert all("updates are not compiled as a whole" in e["message"] for e in events)


def test_an_update_values_whole_chunks_and_the_rest_and_counts_the_time_of_compiling() -> None:
    horizon = CHUNK // 64
    collect = collector("CartPole-v1", rows=64, horizon=horizon)
    plain, rival = (learner(collect.spec, horizon=horizon) for _ in range(2))
    events: list[Any] = []
    rival._value = compiled(rival, events)
    data = collect.collect(plain.actor())
    results = [ppo.update(data, NOW) for ppo in (plain, rival)]
    assert events == []
    assert results[1].pop("time/compile") == rival._value.compile_seconds > 0
    assert results[0] == pytest.approx(results[1], rel=1e-3, abs=1e-5)
