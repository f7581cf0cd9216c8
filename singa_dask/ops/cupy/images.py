"""CupyImages: crops and pooling on a GPU, by ``cuda/crop.cu`` and ``cuda/pool.cu``.

Kernels need images that are dense in memory in the order N, H, W, C, as `features` returns them, so that a warp reads
neighbouring channels together. Other images are copied to scratch memory before, or from scratch memory after.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import Array as HostArray
from singa_dask.ops.contract import Pair
from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.elementwise import CupyElementwise
from singa_dask.ops.cupy.launch import THREADS, WARP, divisor, index_type, ints, pack_width, run, strides_of, sum_type
from singa_dask.ops.numpy.images import BYTE_PLACES


class CupyImages(CupyElementwise):
    """Mixin of `CupyOps` with kernels on images.

    Images are float32, float64 or bfloat16. If images are bfloat16, parameters of channels are float32. No kernel uses
    atomic additions. One thread computes each value, in a fixed order, so that repeated calls give the same bits.
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
        """Return a mean or deviation for kernels: (contiguous device array or None, number for None)."""
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

    def place_dtype(self, kernel: Pair) -> np.dtype[Any]:
        return np.dtype(np.uint8 if kernel[0] * kernel[1] <= BYTE_PLACES else np.int32)

    def max_pool(self, x: Array, out: Array, where: Array | None, kernel: Pair, stride: Pair, pad: Pair) -> None:
        source, y = self._made_dense("x", x), self._output_buffer("y", out, x.dtype)
        if where is None:
            self._pool("max_pool", (source, y), y, source, y, (kernel, stride, pad))
        else:
            self._pool("max_pool_places", (source, y, where), y, source, y, (kernel, stride, pad))
        self._commit(y, out)

    def max_pool_grad(self, gy: Array, where: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair) -> None:
        g, gx = self._made_dense("gy", gy), self._output_buffer("gx", out, gy.dtype)
        self._pool("max_pool_grad", (g, where, gx), gx, gx, g, (kernel, stride, pad))
        self._commit(gx, out)

    def max_pool_grad_ties(
        self, x: Array, y: Array, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair
    ) -> None:
        source, largest, g = (self._made_dense(name, values) for name, values in (("x", x), ("y", y), ("gy", gy)))
        gx = self._output_buffer("gx", out, gy.dtype)
        self._pool("max_pool_grad_ties", (source, largest, g, gx), gx, gx, g, (kernel, stride, pad))
        self._commit(gx, out)

    def avg_pool(self, x: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        source, y = self._made_dense("x", x), self._output_buffer("y", out, x.dtype)
        self._pool("avg_pool", (source, y), y, source, y, (kernel, stride, pad), np.bool_(count_pad))
        self._commit(y, out)

    def avg_pool_grad(self, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        self._avg_pool_grad(None, gy, out, (kernel, stride, pad), count_pad)

    def avg_pool_relu_grad(
        self, y: Array, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool
    ) -> None:
        self._avg_pool_grad(y, gy, out, (kernel, stride, pad), count_pad)

    def _avg_pool_grad(self, y: Array | None, gy: Array, out: Array, how: Any, count_pad: bool) -> None:
        g, gx = self._made_dense("gy", gy), self._output_buffer("gx", out, gy.dtype)
        relu = gx if y is None else self._made_dense("y", y)
        self._pool("avg_pool_grad", (g, relu, gx), gx, gx, g, how, np.bool_(count_pad), np.bool_(y is not None))
        self._commit(gx, out)

    def global_avg_pool(self, x: Array, out: Array) -> None:
        n_rows, n_channels, *sizes = x.shape
        mean = self.gpu.function("sums", "pixel_means", X=x.dtype, Y=out.dtype)
        arrays = (self._made_dense("x", x), out, *strides_of(out))
        if x.size:
            mean((-(-n_channels // WARP), n_rows), (THREADS,), (*arrays, np.int64(math.prod(sizes)), *ints(n_channels)))

    def global_avg_pool_grad(self, gy: Array, out: Array) -> None:
        self.multiply(gy[:, :, None, None], 1 / max(1, math.prod(out.shape[2:])), out=out)

    def _pool(
        self, name: str, arrays: Sequence[Array], written: Array, large: Array, small: Array, how: Any, *more: Any
    ) -> None:
        """Run a kernel of pool.cu.

        Parameters
        ----------
        name : str
        arrays : images, dense
            Arrays in the order of the kernel's arguments.
        written, large, small : of these arrays
            ``written`` is the array that the kernel writes, with a thread for each pack of values. ``large`` are the
            images before pooling, ``small`` the images after pooling.
        how : (kernel, stride, pad)
        *more : numbers
            The last arguments of the kernel.
        """
        channels = written.shape[1]
        width, count = pack_width(channels, *arrays), index_type(max(large.size, small.size))
        places = next((array.dtype for array in arrays if array.dtype.kind in "ui"), np.dtype(np.uint8))
        types = {"Value": written.dtype, "Place": places, "Index": count, "WIDTH": width}
        windows = ints(channels // width, *large.shape[2:], *small.shape[2:], *(n for pair in how for n in pair))
        n_packs, (n_lines, n_pixels) = written.size // width, written.shape[2:]
        divisors = (divisor(channels // width), divisor(n_pixels), divisor(n_lines))
        run(self.gpu.function("pool", name, **types), n_packs, arrays, (count.type(n_packs), *windows, *divisors), more)
