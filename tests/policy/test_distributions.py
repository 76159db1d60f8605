"""Closed forms against torch.distributions, and samples against their probabilities."""

import numpy as np
import pytest
import torch
from torch import distributions as reference

from surefoot.policy.distributions import Categorical, Gaussian
from surefoot.policy.heads import CategoricalHead, GaussianHead


def random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_gaussian_agrees_with_torch() -> None:
    mean, log_std = torch.randn(7, 3, generator=random()), torch.tensor([-1.0, 0.0, 0.5])
    ours, theirs = Gaussian(mean, log_std, (3,)), reference.Normal(mean, log_std.exp())
    action = torch.randn(7, 3, generator=random())
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action).sum(-1))
    torch.testing.assert_close(ours.entropy(), theirs.entropy().sum(-1))
    torch.testing.assert_close(ours.sample(torch.ones(7, 3)), mean + log_std.exp())


@pytest.mark.parametrize("bins", [[4], [3, 3], [3, 2, 5]])
def test_choices_agree_with_torch_for_any_bins(bins: list[int]) -> None:
    head = CategoricalHead(6, bins, (len(bins),), random())
    with torch.no_grad():
        head.linear.weight.normal_(generator=random())
        features = torch.randn(5, 6, generator=random())
        ours = head(features)
        logits = head.linear(features).split(bins, -1)
        parts = [reference.Categorical(logits=part) for part in logits]
    action = torch.stack([part.sample() for part in parts], -1)
    expected = sum(part.log_prob(action[:, i]) for i, part in enumerate(parts))
    torch.testing.assert_close(ours.log_prob(action), expected)
    torch.testing.assert_close(ours.entropy(), sum(part.entropy() for part in parts))
    modes = torch.stack([part.probs.argmax(-1) for part in parts], -1)
    assert torch.equal(ours.mode(), modes)


def test_sampled_choices_follow_their_probabilities_and_never_leave_their_bins() -> None:
    head = CategoricalHead(1, [2, 3], (2,), random())
    with torch.no_grad():
        head.linear.bias.copy_(torch.tensor([0.0, 1.0, 0.0, 1.0, 2.0]))
        noise = torch.from_numpy(head.noise(np.random.default_rng(0), 50_000))
        action = head(torch.zeros(50_000, 1)).sample(noise)
    for column, logits in enumerate(([0.0, 1.0], [0.0, 1.0, 2.0])):
        counts = torch.bincount(action[:, column], minlength=len(logits)) / 50_000
        expected = torch.softmax(torch.tensor(logits), 0)
        torch.testing.assert_close(counts, expected, atol=0.01, rtol=0)


def test_sampled_numbers_have_the_mean_and_deviation_they_should() -> None:
    head = GaussianHead(1, (2,), -1.0, random())
    noise = torch.from_numpy(head.noise(np.random.default_rng(0), 50_000))
    with torch.no_grad():
        head.linear.bias.copy_(torch.tensor([3.0, -3.0]))
        action = head(torch.zeros(50_000, 1)).sample(noise)
    torch.testing.assert_close(action.mean(0), torch.tensor([3.0, -3.0]), atol=0.01, rtol=0)
    torch.testing.assert_close(action.std(0), torch.full((2,), 0.3679), atol=0.01, rtol=0)


def test_a_single_choice_is_a_scalar_and_gradients_stay_finite_beside_missing_options() -> None:
    single = CategoricalHead(3, [4], (), random())(torch.zeros(5, 3))
    assert single.mode().shape == (5,)
    head = CategoricalHead(3, [2, 5], (2,), random())
    (head(torch.ones(4, 3)).entropy().sum()).backward()
    assert head.linear.weight.grad is not None
    assert head.linear.weight.grad.isfinite().all()


def test_log_probability_ignores_the_extra_axes_of_an_action() -> None:
    flat = Gaussian(torch.zeros(2, 4), torch.zeros(4), (4,))
    square = Gaussian(torch.zeros(2, 4), torch.zeros(4), (2, 2))
    noise = torch.randn(2, 4, generator=random())
    assert square.sample(noise).shape == (2, 2, 2)
    torch.testing.assert_close(square.log_prob(square.sample(noise)), flat.log_prob(noise))


def test_categorical_probabilities_sum_to_one() -> None:
    logits = torch.randn(3, 2, 4, generator=random()).log_softmax(-1)
    total = sum(
        Categorical(logits, (2,)).log_prob(torch.tensor([[a, b]] * 3)).exp()
        for a in range(4)
        for b in range(4)
    )
    torch.testing.assert_close(total, torch.ones(3))
