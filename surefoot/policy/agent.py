"""A trained policy as people use it: observations in, actions for the environment out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from surefoot.core import seeding, tree
from surefoot.core.errors import ConfigError
from surefoot.core.seeding import Purpose
from surefoot.core.spec import Spec
from surefoot.core.tree import Tree
from surefoot.policy.actor import Greedy, Sample
from surefoot.policy.build import Policy, build_actor
from surefoot.policy.files import actor_file, critic_file


class Agent:
    """Takes one observation or a batch of them, as the environment gives them."""

    def __init__(self, policy: Policy, spec: Spec, seed: int = 0) -> None:
        self.spec = spec
        self.network = policy
        self._greedy, self._sampling = build_actor(policy, Greedy()), build_actor(policy, Sample())
        self._seed, self._calls = seed, 0

    def act(self, obs: Any, deterministic: bool = True) -> Any:
        """Choose an action for one observation, or one for each of a batch."""
        single, batch = self._batched(obs)
        rows = len(tree.leaves(batch)[0])
        actor = self._greedy if deterministic else self._sampling
        random = seeding.generator(self._seed, Purpose.EVALUATION_ACTION, self._calls)
        self._calls += 1
        action, _ = actor.act(batch, None, actor.memory(rows), actor.noise(random, rows))
        taken = self.spec.to_env(action)
        return tree.index(taken, 0) if single else taken

    def save_policy_net(self, path: str | Path) -> None:
        """Write all that acting needs, normalizer included, as a plain state dict."""
        Path(path).write_bytes(actor_file(self.network.arrays()))

    def save_value_net(self, path: str | Path) -> None:
        """Write all that valuing needs, normalizer included, as a plain state dict."""
        Path(path).write_bytes(critic_file(self.network.arrays()))

    def _batched(self, obs: Any) -> tuple[bool, Tree]:
        """Check observations against the spec; say whether it was one, and give it a batch axis."""
        given = tree.untupled(obs)
        arrays = tree.map(lambda _, raw: np.asarray(raw), self.spec.observation, given)
        shapes = [
            (path, leaf.shape, space.shape)
            for (path, space), leaf in zip(
                tree.items(self.spec.observation), tree.leaves(arrays), strict=True
            )
        ]
        single = all(got == one for _, got, one in shapes)
        for path, got, one in shapes:
            if not single and got[1:] != one:
                raise ConfigError(
                    f"observation{'/' + path if path else ''} has shape {got}; this policy takes "
                    f"{one}, or a batch of shape (n, {', '.join(map(str, one))})"
                )
        batch = tree.map(
            lambda space, leaf: space.from_env(leaf[None] if single else leaf).astype(space.dtype),
            self.spec.observation,
            arrays,
        )
        return single, batch
