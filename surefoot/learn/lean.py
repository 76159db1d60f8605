"""PPO's optimizer step in numpy, with its gradients written out.

Networks of the usual size are so small that torch spends most of a step on bookkeeping. Here a step
takes a third of that time, and nothing has to be compiled. `knows` says whom it can serve; tests
hold it against the step in torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.core.tree import Array
from surefoot.learn.experience import Minibatch, Samples
from surefoot.learn.optimizer import DECAY_FIRST, DECAY_SECOND, EPSILON, Adam, Flat
from surefoot.learn.step import NO_NORM, Knobs, MinibatchStep
from surefoot.maths import losses
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.heads import IMPOSSIBLE, CategoricalHead, GaussianHead
from surefoot.policy.translate import FEATURES, LAYERS, layers_of

LARGEST = 10_000_000
"""Samples of a minibatch times parameters, beyond which a step is all arithmetic, and torch is as
fast, or faster on several threads."""
Slope: TypeAlias = Callable[[Array, Array], Array]
"""From what a function was given and what it returned to its derivative."""
View: TypeAlias = Callable[[Tensor], Array]
"""From a parameter to its place in a vector."""


class Layer(Protocol):
    """One function of a network, and how gradients pass it. All arrays are [B, features]."""

    def forward(self, values: Array) -> Array: ...

    def learn(self, above: Array) -> None:
        """Leave the gradient of its parameters, given that of what it returned last."""

    def below(self, above: Array) -> Array:
        """Return the gradient of what it was given last."""


class Affine:
    """A linear layer."""

    def __init__(self, layer: nn.Linear, parameter: View, gradient: View) -> None:
        self._weight, self._bias = parameter(layer.weight), parameter(layer.bias)
        self._to_weight, self._to_bias = gradient(layer.weight), gradient(layer.bias)

    def forward(self, values: Array) -> Array:
        self._given = values
        result: Array = values @ self._weight.T
        result += self._bias
        return result

    def learn(self, above: Array) -> None:
        np.matmul(above.T, self._given, out=self._to_weight)
        np.matmul(np.ones(len(above), np.float32), above, out=self._to_bias)  # sums, fast

    def below(self, above: Array) -> Array:
        result: Array = above @ self._weight
        return result


class Bend:
    """A nonlinearity."""

    def __init__(self, function: Callable[[Array], Array], slope: Slope) -> None:
        self._function, self._slope = function, slope

    def forward(self, values: Array) -> Array:
        self._given, self._result = values, self._function(values)
        return self._result

    def learn(self, above: Array) -> None:
        pass

    def below(self, above: Array) -> Array:
        above *= self._slope(self._given, self._result)
        return above


class Chain:
    """Layers one after another."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers

    def forward(self, values: Array) -> Array:
        for layer in self._layers:
            values = layer.forward(values)
        return values

    def learn(self, above: Array) -> None:
        """Leave the gradients of all parameters; nobody asks for those of what it was given."""
        for number, layer in reversed(list(enumerate(self._layers))):
            layer.learn(above)
            if number:
                above = layer.below(above)

    def below(self, above: Array) -> Array:
        """Leave the gradients of all parameters, and return those of what it was given."""
        for layer in reversed(self._layers):
            layer.learn(above)
            above = layer.below(above)
        return above


class Choices:
    """Independent choices, from their logits: see `CategoricalHead`."""

    def __init__(self, head: CategoricalHead, parameter: View, gradient: View) -> None:
        self._slots, self._choices, self._options = head.slots.numpy(), *head.slots.shape
        self._real = self._slots.reshape(-1) < sum(head.bins)
        self._even = bool(self._real.all())

    def forward(self, values: Array, action: Array) -> tuple[Array, Array]:
        """Return the log-probabilities of actions, and entropies, [B] each."""
        if not self._even:
            values = np.pad(values, ((0, 0), (0, 1)), constant_values=IMPOSSIBLE)[:, self._slots]
        padded = values.reshape(-1, self._choices, self._options)
        shifted = padded - padded.max(-1, keepdims=True)
        self._logits = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        self._chances = np.exp(self._logits)
        self._taken = action.reshape(*self._logits.shape[:-1], 1)
        self._entropies = -(self._chances * self._logits).sum(-1, keepdims=True)
        chosen = np.take_along_axis(self._logits, self._taken, -1)
        return chosen.sum((-1, -2)), self._entropies.sum((-1, -2))

    def below(self, log_prob: Array, entropy: Array) -> Array:
        """Return the gradient of logits, given those of log-probabilities and entropies."""
        hot = self._taken == np.arange(self._options)
        result = (hot - self._chances) * log_prob[:, None, None]
        result -= self._chances * (self._logits + self._entropies) * entropy[:, None, None]
        flat: Array = result.reshape(len(result), -1)
        return flat if self._even else flat[:, self._real]


class Normals:
    """Independent normal variables, from their means: see `GaussianHead`."""

    def __init__(self, head: GaussianHead, parameter: View, gradient: View) -> None:
        self._log_std, self._to_log_std = parameter(head.log_std), gradient(head.log_std)

    def forward(self, values: Array, action: Array) -> tuple[Array, Array]:
        self._scale = np.exp(-self._log_std)
        self._scaled = (action.reshape(values.shape) - values) * self._scale
        constant = values.shape[-1] * 0.5 * math.log(2 * math.pi) + self._log_std.sum()
        self._squares = self._scaled * self._scaled
        entropy = constant + values.shape[-1] * 0.5
        return -0.5 * self._squares.sum(-1) - constant, np.full(len(values), entropy, np.float32)

    def below(self, log_prob: Array, entropy: Array) -> Array:
        np.matmul(log_prob, self._squares - 1, out=self._to_log_std)
        self._to_log_std += entropy.sum()
        result: Array = self._scaled * self._scale
        result *= log_prob[:, None]
        return result


class LeanStep:
    """Does what a MinibatchStep does whose policy is known here."""

    compile_seconds: ClassVar[float] = 0.0
    how: ClassVar[str] = "numpy"

    def __init__(self, step: MinibatchStep) -> None:
        self.plain, policy, flat = step, step.policy, step.flat
        self._encode = policy.encoder
        self._vector, self._gradient = np.zeros((2, len(flat.vector)), np.float32)
        parameter, gradient = (
            _views(policy, flat, self._vector),
            _views(policy, flat, self._gradient),
        )

        def chain(*modules: nn.Module) -> Chain:
            return Chain(
                [_layer(m, parameter, gradient) for net in modules for m in layers_of(net)]
            )

        self._trunk, self._critic = chain(policy.trunk), chain(policy.critic)
        self._actor = chain(policy.actor, policy.head.linear)
        self._head = HEADS[type(policy.head)](policy.head, parameter, gradient)
        self._shared = bool(layers_of(policy.trunk))
        self._clipped = step.value_loss is losses.clipped_value_loss
        self._normalized = step.normalize is losses.normalized

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def __call__(
        self, vector: Tensor, adam: Adam, minibatch: Minibatch, knobs: Knobs, bias: Tensor
    ) -> tuple[Tensor, Adam, Tensor]:
        batch = minibatch.samples()
        self._vector[:] = vector.numpy()
        total = batch.weight.sum().item()
        terms = self._differentiate(batch, batch.weight.numpy() / np.float32(total), knobs)
        parts = self.plain.flat.parts
        norms = [math.sqrt(self._gradient[part] @ self._gradient[part]) for part in parts]
        self._limit(norms)
        moved = self._adam(adam, knobs.rates.tolist(), *bias.tolist())
        return *moved, torch.tensor([total, *terms, *norms])

    def _differentiate(self, batch: Samples, weight: Array, knobs: Knobs) -> list[float]:
        """Leave the gradient of the loss; return the mean terms."""
        hidden = self._trunk.forward(self._encode(batch.obs).numpy())
        log_prob, entropy = self._head.forward(self._actor.forward(hidden), batch.action.numpy())
        value = self._critic.forward(hidden)[:, 0]
        advantage = self._advantage(batch)
        clip_range = np.float32(knobs.clip_range.item())
        log_ratio = log_prob - batch.log_prob.numpy()
        ratio = np.exp(log_ratio)
        free = ratio * advantage
        held = np.clip(ratio, 1 - clip_range, 1 + clip_range) * advantage
        value_loss, value_slope = self._value_loss(value, batch, knobs)
        to_entropy = -np.float32(knobs.entropy_coefficient.item()) * weight
        to_value = np.float32(self.plain.value_coefficient) * value_slope * weight
        to_actor = self._head.below(np.where(free <= held, -free, 0) * weight, to_entropy)
        if self._shared:
            self._trunk.learn(self._actor.below(to_actor) + self._critic.below(to_value[:, None]))
        else:
            self._actor.learn(to_actor)
            self._critic.learn(to_value[:, None])
        terms = [
            -np.minimum(free, held),
            value_loss,
            entropy,
            np.expm1(log_ratio) - log_ratio,
            -log_ratio,
            np.abs(ratio - 1) > clip_range,
            ratio,
        ]
        return [float(term @ weight) for term in terms]

    def _advantage(self, batch: Samples) -> Array:
        """Do as `losses.normalized`, or nothing."""
        advantage: Array = batch.advantage.numpy()
        if not self._normalized:
            return advantage
        weight = batch.weight.numpy()
        total = weight.sum()
        centered = (advantage - (advantage @ weight) / total) * weight
        deviation = np.sqrt(centered @ centered / max(total - 1, np.float32(1)))
        result: Array = centered / (deviation + np.float32(losses.NO_DEVIATION))
        return result

    def _value_loss(self, value: Array, batch: Samples, knobs: Knobs) -> tuple[Array, Array]:
        """Return the losses and their derivatives."""
        target, error = batch.target.numpy(), value - batch.target.numpy()
        loss, slope = error * error, 2 * error
        if not self._clipped:
            return loss, slope
        reach, old = np.float32(knobs.value_clip_range.item()), batch.value.numpy()
        clipped = old + np.clip(value - old, -reach, reach) - target
        other = clipped * clipped
        follows = (loss >= other) | (np.abs(value - old) <= reach)
        return np.maximum(loss, other), np.where(follows, slope, 0)

    def _limit(self, norms: list[float]) -> None:
        """Clip the gradient."""
        parts = self.plain.flat.parts
        if self.plain.together:
            parts, norms = [slice(0, len(self._gradient))], [math.hypot(*norms)]
        for part, norm in zip(parts, norms, strict=True):
            share = self.plain.max_grad_norm / (norm + NO_NORM)
            if not share >= 1:
                self._gradient[part] *= np.float32(share)

    def _adam(
        self, adam: Adam, rates: list[float], bias: float, bias_of_root: float
    ) -> tuple[Tensor, Adam]:
        """Do as `Adam.step`."""
        gradient = self._gradient
        first, second = adam.first.numpy(), adam.second.numpy()
        first = first + np.float32(1 - DECAY_FIRST) * (gradient - first)
        second = np.float32(DECAY_SECOND) * second
        np.multiply(gradient, gradient, out=gradient)
        gradient *= np.float32(1 - DECAY_SECOND)
        second += gradient
        moved = np.sqrt(second, out=gradient)
        moved /= np.float32(bias_of_root)
        moved += np.float32(EPSILON)
        np.divide(first, moved, out=moved)
        for part, rate in zip(self.plain.flat.parts, rates, strict=True):
            moved[part] *= np.float32(rate / bias)
        after = torch.from_numpy(self._vector - moved)
        return after, Adam(torch.from_numpy(first), torch.from_numpy(second))


def knows(step: MinibatchStep, minibatch_size: int) -> bool:
    """Say whether a step can, and should, be taken here. A subclass or hook may do anything."""
    policy = step.policy
    if type(policy) is not ActorCritic or type(policy.head) not in HEADS:
        return False
    nets = (policy.trunk, policy.actor, policy.head.linear, policy.critic)
    layers = [layer for net in nets for layer in layers_of(net)]
    own = {"log_std"} if isinstance(policy.head, GaussianHead) else set[str]()
    learned = [p for layer in layers for p in layer.parameters()]
    learned += [p for name, p in policy.head.named_parameters() if name in own]
    return (
        minibatch_size * len(step.flat.vector) <= LARGEST
        and step.value_loss in (losses.plain_value_loss, losses.clipped_value_loss)
        and step.normalize in (losses.normalized, losses.unchanged)
        and step.microbatch_size >= minibatch_size
        and step.flat.vector.device.type == "cpu"
        and all(type(part) in FEATURES for part in policy.encoder.parts)
        and all(type(layer) is nn.Linear or type(layer) in SLOPES for layer in layers)
        and all(layer.bias is not None for layer in layers if isinstance(layer, nn.Linear))
        and len({id(p) for p in learned}) == len(learned) == len(list(policy.parameters()))
        and not any(m._forward_hooks or m._forward_pre_hooks for m in policy.modules())
    )


def _views(policy: ActorCritic, flat: Flat, vector: Array) -> View:
    places = {name: part.numpy() for name, part in flat.unpack(torch.from_numpy(vector)).items()}
    names = {id(p): name for name, p in policy.named_parameters()}
    return lambda parameter: places[names[id(parameter)]]


def _layer(module: nn.Module, parameter: View, gradient: View) -> Layer:
    if isinstance(module, nn.Linear):
        return Affine(module, parameter, gradient)
    return Bend(LAYERS[type(module)](module), SLOPES[type(module)](module))


def _silu_slope(given: Array, result: Array) -> Array:
    gate = 1 / (1 + np.exp(-given))
    slope: Array = gate * (1 + given - result)
    return slope


SLOPES: dict[type, Callable[[Any], Slope]] = {
    nn.Tanh: lambda layer: lambda given, result: 1 - result * result,
    nn.ReLU: lambda layer: lambda given, result: result > 0,
    nn.ELU: lambda layer: lambda given, result: np.where(given > 0, 1, result + layer.alpha),
    nn.SiLU: lambda layer: _silu_slope,
    nn.LeakyReLU: lambda layer: (
        lambda given, _: np.where(given > 0, np.float32(1), np.float32(layer.negative_slope))
    ),
}
HEADS: dict[type, Callable[..., Choices | Normals]] = {
    CategoricalHead: Choices,
    GaussianHead: Normals,
}
