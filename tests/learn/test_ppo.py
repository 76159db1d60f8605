"""PPO's update beyond the formulas: options, bookkeeping, faults."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.core.errors import ConfigError, NonFiniteError
from surefoot.core.progress import Progress
from surefoot.core.rollout import Rollout
from surefoot.learn.experience import Deck, Samples
from surefoot.learn.optimizer import Adam, Flat, biases
from surefoot.learn.ppo import PPO
from surefoot.learn.step import TERMS, WATCHED
from surefoot.maths import losses
from tests.counter import Counter
from tests.toys import ENVS, collector, estimated, in_torch, learner

NOW = Progress(total_steps=10_000)


def parameters(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


def terms(ppo: PPO, batch: Samples, **scheduled: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the terms of each sample by the parameters as they are."""
    knobs = ppo._knobs({"clip_range": 0.2, "entropy_coefficient": 0.0, **scheduled}, 0.0)
    objective, watched = in_torch(ppo).terms(ppo._optimizer.flat.vector, batch, knobs)
    return objective, watched


def rollout(kind: str = "discrete", **settings: Any) -> tuple[PPO, Rollout]:
    collect = collector(ENVS[kind])
    ppo = learner(collect.spec, **settings)
    return ppo, collect.collect(ppo.actor())


@pytest.mark.parametrize("kind", ENVS)
@pytest.mark.parametrize("normalize", [False, True])
def test_the_first_minibatch_has_ratio_one(kind: str, normalize: bool) -> None:
    collect = collector(ENVS[kind])
    ppo = learner(collect.spec, policy={"normalize_observations": normalize})
    for _ in range(3):
        data = collect.collect(ppo.actor())
        batch = Deck(estimated(ppo, data), 16).deal(0, 0, 0)[0].samples()
        ratio = terms(ppo, batch)[1][WATCHED.index("ratio")]
        assert (ratio - 1).abs().max() < 1e-4
        metrics = ppo.update(data, NOW)
    assert metrics["ppo/ratio_first"] == pytest.approx(1, abs=1e-6)


def test_log_probabilities_are_those_of_the_sampled_action_not_the_clipped_one() -> None:
    collect = collector("Pendulum-v1")
    ppo = learner(collect.spec, policy={"log_std_init": 2.0})
    data = collect.collect(ppo.actor())
    assert (np.abs(data.action) > 2).any()
    scaled = data.action.astype(np.float64) / np.exp(2.0)
    with torch.no_grad():
        features = ppo.policy.prepare(torch.from_numpy(data.obs[:-1]))
        mean = ppo.policy.distribution(features).mode().numpy() / np.exp(2.0)
    expected = (-0.5 * (scaled - mean) ** 2 - 2.0 - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(data.log_prob, expected, atol=1e-5)


@pytest.mark.parametrize(("size", "expected"), [(16, 4), (10, 7), (64, 1), (63, 2)])
def test_every_epoch_takes_valid_over_minibatch_size_steps_rounded_up(
    size: int, expected: int
) -> None:
    ppo, data = rollout(minibatch_size=size, epochs=3)
    metrics = ppo.update(data, NOW)
    assert metrics["update/optimizer_steps"] == 3 * expected
    assert metrics["update/epochs"] == 3


@pytest.mark.parametrize("mode", ["minibatch", "rollout", "off"])
def test_padding_has_no_effect_on_the_result(mode: str) -> None:
    (exact, data), (padded, _) = (rollout(minibatch_size=64, advantages=mode) for _ in range(2))
    padded._config = padded._config.model_copy(update={"minibatch_size": 100})
    one, other = exact.update(data, NOW), padded.update(data, NOW)
    torch.testing.assert_close(parameters(exact), parameters(padded), rtol=0, atol=1e-7)
    for name, value in one.items():
        assert other[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_metrics_weigh_minibatches_by_their_samples() -> None:
    frozen = {"learning_rate": 0.0, "advantages": "off"}
    (whole, data), (parts, _) = (
        rollout(minibatch_size=64, **frozen),
        rollout(minibatch_size=60, **frozen),
    )
    one, other = whole.update(data, NOW), parts.update(data, NOW)
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"):
        assert other[f"ppo/{name}"] == pytest.approx(one[f"ppo/{name}"], rel=1e-4, abs=1e-6)


def test_microbatches_change_nothing_but_rounding() -> None:
    (whole, data), (split, _) = rollout(), rollout(microbatch_size=5)
    whole_metrics, split_metrics = whole.update(data, NOW), split.update(data, NOW)
    torch.testing.assert_close(parameters(whole), parameters(split), rtol=0, atol=1e-6)
    assert split_metrics["ppo/entropy"] == pytest.approx(whole_metrics["ppo/entropy"], rel=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
def test_invalid_steps_change_nothing(normalize: bool) -> None:
    collect = collector(Counter, length=4)
    settings: dict[str, Any] = {"policy": {"normalize_observations": normalize}}
    one, other = (learner(collect.spec, normalize_returns=normalize, **settings) for _ in range(2))
    for _ in range(3):
        data = collect.collect(one.actor())
        hole = np.zeros_like(data.valid)
        hole[4:8, 1] = True  # a whole episode of row 1 is lost
        reward, obs = data.reward.copy(), data.obs.copy()
        reward[hole], obs[:-1][hole] = 1e6, 500.0
        metrics = one.update(replace(data, valid=~hole), NOW)
        assert other.update(replace(data, valid=~hole, reward=reward, obs=obs), NOW) == metrics
    for mine, theirs in zip(
        one.policy.state_dict().values(), other.policy.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_normalized_returns_are_what_targets_are_made_of() -> None:
    collect = collector(Counter, length=7)
    ppo = learner(collect.spec, gamma=0.0, normalize_returns=True)
    data = collect.collect(ppo.actor())
    metrics = ppo.update(data, NOW)  # without a discount, targets are the rewards themselves
    expected = data.reward / data.reward.std()
    assert metrics["ppo/target_mean"] == pytest.approx(expected.mean(), rel=1e-5)
    assert metrics["ppo/target_var"] == pytest.approx(expected.var(), rel=1e-5)


def test_value_clipping_holds_values_near_those_before_the_update() -> None:
    ppo, data = rollout(value_clip_range=0.01)
    batch = Deck(estimated(ppo, data), 64).deal(0, 0, 0)[0].samples()
    with torch.no_grad():
        before = ppo.policy.value(batch.obs)
        torch.testing.assert_close(batch.value, before)
        ppo.policy.critic[-1].bias.add_(0.5)
        objective, _ = terms(ppo, batch, value_clip_range=0.01)
    clipped = (before + 0.01 - batch.target).square()
    unclipped = (before + 0.5 - batch.target).square()
    torch.testing.assert_close(objective[1], torch.maximum(clipped, unclipped))
    assert not torch.allclose(objective[1], unclipped)


def test_the_clip_fraction_counts_ratios_outside_the_clip_range() -> None:
    ppo, data = rollout(clip_range=0.2)
    batch = Deck(estimated(ppo, data), 64).deal(0, 0, 0)[0].samples()
    shift = torch.linspace(-0.5, 0.5, 64)
    with torch.no_grad():
        _, watched = terms(ppo, batch._replace(log_prob=batch.log_prob - shift))
    ratio = shift.exp()
    torch.testing.assert_close(watched[WATCHED.index("ratio")], ratio)
    expected = ((ratio > 1.2) | (ratio < 0.8)).float()
    assert torch.equal(watched[WATCHED.index("clip_fraction")], expected)


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [("learning_rate", 3e-2, 1e-2), ("clip_range", 0.3, 0.01), ("entropy_coefficient", 0.9, 0.1)],
)
def test_an_update_uses_the_schedules_value_of_its_moment(
    name: str, start: float, end: float
) -> None:
    def learned(setting: Any, fraction: float) -> torch.Tensor:
        ppo, data = rollout(**{"epochs": 4, "learning_rate": 3e-2, name: setting})
        ppo.update(data, Progress(total_steps=100, steps=int(100 * fraction)))
        return parameters(ppo)

    middle = learned((start + end) / 2, 0.0)
    torch.testing.assert_close(learned(f"linear:{start}:{end}", 0.5), middle, rtol=0, atol=1e-6)
    assert not torch.equal(learned(f"linear:{start}:{end}", 0.0), middle)


def test_every_iteration_shuffles_anew() -> None:
    (one, data), (other, _) = rollout(), rollout()
    one.update(data, NOW)
    other.update(data, replace(NOW, iterations=1))
    assert not torch.equal(parameters(one), parameters(other))


def test_the_kl_stop_looks_at_one_epoch_and_at_the_k3_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ppo, data = rollout(minibatch_size=64, epochs=6, target_kl=0.02)
    measured = iter([0.0, 0.01, 0.03, 0.5, 0.5, 0.5])

    def step(vector: Any, adam: Any, *_: Any) -> Any:
        terms = {**dict.fromkeys(TERMS, 0.0), "approx_kl": next(measured), "approx_kl_k1": 9.0}
        return vector, adam, torch.tensor([64.0, *terms.values(), 0.0, 0.0])

    monkeypatch.setattr(ppo, "_step", step)
    knobs = {"clip_range": 0.2, "entropy_coefficient": 0.0}
    _, epochs = ppo._improve(estimated(ppo, data), knobs, NOW)
    assert epochs == 3


@pytest.mark.parametrize("value_rate", [None, 1e-9])
def test_gradient_and_moment_norms_are_those_of_each_network(value_rate: float | None) -> None:
    ppo, data = rollout(
        minibatch_size=64,
        epochs=1,
        learning_rate=1e-9,
        value_learning_rate=value_rate,
        max_grad_norm=None,
        value_coefficient=50.0,
    )
    flat = ppo._optimizer.flat
    (minibatch,) = Deck(estimated(ppo, data), 64).deal(0, 0, 0)
    batch = minibatch.samples()
    batch = batch._replace(advantage=losses.normalized(batch.advantage, batch.weight))
    vector = flat.vector.clone().requires_grad_()
    knobs = ppo._knobs({"clip_range": 0.2, "entropy_coefficient": 0.0}, 0.0)
    objective, _ = in_torch(ppo).terms(vector, batch, knobs)
    loss = objective[0].mean() + 50.0 * objective[1].mean()
    (whole,) = torch.autograd.grad(loss, vector)
    metrics = ppo.update(data, NOW)
    for name, part in zip(flat.names, flat.parts, strict=True):
        gradient = whole[part]
        assert metrics[f"grad/{name}_norm"] == pytest.approx(float(gradient.norm()), rel=1e-4)
        first, second = 0.1 * gradient, 0.001 * gradient.square()
        expected = {"first": float(first.norm()), "second": float(second.norm())}
        for order, value in expected.items():
            assert metrics[f"optim/{name}_{order}_moment"] == pytest.approx(value, rel=1e-3)
    assert metrics["grad/value_norm"] > 1  # and no limit clipped it


def test_a_step_that_terminates_and_is_truncated_does_not_bootstrap() -> None:
    ppo, data = rollout()
    both = np.zeros_like(data.valid)
    both[5, 2] = True
    changed = replace(
        data,
        terminated=data.terminated | both,
        truncated=data.truncated | both,
        final_obs=np.concatenate([data.final_obs, data.obs[6:7, 2]]),
        final_index=np.where(both, len(data.final_obs), data.final_index).astype(np.int32),
    )
    samples = estimated(ppo, changed)
    assert float(samples.target[5 * 4 + 2]) == pytest.approx(1.0)  # CartPole's reward alone


def test_a_rollout_without_valid_steps_is_no_update() -> None:
    ppo, data = rollout()
    before = parameters(ppo)
    assert ppo.update(replace(data, valid=np.zeros_like(data.valid)), NOW) == {}
    assert torch.equal(parameters(ppo), before)


def test_target_kl_stops_after_the_epoch_that_exceeds_it() -> None:
    ppo, data = rollout(epochs=50, learning_rate=0.05, target_kl=0.01)
    metrics = ppo.update(data, NOW)
    assert metrics["ppo/stopped_epoch"] == metrics["update/epochs"] < 50
    ppo, data = rollout(epochs=3, learning_rate=1e-5, target_kl=0.01)
    assert "ppo/stopped_epoch" not in ppo.update(data, NOW)


def test_adaptive_rate_moves_towards_its_target_and_is_reported() -> None:
    ppo, data = rollout(learning_rate="adaptive:0.05:0.001", epochs=4)
    first = ppo.update(data, NOW)["ppo/learning_rate"]
    second = ppo.update(data, NOW)["ppo/learning_rate"]
    assert first == 0.05
    assert second < first


def test_kl_that_can_only_be_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="KL"):
        rollout(epochs=1, minibatch_size=64, target_kl=0.1)


def test_schedules_follow_the_runs_progress() -> None:
    ppo, data = rollout(
        learning_rate="linear:1e-3:0", clip_range="linear:0.2:0.1", value_clip_range=0.3
    )
    metrics = ppo.update(data, Progress(total_steps=100, steps=50))
    assert metrics["ppo/learning_rate"] == pytest.approx(5e-4)
    assert metrics["ppo/clip_range"] == pytest.approx(0.15)
    assert metrics["ppo/value_clip_range"] == 0.3


def test_two_optimizers_move_their_own_network_at_their_own_rate() -> None:
    ppo, data = rollout(learning_rate=0.0, value_learning_rate=1e-3)
    metrics = ppo.update(data, NOW)
    assert metrics["update/policy_norm"] == 0
    assert metrics["update/value_norm"] > 0
    assert (metrics["ppo/learning_rate"], metrics["ppo/value_learning_rate"]) == (0, 1e-3)


def test_each_optimizer_clips_its_own_gradient_norm() -> None:
    ppo, data = rollout(value_learning_rate=1e-3, max_grad_norm=1e-3, minibatch_size=64, epochs=1)
    ppo.update(data, NOW)
    clipped = ppo._optimizer.flat.norms(ppo._optimizer.adam.first / 0.1)
    assert clipped.tolist() == pytest.approx([1e-3, 1e-3], rel=1e-2)


def test_one_optimizer_clips_the_norm_of_everything() -> None:
    ppo, data = rollout(max_grad_norm=1e-3, minibatch_size=64, epochs=1)
    ppo.update(data, NOW)
    assert float(ppo._optimizer.adam.first.norm() / 0.1) == pytest.approx(1e-3, rel=1e-2)


def test_a_step_is_that_of_torchs_adam() -> None:
    random = torch.Generator().manual_seed(0)
    modules = {"policy": torch.nn.Linear(5, 3), "value": torch.nn.Linear(2, 7)}
    networks = {name: dict(module.named_parameters(name)) for name, module in modules.items()}
    flat = Flat(networks)
    theirs = torch.nn.Parameter(flat.vector.clone())
    reference = torch.optim.Adam([theirs], lr=0.01, eps=1e-5)
    vector, adam = flat.vector, Adam.blank(flat.vector)
    for bias in torch.from_numpy(biases(0, 50)):
        gradient = torch.randn(len(vector), generator=random)
        theirs.grad = gradient.clone()
        reference.step()
        vector, adam = adam.step(vector, gradient, torch.tensor(0.01), bias)
        torch.testing.assert_close(vector, theirs.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", ["minibatch", "rollout", "off"])
def test_advantages_are_normalized_where_asked(mode: str) -> None:
    ppo, data = rollout(advantages=mode, minibatch_size=16, epochs=1)
    seen: list[torch.Tensor] = []
    step = in_torch(ppo)

    def normalize(advantage: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        seen.append(step.normalize(advantage, weight))
        return seen[-1]

    ppo._step = replace(step, normalize=normalize)
    metrics = ppo.update(data, NOW)
    whole = torch.cat(seen)
    per_batch = [float(batch.std()) for batch in seen]
    assert metrics["ppo/advantage_std"] != pytest.approx(1, abs=0.05)
    if mode == "minibatch":
        assert per_batch == pytest.approx([1.0] * 4, rel=1e-3)
    else:
        assert (float(whole.std()) == pytest.approx(1, rel=1e-3)) == (mode == "rollout")
        assert per_batch != pytest.approx([1.0] * 4, rel=1e-3)


def test_the_first_rollout_only_primes_the_normalizer() -> None:
    collect = collector("CartPole-v1")
    ppo = learner(collect.spec, policy={"normalize_observations": True}, normalize_returns=True)
    before = parameters(ppo)
    data = collect.collect(ppo.actor())
    assert ppo.update(data, NOW) == {}
    assert torch.equal(parameters(ppo), before)
    part = ppo.policy.normalizer.parts[0]
    np.testing.assert_allclose(part.mean, data.obs[:-1].reshape(-1, 4).mean(0), rtol=1e-5)
    assert ppo.update(collect.collect(ppo.actor()), NOW)["update/optimizer_steps"] == 8


def test_the_normalizer_absorbs_a_rollout_after_the_update() -> None:
    collect = collector("CartPole-v1")
    ppo = learner(collect.spec, policy={"normalize_observations": True})
    for expected in (64, 128, 192):
        ppo.update(collect.collect(ppo.actor()), NOW)
        assert ppo.policy.normalizer.parts[0].total == expected


def test_non_finite_learning_stops_with_place_and_evidence() -> None:
    ppo, data = rollout(learning_rate=1e30, max_grad_norm=None, epochs=3)
    with pytest.raises(NonFiniteError, match=r"iteration 1, epoch \d, minibatch \d") as caught:
        ppo.update(data, NOW)
    evidence = caught.value.evidence
    assert evidence["batch"]["advantage"].shape == (16,)
    assert set(evidence["weights_before"]) == set(dict(ppo.policy.named_parameters()))
    assert all(np.isfinite(weights).all() for weights in evidence["weights_before"].values())


def test_explained_variance_is_absent_where_targets_do_not_vary() -> None:
    ppo, data = rollout(gamma=0.0)  # CartPole's rewards are all 1, so every target is 1
    metrics = ppo.update(data, NOW)
    assert metrics["ppo/target_mean"] == pytest.approx(1, abs=1e-6)
    assert "ppo/explained_variance" not in metrics
    ppo, data = rollout()
    assert "ppo/explained_variance" in ppo.update(data, NOW)


@pytest.mark.parametrize("kind", ENVS)
def test_state_restores_into_a_new_learner_that_goes_on_identically(kind: str) -> None:
    settings: dict[str, Any] = {
        "policy": {"normalize_observations": True},
        "normalize_returns": True,
        "buffer_steps": 128,
        "learning_rate": "adaptive:1e-3:0.01",
        "value_learning_rate": 1e-3,
    }
    collect = collector(ENVS[kind])
    one = learner(collect.spec, **settings)
    for _ in range(4):
        one.update(collect.collect(one.actor()), NOW)
    other = learner(collect.spec, seed=99, **settings)
    other._seed = one._seed
    other.restore(one.state())
    data = collect.collect(one.actor())
    assert one.update(data, NOW) == other.update(data, NOW)
    assert torch.equal(parameters(one), parameters(other))
    for mine, theirs in zip(one.policy.buffers(), other.policy.buffers(), strict=True):
        assert torch.equal(mine, theirs)
