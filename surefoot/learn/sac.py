"""Soft Actor-Critic (Haarnoja et al., 2018). The equations are in docs/sac.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms import SACConfig
from surefoot.core import seeding, tree
from surefoot.core.errors import NonFiniteError
from surefoot.core.metrics import Metrics, prefixed
from surefoot.core.progress import Progress
from surefoot.core.protocols import Actor
from surefoot.core.rollout import Rollout
from surefoot.core.seeding import Purpose
from surefoot.core.state import State
from surefoot.core.tree import Array
from surefoot.learn.optimizer import Adam, Optimizer
from surefoot.learn.replay import Replay
from surefoot.learn.rewards import Rewards
from surefoot.learn.soft_step import NORMS, TERMS, Batch, Luck
from surefoot.learn.transitions import Trail, Transitions
from surefoot.policy.actor import Greedy, Sample
from surefoot.policy.build import build_actor
from surefoot.policy.device import to_array, to_tensors
from surefoot.policy.soft import SoftActorCritic
from surefoot.policy.unscored import Unscored

REPORT_STEPS = 1_000
"""Steps between two reports of what updates measured; there is one at the beginning and the end."""
DRAWN_BYTES = 32 << 20
"""Batches are drawn in one go as long as they are not larger than this."""


class Step(Protocol):
    """An update, however it is run."""

    @property
    def how(self) -> str: ...

    @property
    def compile_seconds(self) -> float: ...

    def __call__(
        self,
        vector: Tensor,
        adam: Adam,
        target: Tensor,
        batch: Batch,
        luck: Luck,
        rates: Tensor,
        bias: Tensor,
        /,
    ) -> tuple[Tensor, Adam, Tensor, Tensor]: ...


class SAC:
    """Off-policy actor-critic with an entropy bonus; learns from a replay buffer."""

    def __init__(
        self,
        policy: SoftActorCritic,
        beginner: Actor,
        optimizer: Optimizer,
        step: Step,
        trail: Trail,
        replay: Replay,
        rewards: Rewards,
        config: SACConfig,
        seed: int,
        keeps_replay: bool,
        tell: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """`beginner` acts until learning starts; `keeps_replay` says whether the buffer is a part
        of the state."""
        self.policy = policy
        self._beginner, self._optimizer, self._step = beginner, optimizer, step
        self._replay, self._config, self._seed = replay, config, seed
        self._keeps_replay, self._tell = keeps_replay, tell
        self._trail, self._rewards = trail, rewards
        self._device = next(policy.parameters()).device
        self._target = optimizer.flat.vector[optimizer.flat.parts[1]].clone()
        """The parameters of the target networks."""
        self._collected = 0
        """Steps in all."""
        self._sums, self._count = np.zeros(len(TERMS) + len(NORMS)), 0
        """What updates measured since the last report, and how many there were."""
        self._seen: Transitions | None = None
        """What was learned from last."""

    @property
    def how(self) -> str:
        return self._step.how

    def actor(self) -> Actor:
        if self._optimizer.steps == 0 and not self._ready():
            return self._beginner
        return Unscored(build_actor(self.policy, Sample()))

    def player(self) -> Actor:
        return build_actor(self.policy, Greedy())

    def update(self, rollout: Rollout, progress: Progress) -> Metrics:
        """Remember a rollout, and make the updates its steps are worth."""
        before, self._collected = self._collected, self._collected + rollout.steps
        self._rewards.absorb(rollout)
        self._replay.add(self._trail.add(replace(rollout, reward=self._rewards.of(rollout))))
        self._absorb(rollout)
        count = self._config.updates(before, self._collected) if self._ready() else 0
        compiled, start = self._step.compile_seconds, self._optimizer.flat.vector.clone()
        if count:
            rows = self._improve(count, progress)
            self._sums += to_array(rows.sum(0, dtype=torch.float64))
            self._count += count
        compiling = self._step.compile_seconds - compiled
        passed = self._collected // REPORT_STEPS > before // REPORT_STEPS
        begins = self._optimizer.steps == count
        due = self._count and (passed or begins or progress.done_with(rollout))
        return {
            **({"update/optimizer_steps": float(count)} if count else {}),
            **({"time/compile": compiling} if compiling else {}),
            **({**self._report(progress, start), **self._rewards.metrics(rollout)} if due else {}),
        }

    def spread(self) -> Mapping[str, Array]:
        if self._seen is None:
            return {}
        seen = self._seen.map(lambda leaf: leaf[-1])
        obs, action = (to_tensors(part, self._device) for part in (seen.obs, seen.action))
        with torch.no_grad():
            features = self.policy.encoder(self.policy.prepare(obs))
            values = to_array(self.policy.critic.taken(features, action).amin(0))
        return {"sac/q_values": values, "sac/rewards": seen.reward, "sac/actions": seen.action}

    def state(self) -> State:
        kept = {"replay": self._replay.state(), "trail": self._trail.state()}
        return {
            "policy": self.policy.arrays(),
            "optimizer": self._optimizer.state(),
            "temperature": to_array(self._temperature).copy(),
            "target": to_array(self._target).copy(),
            "collected": self._collected,
            "rewards": self._rewards.state(),
            "measured": {"sums": self._sums.copy(), "count": self._count},
            "experience": kept if self._keeps_replay else {},
        }

    def restore(self, state: State) -> None:
        self.policy.load_state_dict(to_tensors(state["policy"], self._device))
        self._optimizer.restore(state["optimizer"])
        if self._config.temperature is None:  # a fork may have fixed it
            self._temperature.copy_(_of_shape(state["temperature"], self._temperature))
        self._target.copy_(_of_shape(state["target"], self._target))
        self._rewards.restore(state.get("rewards", {}))
        self._collected, self._count = (
            _count(n) for n in (state["collected"], state["measured"]["count"])
        )
        self._sums[:] = _of_shape(state["measured"]["sums"], torch.from_numpy(self._sums))
        if state["experience"]:
            self._replay.restore(state["experience"]["replay"])
            self._trail.restore(state["experience"]["trail"])
        elif self._collected:
            message = "not exact: the replay buffer was left behind, and fills up anew"
            self._tell({"event": "replay-empty", "message": message})

    @property
    def _temperature(self) -> Tensor:
        """The logarithm of the temperature, [1]."""
        return self._optimizer.flat.vector[self._optimizer.flat.parts[2]]

    def _ready(self) -> bool:
        """Say whether there is enough to learn from."""
        return len(self._replay) >= max(1, self._config.learning_starts)

    def _improve(self, count: int, progress: Progress) -> Tensor:
        """Make so many updates; return what each measured, [updates, terms + norms]."""
        optimizer, first = self._optimizer, self._optimizer.steps
        vector, adam, target = optimizer.flat.vector, optimizer.adam, self._target
        biases = iter(optimizer.biases(count))
        rates = optimizer.rates_at(progress.fraction)
        rows: list[Tensor] = []
        while len(rows) < count:
            number = first + len(rows)
            drawn, batches, luck = self._draw(number, count - len(rows))
            for index in range(len(luck.now)):
                batch = Batch(*(tree.index(part, index) for part in batches))
                chance = Luck(luck.now[index], luck.then[index])
                vector, adam, target, measured = self._step(
                    vector, adam, target, batch, chance, rates, next(biases)
                )
                rows.append(measured)
            self._seen = drawn
        measured = torch.stack(rows)
        self._require_finite(measured, vector, first, progress)
        optimizer.advance(vector, adam, count)
        self._target.copy_(target)
        return measured

    def _draw(self, number: int, count: int) -> tuple[Transitions, Batch, Luck]:
        """Draw what the next updates learn from, as many as fit at once; `number` is the first's.
        Return it as it was kept, and as the networks take it, [updates, B, …]."""
        size = self._config.batch_size
        at_once = min(count, self._at_once())
        random = seeding.generator(self._seed, Purpose.REPLAY, number)
        drawn = self._replay.draw(random, at_once, size)
        random = seeding.generator(self._seed, Purpose.UPDATE, number)
        shape = (2, at_once, size, *self.policy.critic.noise_shape())
        luck = Luck(*to_tensors(random.standard_normal(shape, np.float32), self._device))
        tensors = drawn.map(lambda leaf: to_tensors(leaf, self._device))
        obs, next_obs = (self.policy.prepare(part) for part in (tensors.obs, tensors.next_obs))
        batch = Batch(obs, tensors.action, tensors.reward, next_obs, tensors.discount)
        return drawn, batch, luck

    def _at_once(self) -> int:
        """Count the batches that are drawn in one go, at most."""
        batch = self._config.batch_size * self._replay.transition_bytes
        return max(1, DRAWN_BYTES // batch)

    def _absorb(self, rollout: Rollout) -> None:
        """Let the normalizer see what the rows saw."""
        self.policy.normalizer.absorb(to_tensors(rollout.seen(), self._device))

    def _report(self, progress: Progress, start: Tensor) -> Metrics:
        """Average what updates measured since the last report; look at the networks as they are."""
        means = dict(zip((*TERMS, *NORMS), (self._sums / self._count).tolist(), strict=True))
        self._sums[:], self._count = 0, 0
        rates = {name: r.at(progress.fraction) for name, r in self._optimizer.rates.items()}
        return {
            **prefixed("sac", {**{name: means[name] for name in TERMS}, **rates}),
            "sac/replay_size": float(len(self._replay)),
            **{f"grad/{name}_norm": means[name] for name in NORMS},
            **self._optimizer.metrics(start),
        }

    def _require_finite(self, rows: Tensor, vector: Tensor, first: int, progress: Progress) -> None:
        """Stop at the first update that was not finite, with what led to it."""
        where = (~rows.isfinite()).nonzero()
        if not len(where) and bool(vector.isfinite().all()):
            return
        names = (*TERMS, *(f"gradient norm of {name}" for name in NORMS))
        update = int(where[0, 0]) if len(where) else len(rows) - 1
        term = names[int(where[0, 1])] if len(where) else "a parameter"
        group, place = divmod(update, self._at_once())
        start = group * self._at_once()
        drawn, _, _ = self._draw(first + start, len(rows) - start)
        raise NonFiniteError(
            f"{term} is not finite in iteration {progress.iterations + 1}, update "
            f"{first + update + 1}; lower sac.learning_rate, set sac.max_grad_norm, or look at the "
            f"scale of rewards and observations (policy.normalize_observations)",
            evidence={
                "batch": drawn.map(lambda leaf: leaf[place])._asdict(),
                "weights_before": tree.map(
                    to_array, self._optimizer.flat.unpack(self._optimizer.flat.vector)
                ),
                "progress": vars(progress),
                "term": term,
                "update": first + update,
            },
        )


def _of_shape(found: Any, place: Tensor) -> Tensor:
    """Return an array as a tensor, if it is what belongs into a place."""
    given = torch.from_numpy(np.array(found))
    if given.shape != place.shape or given.dtype != place.dtype:
        raise ValueError(f"{given.dtype}{list(given.shape)} is where {list(place.shape)} should be")
    return given


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r:.40} is no count")
    return value
