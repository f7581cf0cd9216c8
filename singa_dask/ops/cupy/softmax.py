"""CupySoftmax: probabilities, losses and metrics of rows of scores on a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.elementwise import CupyElementwise
from singa_dask.ops.cupy.launch import THREADS, WARP, blocks, ints, pack_width, row_threads, strides_of, sum_type

# For kernels with one warp per row: rows per block, and maximum values per thread.
ROWS, MAX_VALUES = 8, 32
# Up to this number of rows, a single block computes the loss.
LOSS_ROWS = 2048
# Up to this number of columns, a single thread counts the columns of a row.
FEW_COLUMNS = 64


class CupySoftmax(CupyElementwise):
    """Mixin of `CupyOps` with kernels on rows of scores."""

    def softmax(self, x: Array, out: Array) -> None:
        self._softmax(x, out, 1, x.shape[1])

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        self._by_warp("softmax_grad", (y, gy, out), np.int32(y.shape[1]))

    def _softmax(self, x: Array, out: Array, n_queries: int, first: int) -> None:
        """Write the softmax of the first ``first + 1 + r % n_queries`` columns of each row r, then zeros."""
        self._by_warp("softmax", (x, out), *(np.int32(n) for n in (x.shape[1], n_queries, first)))

    def masked_softmax(self, scores: Array, out: Array, causal: bool, first: int = 0) -> None:
        n_queries, n_keys = scores.shape[-2:]
        # these kernels need C order, which scratch memory with four axes does not have
        x, y = (
            array if array.flags.c_contiguous else self.scratch(name, (array.size,), array.dtype).reshape(array.shape)
            for name, array in (("scores", scores), ("probabilities", out))
        )
        if x is not scores:
            self.copy(scores, out=x)
        visible = (n_queries, first) if causal else (1, n_keys)
        self._softmax(x.reshape(-1, n_keys), y.reshape(-1, n_keys), *visible)
        if y is not out:
            self.copy(y, out=out)

    def cross_entropy(self, p: Array, labels: Array, smoothing: float = 0.0, weights: Array | None = None) -> Array:
        out = self.scratch("scalar", (1,), np.float64)
        if smoothing or weights is not None:
            self._by_rows(p, labels, smoothing, weights, out)
            return out
        # use one block for a usual batch, and partial losses of several blocks for very many rows
        n_blocks = 1 if len(p) <= LOSS_ROWS else min(blocks(len(p)), THREADS)
        parts = out if n_blocks == 1 else self.scratch("losses", (n_blocks,), np.float64)
        least = least_float(p)
        function = self.gpu.function("softmax", "cross_entropy", X=p.dtype, Y="float", Z="float")
        labels = self.integers("labels", labels)
        sizes = (np.int32(p.shape[0]), np.int32(p.shape[1]), np.float64(least))
        threads = row_threads(len(p)) if n_blocks == 1 else THREADS
        function((n_blocks,), (threads,), (p, *strides_of(p), labels, parts, *sizes))
        if n_blocks > 1:
            self.total(parts, out)
        return out

    def _by_rows(self, p: Array, labels: Array, smoothing: float, weights: Array | None, out: Array) -> None:
        """Write the mean loss with label smoothing or weights, (1,) float64.

        One kernel computes the loss of each row, another kernel sums these losses.
        """
        losses, labels = self.scratch("losses", (len(p),), np.float64), self.integers("labels", labels)
        numbers = (np.int32(p.shape[1]), np.float64(least_float(p)), np.float64(smoothing), np.float64(1 / len(p)))
        self._by_row("smoothed_losses", (p, labels, losses), (1, 2), *numbers)
        if weights is not None:
            self.multiply(losses, weights, out=losses)
        self.total(losses, out)

    def cross_entropy_grad(self, p: Array, labels: Array, scale: float, out: Array, smoothing: float = 0.0) -> None:
        labels, factor = self.integers("labels", labels), scale / len(p)
        share = factor * smoothing / p.shape[1]
        numbers = (np.float64(factor), np.float64(factor * (1 - smoothing) + share), np.float64(share))
        self._by_row("cross_entropy_grad", (p, labels, out), (1,), np.int32(p.shape[1]), *numbers)

    def focal_factors(self, p: Array, labels: Array, gamma: float, out: Array) -> None:
        labels, numbers = self.integers("labels", labels), (np.int32(len(p)), np.float64(gamma))
        function = self.gpu.function("softmax", "focal_factors", X=p.dtype, Y=out.dtype, Z="float")
        arguments = (p, *strides_of(p), labels, out, *numbers, np.float64(least_float(p)))
        function((blocks(len(p)),), (THREADS,), arguments)

    def top(self, scores: Array, k: int, out: Array) -> None:
        self._by_row("top", (scores, out), (), np.int32(scores.shape[1]), np.int32(k))

    def count_in_top(self, scores: Array, labels: Array, k: int) -> Array:
        hits, out = (self.scratch(name, (n,), np.float64) for name, n in (("hits", len(scores)), ("scalar", 1)))
        labels, n_columns = self.integers("labels", labels), scores.shape[1]
        if 0 < len(scores) <= LOSS_ROWS and n_columns <= FEW_COLUMNS:
            count = self.gpu.function("softmax", "count_hits", X=scores.dtype, Y="float", Z="float")
            arrays, sizes = (scores, *strides_of(scores), labels, out), ints(len(scores), n_columns, k)
            count((1,), (row_threads(len(scores)),), (*arrays, *sizes))
            return out
        self._by_row("hits", (scores, labels, hits), (1, 2), np.int32(scores.shape[1]), np.int32(k))
        self.total(hits, out)
        return out

    def _by_warp(self, kernel: str, arrays: tuple[Array, ...], *numbers: Any) -> None:
        """Run a kernel of ``cuda/softmax_rows.cu`` with a warp for each row, or `_by_row` for long rows."""
        n_rows, n_columns = arrays[0].shape
        width = pack_width(math.gcd(n_columns, *(x.strides[0] // x.itemsize for x in arrays)), *arrays)
        while width > 1 and width * WARP > n_columns:
            width //= 2
        # round up to a power of two, so that few kernels are compiled
        packs = 1 << (-(-n_columns // (WARP * width)) - 1).bit_length()
        if packs * width > MAX_VALUES or any(x.strides[1] != x.itemsize for x in arrays):
            self._by_row(kernel, arrays, (), *numbers)
        elif n_rows:
            kinds = [x.dtype for x in arrays]
            types = dict(zip("XYZ", (*kinds, *kinds[-1:]), strict=False))
            function = self.gpu.function("softmax_rows", f"{kernel}_rows", **types, WIDTH=width, PACKS=packs)
            rows = (argument for x in arrays for argument in (x, strides_of(x)[0]))
            function((-(-n_rows // ROWS),), (ROWS * WARP,), (*rows, np.int32(n_rows), *numbers))

    def _by_row(self, kernel: str, arrays: tuple[Array, ...], plain: tuple[int, ...], *numbers: Any) -> None:
        """Run a kernel of ``cuda/softmax.cu`` with a block for each row of the first array.

        ``plain`` lists the indices of contiguous arrays, whose strides are not passed to the kernel.
        """
        n_rows, n_columns = arrays[0].shape
        if not n_rows:
            return
        kinds = [x.dtype for i, x in enumerate(arrays) if i not in plain]
        types = dict(zip("XYZ", (*kinds, *kinds[-1:] * 2), strict=False))
        arguments = (part for i, x in enumerate(arrays) for part in ((x,) if i in plain else (x, *strides_of(x))))
        self.gpu.function("softmax", kernel, **types)((n_rows,), (row_threads(n_columns),), (*arguments, *numbers))


def least_float(p: Array) -> float:
    """Return the smallest normal number of the type in which kernels compute with this array."""
    return float(np.finfo(sum_type(p.dtype)).tiny)
