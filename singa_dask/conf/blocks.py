"""Blocks: the keys of a job file that registered classes declare with ``block = XConf``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from singa_dask.conf.base import Conf
from singa_dask.errors import ConfigError, Problem
from singa_dask.registry import Registry

B = TypeVar("B", bound=Conf)


def blocks_of(registry: Registry[Any]) -> dict[str, type[Conf]]:
    """Return the blocks that the classes of a registry declare, by key."""
    blocks: dict[str, type[Conf]] = {}
    for cls in registry.classes():
        block: type[Conf] | None = getattr(cls, "block", None)
        if block is not None:
            blocks.setdefault(block.block_key, block)
    return blocks


def block_value(block: Conf | Mapping[str, Any] | None, key: str, default: Any = None) -> Any:
    """Return the value of a key of a block; ``block`` is a mapping if it was read without registries."""
    return block.get(key, default) if isinstance(block, Mapping) else getattr(block, key, default)


def required_keys(block: type[Conf]) -> list[str]:
    """Return the keys of a block that have no default."""
    return [key for key, field in block.model_fields.items() if field.is_required()]


def read_options(block: type[Conf], options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the values of a block, and return them with defaults.

    Raises
    ------
    ConfigError
        Lists all wrong values and unknown keys.
    """
    return dict(checked_block(block, options))


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
