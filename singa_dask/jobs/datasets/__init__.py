"""Data of Python objects for jobs: arrays and frames become part files of records, which input layers read as ever.

Names are imported on first use, so that importing this package loads neither NumPy nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.jobs.datasets.making import as_dataset
    from singa_dask.jobs.datasets.records import Dataset

__all__ = ["Dataset", "as_dataset"]

__getattr__ = lazy_names(__name__, {"records": ["Dataset"], "making": ["as_dataset"]})
