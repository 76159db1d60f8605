"""Networks as configured, observations of every supported kind, actors and agents."""

import numpy as np
import pytest
import torch

from surefoot.config import PolicyConfig
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Box, Discrete, MultiDiscrete, Spec
from surefoot.policy.actor import Greedy, PolicyActor, Sample
from surefoot.policy.agent import Agent
from surefoot.policy.build import build_actor_critic


def box(*shape: int, low: float = -1.0, high: float = 1.0, dtype: str = "float32") -> Box:
    return Box(np.full(shape, low), np.full(shape, high), dtype)


def shapes(module: torch.nn.Module) -> list[tuple[int, ...]]:
    return [tuple(p.shape) for n, p in module.named_parameters() if n.endswith("weight")]


def test_hidden_sizes_and_activation_are_as_configured() -> None:
    config = PolicyConfig(hidden=(64, 128, 256), activation="relu", value_hidden=(32,))
    policy = build_actor_critic(Spec(box(5), Discrete(3), 1), config, 0)
    assert shapes(policy.actor) == [(64, 5), (128, 64), (256, 128)]
    assert shapes(policy.head) == [(3, 256)]
    assert shapes(policy.critic) == [(32, 5), (1, 32)]
    assert sum(isinstance(m, torch.nn.ReLU) for m in policy.actor.modules()) == 3


def test_a_shared_trunk_counts_as_the_actors_and_leaves_the_critic_one_layer() -> None:
    policy = build_actor_critic(Spec(box(5), box(2), 1), PolicyConfig(shared_trunk=True), 0)
    assert shapes(policy.trunk) == [(64, 5), (64, 64)]
    assert set(policy.value_parameters()) == {"critic.0.weight", "critic.0.bias"}
    assert {n.split(".")[0] for n in policy.policy_parameters()} == {"trunk", "head"}


def test_weights_are_orthogonal_biases_zero_and_the_last_actor_layer_small() -> None:
    policy = build_actor_critic(Spec(box(8), Discrete(2), 1), PolicyConfig(), 0)
    weight = policy.actor[2].weight.detach()
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(64), atol=1e-5, rtol=0)
    assert policy.head.linear.weight.norm(dim=1).tolist() == pytest.approx([0.01, 0.01])
    assert all((p == 0).all() for n, p in policy.named_parameters() if n.endswith("bias"))


def test_initialization_depends_on_the_seed_alone_and_leaves_torchs_generator_alone() -> None:
    spec = Spec(box(3), Discrete(2), 1)
    before = torch.get_rng_state()
    one, same, other = (build_actor_critic(spec, PolicyConfig(), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.head.linear.weight, same.head.linear.weight)
    assert not torch.equal(one.head.linear.weight, other.head.linear.weight)


@pytest.mark.parametrize(
    ("space", "obs", "expected"),
    [
        (Discrete(3), np.array([0, 2]), [[1, 0, 0], [0, 0, 1]]),
        (MultiDiscrete(np.array([2, 3]), np.zeros(2, int)), np.array([[1, 2]]), [[0, 1, 0, 0, 1]]),
        (box(2, 2), np.array([[[1, 2], [3, 4]]], np.float32), [[1, 2, 3, 4]]),
        (box(), np.array([7.0], np.float32), [[7]]),
        (
            {"a": box(1), "b": Discrete(2)},
            {"a": np.array([[5.0]]), "b": np.array([1])},
            [[5, 0, 1]],
        ),
    ],
)
def test_observations_become_features(space: object, obs: object, expected: list) -> None:  # type: ignore[type-arg]
    policy = build_actor_critic(Spec(space, Discrete(2), 1), PolicyConfig(), 0)
    tensors = (
        {k: torch.from_numpy(v) for k, v in obs.items()}
        if isinstance(obs, dict)
        else torch.from_numpy(obs)
    )
    assert policy.encoder(policy.prepare(tensors)).tolist() == expected


def test_images_and_unknown_actions_are_refused_clearly() -> None:
    with pytest.raises(ConfigError, match="FlattenObservation"):
        build_actor_critic(Spec(box(8, 8, 3), Discrete(2), 1), PolicyConfig(), 0)
    with pytest.raises(ConfigError, match="no policy yet"):
        build_actor_critic(Spec(box(2), {"a": Discrete(2)}, 1), PolicyConfig(), 0)


def test_an_actor_is_a_snapshot() -> None:
    policy = build_actor_critic(Spec(box(3), Discrete(4), 1), PolicyConfig(), 0)
    actor = PolicyActor(policy, Sample())
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    noise = actor.noise(np.random.default_rng(1), 5)
    before, _ = actor.act(obs, None, {}, noise)
    with torch.no_grad():
        policy.head.linear.weight.add_(100.0)
    after, _ = actor.act(obs, None, {}, noise)
    assert (before == after).all()


def test_agents_take_one_observation_or_many_and_clip_to_the_bounds() -> None:
    spec = Spec(box(3), box(2, high=0.5, low=-0.5), 1)
    policy = build_actor_critic(spec, PolicyConfig(), 0)
    with torch.no_grad():
        policy.head.linear.bias.copy_(torch.tensor([9.0, -9.0]))
    agent = Agent(policy, spec)
    assert agent.act(np.zeros(3)).tolist() == [0.5, -0.5]
    assert agent.act(np.zeros((4, 3))).shape == (4, 2)
    with pytest.raises(ConfigError, match=r"shape \(5,\)"):
        agent.act(np.zeros(5))


def test_agents_take_tuples_as_the_environment_gives_them() -> None:
    spec = Spec({"0": box(2), "1": Discrete(3)}, Discrete(2), 1)
    agent = Agent(build_actor_critic(spec, PolicyConfig(), 0), spec)
    assert agent.act((np.zeros(2), 1)) in (0, 1)
    assert agent.act((np.zeros((4, 2)), np.array([0, 1, 2, 0]))).shape == (4,)


def test_agents_add_the_first_choice_and_sample_when_asked() -> None:
    spec = Spec(Discrete(3, start=5), Discrete(2, start=10), 1)
    agent = Agent(build_actor_critic(spec, PolicyConfig(), 0), spec)
    assert agent.act(np.int64(6)) in (10, 11)
    sampled = {int(agent.act(np.int64(6), deterministic=False)) for _ in range(50)}
    assert sampled == {10, 11}
    greedy = PolicyActor(agent.network, Greedy())
    assert greedy.noise(np.random.default_rng(0), 3) == {}
