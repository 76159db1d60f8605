"""Reading the command line by tyro: options as people write them, laid over file and preset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro
import yaml
from pydantic import ValidationError
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from surefoot.config import Config, build, explain, group, layers, require_own
from surefoot.core.errors import ConfigError
from surefoot.options import ConfigOptions, TrainOptions, TuneOptions, VerifyOptions
from surefoot.schedules import (
    Adaptive,
    Constant,
    Iterations,
    Linear,
    Model,
    Steps,
    parse_interval,
    parse_schedule,
)
from surefoot.transforms import Scale, parse_transform

M = TypeVar("M", bound=Model)


def parse(model: type[M], words: list[str], command: str) -> M:
    """Read a command's options; a mistake ends with one message and exit code 2."""
    options = tyro.cli(
        model,
        prog=f"surefoot {command}",
        description=model.__doc__,
        args=["None" if word in ("none", "null") else word for word in words],
        registry=_registry,
    )
    if issubclass(model, Config):
        return options  # `settle` validates them, together with preset and file
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def settle(
    options: TrainOptions | ConfigOptions | VerifyOptions | TuneOptions, words: list[str]
) -> tuple[Config, dict[str, Any]]:
    """Lay flags over the config file over the preset; return the config and its sources."""
    said = layers("", options.config).get(str(options.config), {}).get("env") or ""
    env = options.env or said
    if not env:
        raise ConfigError("name an environment: a Gymnasium id or module:factory")
    if said and said != env:
        raise ConfigError(
            f"{options.config} has the settings of {said}, not of {env}; remove its line `env: …` "
            f"to use them all the same"
        )
    flags = given(options, words)
    sources = {
        **layers(env, options.config, flags.get("algo")),
        "argument": {"env": env},
        "flag": flags,
    }
    config = build(sources)
    require_own(flags, config.algo)
    return config, sources


def given(options: Config, words: list[str]) -> dict[str, Any]:
    """Pick the settings of a run whose options stand on the command line."""
    return _given(Config, options, {word.split("=")[0] for word in words})


def _given(model: type[Model], values: Any, words: set[str], prefix: str = "") -> dict[str, Any]:
    """Pick the settings whose option stands on the command line."""
    found: dict[str, Any] = {}
    normal = {word.replace("_", "-") for word in words}
    for name in model.model_fields:
        value, path = getattr(values, name), f"{prefix}{name}".replace("_", "-")
        if isinstance(value, Model) and (part := group((name,))):
            if inner := _given(part, value, words, f"{path}."):
                found[name] = inner
        elif f"--{path}" in normal or f"--{prefix}no-{name}".replace("_", "-") in normal:
            found[name] = value
    return found


_registry = ConstructorRegistry()


@_registry.struct_rule
def _model_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Read a group of settings without validating it: our own messages are clearer."""
    if not (isinstance(info.type, type) and issubclass(info.type, Model)):
        return None
    hints = get_type_hints(info.type, include_extras=True)
    fields = [
        StructFieldSpec(
            name=name,
            type=hints[name],
            default=tyro.MISSING if field.is_required() else field.default,
            helptext=" ".join((field.description or "").split()),  # tyro wraps it
        )
        for name, field in info.type.model_fields.items()
    ]
    return StructConstructorSpec(instantiate=info.type.model_construct, fields=tuple(fields))


@_registry.primitive_rule
def _schedule_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read a schedule as one argument; tyro would make a union of types a subcommand."""
    kinds = _members(info.type)
    if not {Constant, Linear} <= kinds:
        return None

    def read(word: str) -> Any:
        schedule = parse_schedule(word)
        if isinstance(schedule, Adaptive) and Adaptive not in kinds:
            raise ValueError("adaptive is for ppo.learning-rate only")
        return schedule

    return _one_word("SCHEDULE", read, optional=type(None) in kinds)


@_registry.primitive_rule
def _interval_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read an interval as one argument."""
    kinds = _members(info.type)
    if not {Steps, Iterations} <= kinds:
        return None
    return _one_word("STEPS|ITERATIONSit", parse_interval, optional=type(None) in kinds)


@_registry.primitive_rule
def _transforms_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read transforms of rewards, one argument each."""
    if get_origin(info.type) is not tuple or Scale not in _members(get_args(info.type)[0]):
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="TRANSFORM …",
        instance_from_str=lambda words: tuple(
            parse_transform(word) for word in words if words != ["None"]
        ),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(one) for one in value],
    )


def _one_word(
    metavar: str, read: Callable[[str], Any], optional: bool
) -> PrimitiveConstructorSpec[Any]:
    """Read a setting that is written as one word, or `none` where it may be absent."""

    def read_or_none(words: list[str]) -> Any:
        return None if optional and words[0].lower() == "none" else read(words[0])

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=read_or_none,
        is_instance=lambda value: isinstance(value, Model) or value is None,
        str_from_instance=lambda setting: [str(setting)],
    )


def _members(union: Any) -> set[Any]:
    """List the types of a union, whatever annotations they carry."""
    if get_origin(union) is Annotated:
        return _members(get_args(union)[0])
    if get_origin(union) in (Union, UnionType):
        return set().union(*(_members(part) for part in get_args(union)))
    return {union}


@_registry.primitive_rule
def _count_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Read a whole number as people write it: 100000, 100_000 or 1e5."""
    if info.type is not int:
        return None

    def read(words: list[str]) -> int:
        with suppress(ValueError, OverflowError):
            number = float(words[0])
            if number == int(number):
                return int(number)
        raise ValueError(f"{words[0]} is not a whole number")

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


@_registry.primitive_rule
def _mapping_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[dict[str, Any]] | None:
    """Read a mapping as KEY=VALUE arguments, the values as YAML."""
    if info.type != dict[str, Any]:
        return None

    def read(words: list[str]) -> dict[str, Any]:
        pairs = [word.partition("=") for word in words]
        for key, equals, _ in pairs:
            if not equals or not key:
                raise ValueError(f"{key!r} is not KEY=VALUE")
        return {key: yaml.safe_load(value) for key, _, value in pairs}

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: [f"{k}={v}" for k, v in value.items()],
    )
