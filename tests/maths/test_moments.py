"""Running moments equal numpy's over all data, however it arrives."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.maths import moments


@given(cuts=st.lists(st.integers(0, 300), max_size=5), seed=st.integers(0, 2**32 - 1))
def test_pieces_give_the_moments_of_the_whole(cuts: list[int], seed: int) -> None:
    data = np.random.default_rng(seed).normal(3.0, 2.0, (300, 2))
    running = moments.empty(2)
    for piece in np.split(data, sorted(cuts)):
        running = moments.absorb(running, torch.from_numpy(piece))
    assert running.total == 300
    np.testing.assert_allclose(running.mean.numpy(), data.mean(0), rtol=1e-6)
    np.testing.assert_allclose(moments.deviation(running).numpy(), data.std(0), rtol=1e-6)


def test_a_large_mean_does_not_drown_the_variance() -> None:
    data = np.random.default_rng(0).normal(1e6, 1.0, (100, 1000))
    running = moments.empty()
    for piece in data:
        running = moments.absorb(running, torch.from_numpy(piece))
    np.testing.assert_allclose(float(running.mean), data.mean(), rtol=1e-6)
    np.testing.assert_allclose(float(moments.deviation(running)) ** 2, data.var(), rtol=1e-6)


def test_deviation_of_nothing_is_one() -> None:
    assert moments.deviation(moments.empty(3)).tolist() == [1.0, 1.0, 1.0]
