"""CupyBinary: losses and metrics of scores that are each a yes or a no of their own, on a GPU."""

from __future__ import annotations

import numpy as np

from singa_dask.ops.cupy.arrays import CupyMemory, in_memory_order
from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.elementwise import MULTIPLY, value_kernel

__all__ = ["CupyBinary"]

CROSS_ENTROPY = value_kernel(
    "binary_cross_entropy",
    "X x, Y t",
    "const W v = (W)x, w = (W)t;"
    'z = (Z)(w >= 0 && w <= 1 ? (v > 0 ? v : (v <= 0 ? (W)0 : v)) - v * w + log1p(exp(-fabs(v))) : (W)nan(""));',
)
MATCHES = value_kernel(
    "binary_matches", "X x, Y t", "const W v = (W)x; z = (Z)(v == v && (v > 0) == ((W)t > (W)0.5) ? 1 : 0);"
)


class CupyBinary(CupyMemory):
    """Kernels on rows of logits, a mixin of `CupyOps`."""

    def binary_cross_entropy(self, x: Array, t: Array, weights: Array | None = None) -> Array:
        losses = self._values(x)
        CROSS_ENTROPY(*in_memory_order(x, t, losses))
        if weights is not None:
            MULTIPLY(losses, weights[:, None], losses)
        return self.sum_of("values", losses)

    def count_binary_matches(self, x: Array, t: Array) -> Array:
        matches = self._values(x)
        MATCHES(*in_memory_order(x, t, matches))
        return self.sum_of("values", matches)

    def _values(self, x: Array) -> Array:
        """Return scratch memory of the shape of an array, in the type that kernels compute in."""
        return self.scratch("binary values", x.shape, np.float64 if x.dtype == np.float64 else np.float32)
