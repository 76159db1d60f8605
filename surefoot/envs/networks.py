"""Queueing networks, as they are described in YAML or JSON.

    links:
      - {from: server, to: out, capacity: {bernoulli: 0.8}}
    classes:
      - {name: calls, from: server, to: out, arrivals: {poisson: 0.5}, cost: 2}

Packets of a class arrive at a node and are to get to another, over any links. Quantities per step
are a number, or random: see `Quantity`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from surefoot.core.errors import ConfigError, nearest

INSTANCES = Path(__file__).parent / "instances"
REST = 1e-12
"""Probability that tables leave out."""
LARGEST = 10_000
"""Of what a quantity may be: tables are as long."""


class Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)


class Quantity(Described):
    """How many per step: values, and how probable each is."""

    values: tuple[float, ...]
    probabilities: tuple[float, ...]

    @property
    def constant(self) -> bool:
        return len(self.values) == 1

    @property
    def mean(self) -> float:
        return math.fsum(v * p for v, p in zip(self.values, self.probabilities, strict=True))


def parse_quantity(said: Any) -> Quantity:
    """Read `3`, `{bernoulli: 0.7}`, `{poisson: 2.5}`, `{binomial: [4, 0.5]}`, `{uniform: [0, 3]}`
    (whole numbers, both ends included) or `{choice: {0: 0.3, 5: 0.7}}`."""
    if isinstance(said, Quantity):
        return said
    try:
        if not isinstance(said, Mapping):
            return _tabled({float(said): 1.0})
        ((kind, given),) = said.items()
        return _tabled(KINDS[kind](given))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{said!r} is no quantity: give a number from 0 up, {{bernoulli: 0.7}}, "
            f"{{poisson: 2.5}}, {{binomial: [4, 0.5]}}, {{uniform: [0, 3]}} or "
            f"{{choice: {{0: 0.3, 5: 0.7}}}}"
        ) from None


def _tabled(chances: Mapping[float, float]) -> Quantity:
    kept = {float(value): float(chance) for value, chance in chances.items() if chance != 0}
    if (
        not kept
        or min(kept) < 0
        or min(kept.values()) < 0
        or not math.isclose(math.fsum(kept.values()), 1.0, abs_tol=1e-9)
    ):
        raise ValueError("no probabilities")
    if any(not math.isfinite(value) for value in kept):
        raise ValueError("not finite")
    return Quantity(values=tuple(sorted(kept)), probabilities=tuple(kept[v] for v in sorted(kept)))


def _bernoulli(given: Any) -> dict[float, float]:
    chance = float(given)
    if not 0 <= chance <= 1:
        raise ValueError(chance)
    return {0.0: 1 - chance, 1.0: chance}


def _poisson(given: Any) -> dict[float, float]:
    mean = float(given)
    if not 0 <= mean <= LARGEST / 2:
        raise ValueError(mean)
    chances, count, left = dict[float, float](), 0, 1.0
    while left > REST and count < LARGEST:
        log = count * math.log(mean) - mean - math.lgamma(count + 1) if mean else 0.0
        chances[float(count)] = math.exp(log)
        left -= chances[float(count)]
        count += 1
        if count > mean and chances[float(count - 1)] < REST:
            break
    return _complete(chances)


def _binomial(given: Any) -> dict[float, float]:
    trials, chance = int(given[0]), float(given[1])
    if not (0 <= chance <= 1 and 1 <= trials <= 1000 and trials == given[0]):
        raise ValueError(given)
    return {
        float(n): math.comb(trials, n) * chance**n * (1 - chance) ** (trials - n)
        for n in range(trials + 1)
    }


def _uniform(given: Any) -> dict[float, float]:
    low, high = (int(end) for end in given)
    if [low, high] != list(given) or not 0 <= low <= high <= LARGEST:
        raise ValueError(given)
    return {float(value): 1 / (high - low + 1) for value in range(low, high + 1)}


def _choice(given: Any) -> dict[float, float]:
    return {float(value): float(chance) for value, chance in given.items()}


def _complete(chances: dict[float, float]) -> dict[float, float]:
    """Share out what a table leaves out."""
    whole = math.fsum(chances.values())
    return {value: chance / whole for value, chance in chances.items()}


KINDS = {
    "bernoulli": _bernoulli,
    "poisson": _poisson,
    "binomial": _binomial,
    "uniform": _uniform,
    "choice": _choice,
}
Amount: TypeAlias = Annotated[Quantity, BeforeValidator(parse_quantity)]
Name: TypeAlias = Annotated[str, BeforeValidator(str), Field(min_length=1)]


class Link(Described):
    """A way from one node to another, with so many packets per step."""

    source: Name = Field(alias="from")
    target: Name = Field(alias="to")
    capacity: Amount | None = None
    """For whatever class it serves."""
    capacities: dict[Name, Amount] | None = None
    """For each class that it can serve."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Link:
        if (self.capacity is None) == (self.capacities is None):
            raise ValueError("a link has either capacity, or capacities by class")
        return self

    @property
    def name(self) -> str:
        return f"{self.source}→{self.target}"


class Class(Described):
    """Packets that arrive at one node and are to get to another."""

    name: Name
    source: Name = Field(alias="from")
    target: Name = Field(alias="to")
    arrivals: Amount
    cost: PositiveFloat = 1.0
    """What one packet in a queue costs per step."""


class Network(Described):
    """A whole network."""

    about: str = ""
    links: Annotated[tuple[Link, ...], Field(min_length=1)]
    classes: Annotated[tuple[Class, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _makes_sense(self) -> Network:
        names = [kind.name for kind in self.classes]
        if len(set(names)) < len(names):
            raise ValueError(f"two classes have one name: {', '.join(names)}")
        for link in self.links:
            for name in link.capacities or {}:
                if name not in names:
                    raise ValueError(f"link {link.name} names the class {name!r}, which is none")
        for kind in self.classes:
            if kind.source == kind.target:
                raise ValueError(f"class {kind.name} arrives where it is to get to, {kind.source}")
            if kind.target not in self._reached(kind):
                raise ValueError(
                    f"class {kind.name} cannot get from {kind.source} to {kind.target}: no links "
                    f"lead there"
                )
        return self

    def slots(self) -> list[tuple[str, Class]]:
        """List the queues: each class at each node that its packets may wait at."""
        return [
            (node, kind)
            for kind in self.classes
            for node in sorted(self._reached(kind) & self._leading(kind), key=self._nodes().index)
            if node != kind.target
        ]

    def lanes(self) -> list[tuple[int, Link, Class]]:
        """List what can be sent where: each link, by number, with each class of use to it."""
        slots = {(node, kind.name) for node, kind in self.slots()}
        ends = {(kind.target, kind.name) for kind in self.classes}
        return [
            (number, link, kind)
            for number, link in enumerate(self.links)
            for kind in self.classes
            if self._serves(link, kind)
            and (link.source, kind.name) in slots
            and (link.target, kind.name) in slots | ends
        ]

    def _serves(self, link: Link, kind: Class) -> bool:
        return link.capacities is None or kind.name in link.capacities

    def _nodes(self) -> list[str]:
        """List all nodes in the order in which links name them."""
        named = [node for link in self.links for node in (link.source, link.target)]
        return list(dict.fromkeys(named))

    def _reached(self, kind: Class) -> set[str]:
        """Find where packets of a class may come to; they go no further than they are to."""
        usable = [link for link in self.links if self._serves(link, kind)]
        return _closure({kind.source}, [(k.source, k.target) for k in usable], kind.target)

    def _leading(self, kind: Class) -> set[str]:
        """Find from where packets of a class can get to where they are to."""
        usable = [link for link in self.links if self._serves(link, kind)]
        return _closure({kind.target}, [(link.target, link.source) for link in usable], "")


def _closure(found: set[str], steps: Iterable[tuple[str, str]], end: str) -> set[str]:
    steps, size = list(steps), 0
    while size != len(found):
        size = len(found)
        found = found | {there for here, there in steps if here in found and here != end}
    return found


@dataclass(frozen=True)
class Instance:
    """A network and its description."""

    network: Network
    written: Mapping[str, Any]
    """The description as it was read."""

    @property
    def fingerprint(self) -> str:
        """Hash the content, so that scores on different networks are not compared."""
        content = self.network.model_dump(mode="json", exclude={"about"})
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def bundled() -> list[str]:
    """Name the instances that come with surefoot."""
    return sorted(path.stem for path in INSTANCES.glob("*.yaml"))


def load(instance: str | Path | Mapping[str, Any]) -> Instance:
    """Read a description: one that comes with surefoot, a file, or a mapping."""
    if isinstance(instance, Mapping):
        return Instance(_checked("the network", instance), instance)
    path = Path(instance)
    if str(instance) in bundled():
        path = INSTANCES / f"{instance}.yaml"
    elif not path.is_file():
        hint = nearest(str(instance), bundled()) or f"; there are {', '.join(bundled())}"
        raise ConfigError(f"instance={str(instance)!r}: there is no such network, nor file{hint}")
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"instance={str(instance)!r}: it cannot be read: {error}") from None
    return Instance(_checked(str(path), content), content)


def _checked(place: str, content: Any) -> Network:
    try:
        return Network.model_validate(content)
    except ValidationError as error:
        lines, problems = [], error.errors()
        # What is left of a list without its faulty members may be too short, which is no news.
        real = [problem for problem in problems if problem["type"] != "too_short"] or problems
        for problem in real:
            where = ".".join(str(part) for part in problem["loc"])
            said = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {said}" if where else said)
        raise ConfigError(f"{place} describes no queueing network: {'; '.join(lines)}") from None
