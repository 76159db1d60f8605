"""Queueing networks that never end: packets arrive, wait, and are sent on over links.

In each step links get capacities, the action says what each sends, packets move, those that have
arrived where they are to go leave, and new ones arrive. The reward is minus the cost of all that
waits then. Every random number is a function of the episode's seed and the step, so a network can
be put into any state, and one row is like another whether it is alone or in a vector.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from surefoot.core.errors import ConfigError
from surefoot.core.tree import Array
from surefoot.envs.networks import Instance, Quantity, bundled, load

ID = "surefoot/QueueNetwork-v0"
DEFAULT = "two_queues"
Actions: TypeAlias = Literal["choice", "shares"]
Part: TypeAlias = Literal["queues", "capacities", "arrivals"]
GOLDEN, FIRST, SECOND = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""Constants of SplitMix64 (Steele, Lea and Flood, 2014)."""
BITS = 2.0**-53


class Draws:
    """Random quantities, each a function of a seed, a step and its place in the list."""

    def __init__(self, quantities: Sequence[Quantity]) -> None:
        longest = max((len(quantity.values) for quantity in quantities), default=1)
        shape = (len(quantities), longest)
        self._values, self._steps = np.zeros(shape), np.full(shape, 2.0)
        for place, quantity in enumerate(quantities):
            size = len(quantity.values)
            self._values[place, :size] = quantity.values
            self._values[place, size:] = quantity.values[-1]
            self._steps[place, : size - 1] = np.cumsum(quantity.probabilities)[:-1]
        self._places = np.arange(len(quantities))
        self._offsets = self._places.astype(np.uint64) + np.uint64(1)
        self._random = not all(quantity.constant for quantity in quantities)

    def at(self, seeds: Array, time: Array) -> Array:
        """Return what rows [N] with these seeds get at these steps, [N, places]."""
        if not self._random:
            return np.broadcast_to(self._values[:, 0], (len(seeds), len(self._values)))
        count = np.uint64(len(self._offsets))
        chance = _uniform(seeds[:, None], time[:, None] * count + self._offsets)
        which = (chance[:, :, None] >= self._steps).sum(-1)
        drawn: Array = self._values[self._places, which]
        return drawn


def _uniform(seeds: Array, counters: Array) -> Array:
    """Return the number in [0, 1) at this place of the stream of this seed."""
    mixed = seeds + counters * GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND
    numbers: Array = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * BITS
    return numbers


def _mixed(seeds: Array) -> Array:
    """Turn seeds that may be close to each other into some whose streams are not."""
    mixed = _uniform(seeds, np.ones_like(seeds)) / BITS
    return mixed.astype(np.uint64) * GOLDEN


def _parts(observe: str | Sequence[str]) -> tuple[str, ...]:
    """List what is observed; one part may stand alone."""
    return (observe,) if isinstance(observe, str) else tuple(observe)


class Plan:
    """A network laid out as arrays: S queues, M lanes (a link with a class it can send)."""

    def __init__(self, instance: Instance) -> None:
        network = instance.network
        slots, lanes = network.slots(), network.lanes()
        place = {(node, kind.name): number for number, (node, kind) in enumerate(slots)}
        self.queues = [f"{node} {kind.name}" for node, kind in slots]
        self.lanes = [f"{link.name} {kind.name}" for _, link, kind in lanes]
        self.costs = np.array([kind.cost for _, kind in slots])
        self.link = np.array([number for number, _, _ in lanes])
        self.links = len(network.links)
        self.source = np.array([place[link.source, kind.name] for _, link, kind in lanes])
        self.target = np.array([place.get((link.target, kind.name), -1) for _, link, kind in lanes])
        self.leaving = self.target < 0
        self.number = np.array(_numbered(self.link.tolist()))
        """Which lane of its link each is, from 1 up."""
        self.choices = np.bincount(self.link, minlength=self.links) + 1
        """[links]: how many lanes each has, and idling."""
        self.inflow = np.zeros((len(lanes), len(slots)))
        arriving = ~self.leaving
        self.inflow[np.flatnonzero(arriving), self.target[arriving]] = 1.0
        self.entries = np.array([place[kind.source, kind.name] for kind in network.classes])
        self.of_link = np.zeros((len(lanes), self.links))
        self.of_link[np.arange(len(lanes)), self.link] = 1.0
        turns = np.array(_numbered(self.source.tolist()))
        self.turns = [np.flatnonzero(turns == turn) for turn in range(1, turns.max() + 1)]
        """Lanes that take from different queues, in the order of their links."""
        self._lay_out_draws(instance, lanes)

    def _lay_out_draws(self, instance: Instance, lanes: list[Any]) -> None:
        quantities: list[Quantity] = []
        known: dict[Any, int] = {}
        self.drawn = np.zeros(len(lanes), np.int64)
        """[M]: the place of each lane's capacity among those drawn."""
        for lane, (number, link, kind) in enumerate(lanes):
            key = number if link.capacities is None else (number, kind.name)
            if key not in known:
                known[key] = len(quantities)
                quantities.append(link.capacity or link.capacities[kind.name])
            self.drawn[lane] = known[key]
        self.mean_capacity = np.array([quantities[place].mean for place in self.drawn])
        self.capacities = Draws(quantities)
        self.arrivals = Draws([kind.arrivals for kind in instance.network.classes])


def _numbered(things: list[Any]) -> list[int]:
    """Number each thing among its equals, from 1 up."""
    seen: dict[Any, int] = {}
    numbers = []
    for thing in things:
        seen[thing] = seen.get(thing, 0) + 1
        numbers.append(seen[thing])
    return numbers


class QueueNetworkVector(GymnasiumVectorEnv[Any, Any, Any]):
    """Many networks of one kind, stepped together in numpy."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "seed_for_each_row": True}

    def __init__(
        self,
        num_envs: int = 1,
        instance: str | Path | Mapping[str, Any] = DEFAULT,
        actions: Actions = "choice",
        observe: Sequence[Part] = ("queues",),
        log: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """`actions`: each link chooses one class or idles, or gives each class a share of its
        capacity. `observe`: the queues, and what is known of the coming step. `log`: observations
        are the logarithm of 1 + each."""
        if render_mode is not None:
            raise ConfigError(f"{ID} has no pictures (render_mode={render_mode!r})")
        parts = _parts(observe)
        if not parts or not set(parts) <= {"queues", "capacities", "arrivals"}:
            raise ConfigError(f"observe={parts}: choose from queues, capacities, arrivals")
        if actions not in ("choice", "shares"):
            raise ConfigError(f"actions={actions!r}: choose choice or shares")
        self.instance = load(instance)
        self.plan = Plan(self.instance)
        self.num_envs, self._observe, self._log = num_envs, parts, log
        self._want = self._chosen if actions == "choice" else self._shared
        plan, classes = self.plan, self.instance.network.classes
        self._names = {
            "queues": plan.queues,
            "capacities": [f"capacity {name}" for name in plan.lanes],
            "arrivals": [f"arrivals {kind.name}" for kind in classes],
        }
        self.observation_names = [name for part in parts for name in self._names[part]]
        size = len(self.observation_names)
        self.single_observation_space = gymnasium.spaces.Box(0, np.inf, (size,), np.float32)
        self.single_action_space = (
            gymnasium.spaces.MultiDiscrete(plan.choices)
            if actions == "choice"
            else gymnasium.spaces.Box(0, 1, (len(plan.lanes),), np.float32)
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.queues = np.zeros((num_envs, len(plan.queues)))
        self._time = np.zeros(num_envs, np.uint64)
        self._seeds = _mixed(np.random.SeedSequence().generate_state(num_envs, np.uint64))

    @classmethod
    def identity(cls, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Say what these arguments come to, so that only like is compared with like."""
        parameters = inspect.signature(cls.__init__).parameters
        usual = {name: parameters[name].default for name in ("actions", "observe", "log")}
        given = {**usual, **arguments}
        fingerprint = load(arguments.get("instance", DEFAULT)).fingerprint
        return {**given, "observe": list(_parts(given["observe"])), "instance": fingerprint}

    @classmethod
    def settled(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Put the description itself in the place of its file's name: a run needs no other file."""
        instance = arguments.get("instance", DEFAULT)
        if isinstance(instance, Mapping) or str(instance) in bundled():
            return dict(arguments)
        return {**arguments, "instance": dict(load(instance).written)}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        rows = np.ones(self.num_envs, bool)
        if options and options.get("reset_mask") is not None:
            rows = np.asarray(options["reset_mask"], bool)
        self._seeds[rows] = self._given(seed)[rows]
        self._time[rows] = 0
        self.queues[rows] = 0.0
        self._look_ahead()
        return self._observed(), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        plan, waiting = self.plan, self.queues.copy()
        flow = self._want(np.asarray(actions))
        for lanes in plan.turns:
            source = plan.source[lanes]
            sent = np.minimum(flow[:, lanes], waiting[:, source])
            waiting[:, source] -= sent
            flow[:, lanes] = sent
        waiting += flow @ plan.inflow
        waiting[:, plan.entries] += self._arriving
        self.queues = waiting
        self._time += np.uint64(1)
        self._look_ahead()
        backlog, none = waiting.sum(1), np.zeros(self.num_envs, bool)
        delivered = flow[:, plan.leaving].sum(1)
        infos = {"metrics": {"backlog": backlog, "delivered": delivered}}
        return self._observed(), -(waiting @ plan.costs), none, none.copy(), infos

    def understood(self, obs: Array) -> tuple[Array, Array]:
        """Return the queues [N, S] and capacities [N, M] that observations [N, …] tell of; where
        they do not, capacities are what they are on average."""
        seen = np.expm1(obs.astype(np.float64)) if self._log else obs.astype(np.float64)
        ends = np.cumsum([len(self._names[part]) for part in self._observe])
        parts = dict(zip(self._observe, np.split(seen, ends[:-1], axis=1), strict=True))
        if "queues" not in parts:
            raise ConfigError(f"observe={self._observe} does not show the queues")
        means = np.broadcast_to(self.plan.mean_capacity, (len(obs), len(self.plan.lanes)))
        return parts["queues"], parts.get("capacities", means)

    def as_action(self, chosen: Array) -> Array:
        """Write as actions which lane each link serves [N, links], by number; 0: none."""
        if isinstance(self.single_action_space, gymnasium.spaces.MultiDiscrete):
            return chosen
        shares: Array = (chosen[:, self.plan.link] == self.plan.number).astype(np.float32)
        return shares

    def get_state(self) -> dict[str, Array]:
        state = {"queues": self.queues, "seeds": self._seeds, "time": self._time}
        return {name: values.copy() for name, values in state.items()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        self.queues = np.array(state["queues"])
        self._seeds, self._time = np.array(state["seeds"]), np.array(state["time"])
        self._look_ahead()

    def _given(self, seed: Any) -> Array:
        """Return a seed for each row; one number stands for itself and those that follow, and
        where there is none it follows from the seed before."""
        if seed is None:
            seed = [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + row for row in range(self.num_envs)]
        none = np.array([number is None for number in seed])
        given = np.array([0 if number is None else number for number in seed], np.uint64)
        return _mixed(np.where(none, self._seeds, given))

    def _look_ahead(self) -> None:
        """Draw what the coming step brings."""
        self._capacity = self.plan.capacities.at(self._seeds, self._time)[:, self.plan.drawn]
        other = self._seeds ^ SECOND
        self._arriving = self.plan.arrivals.at(other, self._time)

    def _observed(self) -> Array:
        parts = {"queues": self.queues, "capacities": self._capacity, "arrivals": self._arriving}
        seen = np.concatenate([parts[name] for name in self._observe], 1)
        return (np.log1p(seen) if self._log else seen).astype(np.float32)

    def _chosen(self, actions: Array) -> Array:
        """Return what links want to send where each serves one class, or none, [N, M]."""
        plan = self.plan
        wanted: Array = np.where(actions[:, plan.link] == plan.number, self._capacity, 0.0)
        return wanted

    def _shared(self, actions: Array) -> Array:
        """Return what links want to send where each is shared out; no more than all of it."""
        shares = np.clip(actions.astype(np.float64), 0.0, 1.0)
        most = np.maximum(1.0, shares @ self.plan.of_link)
        return self._capacity * shares / most[:, self.plan.link]


class QueueNetwork(gymnasium.Env[Array, Array]):
    """One network."""

    metadata = {"render_modes": []}

    def __init__(self, **arguments: Any) -> None:
        self._row = QueueNetworkVector(1, **arguments)
        self.observation_space = self._row.single_observation_space
        self.action_space = self._row.single_action_space
        self.observation_names = self._row.observation_names
        self.plan = self._row.plan

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        obs, infos = self._row.reset(seed=seed)
        return obs[0], infos

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        obs, reward, _, _, infos = self._row.step(np.asarray(action)[None])
        metrics = {name: float(values[0]) for name, values in infos["metrics"].items()}
        return obs[0], float(reward[0]), False, False, {"metrics": metrics}

    def get_state(self) -> dict[str, Array]:
        return self._row.get_state()

    def set_state(self, state: Mapping[str, Array]) -> None:
        self._row.set_state(state)


def register_envs() -> None:
    """Make the networks known to Gymnasium, unless they are."""
    if ID not in gymnasium.registry:
        gymnasium.register(
            ID,
            entry_point=f"{__name__}:QueueNetwork",
            vector_entry_point=f"{__name__}:QueueNetworkVector",
        )
