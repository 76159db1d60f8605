"""Where settings become a learner."""

from __future__ import annotations

from surefoot.config import Config, PPOConfig
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Spec
from surefoot.learn.experience import Experience
from surefoot.learn.optimizer import Optimizer
from surefoot.learn.ppo import PPO
from surefoot.learn.rates import build_rate
from surefoot.learn.rewards import RawRewards, Rewards, ScaledRewards
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.build import build_actor_critic
from surefoot.policy.device import pick


def build_learner(config: Config, spec: Spec) -> PPO:
    """Make the learner that `config.algo` names."""
    ppo = config.ppo
    ppo.check(spec.rows)
    if config.policy.normalize_observations and config.total_steps <= spec.rows * ppo.horizon:
        raise ConfigError(
            f"total_steps={config.total_steps} ends with the first rollout, which only primes "
            f"policy.normalize_observations; raise it, or lower ppo.horizon"
        )
    policy = build_actor_critic(spec, config.policy, config.seed).to(pick(config.device))
    optimizers = _optimizers(policy, ppo)
    rewards: Rewards = (
        ScaledRewards(spec.rows, ppo.gamma) if ppo.normalize_returns else RawRewards()
    )
    experience = Experience(ppo.experience_steps(spec.rows))
    return PPO(policy, optimizers, rewards, ppo, experience, config.seed)


def _optimizers(policy: ActorCritic, ppo: PPOConfig) -> dict[str, Optimizer]:
    """Make one optimizer, or two; each is named like its learning rate's metric."""
    actor, critic = policy.policy_parameters(), policy.value_parameters()
    rate = build_rate(ppo.learning_rate)
    if ppo.value_learning_rate is None:
        both = {"policy": actor, "value": critic}
        return {"learning_rate": Optimizer(both, rate, ppo.max_grad_norm)}
    value_rate = build_rate(ppo.value_learning_rate)
    return {
        "learning_rate": Optimizer({"policy": actor}, rate, ppo.max_grad_norm),
        "value_learning_rate": Optimizer({"value": critic}, value_rate, ppo.max_grad_norm),
    }
