"""Apache SINGA as it was in 2015, in Python, on Dask.

A job file describes a net as a list of layers; groups of workers train it against groups of parameter
servers. Run one with ``singa-dask run job.yaml``, or see `singa_dask.conf` and `singa_dask.runtime`.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
