"""The FIFO of rollouts and the minibatches dealt from it."""

import numpy as np
import pytest
import torch

from surefoot.core.progress import Progress
from surefoot.learn.experience import Deck, Experience, Samples
from tests.toys import collector, estimated, learner


def samples(count: int) -> Samples:
    numbers = torch.arange(count, dtype=torch.float32)
    return Samples(*(numbers + 1000 * part for part in range(6)), torch.ones(count))


@pytest.mark.parametrize(("count", "size"), [(10, 5), (10, 4), (3, 8), (1, 1)])
def test_every_sample_is_dealt_once_per_epoch_in_minibatches_of_one_size(
    count: int, size: int
) -> None:
    dealt = [b.samples() for b in Deck(samples(count), size).deal(seed=0, iteration=0, epoch=0)]
    assert len(dealt) == -(-count // size)
    assert {batch.size for batch in dealt} == {size}
    kept = torch.cat([batch.obs[batch.weight == 1] for batch in dealt])
    assert sorted(kept.tolist()) == list(range(count))
    for batch in dealt:
        for part, values in enumerate(batch[:6]):
            assert torch.equal(values, batch.obs + 1000 * part)


def test_epochs_and_iterations_have_orders_of_their_own_that_repeat() -> None:
    def order(iteration: int, epoch: int) -> list[float]:
        return Deck(samples(50), 50).deal(0, iteration, epoch)[0].obs.tolist()

    orders = [order(i, e) for i in range(2) for e in range(2)]
    assert len({tuple(o) for o in orders}) == 4
    assert order(1, 1) == orders[3]


def test_what_is_dealt_does_not_depend_on_what_was_dealt_before() -> None:
    deck = Deck(samples(10), 4)
    deck.deal(0, 0, 0)
    again = torch.cat([batch.numbers for batch in deck.deal(0, 0, 1)])
    fresh = torch.cat([batch.numbers for batch in Deck(samples(10), 4).deal(0, 0, 1)])
    assert torch.equal(again, fresh)


def test_whole_rollouts_leave_first_in_first_out_and_one_always_stays() -> None:
    collect = collector("CartPole-v1")  # 64 steps each
    ppo = learner(collect.spec)
    rollouts = [collect.collect(ppo.actor()) for _ in range(4)]
    buffer, smallest = Experience(150), Experience(10)
    for rollout in rollouts:
        buffer.add(rollout)
        smallest.add(rollout)
    assert list(buffer.rollouts) == rollouts[2:]
    assert list(smallest.rollouts) == rollouts[3:]


def test_an_update_learns_from_all_rollouts_in_the_buffer() -> None:
    collect = collector("CartPole-v1")
    ppo = learner(collect.spec, buffer_steps=200)  # three rollouts of 64
    counts = []
    for _ in range(5):
        metrics = ppo.update(collect.collect(ppo.actor()), Progress(10_000))
        counts.append(metrics["update/optimizer_steps"] / 2)
    assert counts == [4, 8, 12, 12, 12]


def test_advantages_of_older_rollouts_are_recomputed_with_the_current_critic() -> None:
    collect = collector("CartPole-v1")
    ppo = learner(collect.spec, buffer_steps=128)
    old = collect.collect(ppo.actor())
    before = estimated(ppo, old).value
    ppo.update(old, Progress(10_000))
    after = estimated(ppo, ppo._experience.rollouts[0]).value
    assert not torch.equal(before, after)


def test_state_keeps_what_the_next_update_still_needs() -> None:
    collect = collector("CartPole-v1")
    ppo = learner(collect.spec)
    rollouts = [collect.collect(ppo.actor()) for _ in range(3)]
    buffer, single = Experience(192), Experience(64)
    for rollout in rollouts:
        buffer.add(rollout)
        single.add(rollout)
    assert list(single.state()["rollouts"].pieces) == []
    restored = Experience(192)
    restored.restore(buffer.state())
    kept = [r.reward for r in restored.rollouts]
    assert len(kept) == 2
    assert all(np.array_equal(a, r.reward) for a, r in zip(kept, rollouts[1:], strict=True))
