"""`register`, and the base classes that parts in user modules extend.

Import them with ``from singa_dask import ...``.

===========================  =========================  ==============================================================
part                         base class                 defines
===========================  =========================  ==============================================================
layer                        `Layer`                    ``setup``, ``forward``, ``backward``
parser of records            `StoreInput`               ``parse``
update rule                  `Updater`                  ``rule``, ``state_names``
learning rate over time      `Schedule`                 ``__call__``
initial values of params     `Initialiser`              ``fill``
how one batch is trained     `Algorithm`, or `BP`       ``train_one_batch``, ``test_one_batch``
format, ranges of files      `RangeStore`               ``index``, ``decode``
format, any other records    `Store`                    ``blocks``, ``schema``, ``read_block``, ``close``
===========================  =========================  ==============================================================

A part declares its keys with ``block = MyConf``, where MyConf extends `Conf`. A job sets these keys in the block
``my_conf`` beside the part's type, and the part reads them from ``self.options``. A part without such a class finds its
options in ``self.conf.user_conf``; a store without one gets its options as keyword arguments. A job refers to a part by
``module.Class`` or by its registered name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from singa_dask import modules
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS
from singa_dask.registry import Registry
from singa_dask.training import ALGORITHMS, INITIALISERS, SCHEDULES, UPDATERS

REGISTRIES: dict[str, Registry[Any]] = {
    "algorithm": ALGORITHMS,
    "initialiser": INITIALISERS,
    "layer": LAYERS,
    "schedule": SCHEDULES,
    "store": STORES,
    "updater": UPDATERS,
}
"""Registry of each kind of part that a job can name."""

C = TypeVar("C", bound=type)


@overload
def register(names: C, /) -> C: ...


@overload
def register(*names: str) -> Callable[[C], C]: ...


def register(*names: Any) -> Any:
    """Register the decorated class under its own name, ``@register``, or another name, ``@register("Name")``.

    The base class of the class decides whether it is a layer, an updater or another kind of part.

    Raises
    ------
    ConfigError
        The class extends no base class of parts, or another class has the same name.
    """
    if len(names) == 1 and inspect.isclass(names[0]):
        return _register(names[0], (names[0].__name__,))
    return lambda cls: _register(cls, names or (cls.__name__,))


def _register(cls: C, names: tuple[str, ...]) -> C:
    registry = next((each for each in REGISTRIES.values() if each.base and issubclass(cls, each.base)), None)
    if registry is None:
        bases = ", ".join(sorted(f"singa_dask.{each.base.__name__}" for each in REGISTRIES.values() if each.base))
        raise ConfigError(f"{cls.__name__} is not a component of a job. It must extend one of {bases}.")
    for name in names:
        before = registry.get(name)
        # a class from a job that this process ran earlier is replaced
        if before is not None and modules.is_earlier(before.__module__):
            modules.unload([before.__module__], REGISTRIES.values())
        if name in registry:
            other = _shown(registry.get(name))
            raise ConfigError(f"{registry.kind} {name!r} is registered twice: by {other} and by {_shown(cls)}.")
        registry.register(name)(cls)
    return cls


def _shown(cls: Any) -> str:
    """Return the name of a class with its file or module."""
    source = modules.loaded().get(cls.__module__)
    return f"{cls.__qualname__} of {source.file}" if source else f"{cls.__module__}.{cls.__qualname__}"
