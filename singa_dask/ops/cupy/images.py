"""CupyImages: kernels on images on a GPU, but convolution: crops, pooling, normalisation. Sources are in `cuda`.

Kernels take images that lie dense in memory as N, H, W, C, as `features` makes them, so that a warp reads neighbouring
channels at once. What lies otherwise is copied to scratch memory first, or from it at the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.ops.contract import Array as HostArray
from singa_dask.ops.contract import DType, Pair
from singa_dask.ops.cupy.arrays import THREADS, CupyMemory, blocks, strides_of
from singa_dask.ops.cupy.device import Array
from singa_dask.ops.numpy.images import BYTE_PLACES
from singa_dask.ops.scratch import channels_last

__all__ = ["CupyImages"]


# Bytes that a thread reads or writes at once.
PACK_BYTES = 16
# Values up to which kernels count in int: threads step beyond the last one.
INT_VALUES = 1 << 30
# For the sums of channels: threads of a block, as norm.cu has it, channels of a block, values of a thread at least,
# blocks in all, and blocks that one channel is spread over: as many as keep any device busy, few enough to add up fast.
SUM_THREADS, SUM_CHANNELS, SUM_VALUES, SUM_BLOCKS, SUM_PARTS = 512, 32, 4, 512, 256


class CupyImages(CupyMemory):
    """Kernels on images, a mixin of `CupyOps`.

    Images are float32, float64 or bfloat16; parameters of channels are float32 where images are bfloat16. No kernel
    adds by atomics: one thread computes each value, in one order, so results repeat to the bit.
    """

    # -- records -------------------------------------------------------------------------------------------

    def crop_mirror_normalize(
        self,
        x: Array,
        top: HostArray,
        left: HostArray,
        mirrored: HostArray,
        mean: Array | float | None,
        std: Array | float | None,
        scale: float,
        out: Array,
    ) -> None:
        y, wide = self._output_buffer("y", out, out.dtype), sum_type(out.dtype)
        places = self.scratch("crops", (3, len(x)), np.int32)
        self.gpu.put(np.stack((top, left, mirrored)), places)
        means, one_mean = self._of_pixels("mean", mean, 0, wide)
        stds, one_std = self._of_pixels("std", std, 1, wide)
        with self.gpu.upload(x) if isinstance(x, np.ndarray) else contextlib.nullcontext(x) as records:
            types = {"Record": records.dtype, "Value": out.dtype, "Index": index_type(out.size)}
            run(
                self.gpu.function("crop", "crop_mirror_normalize", **types),
                out.size,
                (records, places, places if means is None else means, places if stds is None else stds, y),
                (index_type(out.size).type(out.size), *ints(*x.shape, *out.shape[2:]), *strides_of(records)),
                (np.bool_(means is not None), np.bool_(stds is not None), one_mean, one_std, wide(scale)),
            )
        self._commit(y, out)

    def _of_pixels(self, name: str, values: Any, nothing: float, wide: Any) -> tuple[Array, Any]:
        """Return a mean or deviation as kernels take it: (device array as in C or None, number where there is none)."""
        if values is None or np.ndim(values) == 0:
            return None, wide(nothing if values is None else values)
        if isinstance(values, np.ndarray) or not values.flags.c_contiguous or values.dtype != wide:
            held = self.scratch(name, (values.size,), wide).reshape(values.shape)
            if isinstance(values, np.ndarray):
                self.gpu.put(values.astype(wide), held)
            else:
                self.copy(values, out=held)
            values = held
        return values, wide(nothing)

    # -- pooling -------------------------------------------------------------------------------------------

    def max_pool_memory(self, shape: Sequence[int], kernel: Pair) -> Array:
        return self.features(shape, np.uint8 if kernel[0] * kernel[1] <= BYTE_PLACES else np.int32)

    def max_pool(self, x: Array, out: Array, where: Array | None, kernel: Pair, stride: Pair, pad: Pair) -> None:
        source, y = self._dense("x", x), self._output_buffer("y", out, x.dtype)
        if where is None:
            self._pool("max_pool", (source, y), y, source, y, (kernel, stride, pad))
        else:
            self._pool("max_pool_places", (source, y, where), y, source, y, (kernel, stride, pad))
        self._commit(y, out)

    def max_pool_grad(self, gy: Array, where: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair) -> None:
        g, gx = self._dense("gy", gy), self._output_buffer("gx", out, gy.dtype)
        self._pool("max_pool_grad", (g, where, gx), gx, gx, g, (kernel, stride, pad))
        self._commit(gx, out)

    def max_pool_grad_ties(
        self, x: Array, y: Array, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair
    ) -> None:
        source, largest, g = (self._dense(name, values) for name, values in (("x", x), ("y", y), ("gy", gy)))
        gx = self._output_buffer("gx", out, gy.dtype)
        self._pool("max_pool_grad_ties", (source, largest, g, gx), gx, gx, g, (kernel, stride, pad))
        self._commit(gx, out)

    def avg_pool(self, x: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        source, y = self._dense("x", x), self._output_buffer("y", out, x.dtype)
        self._pool("avg_pool", (source, y), y, source, y, (kernel, stride, pad), np.bool_(count_pad))
        self._commit(y, out)

    def avg_pool_grad(self, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        g, gx = self._dense("gy", gy), self._output_buffer("gx", out, gy.dtype)
        self._pool("avg_pool_grad", (g, gx), gx, gx, g, (kernel, stride, pad), np.bool_(count_pad))
        self._commit(gx, out)

    def _pool(
        self, name: str, arrays: Sequence[Array], made: Array, large: Array, small: Array, how: Any, *more: Any
    ) -> None:
        """Run a kernel of pool.cu.

        Parameters
        ----------
        name : str
        arrays : images, dense
            As the kernel takes them.
        made, large, small : of these arrays
            The one that it writes, with a thread for each of its packs; images before pooling; images after it.
        how : (kernel, stride, pad)
        *more : numbers
            That the kernel takes last.
        """
        channels = made.shape[1]
        width, count = pack_width(channels, *arrays), index_type(max(large.size, small.size))
        places = next((array.dtype for array in arrays if array.dtype.kind in "ui"), np.dtype(np.uint8))
        types = {"Value": made.dtype, "Place": places, "Index": count, "WIDTH": width}
        windows = ints(channels // width, *large.shape[2:], *small.shape[2:], *(n for pair in how for n in pair))
        n_packs = made.size // width
        run(self.gpu.function("pool", name, **types), n_packs, arrays, (count.type(n_packs), *windows), more)

    # -- normalisation over channels -------------------------------------------------------------------------

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
        windows = (*ints(channels, min(size // 2, channels - 1)), wide(alpha / size), wide(beta), wide(knorm))
        function = self.gpu.function("lrn", name, Value=x.dtype, Index=count)
        run(function, x.size, arrays, (count.type(x.size), *windows))

    # -- normalisation over the batch ------------------------------------------------------------------------

    def batch_norm(
        self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float, training: bool
    ) -> None:
        source, y = self._dense("x", x), self._output_buffer("y", out, x.dtype)
        work = _Rows(self, source, scale.dtype, y)
        known, end = (scale, shift, mean, var, work.factors), (work.channels, np.float64(eps))
        if training:
            parts = work.sums("moment_parts", source)
            work.combine("moments", (*parts, source, *known), (work.rows, *end))
        else:
            run(work.function("known_moments"), work.n_channels, known, end)
        work.apply("normal", (source, work.factors, y))
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
    ) -> None:
        source, g = self._dense("x", x), self._dense("gy", gy)
        gx = None if out is None else self._output_buffer("gx", out, x.dtype)
        work = _Rows(self, source, scale.dtype, g, *(() if gx is None else (gx,)))
        parts = work.sums("grad_parts", source, g, mean)
        known = (scale, mean, var, grad_scale, grad_shift, work.factors)
        work.combine("grads", (*parts, *known), (work.rows, work.channels, np.float64(eps)))
        if gx is not None:
            work.apply("normal_grad", (source, g, work.factors, gx))
            self._commit(gx, out)

    # -- memory ------------------------------------------------------------------------------------------------

    def _dense(self, name: str, x: Array) -> Array:
        """Return x as kernels take it: itself, or a copy in scratch memory."""
        if is_dense(x):
            return x
        copied = self.scratch(f"dense {name}", x.shape, x.dtype)
        self.copy(x, out=copied)
        return copied

    def _output_buffer(self, name: str, out: Array, dtype: DType) -> Array:
        """Return where kernels write ``out``: itself, or scratch memory that `_commit` copies to it."""
        return out if out.dtype == dtype and is_dense(out) else self.scratch(f"dense {name}", out.shape, dtype)

    def _commit(self, made: Array, out: Array) -> None:
        if made is not out:
            self.copy(made, out=out)


class _Rows:
    """The kernels of norm.cu for rows of channels: their types and grids, and memory for sums and factors."""

    def __init__(self, ops: CupyImages, x: Array, params: Any, *more: Array) -> None:
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

    def sums(self, name: str, *arrays: Array) -> tuple[Array, np.int32]:
        """Sum stretches of rows; returns (sums, number of stretches)."""
        parts = self.ops.scratch("parts", (self.n_parts, 2 * self.n_channels), np.float64)
        numbers = (self.rows, self.rows_of_block, self.channels)
        self.function(name)((self.tiles, self.n_parts), self.block, (*arrays, parts, *numbers))
        return parts, np.int32(self.n_parts)

    def combine(self, name: str, arrays: Sequence[Any], numbers: Sequence[Any]) -> None:
        """Add up the stretches of each channel."""
        self.function(name)((self.tiles,), self.block, (*arrays, *numbers))

    def apply(self, name: str, arrays: Sequence[Array]) -> None:
        """Go through all values with the factors of their channels."""
        n_packs = self.n_values // self.width
        numbers = (self.count(n_packs), np.int32(self.n_channels // self.width))
        run(self.function(name), n_packs, arrays, numbers)


def run(function: Any, n: int, *arguments: Sequence[Any]) -> None:
    """Run a kernel that goes through n values, a thread each."""
    function((blocks(n),), (THREADS,), tuple(value for some in arguments for value in some))


def ints(*values: int) -> tuple[np.int32, ...]:
    """Return numbers as kernels take them."""
    return tuple(np.int32(value) for value in values)


def is_dense(x: Array) -> bool:
    """Tell whether images lie in memory as N, H, W, C without gaps, and rows as N, C."""
    return bool((channels_last(x) if x.ndim == 4 else x).flags.c_contiguous)


def sum_type(dtype: DType) -> Any:
    """Return the type that kernels compute in for values of a type, `wide` of types.cuh."""
    return np.float64 if dtype == np.float64 else np.float32


def index_type(n_values: int) -> np.dtype[Any]:
    """Return the type that kernels count values in; int where it is enough, as it takes half the work."""
    return np.dtype(np.int32 if n_values <= INT_VALUES else np.int64)


def pack_width(channels: int, *arrays: Array) -> int:
    """Return how many neighbouring channels a thread takes at once: what PACK_BYTES of each array can hold."""
    for width in (8, 4, 2):
        if channels % width == 0 and all(
            width * x.itemsize <= PACK_BYTES and x.data.ptr % (width * x.itemsize) == 0 for x in arrays
        ):
            return width
    return 1
