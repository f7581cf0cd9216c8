"""CupyConv: convolution on a GPU: by cuDNN where it is installed, else by matrix products over unfolded images.

Both take images that are dense in memory as N, H, W, C, as `features` makes them; others are copied before or after.
Each call copies the weights to the layout F, kh, kw, C and the dtype of the images.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np

from singa_dask.ops.contract import Pair
from singa_dask.ops.cupy.arrays import THREADS, blocks
from singa_dask.ops.cupy.cudnn import (
    ALIGNMENT,
    BIAS,
    FORWARD,
    GRAD_INPUT,
    GRAD_WEIGHT,
    IMAGES,
    OUTPUTS,
    WEIGHTS,
    Cudnn,
    Missing,
    Plan,
)
from singa_dask.ops.cupy.device import Array, CupyDevice
from singa_dask.ops.cupy.linear import CupyLinear
from singa_dask.ops.scratch import channels_last

__all__ = ["CupyConv"]

LOG = logging.getLogger(__name__)


# Bytes of unfolded images that one matrix product takes, at least one image.
COLUMN_BYTES = 1 << 26

ADD_TO = cupy.ElementwiseKernel("T x", "P y", "y = y + (P)x", "add_to")


class CupyConv(CupyLinear):
    """Convolution, a mixin of `CupyOps`.

    Images are float32, float64 or bfloat16; weights, bias and their gradients are float32 where images are bfloat16.
    CuDNN then rounds them to bfloat16, and the gradient of weights too. Results repeat to the bit. Float64 never uses
    cuDNN.
    """

    def __init__(self, gpu: CupyDevice, precision: str) -> None:
        super().__init__(gpu, precision)
        self._cudnn: Cudnn | None = None
        self._looked_for_cudnn = False

    def use_stream(self, stream: Any) -> None:
        """Enqueue what ignores the thread's current stream, i.e. cuDNN's work, on another stream from now on."""
        if self._cudnn is not None:
            self._cudnn.use_stream(stream.ptr)

    def conv2d(self, x: Array, w: Array, b: Array | None, out: Array, stride: Pair, pad: Pair) -> None:
        x, y = self._dense_images("x", x), self._room_for_images("y", out)
        weights = self._ordered_weights(w, x.dtype)
        plan = self._find_plan(FORWARD, x, w, out, stride, pad, b is not None)
        if plan is not None:
            arrays = {IMAGES: x, WEIGHTS: weights, OUTPUTS: y}
            self._run_plan(plan, arrays if b is None else arrays | {BIAS: self._taken_bias(b, x.dtype)})
        else:
            for columns, images in self._unfolded(x, y, w.shape[2:], stride, pad):
                self.linear(columns, rows_of(weights), b, pixels_of(images))
        if y is not out:
            self.copy(y, out)

    def conv2d_grad_input(self, gy: Array, w: Array, out: Array, stride: Pair, pad: Pair) -> None:
        gy, gx = self._dense_images("gy", gy), self._room_for_images("gx", out)
        weights = self._ordered_weights(w, gy.dtype)
        plan = self._find_plan(GRAD_INPUT, out, w, gy, stride, pad)
        if plan is not None:
            self._run_plan(plan, {IMAGES: gx, WEIGHTS: weights, OUTPUTS: gy})
        else:
            for columns, images, g in self._pieces_of_columns(gx, gy, w.shape[2:], wide(gy.dtype)):
                self.gemm(pixels_of(g), rows_of(weights), columns)
                self._move_windows("fold", columns, images, g, w.shape[2:], stride, pad)
        if gx is not out:
            self.copy(gx, out)

    def conv2d_grad_weight(
        self, x: Array, gy: Array, out: Array, bias: Array | None, stride: Pair, pad: Pair, accumulate: bool = False
    ) -> None:
        x, gy = self._dense_images("x", x), self._dense_images("gy", gy)
        plan = self._find_plan(GRAD_WEIGHT, x, out, gy, stride, pad)
        total = self.scratch("conv weights", out.shape, x.dtype if plan is not None else wide(x.dtype))
        if plan is not None:
            self._run_plan(plan, {IMAGES: x, WEIGHTS: total, OUTPUTS: gy})
        else:
            if not len(x):
                total[...] = 0
            for i, (columns, g) in enumerate(self._unfolded(x, gy, out.shape[2:], stride, pad)):
                self.linear_grad_weight(columns, pixels_of(g), rows_of(total), accumulate=i > 0)
        if accumulate:
            ADD_TO(total, out)
        else:
            self.copy(total, out)
        if bias is not None:
            self.linear_grad_bias(pixels_of(gy), bias, accumulate)

    # -- memory ------------------------------------------------------------------------------------------

    def _dense_images(self, name: str, x: Array) -> Array:
        """Return images where kernels can take them: ``x``, or a copy in scratch memory."""
        taken = self._room_for_images(name, x)
        if taken is not x:
            self.copy(x, taken)
        return taken

    def _room_for_images(self, name: str, out: Array) -> Array:
        """Return memory where kernels can put images: ``out``, or scratch memory."""
        if channels_last(out).flags.c_contiguous and out.data.ptr % ALIGNMENT == 0:
            return out
        return self.scratch(f"conv {name}", out.shape, out.dtype)

    def _ordered_weights(self, w: Array, dtype: Any) -> Array:
        """Return weights (F, C, kh, kw) that lie as F, kh, kw, C."""
        ordered = self.scratch("conv weights", w.shape, dtype)
        self.copy(w, ordered)
        return ordered

    def _taken_bias(self, b: Array, dtype: Any) -> Array:
        if b.dtype == dtype and b.flags.c_contiguous and b.data.ptr % ALIGNMENT == 0:
            return b
        taken = self.scratch("conv bias", b.shape, dtype)
        self.copy(b, taken)
        return taken

    # -- cuDNN -------------------------------------------------------------------------------------------

    def _find_plan(
        self, kind: str, x: Array, w: Array, y: Array, stride: Pair, pad: Pair, biased: bool = False
    ) -> Plan | None:
        """Return cuDNN's plan of a convolution from x to y, None where it has none."""
        if not self._looked_for_cudnn:
            self._looked_for_cudnn = True
            self._cudnn = find_cudnn(self.gpu)
        if self._cudnn is None or x.dtype == np.float64 or not x.size:
            return None
        return self._cudnn.plan(kind, x.shape, w.shape, y.shape, stride, pad, x.dtype, biased, self.precision == "tf32")

    def _run_plan(self, plan: Plan, arrays: dict[int, Array]) -> None:
        assert self._cudnn is not None
        workspace = self.scratch("conv workspace", (plan.workspace_bytes,), np.uint8)
        addresses = {number: array.data.ptr for number, array in arrays.items()}
        self._cudnn.run(plan, addresses, workspace.data.ptr)

    # -- matrix products ---------------------------------------------------------------------------------

    def _unfolded(self, x: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair) -> Iterator[tuple[Array, Array]]:
        """Yield (values of the windows (n OH OW, kh kw C), images of y) for pieces of the batch."""
        for columns, images, windows in self._pieces_of_columns(x, y, kernel, x.dtype):
            self._move_windows("unfold", images, columns, windows, kernel, stride, pad)
            yield columns, windows

    def _pieces_of_columns(self, x: Array, y: Array, kernel: Pair, dtype: Any) -> Iterator[tuple[Array, Array, Array]]:
        """Yield (memory for the values of windows, images of x, images of y) for pieces of the batch."""
        n_values = y.shape[2] * y.shape[3] * kernel[0] * kernel[1] * x.shape[1]
        n_images = max(1, COLUMN_BYTES // (n_values * np.dtype(dtype).itemsize))
        for images, windows in self.pieces(x, y, n_values=n_images * x[:1].size):
            columns = self.scratch("conv columns", (len(images) * n_values,), dtype)
            yield columns.reshape(-1, kernel[0] * kernel[1] * x.shape[1]), images, windows

    def _move_windows(
        self, name: str, source: Array, target: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair
    ) -> None:
        """Unfold images into columns, or fold columns into images; the windows are those of the images y."""
        images, columns = (source, target) if name == "unfold" else (target, source)
        run = self.gpu.function("im2col", name, Value=images.dtype, Element=columns.dtype)
        sizes = (*images.shape[1:], *y.shape[2:], *kernel, *stride, *pad)
        run((blocks(target.size),), (THREADS,), (source, target, np.uint32(target.size), *map(np.int32, sizes)))


def find_cudnn(gpu: CupyDevice) -> Cudnn | None:
    """Return cuDNN for this thread, None if it cannot be used; logs which, once."""
    try:
        with gpu.activate():
            found = Cudnn(gpu.stream.ptr)
    except Missing as missing:
        log_once(logging.WARNING, f"{missing} Until then convolutions are cuBLAS's, over unfolded images, and slower.")
        return None
    log_once(logging.INFO, f"ops: cuDNN {found.version}")
    return found


@functools.cache
def log_once(level: int, message: str) -> None:
    """Put a message in the log of this process, once."""
    LOG.log(level, message)


def wide(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of sums of a dtype."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def rows_of(weights: Array) -> Array:
    """Return weights that lie as F, kh, kw, C as a view (F, kh kw C)."""
    return channels_last(weights).reshape(len(weights), -1)


def pixels_of(images: Array) -> Array:
    """Return images that lie as N, H, W, C as a view (N H W, C)."""
    return channels_last(images).reshape(-1, images.shape[1])
