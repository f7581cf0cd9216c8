"""CupyNormalisation and CupySoftmax: kernels on a GPU that reduce channels, groups of them, or rows.

Normalisation is by ``lrn.cu``, ``norm.cu``, ``group.cu`` and ``row_norm.cu``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import DType
from singa_dask.ops.cupy.arrays import (
    THREADS,
    WARP,
    ValueKernel,
    blocks,
    divisor,
    index_type,
    ints,
    pack_width,
    run,
    strides_of,
    sum_type,
)
from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.elementwise import CupyElementwise
from singa_dask.ops.cupy.linear import CupyLinear
from singa_dask.ops.types import Running

# Sums of channels: threads of a block, as in norm.cu, channels of a block, the fewest values of a thread, blocks in
# all, and blocks of one channel: enough to keep any device busy, few enough to add up fast.
SUM_THREADS, SUM_CHANNELS, SUM_VALUES, SUM_BLOCKS, SUM_PARTS = 512, 32, 4, 512, 256
# Rows that a block normalises where each is a warp's, as in row_norm.cu, the most packs of such a row, and the most
# blocks that sum over rows.
ROWS_OF_BLOCK, PACKS_OF_WARP, ROW_PARTS = 8, 8 * WARP, 256


class CupyNormalisation(CupyLinear):
    """Kernels that normalise, a mixin of `CupyOps`."""

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        return self.features(shape, sum_type(dtype))

    def lrn(self, x: Array, out: Array, work: Array | None, size: int, alpha: float, beta: float, knorm: float) -> None:
        source, y = self._dense("x", x), self._output_buffer("y", out, x.dtype)
        how = (size, alpha, beta, knorm)
        if work is None:
            self._lrn("lrn", (source, y), *how)
        else:
            self._lrn("lrn_keep", (source, y, work), *how)
        self._commit(y, out)

    def lrn_grad(
        self, x: Array, gy: Array, out: Array, work: Array, size: int, alpha: float, beta: float, knorm: float
    ) -> None:
        source, g, gx = self._dense("x", x), self._dense("gy", gy), self._output_buffer("gx", out, x.dtype)
        self._lrn("lrn_grad", (source, g, work, gx), size, alpha, beta, knorm)
        self._commit(gx, out)

    def _lrn(self, name: str, arrays: Sequence[Array], size: int, alpha: float, beta: float, knorm: float) -> None:
        x = arrays[0]
        count, wide = index_type(x.size), sum_type(x.dtype)
        channels = x.shape[1]
        windows = (
            *ints(channels),
            divisor(channels),
            *ints(min(size // 2, channels - 1)),
            wide(alpha / size),
            wide(beta),
            wide(knorm),
        )
        function = self.gpu.function("lrn", name, Value=x.dtype, Index=count)
        run(function, x.size, arrays, (count.type(x.size), *windows))

    def batch_norm(
        self,
        x: Array,
        scale: Array,
        shift: Array,
        mean: Array,
        var: Array,
        out: Array,
        eps: float,
        training: bool,
        relu: bool = False,
        work: Array | None = None,
    ) -> None:
        source, y = self._dense("x", x), self._output_buffer("y", out, x.dtype)
        rows = _Rows(self, source, scale.dtype, y)
        known = (scale, shift, mean, var, rows.factors)
        if training:
            rows.sum("moments", (source, *known), (np.float64(eps),))
        else:
            run(rows.function("known_moments"), rows.n_channels, known, (rows.channels, np.float64(eps)))
        rows.apply("normal", (source, rows.factors, y), relu)
        self._commit(y, out)

    def batch_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        running: Running | None = None,
        y: Array | None = None,
        work: Array | None = None,
    ) -> None:
        source, g = self._dense("x", x), self._dense("gy", gy)
        output, relu = (g, False) if y is None else (self._dense("y", y), True)
        gx = None if out is None else self._output_buffer("gx", out, x.dtype)
        rows = _Rows(self, source, scale.dtype, g, output, *(() if gx is None else (gx,)))
        *statistics, rate = running or (mean, var, grad_scale, grad_shift, 0.0)
        known = (scale, mean, var, grad_scale, grad_shift, *statistics, rows.factors)
        end = (np.float64(eps), *ints(relu, running is not None), np.float64(rate))
        rows.sum("grads", (source, g, output, *known), end)
        if gx is not None:
            rows.apply("normal_grad", (source, g, output, rows.factors, gx), relu)
            self._commit(gx, out)

    # -- layer and group normalisation -----------------------------------------------------------------------

    def group_norm(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float) -> None:
        source, y = self._dense("x", x), self._output_buffer("y", out, x.dtype)
        self._on_groups("group_norm", (source, scale, shift, mean, var, y), mean, eps)
        self._commit(y, out)

    def group_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        accumulate: bool = False,
    ) -> None:
        if _is_rows(x, mean):
            self.layer_norm_grad(x, gy, scale, mean, var, out, grad_scale, grad_shift, eps, accumulate)
            return
        source, g = self._dense("x", x), self._dense("gy", gy)
        if out is not None:
            gx = self._output_buffer("gx", out, x.dtype)
            self._on_groups("group_norm_grad", (source, g, scale, mean, var, gx), mean, eps)
            self._commit(gx, out)
        n_channels = x.shape[1]
        n_rows, tiles = x.size // n_channels, -(-n_channels // WARP)
        most = max(1, min(SUM_PARTS, SUM_BLOCKS // tiles))
        n_parts = min(most, max(1, n_rows // (SUM_THREADS // WARP * SUM_VALUES)))
        memory = (self.scratch("parts", (2, n_parts, n_channels), np.float64), self.counters(tiles))
        sizes = (*self._group_sizes(source, mean), np.int64(n_rows), np.float64(eps), np.int32(accumulate))
        add = self.gpu.function("group", "param_grads", Value=x.dtype, Param=scale.dtype)
        add((tiles, n_parts), (SUM_THREADS,), (source, g, mean, var, grad_scale, grad_shift, *memory, *sizes))

    # a row is the group of all of its channels
    layer_norm = group_norm

    def _on_groups(self, name: str, arrays: Sequence[Array], mean: Array, eps: float) -> None:
        """Run a kernel of group.cu with a block for each group; the first of the arrays is x."""
        x, params = arrays[0], arrays[-2].dtype
        if not x.size:
            return
        if _is_rows(x, mean):
            function, block, sizes = self._on_rows_of("row_norm", arrays, params, eps)
            function((-(-len(x) // block[1]),), block, (*arrays, *sizes))
            return
        function = self.gpu.function("group", name, Value=x.dtype, Param=params)
        sizes = self._group_sizes(x, mean)
        function((mean.size,), (row_threads(x.size // mean.size),), (*arrays, *sizes, np.float64(eps)))

    def layer_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        accumulate: bool = False,
        more: Array | None = None,
    ) -> None:
        """Compute all gradients of rows in one launch of row_norm.cu: that of x, if there is ``out``, plus ``more``."""
        source, g = self._dense("x", x), self._dense("gy", gy)
        gx = None if out is None else self._output_buffer("gx", out, x.dtype)
        arrays = (source, g, g if more is None else self._dense("more", more), scale, mean, var)
        written = (source if gx is None else gx, grad_scale, grad_shift)
        function, block, sizes = self._on_rows_of("row_norm_grad", (*arrays, *written), scale.dtype, eps)
        n_parts = min(ROW_PARTS, max(1, -(-len(x) // block[1])))
        memory = (self.scratch("parts", (2, n_parts, x.shape[1]), np.float64), self.counters(1))
        asked = ints(out is not None, more is not None, accumulate)
        function((n_parts,), block, (*arrays, *written, *memory, *sizes, *asked))
        if gx is not None:
            self._commit(gx, out)

    def layer_norm_grad_add(
        self,
        more: Array,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        accumulate: bool = False,
    ) -> None:
        self.layer_norm_grad(x, gy, scale, mean, var, out, grad_scale, grad_shift, eps, accumulate, more)

    def _on_rows_of(self, name: str, arrays: Sequence[Array], params: Any, eps: float) -> tuple[Any, Any, Any]:
        """Return a kernel of row_norm.cu, its block and numbers: a warp for each row if that is short, else a block."""
        n_rows, n_channels = arrays[0].shape
        width = pack_width(n_channels, *(each for each in arrays if each.size >= n_channels))
        n_packs = n_channels // width
        block = (WARP, ROWS_OF_BLOCK) if n_packs <= PACKS_OF_WARP else (row_threads(n_packs), 1)
        packs = 1 << (-(-n_packs // block[0]) - 1).bit_length()
        function = self.gpu.function("row_norm", name, Value=arrays[0].dtype, Param=params, WIDTH=width, PACKS=packs)
        return function, block, (np.int64(n_rows), np.int32(n_packs), np.float64(eps))

    def _group_sizes(self, x: Array, mean: Array) -> tuple[Any, ...]:
        """Return the numbers of pixels, channels and groups."""
        (n_rows, n_channels), n_groups = x.shape[:2], 1 if mean.ndim == 1 else mean.shape[1]
        return np.int64(x.size // max(1, n_rows * n_channels)), np.int32(n_channels), np.int32(n_groups)


def _is_rows(x: Array, mean: Array) -> bool:
    """Tell whether the groups of x are its rows."""
    return bool(mean.ndim == 1 or (x.ndim == 2 and mean.shape[1] == 1))


class _Rows:
    """The kernels of norm.cu for rows of channels: their types and grids, and memory for sums and factors."""

    def __init__(self, ops: CupyNormalisation, x: Array, params: Any, *more: Array) -> None:
        self.ops, self.n_channels, self.n_values = ops, x.shape[1], x.size
        count, self.width = index_type(x.size), pack_width(x.shape[1], x, *more)
        self.types = {"Value": x.dtype, "Param": params, "Index": count, "WIDTH": self.width}
        self.count, self.channels = count.type, np.int32(self.n_channels)
        n_rows = x.size // self.n_channels
        self.rows = self.count(n_rows)
        across = min(SUM_CHANNELS, 1 << (self.n_channels - 1).bit_length())
        self.block = (across, SUM_THREADS // across)
        self.tiles = -(-self.n_channels // across)
        most = max(1, min(SUM_PARTS, SUM_BLOCKS // self.tiles))
        self.n_parts = min(most, max(1, n_rows // (self.block[1] * SUM_VALUES)))
        self.rows_of_block = self.count(-(-n_rows // self.n_parts))
        self.factors = ops.scratch("factors", (4, self.n_channels), sum_type(x.dtype))

    def function(self, name: str) -> Any:
        return self.ops.gpu.function("norm", name, **self.types)

    def sum(self, name: str, arrays: Sequence[Any], end: Sequence[Any]) -> None:
        """Sum over all rows, and compute what follows for each channel."""
        parts = self.ops.scratch("parts", (self.n_parts, 2 * self.n_channels), np.float64)
        memory = (parts, self.ops.counters(self.tiles))
        numbers = (self.rows, self.rows_of_block, self.channels)
        self.function(name)((self.tiles, self.n_parts), self.block, (*arrays, *memory, *numbers, *end))

    def apply(self, name: str, arrays: Sequence[Array], relu: bool) -> None:
        """Compute all values with the factors of their channels."""
        n_packs = self.n_values // self.width
        numbers = (self.count(n_packs), *ints(self.n_channels // self.width, relu))
        run(self.function(name), n_packs, arrays, numbers)


# CupySoftmax: probabilities, losses and metrics of rows of scores on a GPU, by two sources in ``cuda/``.


# The most threads of a block, which has a row.
ROW_THREADS = 512
# Where a warp has a row: the rows of a block, and the most values of a thread.
ROWS, MAX_VALUES = 8, 32
# Up to so many rows one block computes the loss.
LOSS_ROWS = 2048
# Up to so many columns a thread counts those of a row.
FEW_COLUMNS = 64


class CupySoftmax(CupyElementwise):
    """Kernels on rows of scores, a mixin of `CupyOps`."""

    def softmax(self, x: Array, out: Array) -> None:
        self._softmax(x, out, 1, x.shape[1])

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        self._by_warp("softmax_grad", (y, gy, out), np.int32(y.shape[1]))

    def _softmax(self, x: Array, out: Array, n_queries: int, first: int) -> None:
        """Write probabilities of the first ``first + 1 + r % n_queries`` columns of each row r, 0 for the others."""
        self._by_warp("softmax", (x, out), *(np.int32(n) for n in (x.shape[1], n_queries, first)))

    def masked_softmax(self, scores: Array, out: Array, causal: bool, first: int = 0) -> None:
        n_queries, n_keys = scores.shape[-2:]
        # C order, which scratch memory of four axes has not
        x, y = (
            array if array.flags.c_contiguous else self.scratch(name, (array.size,), array.dtype).reshape(array.shape)
            for name, array in (("scores", scores), ("probabilities", out))
        )
        if x is not scores:
            self.copy(scores, x)
        visible = (n_queries, first) if causal else (1, n_keys)
        self._softmax(x.reshape(-1, n_keys), y.reshape(-1, n_keys), *visible)
        if y is not out:
            self.copy(y, out)

    def cross_entropy(self, p: Array, labels: Array, smoothing: float = 0.0, weights: Array | None = None) -> Array:
        out = self.scratch("scalar", (1,), np.float64)
        if smoothing or weights is not None:
            self._by_rows(p, labels, smoothing, weights, out)
            return out
        # one block for a batch, parts by several blocks for very many rows
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
        """Write the mean loss with label smoothing or weights, (1,) float64: a loss of each row, then their sum."""
        losses, labels = self.scratch("losses", (len(p),), np.float64), self.integers("labels", labels)
        numbers = (np.int32(p.shape[1]), np.float64(least_float(p)), np.float64(smoothing), np.float64(1 / len(p)))
        self._by_row("smoothed_losses", (p, labels, losses), (1, 2), *numbers)
        if weights is not None:
            self.multiply(losses, weights, losses)
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
        """Run a kernel with a warp for each row, by ``cuda/softmax_rows.cu``; `_by_row` if a row is too long for it."""
        n_rows, n_columns = arrays[0].shape
        width = pack_width(math.gcd(n_columns, *(x.strides[0] // x.itemsize for x in arrays)), *arrays)
        while width > 1 and width * WARP > n_columns:
            width //= 2
        # a power of two, so that few are compiled
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

        Parameters
        ----------
        plain : tuple of int
            Indices of the arrays that are contiguous, and passed without strides.
        """
        n_rows, n_columns = arrays[0].shape
        if not n_rows:
            return
        kinds = [x.dtype for i, x in enumerate(arrays) if i not in plain]
        types = dict(zip("XYZ", (*kinds, *kinds[-1:] * 2), strict=False))
        arguments = (part for i, x in enumerate(arrays) for part in ((x,) if i in plain else (x, *strides_of(x))))
        self.gpu.function("softmax", kernel, **types)((n_rows,), (row_threads(n_columns),), (*arguments, *numbers))


def row_threads(n: int) -> int:
    """Return how many threads a block has for n values: whole warps."""
    return min(ROW_THREADS, max(1, -(-n // WARP)) * WARP)


def least_float(p: Array) -> float:
    """Return the smallest normal number of what kernels compute in for this array."""
    return float(np.finfo(sum_type(p.dtype)).tiny)


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
    """Kernels on rows of logits, a mixin of `CupyOps`."""

    def binary_cross_entropy(self, x: Array, t: Array, weights: Array | None = None) -> Array:
        losses = self._values(x)
        CROSS_ENTROPY(x, t, losses)
        if weights is not None:
            self.multiply(losses, weights[:, None], losses)
        return self.sum_of("values", losses)

    def count_binary_matches(self, x: Array, t: Array) -> Array:
        matches = self._values(x)
        MATCHES(x, t, matches)
        return self.sum_of("values", matches)

    def _values(self, x: Array) -> Array:
        """Return scratch memory of the shape of an array, in the type that kernels compute in."""
        return self.scratch("binary values", x.shape, sum_type(x.dtype))
