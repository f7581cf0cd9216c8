"""Weights of records of Dask: the partitions of features and targets without records of weight 0."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.base import is_dask_collection

from singa_dask.data.codecs.labels import find_wrong_weight
from singa_dask.jobs.datasets.partitions import map_parts, parts_of, rows_together

__all__ = ["with_weights"]

Parts = list[Any]


def with_weights(x: Any, x_parts: Parts, y_parts: Parts, weights: Any) -> tuple[tuple[Parts, Parts], Parts]:
    """Return the partitions of features, targets and weights of the records whose weight is not 0.

    Parameters
    ----------
    x : collection of Dask
    x_parts, y_parts : list of Delayed
        Partitions of X and y.
    weights : column, array or array-like
        With the partitions of X; any other array only if X is an array of known chunks.

    Raises
    ------
    ValueError
        The partitions differ. To compute one raises it if it has another length, or a wrong weight.
    """
    chunks = x.chunks[0] if hasattr(x, "chunks") else (np.nan,)
    is_known = not np.isnan(chunks).any()
    if not is_dask_collection(weights):
        if not is_known:
            raise ValueError(
                "sample_weight: in memory, but X is of Dask. Expected one of Dask with the partitions of X."
            )
        weights = da.from_array(np.asarray(weights), chunks=-1)  # type: ignore[no-untyped-call]
    if hasattr(weights, "chunks"):
        if weights.ndim != 1 or (is_known and weights.shape[0] != sum(chunks)):
            raise ValueError(f"sample_weight: shape {weights.shape}, expected a weight for each record of X.")
        weights = rows_together(weights.rechunk((chunks,)) if is_known else weights)
    parts = parts_of(weights)
    counts = {len(x_parts), len(y_parts), len(parts)}
    if len(counts) > 1:
        found = f"X has {len(x_parts)} partitions, y {len(y_parts)} and sample_weight {len(parts)}"
        raise ValueError(f"{found}. Expected the same of all.")
    return (map_parts(_kept, x_parts, parts), map_parts(_kept, y_parts, parts)), map_parts(_kept, parts, parts)


def _kept(part: Any, weights: Any) -> npt.NDArray[Any]:
    """Return the records of a partition whose weight is not 0."""
    values, factors = np.asarray(part), np.asarray(weights, np.float64).reshape(-1)
    if len(values) != len(factors):
        raise ValueError(f"sample_weight: {len(factors)} in a partition of {len(values)} records. Expected as many.")
    wrong = find_wrong_weight(factors)
    if wrong is not None:
        raise ValueError(f"sample_weight: record {wrong[0]} of a partition: {wrong[1]}.")
    return values if factors.all() else values[factors > 0]
