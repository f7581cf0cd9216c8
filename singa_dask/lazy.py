"""Imports on first use: names of this package, other modules, and packages that an extra installs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from singa_dask.errors import ConfigError


def lazy_names(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package, which imports the package's names on first use.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    names : mapping of str to sequence of str
        Module in the package, e.g. ``"job.cluster"`` -> names that this module defines. If several modules list a
        name, the last module is used. A name can also be the module itself: ``cluster`` for ``"job.cluster"``, if the
        module defines no ``cluster``.
    """
    homes = {name: module for module, defined in names.items() for name in defined}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name]}")
        is_module = homes[name].endswith(f".{name}") and name not in vars(module)
        return module if is_module else getattr(module, name)

    return load


class LazyModule:
    """A module that is imported when one of its names is first used: ``pc = LazyModule("pyarrow.compute")``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


def require(module: str, extra: str, what: str, instead: str = "") -> Any:
    """Import a module of an extra.

    Parameters
    ----------
    module, extra : str
    what : str
        The feature that needs the module, for the message.
    instead : str
        What to use instead, for the message.

    Raises
    ------
    ConfigError
        The module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        hint = f"Install it: pip install 'singa-dask[{extra}]'."
        message = f"{what}: the package {package} cannot be imported: {error}. {hint} {instead}"
        raise ConfigError(message.rstrip()) from None
