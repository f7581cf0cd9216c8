"""CupyBinary: losses and metrics of rows of logits of independent probabilities, on a GPU."""

from __future__ import annotations

from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.elementwise import CupyElementwise
from singa_dask.ops.cupy.launch import sum_type
from singa_dask.ops.cupy.value_kernel import ValueKernel

CROSS_ENTROPY = ValueKernel(
    "binary_cross_entropy",
    "X x, Y t",
    "const W v = (W)x, w = (W)t;"
    'z = (Z)(w >= 0 && w <= 1 ? (v > 0 ? v : (v <= 0 ? (W)0 : v)) - v * w + log1p(exp(-fabs(v))) : (W)nan(""));',
)
MATCHES = ValueKernel(
    "binary_matches", "X x, Y t", "const W v = (W)x; z = (Z)(v == v && (v > 0) == ((W)t > (W)0.5) ? 1 : 0);"
)


class CupyBinary(CupyElementwise):
    """Mixin of `CupyOps` with kernels on rows of logits."""

    def binary_cross_entropy(self, x: Array, t: Array, weights: Array | None = None) -> Array:
        losses = self._values(x)
        CROSS_ENTROPY(x, t, losses)
        if weights is not None:
            self.multiply(losses, weights[:, None], out=losses)
        return self.sum_of("values", losses)

    def count_binary_matches(self, x: Array, t: Array) -> Array:
        matches = self._values(x)
        MATCHES(x, t, matches)
        return self.sum_of("values", matches)

    def _values(self, x: Array) -> Array:
        """Return scratch memory of the shape of an array, in the type that kernels compute in."""
        return self.scratch("binary values", x.shape, sum_type(x.dtype))
