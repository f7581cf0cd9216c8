"""Apache SINGA as it was in 2015, in Python, on Dask.

A job file describes a net as a list of layers; groups of workers train it against groups of parameter
servers. Run one with ``singa-dask run job.yaml``, or see `singa_dask.conf` and `singa_dask.runtime`.

Modules of the user's own import from here what their parts extend, see `singa_dask.api`: ``from singa_dask import
Layer, register``. It is loaded when it is first asked for.
"""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask import estimators, inference, jobs
from singa_dask.lazy import lazy_names
from singa_dask.version import __version__

if TYPE_CHECKING:
    from singa_dask.api import *
    from singa_dask.estimators import SingaClassifier as SingaClassifier
    from singa_dask.estimators import SingaRegressor as SingaRegressor
    from singa_dask.exports import export, import_weights
    from singa_dask.inference import *
    from singa_dask.jobs import *

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
    "Job",
    "Layer",
    "Model",
    "Net",
    "Param",
    "Phase",
    "Problem",
    "RateCurve",
    "RecordIds",
    "RecordInput",
    "Run",
    "Schedule",
    "Store",
    "StoreConf",
    "StoreInput",
    "Traits",
    "Updater",
    "__version__",
    "export",
    "extract",
    "find_rate",
    "generator",
    "import_weights",
    "layer",
    "load",
    "load_model",
    "open_run",
    "open_store",
    "predict",
    "register",
    "start",
    "test",
    "train",
]

EXPORTS = ("export", "import_weights")
__getattr__ = lazy_names(
    __name__,
    {
        "api": __all__,
        # not in __all__: they need scikit-learn, and "from singa_dask import *" does not
        "estimators": estimators.__all__,
        "exports": EXPORTS,
        "inference": inference.__all__,
        "jobs": jobs.__all__,
    },
)
