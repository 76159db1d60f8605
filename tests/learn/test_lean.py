"""Steps in numpy do what steps in torch do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from surefoot.config import Config, PPOConfig
from surefoot.learn import lean
from surefoot.learn.build import build_learner
from surefoot.learn.experience import Deck
from surefoot.learn.lean import LeanStep
from tests.learn.steps import KINDS, OPTIONS, POLICIES, Case, Settings, assert_same_steps, cases
from tests.toys import ENVS, collector, estimated, in_torch, learner

KNOWN: list[Settings] = [
    [
        [s for s in one if "microbatch_size" not in s and s.get("activation") != "gelu"]
        for one in settings
    ]
    for settings in (POLICIES, OPTIONS)
]


@pytest.mark.parametrize("case", cases(KINDS, *KNOWN), ids=str)
def test_a_step_in_numpy_has_the_gradients_of_one_in_torch(case: Case) -> None:
    assert_same_steps(case, LeanStep)


def test_a_step_leaves_what_it_was_given() -> None:
    collect = collector(ENVS["continuous"])
    ppo = learner(collect.spec)
    assert isinstance(ppo._step, LeanStep)
    (batch, *_) = Deck(estimated(ppo, collect.collect(ppo.actor())), 16).deal(0, 0, 0)
    knobs = ppo._knobs({"clip_range": 0.2, "entropy_coefficient": 0.0}, 0.0)
    optimizer = ppo._optimizer
    given = (optimizer.flat.vector, *optimizer.adam, *batch)
    before = [tensor.clone() for tensor in given]
    bias = optimizer.biases(1)[0]
    first = ppo._step(optimizer.flat.vector, optimizer.adam, batch, knobs, bias)
    kept = [tensor.clone() for tensor in (first[0], *first[1], first[2])]
    ppo._step(optimizer.flat.vector, optimizer.adam, batch, knobs, bias)
    for now, then in zip((*given, first[0], *first[1], first[2]), (*before, *kept), strict=True):
        assert torch.equal(now, then)


class Louder(nn.Tanh):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(values)


def test_policies_it_does_not_know_are_left_to_torch() -> None:
    spec = collector(ENVS["discrete"]).spec
    assert lean.knows(in_torch(learner(spec)), 16)
    unusual = [
        learner(spec, {"activation": "gelu"}),
        learner(spec, microbatch_size=4),
    ]
    hooked, other, twice, biasless = (learner(spec) for _ in range(4))
    hooked.policy.critic.register_forward_hook(lambda *_: None)
    other.policy.actor = nn.Sequential(Louder())
    tied: Any = twice.policy
    tied.critic[0][2] = tied.actor[2]
    bare: Any = biasless.policy
    bare.critic[0][0] = nn.Linear(4, 16, bias=False)
    for ppo in (*unusual, hooked, other, twice, biasless):
        assert not lean.knows(in_torch(ppo), 16)
    large = learner(spec, {"hidden": (1024, 1024)}, minibatch_size=16)
    assert not lean.knows(in_torch(large), 16)
    assert not lean.knows(replace(in_torch(learner(spec)), normalize=lambda values, _: values), 16)


@pytest.mark.parametrize(
    ("minibatch_size", "compile", "how"),
    [(64, "off", "numpy"), (4096, "off", "torch"), (64, "on", "")],
)
def test_a_learner_says_how_it_computes(minibatch_size: int, compile: Any, how: str) -> None:
    ppo = PPOConfig(minibatch_size=minibatch_size, horizon=1024)  # of 4 rows
    config = Config(compile=compile, device="cpu", ppo=ppo)
    assert build_learner(config, collector(ENVS["discrete"]).spec).how == how
