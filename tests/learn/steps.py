"""Optimizer steps held against those in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple, TypeAlias

import torch

from surefoot.core.progress import Progress
from surefoot.learn.experience import Deck, Samples
from surefoot.learn.optimizer import Adam
from surefoot.learn.step import TERMS, MinibatchStep, Step
from tests.toys import ENVS, collector, estimated, in_torch, learner

NOW = Progress(total_steps=10_000)
KINDS = {**ENVS, "place": "FrozenLake-v1", "several": "Blackjack-v1"}
"""Kinds of actions, and of observations."""
Settings: TypeAlias = Sequence[Sequence[dict[str, Any]]]
"""Lists, of each of which a case has one."""
POLICIES: Settings = [
    [{"activation": name} for name in ("tanh", "relu", "elu", "silu", "leaky_relu", "gelu")],
    [{}, {"shared_trunk": True}, {"value_hidden": (8,)}],
    [{}, {"hidden": ()}],
    [{}, {"normalize_observations": True}],
]
OPTIONS: Settings = [
    [{}, {"microbatch_size": 5}],
    [{}, {"max_grad_norm": None}, {"max_grad_norm": 1e-3}],
    [{}, {"learning_rate": "adaptive:0.01:0.01"}, {"value_learning_rate": 1e-3}],
    [{"advantages": name} for name in ("minibatch", "rollout", "off")],
    [{}, {"value_clip_range": 0.1}],
    [{}, {"entropy_coefficient": 0.01}],
    [{}, {"clip_range": "linear:0.3:0.1"}],
    [{}, {"popart": 0.5}],
    [{}, {"value_coefficient": 2.0}],
]


class Case(NamedTuple):
    """A kind of environment, and settings of the policy and of its algorithm."""

    kind: str
    policy: dict[str, Any]
    options: dict[str, Any]


def cases(kinds: Iterable[str], policies: Settings, options: Settings) -> list[Case]:
    """Choose few cases in which every two settings meet; each has one of every list."""
    rows = covering([[{"kind": kind} for kind in kinds], *policies, *options])
    apart = 1 + len(policies)
    return [Case(row[0]["kind"], merged(row[1:apart]), merged(row[apart:])) for row in rows]


def merged(settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Put settings into one dict."""
    return {name: value for setting in settings for name, value in setting.items()}


def covering(lists: Settings) -> list[list[dict[str, Any]]]:
    """Choose one of each list, again and again, until every two of different lists have met."""
    numbers = [[(place, n) for n in range(len(values))] for place, values in enumerate(lists)]
    left = {pair for one, other in combinations(numbers, 2) for pair in product(one, other)}
    chosen = []
    while left:
        row = dict(min(left))
        for place in sorted(set(range(len(lists))) - set(row)):
            meets = [
                sum(tuple(sorted([item, (place, n)])) in left for item in row.items())
                for n in range(len(lists[place]))
            ]
            row[place] = meets.index(max(meets))
        left -= set(combinations(sorted(row.items()), 2))
        chosen.append([values[row[place]] for place, values in enumerate(lists)])
    return chosen


def assert_same_steps(case: Case, other: Callable[[MinibatchStep], Step]) -> None:
    """Compare gradients tensor by tensor, what is measured, and where an update leads."""
    kind, policy, options = case
    collect = collector(KINDS[kind])
    plain, rival = (learner(collect.spec, policy, minibatch_size=24, **options) for _ in range(2))
    plain._step, rival._step = in_torch(plain), other(in_torch(rival))
    data = collect.collect(plain.actor())
    for ppo in (plain, rival):
        for _ in range(2):  # the first may only prime the normalizer
            ppo.update(data, NOW)
    optimizer, led = plain._optimizer, rival._optimizer.flat.vector
    torch.testing.assert_close(optimizer.flat.vector, led, rtol=1e-3, atol=1e-4)
    samples = _moved(plain._scaled(estimated(plain, data)))
    flat, adam = optimizer.flat, Adam.blank(optimizer.flat.vector)
    knobs = plain._knobs({name: at(0.0) for name, at in plain._scheduled.items()}, 0.0)
    for batch in Deck(samples, 24).deal(0, 0, 0):  # the last is not full
        bias = optimizer.biases(1)[0]
        (after, mine, said), (also_after, theirs, also_said) = (
            step(flat.vector, adam, batch, knobs, bias) for step in (plain._step, rival._step)
        )
        for name, gradient in flat.unpack(mine.first).items():
            difference = flat.unpack(theirs.first)[name] - gradient
            # Sums may cancel, and are then exact to the rounding of what they are made of.
            size = gradient.norm() + 0.03 * mine.first.norm()
            assert difference.norm() <= 1e-5 * size, name
        torch.testing.assert_close(said, also_said, rtol=1e-5, atol=1e-6)
        assert 0 < said[1 + TERMS.index("clip_fraction")] < 1
        torch.testing.assert_close(after, also_after, rtol=1e-4, atol=1e-5)


def _moved(samples: Samples) -> Samples:
    """Let policy and values be elsewhere than before the update, inside and outside of what clips
    them."""
    random = torch.Generator().manual_seed(0)

    def moved(values: torch.Tensor, most: float) -> torch.Tensor:
        return values + most * (2 * torch.rand(values.shape, generator=random) - 1)

    return samples._replace(
        log_prob=moved(samples.log_prob, 0.5),
        value=moved(samples.value, 0.3),
        target=moved(samples.value + 0.5, 0.3),  # on one side: sums that cancel are not exact
    )
