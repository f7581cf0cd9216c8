"""NumpyLinear: matrix products, in numpy."""

from __future__ import annotations

import numpy as np

from singa_dask.ops.contract import Array, Linear
from singa_dask.ops.scratch import Scratch


class NumpyLinear(Scratch, Linear):
    """Matrix products, a mixin of `NumpyOps`."""

    def linear(self, x: Array, w: Array, b: Array | None, out: Array, transpose: bool = False) -> None:
        np.matmul(x, w if transpose else w.T, out=out)
        if b is not None:
            np.add(out, b, out=out)

    def linear_grad_input(
        self, gy: Array, w: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        self._multiply_matrices(gy, w.T if transpose else w, out, accumulate)

    def linear_grad_weight(
        self, x: Array, gy: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        left, right = (x.T, gy) if transpose else (gy.T, x)
        self._multiply_matrices(left, right, out, accumulate)

    def linear_grad_bias(self, gy: Array, out: Array, accumulate: bool = False) -> None:
        if accumulate:
            np.add(out, np.sum(gy, axis=0), out=out)
        else:
            np.sum(gy, axis=0, out=out)

    def batch_matmul(
        self,
        a: Array,
        b: Array,
        out: Array,
        transpose_a: bool = False,
        transpose_b: bool = False,
        scale: float = 1.0,
    ) -> None:
        np.matmul(a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b, out=out)
        if scale != 1:
            np.multiply(out, scale, out=out)

    def _multiply_matrices(self, left: Array, right: Array, out: Array, accumulate: bool) -> None:
        """``out = left right``; added to ``out`` if ``accumulate``."""
        if accumulate:
            product = self.scratch("product", out.shape, out.dtype)
            np.matmul(left, right, out=product)
            np.add(out, product, out=out)
        else:
            np.matmul(left, right, out=out)
