"""Acting in numpy: the same actions as by torch, for all that it knows; torch for the rest."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from surefoot.config import PolicyConfig
from surefoot.core import tree
from surefoot.core.protocols import Actor
from surefoot.core.spec import Box, Discrete, MultiDiscrete, Space, Spec
from surefoot.core.tree import Array, Tree
from surefoot.policy.actor import Choice, Greedy, PolicyActor, Sample
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.build import build_actor, build_actor_critic
from surefoot.policy.lean import Lean

ROWS = 40


def box(*shape: int, dtype: str = "float32") -> Box:
    return Box(np.full(shape, -9.0), np.full(shape, 9.0), dtype)


def bins(*counts: object) -> MultiDiscrete:
    return MultiDiscrete(np.array(counts), np.zeros_like(counts, int))


OBSERVATIONS = {
    "vector": box(5),
    "matrix": box(2, 3),
    "one number": box(),
    "doubles": box(3, dtype="float64"),
    "bytes": box(4, dtype="uint8"),
    "bools": box(4, dtype="bool"),
    "integers": box(4, dtype="int64"),
    "choice": Discrete(4),
    "choices": bins([2, 3], [4, 1]),
    "dict": {"b": box(2), "a": {"x": Discrete(3), "y": box(2, 2, dtype="uint8")}},
}
ACTIONS = {
    "choice": Discrete(4),
    "choices": bins(2, 5, 3),
    "matrix of choices": bins([2, 4], [3, 2]),
    "numbers": box(3),
    "matrix of numbers": box(2, 2),
    "one number": box(),
}
KNOWN = ["tanh", "relu", "elu", "silu", "leaky_relu"]


def observed(space: Tree, seed: int = 0, rows: int = ROWS) -> Tree:
    """Draw observations [rows, …], numbers among them between 3 and 9."""
    random = np.random.default_rng(seed)

    def draw(leaf: Space) -> Array:
        if isinstance(leaf, Box):
            numbers = random.uniform(3, 9, (rows, *leaf.shape))
            return numbers > 6 if leaf.dtype == "bool" else numbers.astype(leaf.dtype)
        count = leaf.n if isinstance(leaf, Discrete) else leaf.bins
        return random.integers(0, count, (rows, *leaf.shape))

    return tree.map(draw, space)


def policy_of(
    observation: Tree = OBSERVATIONS["vector"], action: Space = ACTIONS["choice"], **config: object
) -> ActorCritic:
    """Make a policy with weights as large as training makes them, and statistics if it has any."""
    spec = Spec(observation, action, ROWS)
    policy = build_actor_critic(spec, PolicyConfig(hidden=(16, 8), **config), 0)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        policy.head.linear.weight.mul_(100)
        for name, parameter in policy.named_parameters():
            if not name.endswith("weight"):
                parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.5)
    policy.normalizer.absorb(tree.map(torch.from_numpy, observed(observation, seed=1)))
    return policy


def both(policy: ActorCritic, choice: Choice, obs: Tree, rows: int = ROWS) -> tuple[Array, Array]:
    """Let numpy and torch act with the same noise."""
    lean, plain = build_actor(policy, choice), PolicyActor(policy, choice)
    assert isinstance(lean, Lean)
    noise = lean.noise(np.random.default_rng(2), rows)
    given = tree.map(np.copy, obs)
    actions = [actor.act(obs, None, actor.memory(rows), noise)[0] for actor in (lean, plain)]
    tree.map(np.testing.assert_array_equal, given, obs)
    return actions[0], actions[1]


def assert_agreement(lean: Array, plain: Array) -> None:
    assert lean.dtype == plain.dtype
    assert lean.shape == plain.shape
    if lean.dtype == np.float32:
        np.testing.assert_allclose(lean, plain, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(lean, plain)


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
@pytest.mark.parametrize("normalized", [False, True], ids=["raw", "normalized"])
def test_numpy_takes_the_actions_that_torch_takes(
    observation: Tree, action: Space, normalized: bool
) -> None:
    policy = policy_of(observation, action, normalize_observations=normalized)
    sampled, by_torch = both(policy, Sample(), observed(observation))
    assert_agreement(sampled, by_torch)
    assert (sampled != sampled[0]).any()
    assert_agreement(*both(policy, Greedy(), observed(observation)))


@pytest.mark.parametrize("activation", KNOWN)
@pytest.mark.parametrize("shared_trunk", [False, True], ids=["apart", "shared"])
def test_every_activation_but_gelu_is_the_same_in_numpy(
    activation: str, shared_trunk: bool
) -> None:
    policy = policy_of(action=box(3), activation=activation, shared_trunk=shared_trunk)
    for scale in (1e-4, 1.0, 1e4):
        obs = (observed(box(5)) - 6) * np.float32(scale)
        lean, plain = both(policy, Greedy(), obs)
        np.testing.assert_allclose(lean, plain, rtol=1e-5, atol=1e-5 * max(scale, 1))


def test_activations_keep_their_settings() -> None:
    policy = policy_of(action=box(3))
    policy.actor[1], policy.actor[3] = nn.ELU(0.3), nn.LeakyReLU(1.7)
    assert_agreement(*both(policy, Greedy(), observed(box(5)) - 6))


def test_a_layer_that_comes_twice_is_passed_twice_and_one_may_lack_a_bias() -> None:
    policy = policy_of(action=box(3))
    again, last = nn.Linear(16, 16, bias=False), policy.actor[2:]
    policy.actor = nn.Sequential(policy.actor[0], nn.Sequential(again, nn.Tanh(), again), last)
    assert_agreement(*both(policy, Greedy(), observed(box(5))))


def test_an_activation_in_front_leaves_the_observations_alone() -> None:
    policy = policy_of(action=box(3))
    policy.trunk = nn.Tanh()
    assert_agreement(*both(policy, Greedy(), observed(box(5)) - 6))


def test_a_policy_without_hidden_layers_acts_in_numpy() -> None:
    spec = Spec(box(5), box(3), ROWS)
    policy = build_actor_critic(spec, PolicyConfig(hidden=()), 0)
    assert_agreement(*both(policy, Sample(), observed(box(5))))


@pytest.mark.parametrize("space", [box(), box(2)], ids=["one number", "vector"])
def test_statistics_work_in_double_precision_at_a_large_mean(space: Box) -> None:
    policy = policy_of(space, box(3), normalize_observations=True)
    policy.normalizer.parts[0].mean.fill_(2**24 + 1)
    obs = np.full((ROWS, *space.shape), 2**24 + 2, np.float32)
    one = ((2**24 + 2) - (2**24 + 1)) / policy.normalizer.parts[0].deviation
    scaled = policy.prepare(torch.from_numpy(obs))
    torch.testing.assert_close(scaled, one.float().expand(scaled.shape))
    assert_agreement(*both(policy, Greedy(), obs))


def test_far_observations_are_clipped_as_by_torch() -> None:
    policy = policy_of(action=box(3), normalize_observations=True)
    assert_agreement(*both(policy, Greedy(), observed(box(5)) * np.float32(1e6)))
    assert_agreement(*both(policy, Greedy(), observed(box(5)) * np.float32(-1e6)))


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_one_row_and_none_have_the_shapes_of_torch(action: Space, rows: int) -> None:
    obs = observed(OBSERVATIONS["dict"], rows=rows)
    lean, plain = both(policy_of(OBSERVATIONS["dict"], action), Sample(), obs, rows)
    assert (lean.shape, lean.dtype) == (plain.shape, plain.dtype)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("activation", KNOWN)
def test_numbers_that_are_not_finite_pass_as_silently_as_in_torch(activation: str) -> None:
    policy = policy_of(action=box(3), activation=activation)
    obs = observed(box(5)) * np.float32(1e4)
    obs[0], obs[1], obs[2] = np.nan, np.inf, -np.inf
    lean, plain = both(policy, Greedy(), obs)
    assert np.isnan(lean[0]).all()
    np.testing.assert_allclose(lean[3:], plain[3:], rtol=1e-5, atol=0.1)


@pytest.mark.parametrize("action", [bins(2, 3), box(3), box()], ids=str)
def test_a_snapshot_stays_as_it_is_when_any_part_of_the_policy_changes(action: Space) -> None:
    # Layers one unit wide look the same transposed, so that nothing but a copy is safe.
    config = PolicyConfig(hidden=(1, 1), normalize_observations=True)
    policy = build_actor_critic(Spec(box(1), action, ROWS), config, 0)
    obs = observed(box(1)) - 6
    acting = [name for name in policy.state_dict() if not name.startswith("critic.")]
    for name in set(acting) - {f"normalizer.parts.0.{kept}" for kept in ("total", "squares")}:
        actor = build_actor(policy, Sample())
        assert isinstance(actor, Lean)
        noise = actor.noise(np.random.default_rng(2), ROWS)
        before, _ = actor.act(obs, None, {}, noise)
        policy.state_dict()[name].view(-1)[-1] += 9
        after, _ = actor.act(obs, None, {}, noise)
        np.testing.assert_array_equal(before, after, name)
        if isinstance(action, Box):
            changed, _ = build_actor(policy, Sample()).act(obs, None, {}, noise)
            assert not np.array_equal(before, changed), name
        policy.state_dict()[name].view(-1)[-1] -= 9


def test_it_ships_as_bytes() -> None:
    for action in (Discrete(4), box(3)):
        policy = policy_of(OBSERVATIONS["dict"], action, activation="elu")
        actor = build_actor(policy, Sample())
        arrived: Actor = pickle.loads(pickle.dumps(actor))
        obs, noise = observed(OBSERVATIONS["dict"]), actor.noise(np.random.default_rng(2), ROWS)
        acted = [a.act(obs, None, {}, noise)[0] for a in (actor, arrived)]
        np.testing.assert_array_equal(*acted)


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_log_probabilities_are_torchs(action: Space) -> None:
    policy = policy_of(action=action)
    lean, plain = build_actor(policy, Sample()), PolicyActor(policy, Sample())
    steps = 2
    obs = observed(box(5), rows=(steps + 1) * ROWS).reshape(steps + 1, ROWS, 5)
    noise = lean.noise(np.random.default_rng(2), steps, ROWS)
    taken = np.stack([lean.act(obs[t], None, {}, noise[t])[0] for t in range(steps)])
    given = lean.log_prob(obs, taken)
    np.testing.assert_allclose(given, plain.log_prob(obs, taken), rtol=1e-5, atol=1e-6)
    assert given.dtype == np.float32


class Doubled(nn.Tanh):
    """What a subclass may do."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(values)


class Cautious(Sample):
    """Another way to choose."""


def with_gelu(policy: ActorCritic) -> None:
    policy.actor[1] = nn.GELU()


def with_subclass(policy: ActorCritic) -> None:
    policy.actor[1] = Doubled()


def with_unknown_trunk(policy: ActorCritic) -> None:
    policy.trunk = nn.LayerNorm(5)


def with_layers_in_the_head(policy: ActorCritic) -> None:
    policy.head.linear = nn.Sequential(policy.head.linear, nn.Tanh())


def with_hook(policy: ActorCritic) -> None:
    policy.actor[0].register_forward_hook(lambda _, __, output: output + 1)


def with_prepared_weights(policy: ActorCritic) -> None:
    nn.utils.parametrizations.weight_norm(policy.actor[0])


@pytest.mark.parametrize(
    "change",
    [
        with_gelu,
        with_subclass,
        with_unknown_trunk,
        with_layers_in_the_head,
        with_hook,
        with_prepared_weights,
    ],
)
def test_what_numpy_does_not_know_acts_by_torch(change: Callable[[ActorCritic], None]) -> None:
    policy = policy_of(action=box(3))
    change(policy)
    actor = build_actor(policy, Greedy())
    assert isinstance(actor, PolicyActor)
    obs = observed(box(5))
    with torch.no_grad():
        expected = policy.distribution(policy.prepare(torch.from_numpy(obs))).mode().numpy()
    np.testing.assert_allclose(actor.act(obs, None, {}, {})[0], expected, rtol=1e-6)


def test_another_way_to_choose_acts_by_torch() -> None:
    assert isinstance(build_actor(policy_of(), Cautious()), PolicyActor)
