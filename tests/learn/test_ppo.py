"""PPO's update beyond the formulas: options, bookkeeping, faults."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.core.errors import ConfigError, NonFiniteError
from surefoot.core.progress import Progress
from surefoot.core.rollout import Rollout
from surefoot.learn.ppo import PPO
from tests.toys import ENVS, Counter, collector, learner

NOW = Progress(total_steps=10_000)


def parameters(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


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
        again = ppo.actor().log_prob(data)
        assert data.log_prob is not None
        assert np.abs(np.exp(again - data.log_prob) - 1).max() < 1e-4
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


def test_padding_has_no_effect_on_the_result() -> None:
    one, data = rollout(minibatch_size=64, epochs=1)
    other, _ = rollout(minibatch_size=64, epochs=1)
    kept = np.zeros_like(data.valid)
    kept[:8] = True  # the last 8 steps of every row say nothing: a half-empty minibatch
    ended = data.terminated.copy()
    ended[7] = True
    half = Rollout.from_arrays(
        {
            **{k: v[:8] for k, v in data.arrays().items() if k not in ("obs", "final_obs")},
            "obs": data.obs[:9],
            "final_obs": data.final_obs,
            "terminated": ended[:8],
        }
    )
    final = np.where(ended & (data.final_index < 0), 0, data.final_index)
    finals = data.final_obs if len(data.final_obs) else data.obs[:1, 0]
    padded = replace(data, valid=kept, terminated=ended, final_index=final, final_obs=finals)
    half = replace(half, final_index=final[:8], final_obs=finals)
    one.update(padded, NOW)
    other.update(half, NOW)
    torch.testing.assert_close(parameters(one), parameters(other), rtol=0, atol=1e-7)


def test_microbatches_change_nothing_but_rounding() -> None:
    (whole, data), (split, _) = rollout(), rollout(microbatch_size=5)
    whole_metrics, split_metrics = whole.update(data, NOW), split.update(data, NOW)
    torch.testing.assert_close(parameters(whole), parameters(split), rtol=0, atol=1e-6)
    assert split_metrics["ppo/entropy"] == pytest.approx(whole_metrics["ppo/entropy"], rel=1e-5)


def test_invalid_steps_change_nothing() -> None:
    collect = collector(Counter, length=4)
    one, other = (learner(collect.spec) for _ in range(2))
    data = collect.collect(one.actor())
    hole = np.zeros_like(data.valid)
    hole[4:8, 1] = True  # a whole episode of row 1 is lost
    reward, obs = data.reward.copy(), data.obs.copy()
    reward[hole], obs[:-1][hole] = 1e6, 500.0
    one.update(replace(data, valid=~hole), NOW)
    other.update(replace(data, valid=~hole, reward=reward, obs=obs), NOW)
    assert torch.equal(parameters(one), parameters(other))


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
    for optimizer in ppo._optimizers.values():
        norms = [p.grad.norm() for network in optimizer.networks.values() for p in network.values()]
        assert float(torch.stack(norms).norm()) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("mode", ["minibatch", "rollout", "off"])
def test_advantages_are_normalized_where_asked(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ppo, data = rollout(advantages=mode, minibatch_size=16, epochs=1)
    seen: list[torch.Tensor] = []
    terms = ppo._terms
    monkeypatch.setattr(ppo, "_terms", lambda b, a, k: (seen.append(a), terms(b, a, k))[1])
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
