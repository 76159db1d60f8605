"""Loss terms against hand numbers."""

import pytest
import torch

from surefoot.maths import losses


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_policy_loss_takes_the_worse_of_clipped_and_unclipped() -> None:
    ratio = t(1.5, 0.5, 1.5, 0.5, 1.1)
    advantage = t(1.0, 1.0, -1.0, -1.0, 2.0)
    # clipped where it would flatter (1.5 at A>0, 0.5 at A<0), not where it would hide harm
    expected = t(-1.2, -0.5, 1.5, 0.8, -2.2)
    torch.testing.assert_close(losses.policy_loss(ratio, advantage, 0.2), expected)


def test_clipped_value_loss_is_the_maximum_of_both_errors() -> None:
    old = t(1.0, 1.0, 1.0)
    value = t(2.0, 0.9, 3.0)
    target = t(2.0, 2.0, 0.0)
    # moves clipped to ±0.5: 1.5, 0.9, 1.5; errors² 0 and .25, 1.21 and 1.21, 9 and 2.25
    expected = t(0.25, 1.21, 9.0)
    torch.testing.assert_close(losses.clipped_value_loss(value, old, target, 0.5), expected)
    torch.testing.assert_close(losses.value_loss(value, target), t(0.0, 1.21, 9.0))


def test_kl_estimators_match_their_definitions() -> None:
    log_ratio = torch.log(t(0.5, 1.0, 2.0))
    torch.testing.assert_close(losses.kl_k1(log_ratio), -log_ratio)
    expected = t(0.5 - 1 + 0.6931471805599453, 0.0, 2 - 1 - 0.6931471805599453)
    torch.testing.assert_close(losses.kl_k3(log_ratio), expected)


def test_clipped_counts_ratios_outside_the_range() -> None:
    got = losses.clipped(t(0.7, 0.81, 1.0, 1.19, 1.3), 0.2)
    assert got.tolist() == [1, 0, 0, 0, 1]


def test_weights_leave_padding_out_of_mean_and_deviation() -> None:
    values, weights = t(1.0, 2.0, 6.0, 1e9), t(1.0, 1.0, 1.0, 0.0)
    assert losses.weighted_mean(values, weights) == 3.0
    scaled = losses.normalized(values, weights)
    torch.testing.assert_close(scaled[:3], (values[:3] - 3) / values[:3].std())
    assert scaled[3] == 0


def test_one_sample_alone_normalizes_to_zero() -> None:
    assert losses.normalized(t(5.0, 9.0), t(1.0, 0.0)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("values", "expected"), [((1, 2, 3), 1.0), ((2, 2, 2), 0.0), ((3, 2, 1), -3.0)]
)
def test_explained_variance_of_perfect_constant_and_reversed_values(
    values: tuple[float, ...], expected: float
) -> None:
    assert float(losses.explained_variance(t(*values), t(1, 2, 3))) == pytest.approx(expected)


def test_soft_terms_by_hand() -> None:
    value, log_prob = torch.tensor([1.0, -2.0]), torch.tensor([-0.5, 0.25])
    alpha = torch.tensor(0.2)
    soft = losses.soft_value(value, log_prob, alpha)
    torch.testing.assert_close(soft, torch.tensor([1.1, -2.05]))
    reward, discount = torch.tensor([3.0, 3.0]), torch.tensor([0.9, 0.0])
    aim = losses.critic_target(reward, discount, soft)
    torch.testing.assert_close(aim, torch.tensor([3.99, 3.0]))
    heat = torch.tensor([-1.5], requires_grad=True)
    loss = losses.temperature_loss(heat, log_prob, target_entropy=-1.0)
    torch.testing.assert_close(loss, 1.5 * (log_prob - 1.0))
    loss.mean().backward()
    torch.testing.assert_close(heat.grad, -(log_prob - 1.0).mean().reshape(1))
