"""Metrics of batches, and their means."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from singa_dask.errors import NumericError

__all__ = ["Metrics", "mean_metrics"]

Metrics = dict[str, tuple[float, float]]
"""(sum, count) of each metric, by name."""


def mean_metrics(batches: Iterable[tuple[float, Metrics]]) -> dict[str, float]:
    """Return the mean of each metric over batches with their weights.

    Raises
    ------
    NumericError
        A mean is not finite.
    """
    totals: dict[str, list[float]] = {}
    for weight, metrics in batches:
        for name, (total, count) in metrics.items():
            entry = totals.setdefault(name, [0.0, 0.0])
            entry[0] += weight * total
            entry[1] += weight * count
    means = {name: total / count for name, (total, count) in totals.items() if count}
    for name, mean in means.items():
        if not np.isfinite(mean):
            raise NumericError(f"{name} is not finite. Check the checkpoint and the data.")
    return means
