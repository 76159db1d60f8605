"""Adam over named parameters, with clipping, and state that survives under those names."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.core.state import State
from surefoot.core.tree import Array
from surefoot.learn.rates import LearningRate
from surefoot.policy.device import to_array


class Optimizer:
    """One Adam with one learning rate and one global gradient norm, over one or more networks."""

    def __init__(
        self,
        networks: dict[str, dict[str, nn.Parameter]],
        rate: LearningRate,
        max_grad_norm: float | None,
    ) -> None:
        self.networks = networks
        self.rate = rate
        self._parameters = {n: p for network in networks.values() for n, p in network.items()}
        self._max_grad_norm = float("inf") if max_grad_norm is None else max_grad_norm
        self._adam = torch.optim.Adam(self._parameters.values(), lr=0.0, eps=1e-5, fused=True)

    def zero_grad(self) -> None:
        self._adam.zero_grad()

    def step(self, fraction: float) -> Tensor:
        """Take one step at the rate of this moment, with the gradients clipped; return the norm
        that each network's gradient had before."""
        norms = torch.stack([norm(_gradients(network)) for network in self.networks.values()])
        nn.utils.clip_grads_with_norm_(
            self._parameters.values(), self._max_grad_norm, torch.linalg.vector_norm(norms)
        )
        self._adam.param_groups[0]["lr"] = self.rate.at(fraction)
        self._adam.step()
        return norms

    def moments(self, moment: str) -> dict[str, Tensor]:
        """Return one of Adam's moments of every parameter that has taken a step."""
        state = self._adam.state
        return {name: state[p][moment] for name, p in self._parameters.items() if p in state}

    def state(self) -> State:
        kept = ("step", "exp_avg", "exp_avg_sq")
        adam = {key: {n: to_array(t).copy() for n, t in self.moments(key).items()} for key in kept}
        return {"adam": adam, "rate": self.rate.state()}

    def restore(self, state: State) -> None:
        """Take over the moments of the parameters that this optimizer has."""
        self.rate.restore(state["rate"])
        self._adam.state.clear()
        for name, parameter in self._parameters.items():
            if name in state["adam"].get("step", {}):
                moments = {key: np.array(values[name]) for key, values in state["adam"].items()}
                _require_shape(name, parameter, moments["exp_avg"], moments["exp_avg_sq"])
                self._adam.state[parameter] = {
                    key: torch.from_numpy(value).to(parameter.device)
                    for key, value in moments.items()
                }


def norm(tensors: list[Tensor]) -> Tensor:
    """Euclidean norm of many tensors taken as one vector."""
    total: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return total


def _require_shape(name: str, parameter: nn.Parameter, *moments: Array) -> None:
    for moment in moments:
        if moment.shape != tuple(parameter.shape) or moment.dtype != np.float32:
            raise ValueError(f"a moment of {name} has shape {moment.shape}")


def _gradients(parameters: dict[str, nn.Parameter]) -> list[Tensor]:
    gradients = [p.grad for p in parameters.values()]
    missing = [name for name, p in parameters.items() if p.grad is None]
    if missing:
        raise ValueError(f"the loss does not depend on {missing[0]}")
    return gradients  # type: ignore[return-value]
