"""Apache SINGA of 2015 in Python, on Dask.

A job file describes a net as a list of layers. Groups of workers train it against groups of parameter servers. Run a
job with ``singa-dask run job.yaml`` or, from Python, with `train`.

Modules with parts of your own, such as layers, import the base classes from here:
``from singa_dask import Layer, register``; see `singa_dask.api`. Each name is imported on first use.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names
from singa_dask.version import __version__

if TYPE_CHECKING:
    from singa_dask.api import register
    from singa_dask.conf import Conf, Phase
    from singa_dask.data.blocks import cut_blocks, cut_lines
    from singa_dask.data.stores import Store, open_store
    from singa_dask.data.stores.range_store import RangeStore
    from singa_dask.data.stores.store import StoreOptions
    from singa_dask.data.types import Arrays, Block, Field
    from singa_dask.errors import ConfigError, DataError, DataWarning, Problem
    from singa_dask.estimators import SingaClassifier as SingaClassifier
    from singa_dask.estimators import SingaRegressor as SingaRegressor
    from singa_dask.exports import export, import_weights
    from singa_dask.inference.model import Model, load_model
    from singa_dask.inference.predicting import extract, predict, test
    from singa_dask.inputs import InputLayer, StoreConf, StoreInput
    from singa_dask.inputs.store_input import CSVInput, RecordInput
    from singa_dask.jobs import nn
    from singa_dask.jobs.find_rate import RateCurve, find_rate
    from singa_dask.jobs.job import Job, load
    from singa_dask.jobs.net_values import Net, Sequential, layer
    from singa_dask.jobs.plan import plan
    from singa_dask.jobs.run import Run, open_run
    from singa_dask.jobs.train import start, train
    from singa_dask.layers import Connection, Feature, Layer, Param, RecordIds, Speed, Traits
    from singa_dask.layers.activation import Elementwise
    from singa_dask.ops.philox import generator
    from singa_dask.training import BP, Algorithm, Initialiser, Schedule, Updater

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
    "DataWarning",
    "Elementwise",
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
    "RangeStore",
    "RateCurve",
    "RecordIds",
    "RecordInput",
    "Run",
    "Schedule",
    "Sequential",
    "Speed",
    "Store",
    "StoreConf",
    "StoreInput",
    "StoreOptions",
    "Traits",
    "Updater",
    "__version__",
    "cut_blocks",
    "cut_lines",
    "export",
    "extract",
    "find_rate",
    "generator",
    "import_weights",
    "layer",
    "load",
    "load_model",
    "nn",
    "open_run",
    "open_store",
    "plan",
    "predict",
    "register",
    "start",
    "test",
    "train",
]

__getattr__ = lazy_names(
    __name__,
    {
        "api": ["register"],
        "conf": ["Conf", "Phase"],
        "data.blocks": ["cut_blocks", "cut_lines"],
        "data.stores": ["Store", "open_store"],
        "data.stores.range_store": ["RangeStore"],
        "data.stores.store": ["StoreOptions"],
        "data.types": ["Arrays", "Block", "Field"],
        "errors": ["ConfigError", "DataError", "DataWarning", "Problem"],
        # not in __all__, so that "from singa_dask import *" does not need scikit-learn
        "estimators": ["SingaClassifier", "SingaRegressor"],
        "exports": ["export", "import_weights"],
        "inference.model": ["Model", "load_model"],
        "inference.predicting": ["extract", "predict", "test"],
        "inputs": ["InputLayer", "StoreConf", "StoreInput"],
        "inputs.store_input": ["CSVInput", "RecordInput"],
        "jobs.job": ["Job", "load"],
        "jobs.net_values": ["Net", "Sequential", "layer"],
        "jobs.nn": ["nn"],
        "jobs.plan": ["plan"],
        "jobs.find_rate": ["RateCurve", "find_rate"],
        "jobs.run": ["Run", "open_run"],
        "jobs.train": ["start", "train"],
        "layers": ["Connection", "Feature", "Layer", "Param", "RecordIds", "Speed", "Traits"],
        "layers.activation": ["Elementwise"],
        "ops.philox": ["generator"],
        "training": ["BP", "Algorithm", "Initialiser", "Schedule", "Updater"],
    },
)


def __dir__() -> list[str]:
    return sorted([*__all__, "SingaClassifier", "SingaRegressor"])
