"""The policy and its value function, separate or on a shared trunk."""

from __future__ import annotations

from torch import Tensor, nn

from surefoot.core.tree import Array, Tree
from surefoot.nets.encoder import Encoder
from surefoot.policy.device import to_array
from surefoot.policy.distributions import Distribution
from surefoot.policy.heads import CategoricalHead, GaussianHead
from surefoot.policy.normalizer import Normalizer
from surefoot.policy.values import PlainValues, PopArt


class ActorCritic(nn.Module):
    """normalizer → encoder → trunk → (actor → head → distribution) and (critic → value).

    `prepare` is the part without gradients, so a learner does it once per update.
    """

    def __init__(
        self,
        normalizer: Normalizer,
        encoder: Encoder,
        trunk: nn.Module,
        actor: nn.Module,
        head: CategoricalHead | GaussianHead,
        critic: nn.Sequential,
        critic_scale: PlainValues | PopArt,
    ) -> None:
        super().__init__()
        self.normalizer, self.encoder = normalizer, encoder
        self.trunk, self.actor, self.head, self.critic = trunk, actor, head, critic
        self.critic_scale = critic_scale

    def prepare(self, obs: Tree) -> Tree:
        """Normalize a tree of […, *shape] observations."""
        return self.normalizer(obs)

    def forward(self, prepared: Tree) -> tuple[Distribution, Tensor]:
        """Return the distributions over actions for prepared observations, and […] what the
        critic's network gives for them, which `critic_scale` turns into values."""
        hidden = self.trunk(self.encoder(prepared))
        return self.head(self.actor(hidden)), self.critic(hidden).squeeze(-1)

    def distribution(self, prepared: Tree) -> Distribution:
        hidden = self.trunk(self.encoder(prepared))
        distribution: Distribution = self.head(self.actor(hidden))
        return distribution

    def raw_value(self, prepared: Tree) -> Tensor:
        """Return what the critic's network gives, as `forward` does."""
        given: Tensor = self.critic(self.trunk(self.encoder(prepared))).squeeze(-1)
        return given

    def value(self, prepared: Tree) -> Tensor:
        value: Tensor = self.critic_scale(self.raw_value(prepared))
        return value

    @property
    def last_of_critic(self) -> nn.Linear:
        """The layer that values come out of."""
        layer = self.critic[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def arrays(self) -> dict[str, Array]:
        """Copy all parameters and statistics, by name."""
        return {name: to_array(value).copy() for name, value in self.state_dict().items()}

    def policy_parameters(self) -> dict[str, nn.Parameter]:
        """Name the actor's parameters; a shared trunk counts as the actor's."""
        return {n: p for n, p in self.named_parameters() if not n.startswith("critic.")}

    def value_parameters(self) -> dict[str, nn.Parameter]:
        """Name the critic's own parameters."""
        return {n: p for n, p in self.named_parameters() if n.startswith("critic.")}
