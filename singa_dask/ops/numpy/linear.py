"""NumpyLinear: matrix products, in NumPy."""

from __future__ import annotations

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.numpy.elementwise import NumpyElementwise


class NumpyLinear(NumpyElementwise):
    """Matrix products. ``D`` and ``H`` are the numbers of input and output features of a layer.

    ``out`` must not share memory with an input. If a backend supports bfloat16, rows may be bfloat16 with float32
    weights and gradients of weights. `linear` and `linear_grad_input` also accept weights in bfloat16. No kernel of a
    captured step may change w and b of `linear`, `linear_add` and `linear_grad_input`, because a backend may round them
    to bfloat16 once, before the step.
    """

    def linear(self, x: Array, w: Array, b: Array | None, out: Array, transpose: bool = False) -> None:
        """``out = x w^T + b``, or ``x w + b`` if ``transpose``.

        Parameters
        ----------
        x : (N, D)
        w : (H, D), or (D, H) if ``transpose``
        b : (H,) or None
        out : (N, H)
        """
        np.matmul(x, w if transpose else w.T, out=out)
        if b is not None:
            np.add(out, b, out=out)

    def linear_add(self, x: Array, w: Array, b: Array | None, more: Array, out: Array, transpose: bool = False) -> None:
        """``out = x w^T + b + more`` with ``more`` (N, H). All other arguments are the same as in `linear`."""
        self.linear(x, w, b, out=out, transpose=transpose)
        self.add(out, more, out=out)

    def linear_grad_input(
        self, gy: Array, w: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        """``out = gy w``, (N, D), with ``gy`` (N, H) and w of `linear`; added to ``out`` if ``accumulate``."""
        self._multiply_matrices(gy, w.T if transpose else w, out, accumulate)

    def linear_grad_weight(
        self, x: Array, gy: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        """``out = gy^T x`` in the shape of the weights; added to ``out`` if ``accumulate``."""
        left, right = (x.T, gy) if transpose else (gy.T, x)
        self._multiply_matrices(left, right, out, accumulate)

    def linear_grad_bias(self, gy: Array, out: Array, accumulate: bool = False) -> None:
        """``out`` (H,) = sum of the rows of ``gy``; added to ``out`` if ``accumulate``."""
        if accumulate:
            np.add(out, np.sum(gy, axis=0), out=out)
        else:
            np.sum(gy, axis=0, out=out)

    def linear_grad_params(
        self,
        x: Array,
        gy: Array,
        grad_weight: Array,
        grad_bias: Array,
        transpose: bool = False,
        accumulate: bool = False,
    ) -> None:
        """Compute `linear_grad_weight` and `linear_grad_bias`."""
        self.linear_grad_weight(x, gy, out=grad_weight, transpose=transpose, accumulate=accumulate)
        self.linear_grad_bias(gy, out=grad_bias, accumulate=accumulate)

    def batch_matmul(
        self,
        a: Array,
        b: Array,
        out: Array,
        transpose_a: bool = False,
        transpose_b: bool = False,
        scale: float = 1.0,
    ) -> None:
        """``out = scale a b`` for each matrix of a batch, with the last two axes of a and b transposed on request.

        Parameters
        ----------
        a : (..., M, K), or (..., K, M) if ``transpose_a``
        b : (..., K, N), or (..., N, K) if ``transpose_b``
        out : (..., M, N)
            All three arrays have the same one or two leading axes, with any strides. For example, the heads of
            attention are a view (N, H, T, d) of rows (T, N, H d). The kernel is fastest if the last axis, or the last
            but one, is contiguous.
        """
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
