"""How much memory a net takes, found without taking it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from singa_dask.ops import NumpyOps

__all__ = ["Sizes"]

# More than numpy describes.
MAX_BYTES = 1 << 62


class Sizes(NumpyOps):
    """Kernels whose memory is of any shape but one value long, for layers that allocate and do not compute.

    Attributes
    ----------
    n_bytes : int
        What was asked for. Of an array that numpy could not describe `OverflowError` is raised once it is counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        value = np.zeros((), dtype)
        n_bytes = math.prod(shape) * value.itemsize
        self.n_bytes += n_bytes
        if n_bytes > MAX_BYTES:
            raise OverflowError(f"an array of {n_bytes} bytes")
        return as_strided(value, shape, (0,) * len(shape))

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.empty(shape, dtype)

    def features(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.empty(shape, dtype)
