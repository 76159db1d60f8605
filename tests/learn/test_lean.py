"""Steps in numpy do what steps in torch do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from surefoot.config import Config, PPOConfig
from surefoot.learn import lean
from surefoot.learn.build import build_learner
from surefoot.learn.lean import LARGEST_MINIBATCH, LeanStep
from tests.learn.steps import NOW, OPTIONS, assert_same_steps
from tests.toys import ENVS, collector, in_torch, learner

ACTIVATIONS = ["tanh", "relu", "elu", "silu", "leaky_relu"]
POLICIES: list[dict[str, Any]] = [
    *({"activation": name} for name in ACTIVATIONS),
    {"shared_trunk": True, "activation": "silu"},
    {"shared_trunk": True, "hidden": ()},
    {"normalize_observations": True, "value_hidden": (8,)},
]


@pytest.mark.parametrize("kind", ENVS)
@pytest.mark.parametrize("options", [o for o in OPTIONS if "microbatch_size" not in o])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_in_numpy_has_the_gradients_of_one_in_torch(
    kind: str, options: dict[str, Any], policy: dict[str, Any]
) -> None:
    assert_same_steps(kind, options, policy, LeanStep)


def test_a_step_leaves_what_it_was_given() -> None:
    collect = collector(ENVS["continuous"])
    ppo = learner(collect.spec)
    assert isinstance(ppo._step, LeanStep)
    vector, adam = ppo._optimizer.flat.vector, ppo._optimizer.adam
    before = vector.clone()
    ppo._improve(
        ppo._estimate(collect.collect(ppo.actor())),
        {"clip_range": 0.2, "entropy_coefficient": 0.0},
        NOW,
    )
    assert adam.first.abs().sum() == 0
    assert not torch.equal(before, vector)  # which the update itself writes, at its end


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
    large = learner(spec, minibatch_size=LARGEST_MINIBATCH + 1, horizon=1024)
    assert not lean.knows(in_torch(large), LARGEST_MINIBATCH + 1)


@pytest.mark.parametrize(
    ("minibatch_size", "compile", "how"),
    [(64, "off", "numpy"), (1024, "off", "torch"), (64, "on", "compiled")],
)
def test_a_learner_says_how_it_computes(minibatch_size: int, compile: Any, how: str) -> None:
    ppo = PPOConfig(minibatch_size=minibatch_size, horizon=1024)
    config = Config(compile=compile, device="cpu", ppo=ppo)
    assert build_learner(config, collector(ENVS["discrete"]).spec).how == how
