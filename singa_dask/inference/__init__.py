"""Trained nets: outputs, metrics and predictions of records in memory, in Dask collections and in stores.

Names are imported on first use, so that importing this package loads neither Dask nor the nets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.inference.model import Model, load_model
    from singa_dask.inference.predicting import extract, predict, test

__all__ = ["Model", "extract", "load_model", "predict", "test"]

__getattr__ = lazy_names(__name__, {"model": ["Model", "load_model"], "predicting": ["extract", "predict", "test"]})
