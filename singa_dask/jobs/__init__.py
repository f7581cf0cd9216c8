"""Jobs and runs from Python, which the command line is built on: a job is a value, and so is a run of it.

Names are imported on first use, so that importing this package loads neither Dask nor the nets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.jobs.job import Job, Net, layer, load
    from singa_dask.jobs.rates import RateCurve, find_rate
    from singa_dask.jobs.run import Run, open_run, start, train

__all__ = [
    "Job",
    "Net",
    "RateCurve",
    "Run",
    "find_rate",
    "layer",
    "load",
    "open_run",
    "start",
    "train",
]

__getattr__ = lazy_names(
    __name__,
    {
        "job": ["Job", "Net", "layer", "load"],
        "rates": ["RateCurve", "find_rate"],
        "run": ["Run", "open_run", "start", "train"],
    },
)
