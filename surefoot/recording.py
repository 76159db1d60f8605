"""Episodes step by step: what a policy saw, did, expected and got; and what that looked like."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from surefoot.core import seeding, tree
from surefoot.core.errors import EnvError, RunError
from surefoot.core.protocols import Actor, Visible
from surefoot.core.rollout import CHUNK, Episode
from surefoot.core.seeding import EpisodeSeeds, Purpose
from surefoot.core.spec import Discrete, MultiDiscrete, Spec, differences
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs.channels import action_names, observation_names
from surefoot.envs.make import Factory, make_some
from surefoot.maths import moments
from surefoot.maths.moments import Moments
from surefoot.policy.build import Policy
from surefoot.policy.device import to_array, to_tensors
from surefoot.store import durable

MAX_STEPS = 30_000
"""An episode that is longer is cut there."""


@dataclass(frozen=True)
class Trajectory:
    """One episode of L steps."""

    obs: Tree
    """[L+1, …]: the last is what the episode ended with."""
    action: Tree
    """[L, …]: as the policy chose it."""
    reward: Array
    """[L]: raw."""
    value: Array
    """[L+1]: what the critic expected from there on, in units of the reward."""
    log_prob: Array
    """[L]"""
    entropy: Array
    """[L]"""
    chances: Array
    """[L, options]: how probable those of all choices were; empty where actions are numbers."""
    info: dict[str, Array]
    """[L] each: what the environment reported."""
    about: dict[str, Any]
    """env, step, seed, episode, gamma, terminated, success, and the names of observations, their
    leaves, and actions."""
    frames: list[bytes] = field(default_factory=list)
    """What it looked like before each step, as JPEG files, if anybody watched."""

    @property
    def length(self) -> int:
        return len(self.reward)

    @property
    def total(self) -> float:
        return float(self.reward.sum())

    @property
    def episode(self) -> Episode:
        about = self.about
        ending = {"terminated": about["terminated"], "success": about.get("success")}
        return Episode(0, about["episode"], self.total, self.length, **ending)

    def channels(self) -> dict[str, Array]:
        """Return every number that was observed, [L+1] each, by name."""
        leaves = dict(tree.items(self.obs))  # in whatever order a file had them
        parts = [leaves[path] for path in self.about["observation_leaves"]]
        columns = [column for part in parts for column in part.reshape(len(part), -1).T]
        return dict(zip(self.about["observation_names"], columns, strict=True))

    def returns(self) -> Array:
        """Compute what followed each step [L], discounted; after a cut by what was expected."""
        following = 0.0 if self.about["terminated"] else float(self.value[-1])
        found = np.empty(self.length)
        for t in reversed(range(self.length)):
            following = found[t] = self.reward[t] + self.about["gamma"] * following
        return found

    def save(self, path: Path) -> None:
        """Write it down, without frames."""
        groups: dict[str, Tree] = {"obs": self.obs, "action": self.action, "info": self.info}
        groups |= {name: getattr(self, name) for name in SERIES}
        arrays = {name: np.ascontiguousarray(leaf) for name, leaf in tree.items(groups)}
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_file(path, save(arrays, {"about": json.dumps(self.about)}))

    @classmethod
    def load(cls, path: Path) -> Trajectory:
        try:
            with safe_open(path, "numpy") as file:
                about = json.loads(file.metadata()["about"])
            nested: dict[str, Any] = {"info": {}}
            for name, array in load_file(path).items():
                group, _, rest = name.partition("/")
                *parents, last = rest.split("/") if group == "obs" and rest else [rest or group]
                place = nested.setdefault(group, {}) if rest else nested
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[last] = array
            return cls(**nested, about=about)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise RunError(f"{path} is not a trajectory: {error}") from None


SERIES = ("reward", "value", "log_prob", "entropy", "chances")


@dataclass(frozen=True)
class Player:
    """A policy, what chooses its actions, and what its numbers mean."""

    policy: Policy
    actor: Actor
    spec: Spec
    gamma: float
    scale: float
    """What the critic's values are to be multiplied by."""
    step: int
    comparable: bool = True
    """Whether its values are then of discounted raw rewards."""


def reward_scale(kept: State) -> float:
    """Find what rewards were divided by over the whole run, in what a learner kept of them."""
    kept = next((found for name, found in kept.items() if name.endswith("-Scaled")), kept)
    if "squares" not in kept:
        return 1.0
    found = Moments(*(torch.from_numpy(np.array(kept[name])) for name in Moments._fields))
    return float(moments.deviation(found))


def record(
    player: Player,
    make: Factory,
    env_id: str,
    episodes: int,
    seed: int,
    address: int | None = None,
    film: bool = False,
) -> Iterator[Trajectory]:
    """Play episodes one after another in an environment built anew. `address` stands for the
    policy's step in what is drawn by chance: policies with the same meet the same episodes. With
    `film` frames are kept."""
    address = player.step if address is None else address
    with closing(cast(Visible, make_some(make, 1))) as env:
        if different := differences(player.spec, env.spec):
            raise RunError(f"{make.name} is not what was trained on: {'; '.join(different)}")
        about = {"env": env_id, "step": player.step, "seed": seed, "gamma": player.gamma}
        about |= {"comparable": player.comparable, **_names(env, env_id)}
        seeds = EpisodeSeeds(seed, Purpose.EVALUATION_RESET, address)
        # One more than its end, as a library may spend a step on a reset.
        longest = make.reset_every + 1 if make.reset_every else MAX_STEPS
        obs = env.reset(seeds, np.zeros(env.spec.rows, np.int64))
        for episode in range(episodes):
            place = (seed, address, episode)
            seen, rest = _play(player.actor, env, obs, place, film, longest)
            obs = rest.pop("next")
            ending = {name: rest.pop(name) for name in ("terminated", "success")}
            facts = {**about, "episode": episode, **ending}
            rest |= _opinions(player, seen, rest["action"])
            yield Trajectory(obs=seen, **rest, about=facts)


def _play(
    actor: Actor,
    env: Visible,
    obs: Tree,
    address: tuple[int, int, int],
    film: bool,
    longest: int,
) -> tuple[Tree, dict[str, Any]]:
    """Play the first row's episode to its end; return what it saw, and all the rest."""
    rows, memory = env.spec.rows, actor.memory(env.spec.rows)
    seen, actions, rewards, frames = [], [], [], []
    info: dict[str, dict[int, float]] = {}
    for t in range(longest):
        seen.append(tree.map(np.copy, tree.index(obs, 0)))
        if film:
            frames.append(picture_of(env))
        seed, *rest = address
        noise = actor.noise(seeding.generator(seed, Purpose.EVALUATION_ACTION, *rest, t), rows)
        action, memory = actor.act(tree.map(np.copy, obs), None, memory, noise)
        result = env.step(action)
        obs = result.obs
        if not result.valid[0]:
            seen.pop()
            del frames[len(seen) :]
            continue
        actions.append(tree.map(np.copy, tree.index(action, 0)))
        rewards.append(float(result.reward[0]))
        for name, values in result.info.items():
            info.setdefault(name, {})[len(rewards) - 1] = float(values[0])
        if result.ended[0]:
            seen.append(tree.map(np.copy, tree.index(result.final_obs, 0)))
            break
    else:
        seen.append(tree.map(np.copy, tree.index(obs, 0)))
    stacked = tree.map(lambda *leaves: np.stack(leaves), *seen)
    return stacked, {
        "action": tree.map(lambda *leaves: np.stack(leaves), *actions),
        "reward": np.array(rewards),
        "info": {
            name: np.array([values.get(t, np.nan) for t in range(len(rewards))])
            for name, values in info.items()
        },
        "frames": frames,
        "terminated": bool(result.terminated[0]),
        "success": None if np.isnan(result.success[0]) else float(result.success[0]),
        "next": obs,
    }


def picture_of(env: Visible) -> bytes:
    """Take a picture of the first row."""
    try:
        picture = env.render()
    except Exception as error:
        raise EnvError(
            f"the environment cannot be drawn: {type(error).__name__}: {error}. Where there is no "
            f"screen, MuJoCo needs EGL or OSMesa: install one, and set MUJOCO_GL=egl or osmesa"
        ) from error
    if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[-1] != 3:
        raise EnvError(
            "the environment gives no pictures: with render_mode='rgb_array' its render() must "
            "return an array [height, width, 3]"
        )
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture.astype(np.uint8)).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def _opinions(player: Player, obs: Tree, action: Tree) -> dict[str, Array]:
    """Ask the policy about everything it saw and did, some steps at a time."""
    length = len(tree.leaves(action)[0])
    ends = [*range(CHUNK, length, CHUNK), length + 1]
    some = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    parts = [_opinions_on(player, obs, action, steps) for steps in some]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@torch.inference_mode()
def _opinions_on(player: Player, obs: Tree, action: Tree, some: slice) -> dict[str, Array]:
    """Ask about some steps; what was seen last has a value, and nothing was done then."""
    device = next(player.policy.parameters()).device
    prepared = player.policy.prepare(to_tensors(tree.index(obs, some), device))
    taken = to_tensors(tree.index(action, some), device)
    distribution = player.policy.distribution(
        tree.index(prepared, slice(0, len(tree.leaves(taken)[0])))
    )
    opinions = {
        "value": player.scale * player.policy.value(prepared),
        "log_prob": distribution.log_prob(taken),
        "entropy": distribution.entropy(),
        "chances": distribution.chances(),
    }
    return {name: to_array(opinion) for name, opinion in opinions.items()}


def _names(env: Visible, env_id: str) -> dict[str, Sequence[str]]:
    """Name every number that is observed, and every option or number of an action."""
    spaces = {path: int(np.prod(space.shape)) for path, space in tree.items(env.spec.observation)}
    if list(spaces) == [""]:
        observed = observation_names(env_id, env.first, spaces[""])
    else:
        observed = [f"{path} {n}" for path, size in spaces.items() for n in range(size)]
    match env.spec.action:
        case Discrete(n=n):
            done = action_names(env_id, env.first, n)
        case MultiDiscrete(bins=bins):
            several = enumerate(bins.reshape(-1).tolist(), 1)
            done = [f"choice {choice}: {n}" for choice, options in several for n in range(options)]
        case space:
            done = action_names(env_id, env.first, int(np.prod(space.shape)))
    return {
        "observation_leaves": list(spaces),
        "observation_names": observed,
        "action_names": done,
    }
