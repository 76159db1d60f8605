"""SAC's distribution, critics and first actions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution

from surefoot.config import Config, PolicyConfig
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Box, Discrete, MultiDiscrete, Spec
from surefoot.policy.actor import Greedy, PolicyActor, Sample
from surefoot.policy.build import build_actor, build_policy, build_soft_actor_critic, build_uniform
from surefoot.policy.distributions import SquashedGaussian
from surefoot.policy.lean import Lean
from surefoot.policy.soft import ChoiceCritics

RANDOM = np.random.default_rng(0)


def box(low: Any, high: Any, dtype: str = "float32") -> Box:
    return Box(np.array(low, dtype), np.array(high, dtype), dtype)


OBS = box([-1, -1, -1], [1, 1, 1])
BOUNDED = box([-2, 0], [2, 1])
CHOICES = MultiDiscrete(np.array([3, 2, 4]), np.zeros(3, np.int64))


def squashed(rows: int = 5) -> SquashedGaussian:
    mean, log_std = (torch.from_numpy(RANDOM.normal(size=(rows, 2))) for _ in range(2))
    center, reach = torch.tensor([0.0, 0.5]).double(), torch.tensor([2.0, 0.5]).double()
    return SquashedGaussian(mean, 0.5 * log_std, center, reach, (2,))


def test_squashed_log_probabilities_are_those_of_torch_without_the_bounds() -> None:
    mine = squashed()
    noise = torch.from_numpy(RANDOM.normal(size=(5, 2)))
    unit, log_prob = mine.draw(noise)
    normal = Normal(mine.mean, mine.log_std.exp())
    theirs = TransformedDistribution(normal, [TanhTransform()])
    torch.testing.assert_close(log_prob, theirs.log_prob(unit).sum(-1))
    torch.testing.assert_close(mine.log_prob(mine.sample(noise)), log_prob)
    scaled = AffineTransform(mine.center, mine.reach)(unit)
    torch.testing.assert_close(mine.sample(noise), scaled)


def test_squashed_log_probabilities_are_finite_where_tanh_is_one() -> None:
    far = squashed(1)._replace(mean=torch.full((1, 2), 30.0).double())
    unit, log_prob = far.draw(torch.zeros(1, 2).double())
    assert (unit == 1).all()
    assert bool(log_prob.isfinite().all())
    assert bool(far.log_prob(far.mode()).isfinite().all())


def test_the_entropy_of_a_squashed_variable_is_the_mean_of_its_log_probabilities() -> None:
    mine = squashed()
    noise = torch.from_numpy(RANDOM.normal(size=(200_000, 1, 2)))
    _, log_prob = mine.draw(noise)
    torch.testing.assert_close(mine.entropy(), -log_prob.mean(0), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("action", [BOUNDED, Discrete(4), CHOICES], ids=str)
@pytest.mark.parametrize("choice", [Sample(), Greedy()], ids=["sample", "greedy"])
def test_acting_in_numpy_and_in_torch_is_the_same(action: Any, choice: Any) -> None:
    policy = build_soft_actor_critic(Spec(OBS, action, 6), PolicyConfig(hidden=(16, 8)), 0)
    with torch.no_grad():
        for parameter in policy.parameters():  # means and deviations that differ
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    lean, torched = build_actor(policy, choice), PolicyActor(policy, choice)
    assert isinstance(lean, Lean)
    obs = RANDOM.normal(size=(6, 3)).astype(np.float32)
    noise = lean.noise(np.random.default_rng(1), 6)
    ours, theirs = (actor.act(obs, None, {}, noise)[0] for actor in (lean, torched))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert ours.dtype == theirs.dtype
    prepared = torch.from_numpy(obs)
    mine = lean.head.log_prob(lean._values(obs), ours)
    torch.testing.assert_close(
        torch.from_numpy(mine),
        policy.distribution(prepared).log_prob(torch.from_numpy(ours)).detach(),
        rtol=1e-3,
        atol=1e-3,
    )


def test_actions_stay_within_bounds() -> None:
    policy = build_soft_actor_critic(Spec(OBS, BOUNDED, 1), PolicyConfig(), 0)
    actor = build_actor(policy, Sample())
    noise = 50 * actor.noise(RANDOM, 100)
    action, _ = actor.act(RANDOM.normal(size=(100, 3)).astype(np.float32), None, {}, noise)
    assert (action >= BOUNDED.low).all()
    assert (action <= BOUNDED.high).all()
    assert action.min(0).tolist() == pytest.approx(BOUNDED.low.tolist())


def test_choices_are_valued_in_expectation_over_all_combinations() -> None:
    spec = Spec(OBS, CHOICES, 1)
    policy = build_soft_actor_critic(spec, PolicyConfig(hidden=(8,)), 0)
    critics = policy.critic
    assert isinstance(critics, ChoiceCritics)
    obs = torch.from_numpy(RANDOM.normal(size=(4, 3)).astype(np.float32))
    distribution = policy.distribution(obs)
    value, log_prob = critics.expected(obs, distribution, obs)
    slow_value, slow_log_prob = torch.zeros(4), torch.zeros(4)
    for options in product(range(3), range(2), range(4)):
        action = torch.tensor(options).expand(4, 3)
        log_p = distribution.log_prob(action)
        slow_value += log_p.exp() * critics.taken(obs, action).amin(0)
        slow_log_prob += log_p.exp() * log_p
    torch.testing.assert_close(value, slow_value)
    torch.testing.assert_close(log_prob, slow_log_prob)
    torch.testing.assert_close(-log_prob, distribution.entropy())


@pytest.mark.parametrize("action", [BOUNDED, Discrete(4), CHOICES], ids=str)
def test_the_first_actions_are_all_alike_probable(action: Any) -> None:
    actor = build_uniform(Spec(OBS, action, 1))
    count = 20_000
    taken, _ = actor.act({}, None, {}, actor.noise(np.random.default_rng(0), count))
    assert taken.shape == (count, *action.shape)
    assert actor.log_prob({}, taken) is None
    if isinstance(action, Box):
        assert taken.dtype == np.float32
        unit = (taken - action.low) / (action.high - action.low)
        assert np.histogram(unit, 4, (0, 1))[0] / unit.size == pytest.approx(4 * [0.25], abs=0.02)
    else:
        bins = [4] if isinstance(action, Discrete) else action.bins.tolist()
        for column, n in zip(taken.reshape(count, -1).T, bins, strict=True):
            assert np.bincount(column, minlength=n) / count == pytest.approx(n * [1 / n], abs=0.02)


@pytest.mark.parametrize(
    ("action", "policy", "words"),
    [
        (box([-np.inf], [1]), {}, "without bounds"),
        (MultiDiscrete(np.array([17, 16]), np.zeros(2, np.int64)), {}, "272 combinations"),
        (BOUNDED, {"shared_trunk": True}, "shared_trunk"),
        ({"a": Discrete(2)}, {}, "no SAC policy"),
    ],
)
def test_what_sac_cannot_choose_is_refused(action: Any, policy: Any, words: str) -> None:
    config = Config(algo="sac", policy=PolicyConfig(**policy))
    with pytest.raises(ConfigError, match=words):
        build_policy(Spec(OBS, action, 1), config)


def test_256_combinations_are_not_too_many() -> None:
    action = MultiDiscrete(np.array([16, 16]), np.zeros(2, np.int64))
    policy = build_soft_actor_critic(Spec(OBS, action, 1), PolicyConfig(), 0)
    assert policy.value(torch.zeros(7, 3)).shape == (7,)
