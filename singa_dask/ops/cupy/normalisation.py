"""CupyNormalisation: normalisation over channels, groups of channels, the batch or rows, on a GPU.

The kernels are in ``lrn.cu``, ``norm.cu``, ``group.cu`` and ``row_norm.cu``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import DType
from singa_dask.ops.contract import Running
from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.launch import WARP, divisor, index_type, ints, pack_width, row_threads, run, sum_type
from singa_dask.ops.cupy.linear import CupyLinear

# Sums of channels: threads per block (as in norm.cu), channels per block, minimum values per thread, total blocks, and
# blocks per channel. There are enough blocks to keep any device busy, and few enough to add up their sums fast.
SUM_THREADS, SUM_CHANNELS, SUM_VALUES, SUM_BLOCKS, SUM_PARTS = 512, 32, 4, 512, 256
# For kernels with one warp per row (as in row_norm.cu): rows per block, maximum packs per row, and maximum number of
# blocks that sum over rows.
ROWS_OF_BLOCK, PACKS_OF_WARP, ROW_PARTS = 8, 8 * WARP, 256


class CupyNormalisation(CupyLinear):
    """Mixin of `CupyOps` with kernels that normalise."""

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        return self.features(shape, sum_type(dtype))

    def lrn(self, x: Array, out: Array, work: Array | None, size: int, alpha: float, beta: float, knorm: float) -> None:
        source, y = self._made_dense("x", x), self._output_buffer("y", out, x.dtype)
        how = (size, alpha, beta, knorm)
        if work is None:
            self._lrn("lrn", (source, y), *how)
        else:
            self._lrn("lrn_keep", (source, y, work), *how)
        self._commit(y, out)

    def lrn_grad(
        self, x: Array, gy: Array, out: Array, work: Array, size: int, alpha: float, beta: float, knorm: float
    ) -> None:
        source, g, gx = self._made_dense("x", x), self._made_dense("gy", gy), self._output_buffer("gx", out, x.dtype)
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
        variance: Array,
        out: Array,
        epsilon: float,
        training: bool,
        relu: bool = False,
        work: Array | None = None,
    ) -> None:
        source, y = self._made_dense("x", x), self._output_buffer("y", out, x.dtype)
        rows = _Rows(self, source, scale.dtype, y)
        known = (scale, shift, mean, variance, rows.factors)
        if training:
            rows.sum("moments", (source, *known), (np.float64(epsilon),))
        else:
            run(rows.function("known_moments"), rows.n_channels, known, (rows.channels, np.float64(epsilon)))
        rows.apply("normal", (source, rows.factors, y), relu)
        self._commit(y, out)

    def batch_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        running: Running | None = None,
        y: Array | None = None,
        work: Array | None = None,
    ) -> None:
        source, g = self._made_dense("x", x), self._made_dense("gy", gy)
        output, relu = (g, False) if y is None else (self._made_dense("y", y), True)
        gx = None if out is None else self._output_buffer("gx", out, x.dtype)
        rows = _Rows(self, source, scale.dtype, g, output, *(() if gx is None else (gx,)))
        *statistics, rate = running or (mean, variance, grad_scale, grad_shift, 0.0)
        known = (scale, mean, variance, grad_scale, grad_shift, *statistics, rows.factors)
        end = (np.float64(epsilon), *ints(relu, running is not None), np.float64(rate))
        rows.sum("grads", (source, g, output, *known), end)
        if gx is not None:
            rows.apply("normal_grad", (source, g, output, rows.factors, gx), relu)
            self._commit(gx, out)

    # -- layer and group normalisation -----------------------------------------------------------------------

    def group_norm(
        self, x: Array, scale: Array, shift: Array, mean: Array, variance: Array, out: Array, epsilon: float
    ) -> None:
        source, y = self._made_dense("x", x), self._output_buffer("y", out, x.dtype)
        self._on_groups("group_norm", (source, scale, shift, mean, variance, y), mean, epsilon)
        self._commit(y, out)

    def group_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        accumulate: bool = False,
    ) -> None:
        if _is_rows(x, mean):
            self.layer_norm_grad(
                x,
                gy,
                scale,
                mean,
                variance,
                out=out,
                grad_scale=grad_scale,
                grad_shift=grad_shift,
                epsilon=epsilon,
                accumulate=accumulate,
            )
            return
        source, g = self._made_dense("x", x), self._made_dense("gy", gy)
        if out is not None:
            gx = self._output_buffer("gx", out, x.dtype)
            self._on_groups("group_norm_grad", (source, g, scale, mean, variance, gx), mean, epsilon)
            self._commit(gx, out)
        n_channels = x.shape[1]
        n_rows, tiles = x.size // n_channels, -(-n_channels // WARP)
        most = max(1, min(SUM_PARTS, SUM_BLOCKS // tiles))
        n_parts = min(most, max(1, n_rows // (SUM_THREADS // WARP * SUM_VALUES)))
        memory = (self.scratch("parts", (2, n_parts, n_channels), np.float64), self.counters(tiles))
        sizes = (*self._group_sizes(source, mean), np.int64(n_rows), np.float64(epsilon), np.int32(accumulate))
        add = self.gpu.function("group", "param_grads", Value=x.dtype, Param=scale.dtype)
        add((tiles, n_parts), (SUM_THREADS,), (source, g, mean, variance, grad_scale, grad_shift, *memory, *sizes))

    # layer normalisation is group normalisation with a single group of all channels
    layer_norm = group_norm

    def _on_groups(self, name: str, arrays: Sequence[Array], mean: Array, epsilon: float) -> None:
        """Run a kernel of group.cu with a block for each group; the first array is x."""
        x, params = arrays[0], arrays[-2].dtype
        if not x.size:
            return
        if _is_rows(x, mean):
            function, block, sizes = self._on_rows_of("row_norm", arrays, params, epsilon)
            function((-(-len(x) // block[1]),), block, (*arrays, *sizes))
            return
        function = self.gpu.function("group", name, Value=x.dtype, Param=params)
        sizes = self._group_sizes(x, mean)
        function((mean.size,), (row_threads(x.size // mean.size),), (*arrays, *sizes, np.float64(epsilon)))

    def layer_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        accumulate: bool = False,
        more: Array | None = None,
    ) -> None:
        """Compute all gradients of `layer_norm` in one launch of row_norm.cu.

        If ``out`` is given, the gradient of x, plus ``more``, is written to it.
        """
        source, g = self._made_dense("x", x), self._made_dense("gy", gy)
        gx = None if out is None else self._output_buffer("gx", out, x.dtype)
        arrays = (source, g, g if more is None else self._made_dense("more", more), scale, mean, variance)
        written = (source if gx is None else gx, grad_scale, grad_shift)
        function, block, sizes = self._on_rows_of("row_norm_grad", (*arrays, *written), scale.dtype, epsilon)
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
        variance: Array,
        out: Array,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        accumulate: bool = False,
    ) -> None:
        self.layer_norm_grad(x, gy, scale, mean, variance, out, grad_scale, grad_shift, epsilon, accumulate, more)

    def _on_rows_of(self, name: str, arrays: Sequence[Array], params: Any, epsilon: float) -> tuple[Any, Any, Any]:
        """Return a kernel of row_norm.cu, its block and its numbers.

        A short row is computed by a warp, a longer row by a block.
        """
        n_rows, n_channels = arrays[0].shape
        width = pack_width(n_channels, *(each for each in arrays if each.size >= n_channels))
        n_packs = n_channels // width
        block = (WARP, ROWS_OF_BLOCK) if n_packs <= PACKS_OF_WARP else (row_threads(n_packs), 1)
        packs = 1 << (-(-n_packs // block[0]) - 1).bit_length()
        function = self.gpu.function("row_norm", name, Value=arrays[0].dtype, Param=params, WIDTH=width, PACKS=packs)
        return function, block, (np.int64(n_rows), np.int32(n_packs), np.float64(epsilon))

    def _group_sizes(self, x: Array, mean: Array) -> tuple[Any, ...]:
        """Return the numbers of pixels, channels and groups."""
        (n_rows, n_channels), n_groups = x.shape[:2], 1 if mean.ndim == 1 else mean.shape[1]
        return np.int64(x.size // max(1, n_rows * n_channels)), np.int32(n_channels), np.int32(n_groups)


def _is_rows(x: Array, mean: Array) -> bool:
    """Return whether x consists of rows (N, D) and each row is one group."""
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
        """Sum over all rows, and compute the factors of each channel from the sums."""
        parts = self.ops.scratch("parts", (self.n_parts, 2 * self.n_channels), np.float64)
        memory = (parts, self.ops.counters(self.tiles))
        numbers = (self.rows, self.rows_of_block, self.channels)
        self.function(name)((self.tiles, self.n_parts), self.block, (*arrays, *memory, *numbers, *end))

    def apply(self, name: str, arrays: Sequence[Array], relu: bool) -> None:
        """Compute all values with the factors of their channels."""
        n_packs = self.n_values // self.width
        numbers = (self.count(n_packs), *ints(self.n_channels // self.width, relu))
        run(self.function(name), n_packs, arrays, numbers)
