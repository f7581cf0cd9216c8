"""Jobs and runs from Python, which the command line is built on: a job is a value, and so is a run of it.

Names are imported on first use, so that importing this package loads neither Dask nor the nets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.jobs.job import Job, load
    from singa_dask.jobs.model import Model, load_model
    from singa_dask.jobs.net import Net, layer
    from singa_dask.jobs.predicting import extract, predict, test
    from singa_dask.jobs.rates import RateCurve, find_rate
    from singa_dask.jobs.run import Run, open_run
    from singa_dask.jobs.training import start, train

__all__ = [
    "Job",
    "Model",
    "Net",
    "RateCurve",
    "Run",
    "extract",
    "find_rate",
    "layer",
    "load",
    "load_model",
    "open_run",
    "predict",
    "start",
    "test",
    "train",
]

__getattr__ = lazy_names(
    __name__,
    {
        "job": ["Job", "load"],
        "model": ["Model", "load_model"],
        "net": ["Net", "layer"],
        "predicting": ["extract", "predict", "test"],
        "rates": ["RateCurve", "find_rate"],
        "run": ["Run", "open_run"],
        "training": ["start", "train"],
    },
)
