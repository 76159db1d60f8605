"""Settings that are written as one word: values that change over a run, and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    NonNegativeFloat,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from surefoot.core.errors import nearest


class Model(BaseModel):
    """A frozen group of settings; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class Constant(Model):
    """The same value throughout."""

    value: NonNegativeFloat

    def __str__(self) -> str:
        return repr(self.value)


class Linear(Model):
    """From `start` to `end` in a straight line over the run's budget."""

    start: NonNegativeFloat
    end: NonNegativeFloat

    def __str__(self) -> str:
        return f"linear:{self.start!r}:{self.end!r}"


class Cosine(Model):
    """From `start` to `end` along half a cosine wave over the run's budget."""

    start: NonNegativeFloat
    end: NonNegativeFloat

    def __str__(self) -> str:
        return f"cosine:{self.start!r}:{self.end!r}"


class Adaptive(Model):
    """Learning rate only: from `start`, lowered while the KL exceeds twice `kl`, raised while it
    is below half of it."""

    start: PositiveFloat
    kl: PositiveFloat

    def __str__(self) -> str:
        return f"adaptive:{self.start!r}:{self.kl!r}"


_KINDS: dict[str, type[Model]] = {
    "linear": Linear,
    "cosine": Cosine,
    "adaptive": Adaptive,
    "constant": Constant,
}


def parse_schedule(value: Any) -> Any:
    """Read `3e-4`, `linear:1e-3:0` or a mapping with a `kind` as a schedule."""
    if isinstance(value, Model):
        return value
    if isinstance(value, Mapping):
        kind, numbers = value.get("kind"), {k: v for k, v in value.items() if k != "kind"}
    else:
        kind, *parts = str(value).split(":")
        if not parts:
            kind, parts = "constant", [str(value)]
        fields = list(_KINDS[kind].model_fields) if kind in _KINDS else []
        numbers = dict(zip(fields, parts, strict=False)) if len(fields) == len(parts) else {}
    if kind not in _KINDS:
        raise ValueError(f"unknown schedule {kind!r}{nearest(str(kind), _KINDS)}")
    try:
        return _KINDS[kind].model_validate(numbers)
    except ValidationError:
        raise ValueError(
            "a schedule is a number, linear:START:END, cosine:START:END, "
            "or for ppo.learning_rate adaptive:START:KL, with numbers from 0 up"
        ) from None


def write_schedule(schedule: Constant | Linear | Cosine | Adaptive) -> float | str:
    """Write a schedule as `parse_schedule` reads it."""
    return schedule.value if isinstance(schedule, Constant) else str(schedule)


_as_schedule = (BeforeValidator(parse_schedule), PlainSerializer(write_schedule))
Schedule: TypeAlias = Annotated[Constant | Linear | Cosine, *_as_schedule]
Rate: TypeAlias = Annotated[Constant | Linear | Cosine | Adaptive, *_as_schedule]


class Steps(Model):
    """Every so many steps of the run, rounded to whole iterations."""

    count: PositiveInt

    def __str__(self) -> str:
        return str(self.count)

    def iterations(self, steps_per_iteration: int) -> int:
        return max(1, round(self.count / steps_per_iteration))


class Iterations(Model):
    """Every so many iterations."""

    count: PositiveInt

    def __str__(self) -> str:
        return f"{self.count}it"

    def iterations(self, steps_per_iteration: int) -> int:
        return self.count


def parse_interval(value: Any) -> Any:
    """Read `20000` or `1e5` as steps, `200it` as iterations."""
    if isinstance(value, Model):
        return value
    text = str(value).strip().replace("_", "")
    kind, number = (Iterations, text[:-2]) if text.endswith("it") else (Steps, text)
    try:
        return kind(count=float(number))
    except ValueError:
        raise ValueError("an interval is a number of steps, or of iterations as 200it") from None


Interval: TypeAlias = Annotated[
    Steps | Iterations, BeforeValidator(parse_interval), PlainSerializer(str)
]
