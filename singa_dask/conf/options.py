"""Options that registered classes declare with ``options_class = XConf``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import ValidationError

from singa_dask.conf.base import Conf
from singa_dask.errors import ConfigError, Problem
from singa_dask.registry import Registry

B = TypeVar("B", bound=Conf)


class HasOptions:
    """Base of the classes that declare options, such as layers, updaters and stores.

    Attributes
    ----------
    options_class : type of Conf or None
        Class of the options, if there are any. In a job file they are the block ``options_class.block_key``.
    """

    options_class: ClassVar[type[Conf] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "block" in vars(cls):  # its name until version 0.2
            raise TypeError(f"{cls.__name__}.block has no effect. Write options_class = ...")


def options_classes(registry: Registry[Any]) -> dict[str, type[Conf]]:
    """Return the classes of options that the classes of a registry declare, by the key of their block."""
    found: dict[str, type[Conf]] = {}
    for cls in registry.classes():
        options: type[Conf] | None = getattr(cls, "options_class", None)
        if options is not None:
            found.setdefault(options.block_key, options)
    return found


def block_value(block: Conf | Mapping[str, Any] | None, key: str, default: Any = None) -> Any:
    """Return the value of a key of a block; ``block`` is a mapping if it was read without registries."""
    return block.get(key, default) if isinstance(block, Mapping) else getattr(block, key, default)


def required_keys(options: type[Conf]) -> list[str]:
    """Return the options that have no default."""
    return [key for key, field in options.model_fields.items() if field.is_required()]


def read_options(options_class: type[Conf], options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate options, and return them with defaults.

    Raises
    ------
    ConfigError
        Lists all wrong values and unknown keys.
    """
    return dict(checked_block(options_class, options))


def checked_block(kind: type[B], value: Any, above: tuple[str, ...] = ()) -> B:
    """Validate a block without registries; raise a ConfigError with paths below ``above``."""
    try:
        block: B = validated_block(kind, value, {})
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise ConfigError([Problem((*above, *each["loc"]), each["msg"]) for each in errors]) from None
    return block


def validated_block(kind: type[B] | None, value: Any, context: Mapping[str, Any]) -> Any:
    """Validate a block; without a ``kind``, check only that it is a block.

    A block of another class with the same key is converted.
    """
    if kind is None:
        return value if isinstance(value, Mapping | Conf) else Conf.model_validate(value)
    other = isinstance(value, Conf) and not isinstance(value, kind)
    return kind.model_validate(value.model_dump() if other else value, context=dict(context))
