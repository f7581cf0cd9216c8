"""Functions that return a layer, one for each type of layer: ``nn.InnerProduct(10)``.

The functions call `layer`. Positional arguments are the required keys of the type, in order. Types that are registered
later are included. Editors and type checkers read ``nn.pyi``, which ``singa-dask schema --stub`` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from singa_dask.api import REGISTRIES
from singa_dask.conf.foreign_names import suggest_part
from singa_dask.conf.parts import required_keys
from singa_dask.errors import ConfigError
from singa_dask.jobs.net_values import layer
from singa_dask.layers import Layer


def __getattr__(name: str) -> Callable[..., dict[str, Any]]:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    layers = REGISTRIES["layer"]
    try:
        return _constructor(name, layers.find(name))
    except ConfigError as error:
        if name in layers:
            raise
        hint = suggest_part("layer", name, layers.names())
        raise AttributeError(f"there is no layer type {name!r}. {hint}") from error


def __dir__() -> list[str]:
    return REGISTRIES["layer"].names()


def _constructor(type: str, cls: type[Layer]) -> Callable[..., dict[str, Any]]:
    required = required_keys(cls.options_class) if cls.options_class else []

    def construct(*values: Any, **keys: Any) -> dict[str, Any]:
        if len(values) > len(required):
            names = f"{', '.join(required)} alone" if required else "none of its keys"
            raise TypeError(f"{type}() takes {names} by position, got {len(values)} values.")
        return layer(type, **dict(zip(required, values, strict=False)), **keys)

    construct.__name__ = construct.__qualname__ = type
    construct.__doc__ = cls.__doc__
    return construct
