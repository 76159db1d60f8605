"""A run: its directory, and how to use what was trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from surefoot.core.errors import CheckpointError, ConfigError, RunError
from surefoot.core.metrics import Averages
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.directory import RunDirectory
from surefoot.envs.make import Factory, factory, measure
from surefoot.evaluate import ROWS, Evaluation, evaluate
from surefoot.policy.actor import Greedy, Sample
from surefoot.policy.agent import Agent
from surefoot.policy.build import build_actor, build_policy
from surefoot.policy.device import to_tensors
from surefoot.policy.export import to_onnx, to_pt2
from surefoot.policy.files import actor_file
from surefoot.recording import Player, record, reward_scale
from surefoot.store import durable


class Run(RunDirectory):
    """One training, and what came of it."""

    def load(self, which: str | int = "best") -> Agent:
        """Load a trained policy; its environment is not needed."""
        found = self.checkpoint(which)
        return self._agent(found.step, self.read(found, whole=False))

    def player(self, which: str | int = "best", deterministic: bool = True) -> Player:
        """Load a trained policy with all that its opinions mean."""
        found = self.checkpoint(which)
        return self.player_of(found.step, self.read(found, whole=False), deterministic)

    def player_of(self, step: int, state: State, deterministic: bool = True) -> Player:
        """Make the policy of a step out of what a checkpoint holds, or would hold."""
        agent = self._agent(step, state)
        actor = build_actor(agent.network, Greedy() if deterministic else Sample())
        scale, config = reward_scale(state["learner"].get("rewards", {})), self.config
        discounted = config.algo == "sac" or config.ppo.objective == "discounted"
        return Player(
            agent.network,
            actor,
            agent.spec,
            config.learning.gamma,
            scale,
            step,
            comparable=discounted and not config.rewards,
        )

    def _agent(self, step: int, state: State) -> Agent:
        try:
            spec, arrays = Spec.from_state(state["spec"]), state["learner"]["policy"]
            if spec.size > sum(array.size for array in arrays.values()):
                raise ValueError(f"its spaces are larger than its networks: {spec.size} numbers")
            policy = build_policy(spec, self.config)
            policy.load_state_dict(to_tensors(arrays, torch.device("cpu")))
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"step {step:,} does not fit {self.path / 'config.yaml'}: {error}"
            ) from None
        return Agent(policy, spec, self.config.seed)

    def evaluate(
        self,
        episodes: int = 20,
        checkpoint: str | int = "best",
        deterministic: bool = True,
        seed: int | None = None,
        render: bool = False,
        steps: int | None = None,
    ) -> Evaluation:
        """Play whole episodes with a trained policy in new environments; they are cut after so many
        steps, or as evaluations in training were."""
        _require_episodes(episodes, seed)
        found = self.checkpoint(checkpoint)
        agent = self._agent(found.step, self.read(found, whole=False))
        make = self.cut(self.factory({"render_mode": "human"} if render else {}), steps)
        actor = build_actor(agent.network, Greedy() if deterministic else Sample())
        seed = self.config.seed if seed is None else seed
        rows = 1 if render else ROWS
        return evaluate(actor, make, agent.spec, episodes, seed, found.step, rows)

    def record(
        self,
        episodes: int = 1,
        checkpoint: str | int = "best",
        deterministic: bool = True,
        seed: int | None = None,
        steps: int | None = None,
    ) -> Evaluation:
        """Play episodes one after another, and write down every step in `trajectories/`."""
        _require_episodes(episodes, seed)
        player = self.player(checkpoint, deterministic)
        seed = self.config.seed if seed is None else seed
        played, averages = [], Averages()
        make = self.cut(self.factory({}), steps)
        for one in record(player, make, self.config.env, episodes, seed):
            name = f"step_{player.step:012d}_seed_{seed}_episode_{one.about['episode']}"
            one.save(self.path / "trajectories" / f"{name}.safetensors")
            averages.add(one.info)
            played.append(one.episode)
        return Evaluation(played, player.step, averages.means())

    def cut(self, make: Factory, steps: int | None = None) -> Factory:
        """Have episodes cut after so many steps, or as the settings say for evaluations."""
        limit = steps or self.config.evaluate_steps or self.config.reset_every
        return replace(make, reset_every=limit)

    def export(
        self, format: str = "pth", out: Path | None = None, checkpoint: str | int = "best"
    ) -> Path:
        """Write a trained policy as a file for use without surefoot; return where."""
        agent = self.load(checkpoint)
        makers = {
            "pth": lambda: actor_file(agent.network.arrays()),
            "onnx": lambda: to_onnx(agent.network, agent.spec),
            "pt2": lambda: to_pt2(agent.network, agent.spec),
        }
        if format not in makers:
            raise ConfigError(f"format={format!r}: choose one of {', '.join(makers)}")
        path = Path(out) if out else self.path / "models" / f"exported.{format}"
        content = makers[format]()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.write_file(path, content)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from None
        return path

    def factory(self, extra: dict[str, Any]) -> Factory:
        """Find what makes this run's environments."""
        if self._env is None and self.config.env.startswith("<"):
            raise RunError(
                f"the environment of {self.path} is the function {self.config.env}, which "
                f"cannot be imported; say where it is with --env file.py:function, or in Python "
                f"with env=function"
            )
        metrics = self.config.metrics if self._metrics is None else self._metrics
        if isinstance(metrics, str) and metrics.startswith("<"):
            raise RunError(
                f"the metrics of {self.path} are the function {metrics}, which cannot be imported; "
                f"say where it is with --metrics file.py:function, or in Python with "
                f"metrics=function; or do without, with --metrics ''"
            )
        try:
            make = factory(self._env or self.config.env, {**self.config.env_args, **extra})
        except ConfigError as error:
            if self._env is not None:
                raise
            raise RunError(f"{error}; if it is elsewhere now, say so with --env") from None
        try:
            return replace(make, metrics=measure(metrics), reset_every=self.config.reset_every)
        except ConfigError as error:
            if self._metrics is not None:
                raise
            raise RunError(
                f"{error}; if it is elsewhere now, say so with --metrics, or do without with "
                f"--metrics ''"
            ) from None


def load(path: str | Path, checkpoint: str = "best") -> Agent:
    """Load the trained policy of a run."""
    return Run.open(path).load(checkpoint)


def _require_episodes(episodes: int, seed: int | None) -> None:
    if episodes < 1 or (seed is not None and seed < 0):
        raise ConfigError(f"episodes={episodes}, seed={seed}: play at least one, from seed 0 up")
