"""Adam over all parameters of a policy in one vector, as a function; and what it keeps, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.core.metrics import Metrics
from surefoot.core.state import State
from surefoot.core.tree import Array
from surefoot.learn.rates import LearningRate
from surefoot.policy.device import to_array, to_tensors

DECAY_FIRST, DECAY_SECOND, EPSILON = 0.9, 0.999, 1e-5


class Flat:
    """Where the parameters of some networks lie in one vector, network by network.

    The parameters become views of `vector`: who writes there changes them, and the other way round.
    """

    def __init__(self, networks: Mapping[str, Mapping[str, nn.Parameter]]) -> None:
        parameters = {n: p for network in networks.values() for n, p in network.items()}
        self._shapes = {name: tuple(p.shape) for name, p in parameters.items()}
        self._sizes = [p.numel() for p in parameters.values()]
        self.names = {network: list(named) for network, named in networks.items()}
        self.sizes = [sum(p.numel() for p in named.values()) for named in networks.values()]
        ends = list(accumulate(self.sizes))
        self.parts = [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]
        """The range of each network."""
        self.vector = self.pack({name: p.detach() for name, p in parameters.items()})
        for name, view in self.unpack(self.vector).items():
            parameters[name].data = view

    def pack(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([tensors[name].reshape(-1) for name in self._shapes])

    def unpack(self, vector: Tensor) -> dict[str, Tensor]:
        """See a vector as tensors by name."""
        parts = zip(self._shapes.items(), torch.split(vector, self._sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    def unpack_part(self, network: str, vector: Tensor) -> dict[str, Tensor]:
        """See the part of one network as tensors by name."""
        shapes = {name: self._shapes[name] for name in self.names[network]}
        parts = torch.split(vector, [math.prod(shape) for shape in shapes.values()])
        both = zip(shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in both}

    def norms(self, vector: Tensor) -> Tensor:
        """Return the Euclidean norm of each network's part."""
        return torch.stack([torch.linalg.vector_norm(vector[part]) for part in self.parts])

    def spread(self, values: Tensor) -> Tensor:
        """Repeat each network's value for all of its parameters."""
        parts = zip(values.unbind(), self.sizes, strict=True)
        return torch.cat([value.expand(size) for value, size in parts])


class Adam(NamedTuple):
    """What Adam remembers: the moments of all parameters."""

    first: Tensor
    second: Tensor

    @classmethod
    def blank(cls, vector: Tensor) -> Adam:
        return cls(torch.zeros_like(vector), torch.zeros_like(vector))

    def step(
        self,
        vector: Tensor,
        gradient: Tensor,
        rate: Tensor,
        bias: Tensor,
        epsilon: float = EPSILON,
    ) -> tuple[Tensor, Adam]:
        """Return where parameters go, and what follows; `rate` is of each parameter, and `bias` is
        how far the moments and the root of the second have come from 0."""
        first = torch.lerp(self.first, gradient, 1 - DECAY_FIRST)
        second = DECAY_SECOND * self.second + (1 - DECAY_SECOND) * gradient.square()
        moved = rate / bias[0] * first / (second.sqrt() / bias[1] + epsilon)
        return vector - moved, Adam(first, second)

    def of(self, part: slice) -> Adam:
        """Return what is remembered of a part of the parameters."""
        return Adam(self.first[part], self.second[part])


def biases(steps: int, count: int) -> Array:
    """Return Adam's biases in the next steps, [count, 2]. They are no part of a step, in which
    powers would be taken once per parameter when it is compiled."""
    after = np.arange(steps + 1, steps + count + 1, dtype=np.float64)
    return np.stack([1 - DECAY_FIRST**after, np.sqrt(1 - DECAY_SECOND**after)], 1).astype(
        np.float32
    )


class Optimizer:
    """The parameters of a policy, what Adam remembers of them, and the learning rates by name.

    `rate_of` names the rate of each network; networks with one rate are clipped together.
    """

    def __init__(
        self, flat: Flat, rates: Mapping[str, LearningRate], rate_of: Mapping[str, str]
    ) -> None:
        self.flat, self.rates = flat, rates
        self._rate_of = rate_of
        self.adam, self.steps = Adam.blank(flat.vector), 0

    def rates_at(self, fraction: float) -> Tensor:
        """Return the rate of each network when this share of the budget is spent."""
        rates = [self.rates[name].at(fraction) for name in self._rate_of.values()]
        return torch.tensor(rates, device=self.flat.vector.device)

    def biases(self, count: int) -> tuple[Tensor, ...]:
        """Return Adam's biases in each of the next steps."""
        on_device: Tensor = to_tensors(biases(self.steps, count), self.flat.vector.device)
        return on_device.unbind()

    def advance(self, vector: Tensor, adam: Adam, steps: int) -> None:
        """Go where some steps led."""
        self.flat.vector.copy_(vector)
        self.adam, self.steps = adam, self.steps + steps

    def metrics(self, before: Tensor) -> Metrics:
        """Measure Adam's moments and how far parameters moved from where they were, network by
        network."""
        vectors = {
            "update/{}_norm": self.flat.vector - before,
            "optim/{}_first_moment": self.adam.first,
            "optim/{}_second_moment": self.adam.second,
        }
        return {
            name.format(network): value
            for name, vector in vectors.items()
            for network, value in zip(
                self.flat.names, self.flat.norms(vector).tolist(), strict=True
            )
        }

    def state(self) -> State:
        return {name: self._state(name, rate) for name, rate in self.rates.items()}

    def restore(self, state: State) -> None:
        moments: State = {}
        for kept in state.values():  # a fork may split networks among other rates than its parent
            for key, values in kept["adam"].items():
                moments.setdefault(key, {}).update(values)
        for name, rate in self.rates.items():
            rate.restore(state.get(name, {"rate": {}})["rate"])
        self.adam, self.steps = Adam.blank(self.flat.vector), 0
        for name, steps in moments.get("step", {}).items():
            self.steps = int(steps)
            for key, vector in (("exp_avg", self.adam.first), ("exp_avg_sq", self.adam.second)):
                place = self.flat.unpack(vector)[name]
                place.copy_(torch.from_numpy(_of_shape(name, place, moments[key][name])))

    def _state(self, name: str, rate: LearningRate) -> State:
        """Take down a rate and the moments of its networks; none before the first step."""
        names = [
            parameter
            for network, its in self._rate_of.items()
            if its == name and self.steps > 0
            for parameter in self.flat.names[network]
        ]
        first, second = self.flat.unpack(self.adam.first), self.flat.unpack(self.adam.second)
        steps = np.int64(self.steps)
        adam = {
            "step": {parameter: np.array(steps) for parameter in names},
            "exp_avg": {parameter: to_array(first[parameter]).copy() for parameter in names},
            "exp_avg_sq": {parameter: to_array(second[parameter]).copy() for parameter in names},
        }
        return {"adam": adam, "rate": rate.state()}


def _of_shape(name: str, place: Tensor, moment: Array) -> Array:
    if moment.shape != tuple(place.shape) or moment.dtype != np.float32:
        raise ValueError(f"a moment of {name} has shape {moment.shape}")
    return np.array(moment)
