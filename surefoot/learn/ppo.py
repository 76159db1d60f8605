"""Proximal Policy Optimization (Schulman et al., 2017). The equations are in docs/ppo.md."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from surefoot.algorithms import PPOConfig
from surefoot.core import tree
from surefoot.core.errors import NonFiniteError
from surefoot.core.metrics import Metrics, prefixed
from surefoot.core.progress import Progress
from surefoot.core.protocols import Actor
from surefoot.core.rollout import CHUNK, Rollout
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.learn.experience import Deck, Experience, Samples
from surefoot.learn.objective import Objective, Seen
from surefoot.learn.optimizer import Optimizer
from surefoot.learn.rates import follow
from surefoot.learn.rewards import Rewards
from surefoot.learn.step import NORMS, TERMS, Knobs, Step
from surefoot.learn.valuing import Valuing
from surefoot.maths import losses
from surefoot.policy.actor import Greedy, Sample
from surefoot.policy.actor_critic import ActorCritic
from surefoot.policy.build import build_actor
from surefoot.policy.device import to_array, to_tensors

ADVANTAGES = {
    "minibatch": (losses.unchanged, losses.normalized),
    "rollout": (losses.normalized, losses.unchanged),
    "off": (losses.unchanged, losses.unchanged),
}
"""What to do to the advantages of all experience, and of each minibatch."""
MOST_ACTIONS = 8
"""Numbers of an action that are looked at one by one."""


class PPO:
    """Clipped policy gradient with a critic, several epochs per rollout."""

    def __init__(
        self,
        policy: ActorCritic,
        optimizer: Optimizer,
        step: Step,
        value: Valuing,
        rewards: Rewards,
        objective: Objective,
        config: PPOConfig,
        experience: Experience,
        seed: int,
    ) -> None:
        self.policy = policy
        self._optimizer = optimizer
        self._step, self._value = step, value
        self._rewards, self._objective = rewards, objective
        self._config = config
        self._experience = experience
        self._seed = seed
        self._device = next(policy.parameters()).device
        self._seen: Samples | None = None
        """What was learned from last."""
        self._normalize_all, _ = ADVANTAGES[config.advantages]
        self._scheduled = {
            "clip_range": follow(config.clip_range),
            "entropy_coefficient": follow(config.entropy_coefficient),
        }
        if config.value_clip_range is not None:
            self._scheduled["value_clip_range"] = follow(config.value_clip_range)

    @property
    def how(self) -> str:
        return self._step.how

    def actor(self) -> Actor:
        return build_actor(self.policy, Sample())

    def player(self) -> Actor:
        return build_actor(self.policy, Greedy())

    def update(self, rollout: Rollout, progress: Progress) -> Metrics:
        """Estimate advantages, improve the policy over several epochs, report."""
        if rollout.steps == 0:
            return {}
        self._rewards.absorb(rollout)
        if not self.policy.normalizer.primed:
            self._absorb(rollout)
            return {}
        self._experience.add(rollout)
        compiled = self._compile_seconds
        samples = self._estimated()
        knobs = {name: at(progress.fraction) for name, at in self._scheduled.items()}
        rates = {name: r.at(progress.fraction) for name, r in self._optimizer.rates.items()}
        scaled = self._scaled(samples)
        before = self._optimizer.flat.vector.clone()
        rows, epochs = self._improve(scaled, knobs, progress)
        compiling = self._compile_seconds - compiled
        metrics = {
            **self._measured(rows, epochs),
            **prefixed("ppo", {**rates, **knobs}),
            **_critic_metrics(samples),
            **self._objective.metrics(),
            **self._rewards.metrics(rollout),
            **self._optimizer.metrics(before),
            **({"time/compile": compiling} if compiling else {}),
        }
        self._require_finite(rows, metrics, scaled, before, progress)
        self._seen = samples
        self._absorb(rollout)
        return metrics

    def spread(self) -> Mapping[str, Array]:
        samples = self._seen
        if samples is None:
            return {}
        action = to_array(samples.action).reshape(samples.size, -1)
        each = action.shape[1] <= MOST_ACTIONS
        actions = {f"rollout/action/{i}": action[:, i] for i in range(action.shape[1])}
        return {
            "ppo/values": to_array(samples.value),
            "ppo/advantages": to_array(samples.advantage),
            **(actions if each else {"rollout/actions": action}),
        }

    def state(self) -> State:
        return {
            "policy": self.policy.arrays(),
            "optimizer": self._optimizer.state(),
            "rewards": self._rewards.state(),
            "objective": self._objective.state(),
            "experience": self._experience.state(),
        }

    def restore(self, state: State) -> None:
        self.policy.load_state_dict(to_tensors(state["policy"], self._device))
        self._optimizer.restore(state["optimizer"])
        self._rewards.restore(state["rewards"])
        self._objective.restore(state.get("objective", {}))
        if state["experience"]:  # a fork into another task begins without
            self._experience.restore(state["experience"])

    @property
    def _compile_seconds(self) -> float:
        return self._step.compile_seconds + self._value.compile_seconds

    def _estimated(self) -> Samples:
        """Estimate advantages and targets of all experience, by the critic as it is now."""
        rollouts = self._experience.rollouts
        valued = [self._valued(rollout) for rollout in rollouts]
        self._objective.absorb(valued[-1][1])
        pairs = zip(rollouts, valued, strict=True)
        return Samples.join([self._samples(rollout, *found) for rollout, found in pairs])

    def _scaled(self, samples: Samples) -> Samples:
        """Turn samples into what optimizer steps take."""
        scale = self.policy.critic_scale
        scale.follow(samples.target, self.policy.last_of_critic)
        return samples._replace(
            advantage=self._normalize_all(samples.advantage, samples.weight),
            value=scale.given(samples.value),
            target=scale.given(samples.target),
        )

    @torch.no_grad()
    def _valued(self, rollout: Rollout) -> tuple[Tree, Seen]:
        """Prepare what was observed, and value it."""
        if rollout.log_prob is None:
            raise ValueError("PPO needs log-probabilities, but the actor of this rollout gave none")
        prepared, flat_values = self._prepared_and_values(rollout.obs, axes=2)
        values = flat_values.reshape(rollout.horizon + 1, -1)
        flags = (rollout.terminated, rollout.ended, rollout.valid)
        terminated, ended, valid = (to_tensors(flag, self._device) for flag in flags)
        next_values = values[1:].clone()
        if rollout.ended.any():
            _, final_values = self._prepared_and_values(rollout.final_obs, axes=1)
            next_values[ended] = final_values[to_tensors(rollout.final_index, self._device)[ended]]
        rewards = to_tensors(self._rewards.of(rollout), self._device)
        return prepared, Seen(rewards, values[:-1], next_values, terminated, ended, valid)

    def _samples(self, rollout: Rollout, prepared: Tree, seen: Seen) -> Samples:
        """Estimate advantages and targets of a rollout; take its valid steps."""
        advantage, target = self._objective.estimate(seen)
        valid = seen.valid
        return Samples(
            obs=tree.index(prepared, valid.reshape(-1).nonzero().squeeze(-1)),
            action=tree.index(to_tensors(rollout.action, self._device), valid),
            log_prob=to_tensors(rollout.log_prob, self._device)[valid],
            value=seen.values[valid],
            advantage=advantage[valid],
            target=target[valid],
            weight=torch.ones(rollout.steps, device=self._device),
        )

    def _prepared_and_values(self, obs: Tree, axes: int) -> tuple[Tree, Tensor]:
        """Prepare and value observations with this many leading axes, in chunks; both come back
        with one leading axis."""
        flat = tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[axes:]), obs)
        count = len(tree.leaves(flat)[0])
        chunks = [tree.index(flat, slice(start, start + CHUNK)) for start in range(0, count, CHUNK)]
        parts = [self.policy.prepare(to_tensors(chunk, self._device)) for chunk in chunks]
        values = torch.cat([self._value(part) for part in parts])
        return tree.map(lambda *leaves: torch.cat(leaves), *parts), values

    def _improve(
        self, samples: Samples, knobs: Mapping[str, float], progress: Progress
    ) -> tuple[Tensor, int]:
        """Take all optimizer steps; return what each measured [steps, 1 + terms + norms], the
        first column being its number of samples, and how many epochs there were."""
        config, optimizer = self._config, self._optimizer
        vector, adam = optimizer.flat.vector, optimizer.adam
        biases = iter(optimizer.biases(config.epochs * config.minibatches(samples.size)))
        settings = self._knobs(knobs, progress.fraction)
        deck, rows = Deck(samples, config.minibatch_size), list[Tensor]()
        for epoch in range(config.epochs):
            first = len(rows)
            settings = settings._replace(rates=optimizer.rates_at(progress.fraction))
            for minibatch in deck.deal(self._seed, progress.iterations, epoch):
                vector, adam, measured = self._step(vector, adam, minibatch, settings, next(biases))
                rows.append(measured)
            if config.watches_kl:
                kl = _means(torch.stack(rows[first:]))["approx_kl"]
                for rate in optimizer.rates.values():
                    rate.adapt(kl)
                if config.target_kl is not None and kl > config.target_kl:
                    break
        optimizer.advance(vector, adam, len(rows))
        return torch.stack(rows), epoch + 1

    def _knobs(self, scheduled: Mapping[str, float], fraction: float) -> Knobs:
        settings = {"value_clip_range": math.inf, **scheduled}
        tensors = {name: torch.tensor(v, device=self._device) for name, v in settings.items()}
        return Knobs(**tensors, rates=self._optimizer.rates_at(fraction))

    def _absorb(self, rollout: Rollout) -> None:
        """Let the normalizer see what the rows saw."""
        self.policy.normalizer.absorb(to_tensors(rollout.seen(), self._device))

    def _require_finite(
        self,
        rows: Tensor,
        metrics: Metrics,
        samples: Samples,
        before: Tensor,
        progress: Progress,
    ) -> None:
        """Stop at the first optimizer step that was not finite, with all that led to it."""
        broken = [f"parameter {n}" for n, p in self.policy.named_parameters() if not _finite(p)]
        broken += [name for name, value in metrics.items() if not math.isfinite(value)]
        where = (~rows.isfinite()).nonzero()
        if not len(where) and not broken:
            return
        names = ("samples", *TERMS, *(f"gradient norm of {name}" for name in NORMS))
        step = int(where[0, 0]) if len(where) else len(rows) - 1
        term = names[int(where[0, 1])] if len(where) else broken[0]
        epoch, minibatch = divmod(step, self._config.minibatches(samples.size))
        deck = Deck(samples, self._config.minibatch_size)
        batch = deck.deal(self._seed, progress.iterations, epoch)[minibatch].samples()
        raise NonFiniteError(
            f"{term} is not finite in iteration {progress.iterations + 1}, epoch {epoch + 1}, "
            f"minibatch {minibatch + 1}; lower ppo.learning_rate or ppo.max_grad_norm, or look at "
            f"the scale of rewards and observations (ppo.normalize_returns, "
            f"policy.normalize_observations)",
            evidence={
                "batch": tree.map(to_array, batch._asdict()),
                "weights_before": tree.map(to_array, self._optimizer.flat.unpack(before)),
                "progress": vars(progress),
                "term": term,
                "epoch": epoch,
                "minibatch": minibatch,
            },
        )

    def _measured(self, rows: Tensor, epochs: int) -> Metrics:
        """Summarize what the optimizer steps measured."""
        means = _means(rows)
        ratio_first = float(rows[0, 1 + TERMS.index("ratio")])
        ppo = {name: means[name] for name in TERMS if name != "ratio"}
        stopped = {"stopped_epoch": float(epochs)} if epochs < self._config.epochs else {}
        return {
            **prefixed("ppo", {**ppo, "ratio_first": ratio_first, **stopped}),
            **{f"grad/{name}_norm": means[name] for name in NORMS},
            "update/epochs": float(epochs),
            "update/optimizer_steps": float(len(rows)),
        }


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _means(rows: Tensor) -> Metrics:
    """Average measured rows by their numbers of samples; norms count once per step."""
    weights = rows[:, :1] / rows[:, :1].sum()
    terms = (rows[:, 1 : 1 + len(TERMS)] * weights).sum(0)
    norms = rows[:, 1 + len(TERMS) :].mean(0)
    return dict(zip((*TERMS, *NORMS), torch.cat([terms, norms]).tolist(), strict=True))


def _critic_metrics(samples: Samples) -> Metrics:
    """Describe values, targets and advantages as they were before the update."""
    value, target = samples.value.double(), samples.target.double()
    measured = {
        "value_mean": value.mean(),
        "target_mean": target.mean(),
        "target_var": target.var(correction=0),
        "value_error_abs": (target - value).abs().mean(),
        "advantage_std": samples.advantage.std(correction=0),
    }
    metrics = {name: float(value) for name, value in measured.items()}
    # Targets that differ only by rounding in single precision do not vary.
    if metrics["target_var"] > 1e-12 * metrics["target_mean"] ** 2:
        metrics["explained_variance"] = float(losses.explained_variance(value, target))
    return prefixed("ppo", metrics)
