"""Apache SINGA as it was in 2015, in Python, on Dask.

A job file describes a net as a list of layers; groups of workers train it against groups of parameter
servers. Run one with ``singa-dask run job.yaml``, or see `singa_dask.conf` and `singa_dask.runtime`.

Modules of the user's own import from here what their parts extend, see `singa_dask.api`: ``from singa_dask import
Layer, register``. It is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from singa_dask.api import (
        BP,
        Algorithm,
        Arrays,
        Block,
        Conf,
        ConfigError,
        Connection,
        CSVInput,
        DataError,
        Feature,
        Field,
        Initialiser,
        InputLayer,
        Layer,
        Param,
        Phase,
        Problem,
        RecordInput,
        Records,
        Schedule,
        Store,
        StoreConf,
        StoreInput,
        Traits,
        Updater,
        generator,
        open_store,
        register,
    )

__all__ = [
    "BP",
    "Algorithm",
    "Arrays",
    "Block",
    "CSVInput",
    "Conf",
    "ConfigError",
    "Connection",
    "DataError",
    "Feature",
    "Field",
    "Initialiser",
    "InputLayer",
    "Layer",
    "Param",
    "Phase",
    "Problem",
    "RecordInput",
    "Records",
    "Schedule",
    "Store",
    "StoreConf",
    "StoreInput",
    "Traits",
    "Updater",
    "__version__",
    "generator",
    "open_store",
    "register",
]

__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("singa_dask.api"), name)
