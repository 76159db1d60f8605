"""SAC's policy and its twin critics, for actions within bounds and for choices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from surefoot.core.tree import Array, Tree
from surefoot.nets.encoder import Encoder
from surefoot.policy.device import to_array
from surefoot.policy.distributions import Categorical, Distribution, SquashedGaussian
from surefoot.policy.heads import CategoricalHead, SquashedHead
from surefoot.policy.normalizer import Normalizer


class BoundedCritics(nn.Module):
    """For numbers within bounds: two networks of features and an action; the lower value counts.

    `taken` values actions that were taken, [2, B]. `expected` returns what a policy's actions are
    worth and their log-probability, [B] each, for a sample that `noise` settles. `value` is what
    it does at its best. Features are [B, F].
    """

    center: Tensor
    reach: Tensor

    def __init__(self, nets: Sequence[nn.Module], center: Tensor, reach: Tensor) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)
        self.register_buffer("center", center.clone(), persistent=False)
        self.register_buffer("reach", reach.clone(), persistent=False)

    def taken(self, features: Tensor, action: Tensor) -> Tensor:
        unit = (action.reshape(*features.shape[:-1], -1) - self.center) / self.reach
        return self._values(features, unit)

    def expected(
        self, features: Tensor, distribution: SquashedGaussian, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        unit, log_prob = distribution.draw(noise)
        return self._values(features, unit).amin(0), log_prob

    def value(self, features: Tensor, distribution: SquashedGaussian) -> Tensor:
        return self._values(features, torch.tanh(distribution.mean)).amin(0)

    def noise_shape(self) -> tuple[int, ...]:
        return (len(self.center),)

    def _values(self, features: Tensor, unit: Tensor) -> Tensor:
        given = torch.cat([features, unit], -1)
        return torch.stack([net(given).squeeze(-1) for net in self.nets])


class ChoiceCritics(nn.Module):
    """For choices: two networks of features that value every combination of options at once.

    The same for `BoundedCritics`, but that `expected` is an expectation and needs no noise.
    """

    combinations: Tensor
    places: Tensor

    def __init__(self, nets: Sequence[nn.Module], bins: Sequence[int]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)
        ranges = [torch.arange(n) for n in bins]
        combinations = torch.cartesian_prod(*ranges).reshape(-1, len(bins))
        places = [math.prod(bins[choice + 1 :]) for choice in range(len(bins))]
        self.register_buffer("combinations", combinations, persistent=False)  # [A, D]
        self.register_buffer("places", torch.tensor(places), persistent=False)  # [D]

    def taken(self, features: Tensor, action: Tensor) -> Tensor:
        options = action.reshape(*features.shape[:-1], -1)
        index = (options * self.places).sum(-1, keepdim=True)
        return torch.stack([net(features).gather(-1, index).squeeze(-1) for net in self.nets])

    def expected(
        self, features: Tensor, distribution: Categorical, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_prob = self._log_prob(distribution)
        probability = log_prob.exp()
        lower = torch.stack([net(features) for net in self.nets]).amin(0)
        return (probability * lower).sum(-1), (probability * log_prob).sum(-1)

    def value(self, features: Tensor, distribution: Categorical) -> Tensor:
        return self.expected(features, distribution, features)[0]

    def noise_shape(self) -> tuple[int, ...]:
        return (0,)

    def _log_prob(self, distribution: Categorical) -> Tensor:
        """Return the log-probability of every combination, […, A]."""
        logits = distribution.logits
        parts = [logits[..., d, options] for d, options in enumerate(self.combinations.unbind(-1))]
        return torch.stack(parts).sum(0)


class SoftActorCritic(nn.Module):
    """normalizer → encoder → actor → head → distribution, and encoder → critics → values."""

    def __init__(
        self,
        normalizer: Normalizer,
        encoder: Encoder,
        actor: nn.Module,
        head: CategoricalHead | SquashedHead,
        critic: BoundedCritics | ChoiceCritics,
    ) -> None:
        super().__init__()
        self.normalizer, self.encoder, self.trunk = normalizer, encoder, nn.Identity()
        self.actor, self.head, self.critic = actor, head, critic

    def prepare(self, obs: Tree) -> Tree:
        """Normalize a tree of […, *shape] observations."""
        return self.normalizer(obs)

    def forward(self, features: Tensor) -> Distribution:
        """Return the distributions over actions of encoded observations."""
        distribution: Distribution = self.head(self.actor(features))
        return distribution

    def distribution(self, prepared: Tree) -> Distribution:
        distribution: Distribution = self(self.encoder(prepared))
        return distribution

    def value(self, prepared: Tree) -> Tensor:
        """Return what the critics expect of the policy, […]; entropy that follows is in it."""
        features = self.encoder(prepared)
        return self.critic.value(features, self(features))

    def arrays(self) -> dict[str, Array]:
        """Copy all parameters and statistics, by name."""
        return {name: to_array(value).copy() for name, value in self.state_dict().items()}

    def policy_parameters(self) -> dict[str, nn.Parameter]:
        """Name the actor's parameters."""
        return {n: p for n, p in self.named_parameters() if not n.startswith("critic.")}

    def value_parameters(self) -> dict[str, nn.Parameter]:
        """Name the critics' parameters."""
        return {n: p for n, p in self.named_parameters() if n.startswith("critic.")}
