"""What rewards are turned into for learning, each written as one word; scores stay raw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from surefoot.core.errors import nearest
from surefoot.schedules import Model


class TimeScaled(Model):
    """Divided by the number of steps since the reset."""

    def __str__(self) -> str:
        return "time_scaled"


class Normalized(Model):
    """Divided by the deviation of the discounted return, a moving average that takes this share of
    every rollout."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.05

    def __str__(self) -> str:
        return f"normalized:{self.share!r}"


class PerHorizon(Model):
    """Divided by the steps of a row in a rollout."""

    def __str__(self) -> str:
        return "per_horizon"


class Scale(Model):
    """Times a constant."""

    factor: PositiveFloat

    def __str__(self) -> str:
        return f"scale:{self.factor!r}"


class Floor(Model):
    """At least this."""

    low: float

    def __str__(self) -> str:
        return f"floor:{self.low!r}"


class Clip(Model):
    """Within these bounds."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"clip:{self.low!r}:{self.high!r}"

    @model_validator(mode="after")
    def _in_order(self) -> Clip:
        if self.low >= self.high:
            raise ValueError("the lower bound comes first")
        return self


class NoStatePenalty(Model):
    """By how much it is more than in the step before, if it is: who inherits a bad state is not to
    be blamed for it."""

    def __str__(self) -> str:
        return "no_state_penalty"


class Add(Model):
    """Plus a number that the environment reports in info["metrics"], times a weight."""

    name: Annotated[str, Field(min_length=1)]
    weight: float = 1.0

    def __str__(self) -> str:
        return f"add:{self.name}:{self.weight!r}"


class Replace(Model):
    """Instead, a number that the environment reports in info["metrics"]."""

    name: Annotated[str, Field(min_length=1)]

    def __str__(self) -> str:
        return f"replace:{self.name}"


KINDS: dict[str, type[Model]] = {
    "time_scaled": TimeScaled,
    "normalized": Normalized,
    "per_horizon": PerHorizon,
    "scale": Scale,
    "floor": Floor,
    "clip": Clip,
    "no_state_penalty": NoStatePenalty,
    "add": Add,
    "replace": Replace,
}
FORMS = (
    "time_scaled, normalized[:SHARE], per_horizon, scale:FACTOR, floor:LOW, clip:LOW:HIGH, "
    "no_state_penalty, add:NAME[:WEIGHT], replace:NAME"
)


def parse_transform(value: Any) -> Any:
    """Read `scale:0.01` and the like."""
    if isinstance(value, Model):
        return value
    if isinstance(value, Mapping):
        raise ValueError(f"write a transform as one word: {FORMS}")
    kind, *parts = str(value).split(":")
    if kind not in KINDS:
        hint = nearest(kind, KINDS) or "."
        raise ValueError(f"unknown transform {kind!r}{hint} There are {FORMS}")
    fields = list(KINDS[kind].model_fields)
    if len(parts) > len(fields):
        raise ValueError(f"too much after {kind}: transforms are {FORMS}")
    try:
        return KINDS[kind].model_validate(dict(zip(fields, parts, strict=False)))
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ValueError(f"{value!r}: {said}; transforms are {FORMS}") from None


Transform: TypeAlias = Annotated[
    TimeScaled | Normalized | PerHorizon | Scale | Floor | Clip | NoStatePenalty | Add | Replace,
    BeforeValidator(parse_transform),
    PlainSerializer(str),
]


def channels(transforms: tuple[Transform, ...]) -> tuple[str, ...]:
    """Name the numbers of the environment that these need."""
    named = [one.name for one in transforms if isinstance(one, Add | Replace)]
    return tuple(dict.fromkeys(named))


def _in_order(transforms: tuple[Transform, ...]) -> tuple[Transform, ...]:
    """Refuse a comparison of steps whose units change from rollout to rollout."""
    kinds = [type(one) for one in transforms]
    if Normalized in kinds and NoStatePenalty in kinds[kinds.index(Normalized) :]:
        raise ValueError(
            "no_state_penalty compares a step with the one before, and normalized changes the "
            "units between rollouts; put no_state_penalty first"
        )
    return transforms


Transforms: TypeAlias = Annotated[
    tuple[Transform, ...],
    BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    AfterValidator(_in_order),
]
"""One after another; one alone may be written as itself."""
