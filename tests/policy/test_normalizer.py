"""Observation normalization: exact statistics, priming, and life inside the policy."""

import numpy as np
import torch

from surefoot.core.spec import Box, Discrete, Spec
from surefoot.policy.normalizer import Normalizer


def box(*shape: int) -> Box:
    return Box(np.full(shape, -np.inf), np.full(shape, np.inf), "float32")


def test_statistics_equal_numpys_over_all_data_at_a_large_mean() -> None:
    data = np.random.default_rng(0).normal([1e6, 0.0], [1.0, 5.0], (4000, 2))
    normalizer = Normalizer(box(2), enabled=True)
    for piece in np.split(data, 40):
        normalizer.absorb(torch.from_numpy(piece))
    scaled = normalizer(torch.from_numpy(data))
    expected = ((data - data.mean(0)) / data.std(0)).clip(-10, 10)
    np.testing.assert_allclose(scaled.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert scaled.dtype == torch.float32


def test_it_is_primed_by_the_first_data_and_leaves_choices_alone() -> None:
    normalizer = Normalizer({"speed": box(1), "gear": Discrete(3)}, enabled=True)
    assert not normalizer.primed
    obs = {"speed": torch.tensor([[2.0], [4.0]]), "gear": torch.tensor([0, 2])}
    assert torch.equal(normalizer(obs)["speed"], obs["speed"])
    normalizer.absorb(obs)
    assert normalizer.primed
    torch.testing.assert_close(normalizer(obs)["speed"], torch.tensor([[-1.0], [1.0]]))
    assert torch.equal(normalizer(obs)["gear"], obs["gear"])


def test_switched_off_it_does_nothing_and_is_always_primed() -> None:
    normalizer = Normalizer(box(1), enabled=False)
    assert normalizer.primed
    values = torch.tensor([[5.0]])
    normalizer.absorb(values)
    assert torch.equal(normalizer(values), values)


def test_statistics_travel_in_the_state_dict() -> None:
    one, other = (Normalizer(box(2), enabled=True) for _ in range(2))
    one.absorb(torch.randn(10, 2))
    other.load_state_dict(one.state_dict())
    values = torch.randn(3, 2)
    assert torch.equal(one(values), other(values))


def test_a_spec_survives_its_own_state() -> None:
    spec = Spec({"a": box(2), "b": Discrete(3, 1)}, Discrete(2), 4)
    assert str(Spec.from_state(spec.state())) == str(spec)
