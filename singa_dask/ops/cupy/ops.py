"""CupyOps: kernels on a GPU, by CuPy.

Kernels are enqueued, and nobody waits for them. Elementwise ones are written here, each a single kernel.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import cupy
import numpy as np

from singa_dask.errors import ConfigError, Problem
from singa_dask.ops.cupy.arrays import THREADS, WARP, blocks, in_memory_order, strides_of
from singa_dask.ops.cupy.capture import CupyCapture
from singa_dask.ops.cupy.device import Array, CupyDevice, count_devices, find_device
from singa_dask.ops.cupy.images import CupyImages
from singa_dask.ops.cupy.recurrent import CupyRecurrent
from singa_dask.ops.cupy.transfers import Transfers
from singa_dask.ops.cupy.updates import CupyUpdates
from singa_dask.ops.numpy.elementwise import STANH_X, STANH_Y
from singa_dask.ops.numpy.ops import NumpyOps

__all__ = ["CupyOps"]

# Threads of a block that has a row, at most.
ROW_THREADS = 512
# Rows that one block makes the loss of.
LOSS_ROWS = 2048
# From this compute capability on there are products of bfloat16.
BFLOAT16_FROM = 80

# Kernels compute in what `wide` says of the type that they write: float, or double for doubles.
WIDE = """
template <typename V> struct wide { typedef float type; };
template <> struct wide<double> { typedef double type; };
"""


def _kernel(name: str, given: str, step: str) -> Any:
    """Return a kernel that computes ``z`` of type Z, value by value, in type W."""
    return cupy.ElementwiseKernel(given, "Z z", f"typedef wide<Z>::type W; {step}", name, preamble=WIDE)


ADD = _kernel("add", "X x, Y y", "z = (Z)((W)x + (W)y);")
SUBTRACT = _kernel("subtract", "X x, Y y", "z = (Z)((W)x - (W)y);")
MULTIPLY = _kernel("multiply", "X x, Y y", "z = (Z)((W)x * (W)y);")
SCALE = _kernel("scale", "X x, float64 y", "z = (Z)((W)x * (W)y);")
# what is not a number stays one
RELU = _kernel("relu", "X x", "z = (Z)((W)x <= 0 ? (W)0 : (W)x);")
RELU_GRAD = _kernel("relu_grad", "X y, Y gy", "z = (Z)((W)y > 0 ? (W)gy : (W)0);")
LEAKY_RELU = _kernel("leaky_relu", "X x, float64 slope", "z = (Z)((W)x <= 0 ? (W)slope * (W)x : (W)x);")
LEAKY_RELU_GRAD = _kernel(
    "leaky_relu_grad", "X y, Y gy, float64 slope", "z = (Z)((W)y > 0 ? (W)gy : (W)slope * (W)gy);"
)
SIGMOID = _kernel("sigmoid", "X x", "z = (Z)((W)1 / ((W)1 + exp(-(W)x)));")
SIGMOID_GRAD = _kernel("sigmoid_grad", "X y, Y gy", "const W v = (W)y; z = (Z)((W)gy * v * ((W)1 - v));")
TANH = _kernel("tanh_of", "X x", "z = (Z)tanh((W)x);")
TANH_GRAD = _kernel("tanh_grad", "X y, Y gy", "const W v = (W)y; z = (Z)((W)gy * ((W)1 - v * v));")
STANH = _kernel("stanh", "X x", f"z = (Z)((W){STANH_Y} * tanh((W){STANH_X} * (W)x));")
STANH_GRAD = _kernel(
    "stanh_grad",
    "X y, Y gy",
    f"const W v = (W)y; z = (Z)((W)gy * ((W){STANH_X * STANH_Y} - (W){STANH_X / STANH_Y} * v * v));",
)


@functools.cache
def normalizer(mean: str, std: str) -> Any:
    """Return the kernel of `normalize` for a mean and a standard deviation, each "array", "number" or "none"."""
    given, step = "X x", "W v = (W)x;"
    for kind, name, letter, apply in ((mean, "mean", "M", "v -= (W)mean;"), (std, "std", "S", "v /= (W)std;")):
        if kind != "none":
            given += f", {letter if kind == 'array' else 'float64'} {name}"
            step += apply
    return _kernel(f"normalize_{mean}_{std}", given, f"{step} z = (Z)v;")


class CupyOps(CupyImages, CupyRecurrent, CupyUpdates, CupyCapture, NumpyOps):
    """Kernels for the memory of a GPU: float32, float64, or bfloat16 with weights in float32.

    An object belongs to one thread. Those of one GPU share its stream: kernels run in the order in which they
    are enqueued. A thread calls kernels inside of `activate`. Records, labels and other integers may be host arrays.

    Parameters
    ----------
    gpu : CupyDevice or int
        Which of the GPUs that this process sees.
    precision : str
        "float32", "tf32" (matrix products and convolutions), "bf16" or "float64".

    Raises
    ------
    ConfigError
        There is no such GPU, or it has no bfloat16.
    """

    name = "cupy"

    def __init__(self, gpu: CupyDevice | int = 0, precision: str = "float32") -> None:
        super().__init__(find_device(gpu) if isinstance(gpu, int) else gpu, precision)
        capability = int(self.gpu.capability)
        if precision == "bf16" and capability < BFLOAT16_FROM:
            message = f"bf16 needs a GPU of compute capability 8.0 or later; {self.device} has {capability / 10}."
            raise ConfigError(Problem(("precision",), f"{message} Say float32."))

    def __reduce__(self) -> NoReturn:
        raise TypeError("CupyOps: kernels do not travel, as they hold memory of this process. Call get_ops there.")

    @staticmethod
    def count() -> int:
        return count_devices()

    def transfers(self) -> Transfers:
        return Transfers(self.gpu)

    def release(self) -> None:
        with self.gpu.activate():
            cupy.get_default_memory_pool().free_all_blocks()

    # -- element by element ------------------------------------------------------------------------

    def add(self, x: Array, y: Array, out: Array) -> None:
        ADD(*in_memory_order(x, y, out))

    def subtract(self, x: Array, y: Array, out: Array) -> None:
        SUBTRACT(*in_memory_order(x, y, out))

    def multiply(self, x: Array, y: Array | float, out: Array) -> None:
        if isinstance(y, cupy.ndarray):
            MULTIPLY(*in_memory_order(x, y, out))
        else:
            x, out = in_memory_order(x, out)
            SCALE(x, float(y), out)

    def sum_squares(self, x: Array) -> Array:
        return self.sum_of("squares", x)

    def normalize(self, x: Array, mean: Array | float | None, std: Array | float | None, out: Array) -> None:
        if isinstance(x, np.ndarray):
            with self.gpu.upload(x) as there:
                self.normalize(there, mean, std, out)
            return
        by = [self._broadcast(name, values) for name, values in (("mean", mean), ("std", std))]
        kinds = ("none" if b is None else "number" if isinstance(b, float) else "array" for b in by)
        given = [x, *(b for b in by if b is not None), out]
        normalizer(*kinds)(*in_memory_order(*given))

    def _broadcast(self, name: str, values: Any) -> Any:
        """Return what broadcasts against records, a device array, a number, or None."""
        if values is None or isinstance(values, cupy.ndarray):
            return values
        if not np.ndim(values):
            return float(values)
        there = self.scratch(name, (values.size,), values.dtype).reshape(values.shape)
        self.copy(values, there)
        return there

    # -- activations -----------------------------------------------------------------------------------

    def relu(self, x: Array, out: Array, negative_slope: float = 0.0) -> None:
        x, out = in_memory_order(x, out)
        if negative_slope:
            LEAKY_RELU(x, negative_slope, out)
        else:
            RELU(x, out)

    def relu_grad(self, y: Array, gy: Array, out: Array, negative_slope: float = 0.0) -> None:
        y, gy, out = in_memory_order(y, gy, out)
        if negative_slope:
            LEAKY_RELU_GRAD(y, gy, negative_slope, out)
        else:
            RELU_GRAD(y, gy, out)

    def sigmoid(self, x: Array, out: Array) -> None:
        SIGMOID(*in_memory_order(x, out))

    def sigmoid_grad(self, y: Array, gy: Array, out: Array) -> None:
        SIGMOID_GRAD(*in_memory_order(y, gy, out))

    def tanh(self, x: Array, out: Array) -> None:
        TANH(*in_memory_order(x, out))

    def tanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        TANH_GRAD(*in_memory_order(y, gy, out))

    def stanh(self, x: Array, out: Array) -> None:
        STANH(*in_memory_order(x, out))

    def stanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        STANH_GRAD(*in_memory_order(y, gy, out))

    # -- softmax and what is counted from it -------------------------------------------------------------

    def softmax(self, x: Array, out: Array) -> None:
        self._by_row("softmax", (x, out), (), np.int32(x.shape[1]))

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        self._by_row("softmax_grad", (y, gy, out), (), np.int32(y.shape[1]))

    def cross_entropy(self, p: Array, labels: Array) -> Array:
        out = self.scratch("scalar", (1,), np.float64)
        # a batch is one block's; of very many rows each block makes a part
        n_blocks = 1 if len(p) <= LOSS_ROWS else min(blocks(len(p)), THREADS)
        parts = out if n_blocks == 1 else self.scratch("losses", (n_blocks,), np.float64)
        least = np.finfo(np.float64 if p.dtype == np.float64 else np.float32).tiny
        function = self.gpu.function("softmax", "cross_entropy", X=p.dtype, Y="float", Z="float")
        labels = self.integers("labels", labels)
        sizes = (np.int32(p.shape[0]), np.int32(p.shape[1]), np.float64(least))
        threads = _threads(len(p)) if n_blocks == 1 else THREADS
        function((n_blocks,), (threads,), (p, *strides_of(p), labels, parts, *sizes))
        if n_blocks > 1:
            self.total(parts, out)
        return out

    def cross_entropy_grad(self, p: Array, labels: Array, scale: float, out: Array) -> None:
        labels = self.integers("labels", labels)
        self._by_row("cross_entropy_grad", (p, labels, out), (1,), np.int32(p.shape[1]), np.float64(scale / len(p)))

    def top(self, scores: Array, k: int, out: Array) -> None:
        self._by_row("top", (scores, out), (), np.int32(scores.shape[1]), np.int32(k))

    def count_in_top(self, scores: Array, labels: Array, k: int) -> Array:
        hits, out = (self.scratch(name, (n,), np.float64) for name, n in (("hits", len(scores)), ("scalar", 1)))
        labels = self.integers("labels", labels)
        self._by_row("hits", (scores, labels, hits), (1, 2), np.int32(scores.shape[1]), np.int32(k))
        self.total(hits, out)
        return out

    def _by_row(self, kernel: str, arrays: tuple[Array, ...], plain: tuple[int, ...], *numbers: Any) -> None:
        """Run a kernel of ``cuda/softmax.cu`` with a block for each row of the first array.

        Parameters
        ----------
        plain : tuple of int
            Which arrays are dense, and given without strides.
        """
        n_rows, n_columns = arrays[0].shape
        if not n_rows:
            return
        kinds = [x.dtype for i, x in enumerate(arrays) if i not in plain]
        types = dict(zip("XYZ", (*kinds, *kinds[-1:] * 2), strict=False))
        given = (part for i, x in enumerate(arrays) for part in ((x,) if i in plain else (x, *strides_of(x))))
        self.gpu.function("softmax", kernel, **types)((n_rows,), (_threads(n_columns),), (*given, *numbers))


def _threads(n: int) -> int:
    """Return how many threads a block has for n values: whole warps."""
    return min(ROW_THREADS, max(1, -(-n // WARP)) * WARP)
