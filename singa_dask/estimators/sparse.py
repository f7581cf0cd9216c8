"""Sparse matrices: read rows as records, and scale columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from sklearn.utils.sparsefuncs import count_nonzero, mean_variance_axis, min_max_axis

from singa_dask.arrays import Array
from singa_dask.comm.remote_import import Guarded
from singa_dask.data.tables.scaling import Moments, Scaling

BLOCK = 1 << 22
"""Number of values in a dense block."""
ROWS = 200


def is_sparse(x: Any) -> bool:
    """Return whether ``x`` is a sparse matrix."""
    return hasattr(x, "toarray")


def scaling_of_sparse(x: Any) -> Scaling:
    """Return the scaling of the columns of a sparse matrix.

    Columns are divided by their standard deviation. The mean is not subtracted, so that zeros stay zeros.
    """
    mean, variance = mean_variance_axis(x.astype(np.float64), axis=0)
    low, high = min_max_axis(x, axis=0)
    moments = Moments(x.shape[0], mean, variance * x.shape[0], low, high, count_nonzero(x, axis=0))
    scaling = Scaling.of(moments)
    return Scaling(np.zeros_like(mean), scaling.std)


class SparseRecords:
    """The scaled rows of a CSR matrix (n, features) as records.

    ``records`` is a function that converts dense rows to the records that the net reads.
    """

    def __init__(self, x: Any, scaling: Scaling | None, records: Callable[[Array], Array]) -> None:
        self.shape = x.shape
        self._x, self._records = x, records
        if scaling is not None and not scaling.mean.any():
            # zeros stay zero, so only nonzero values need scaling
            self._x = x.astype(np.float32)
            self._x.data[...] = x.data / scaling.divisor[x.indices]
            self._records = np.asarray

    def __getitem__(self, rows: Any) -> Array:
        return self._records(self._x[rows].toarray())

    def slices(self) -> list[slice]:
        """Return the range of rows of each block."""
        n = max(1, BLOCK // self.shape[1] // ROWS) * ROWS
        return [slice(first, min(first + n, self.shape[0])) for first in range(0, self.shape[0], n)]

    def to_dask(self) -> Any:
        """Return a Dask array with a chunk for each block."""
        first, rows = self[:1], delayed(Guarded(self.__getitem__))
        return da.concatenate(  # type: ignore[no-untyped-call]
            [da.from_delayed(rows(of), (of.stop - of.start, *first.shape[1:]), first.dtype) for of in self.slices()]  # type: ignore[no-untyped-call]
        )
