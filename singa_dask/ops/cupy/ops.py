"""CupyOps: kernels on a GPU, by CuPy.

Kernels are enqueued, and nobody waits for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn

import cupy
import numpy as np
from cupy.cuda import runtime

from singa_dask.arrays import Array as HostArray
from singa_dask.errors import ConfigError, Problem
from singa_dask.ops import philox
from singa_dask.ops.cupy.arrays import THREADS, CupyMemory, Uploaded, blocks, strides_of
from singa_dask.ops.cupy.device import Array, CupyDevice, count_devices, find_device
from singa_dask.ops.cupy.elementwise import CupyUpdates
from singa_dask.ops.cupy.images import CupyConv, CupyImages
from singa_dask.ops.cupy.normalisation import CupyBinary, CupyNormalisation, CupySoftmax
from singa_dask.ops.cupy.weights import StepWeights
from singa_dask.ops.numpy import NumpyOps
from singa_dask.ops.numpy.recurrent import NumpyRecurrent
from singa_dask.ops.types import Key

# CupyRandom: random numbers by address on a GPU. Uniform draws, masks and Bernoulli draws have the bits of the CPU's.
#
# A key goes to the device as data, not as an argument of the kernel, so a captured kernel can be replayed with
# another key.


# Words of a draw: two of one key, two of another or the same key, and the first row.
WORDS = 5
# The most draws of a capture.
MAX_DRAWS = 256


class Draws:
    """The keys of the random numbers of captured kernels, each with memory of its own on the device.

    Parameters
    ----------
    ops : CupyMemory
    """

    def __init__(self, ops: CupyMemory) -> None:
        self._memory = ops.empty((MAX_DRAWS, WORDS), np.uint64)
        self._keys: list[tuple[list[Any], int]] = []

    def add(self, keys: list[Any], first_row: int) -> Array:
        """Return memory for the words of a draw."""
        if len(self._keys) == MAX_DRAWS:
            raise RuntimeError(f"more than {MAX_DRAWS} draws of random numbers")
        self._keys.append((keys, first_row))
        return self._memory[len(self._keys) - 1]

    def put(self, gpu: CupyDevice, key_now: Callable[[Any], Any]) -> None:
        """Write the words of all draws, from ``key_now`` of the keys of the capture."""
        if self._keys:
            words = [_words([key_now(key) for key in keys], first_row) for keys, first_row in self._keys]
            gpu.put(np.stack(words), self._memory[: len(words)])


def _words(keys: list[Any], first_row: int) -> HostArray:
    """Return the words of a draw with one or two keys."""
    return np.array([*philox.words_of(keys[0]), *philox.words_of(keys[-1]), first_row], np.uint64)


class CupyRandom(CupyMemory):
    """Random numbers, a mixin of `CupyOps`. `random_words` is numpy's, as its result is a host array."""

    def __init__(self, gpu: CupyDevice, precision: str = "float32") -> None:
        super().__init__(gpu, precision)
        self.draws: Draws | None = None

    def uniform(self, key: Key, out: Array, low: float = 0.0, high: float = 1.0, first_row: int = 0) -> None:
        self._draw("uniform", [key], first_row, (out,), np.float64(low), np.float64(high - low))

    def dropout_mask(self, key: Key, keep: float, out: Array, first_row: int = 0) -> None:
        self._draw("dropout_mask", [key], first_row, (out,), np.float64(keep))

    def bernoulli(self, key: Key, p: Array, out: Array, first_row: int = 0) -> None:
        self._draw("bernoulli", [key], first_row, (p, out))

    def gaussian(self, key: Key, out: Array, mean: float = 0.0, std: float = 1.0, first_row: int = 0) -> None:
        keys = [(*key, part) for part in ("angle", "radius")]
        self._draw("gaussian", keys, first_row, (out,), np.float64(mean), np.float64(std))

    def _draw(self, kernel: str, keys: list[Any], first_row: int, arrays: tuple[Array, ...], *numbers: Any) -> None:
        """Run a kernel of ``cuda/random.cu``.

        Parameters
        ----------
        keys : list of one or two keys
        arrays : (p, out) or (out,)
            Of the same shape.
        """
        words = self._taken_words(keys, first_row)
        views = [_as_images(x) for x in arrays]
        n_rows, *sizes = views[-1].shape
        n_counts = n_rows * -(-math.prod(sizes) // philox.VALUES_PER_COUNT)
        function = self.gpu.function("random", kernel, T=arrays[-1].dtype, P=arrays[0].dtype)
        shape = (np.int64(size) for size in (n_rows, *sizes))
        steps = (step for view in views for step in strides_of(view))
        function((blocks(n_counts),), (THREADS,), (words, *views, *shape, *steps, *numbers))

    def _taken_words(self, keys: list[Any], first_row: int) -> Array:
        """Return memory with the words of a draw; in a capture, memory that has them at each replay."""
        if self.draws is not None:
            return self.draws.add(keys, first_row)
        words = self.scratch("words", (WORDS,), np.uint64)
        self.gpu.put(_words(keys, first_row), words)
        return words


def _as_images(x: Array) -> Array:
    """Return a view (N, A, B, C) of an array (N, ...) of four axes at most."""
    return x.reshape(x.shape[:1] + (1,) * (4 - x.ndim) + x.shape[1:])


# CupyRecurrent: time steps and rows of tables on a GPU, by ``cuda/recurrent.cu`` and ``cuda/rows.cu``, a launch each.
#
# A step of a recurrent layer is so little work that a launch takes as long, so the arguments of a launch are cached.


# Threads of a block: few, so that a time step has many blocks, and at least a warp.
MAX_THREADS, WARP = 128, 32
# The most rows of a grid.
MAX_ROWS = 65535
# Threads and columns of a block of add_rows.
ADD_THREADS, ADD_COLUMNS = 512, 32


class CupyRecurrent(CupyMemory, NumpyRecurrent):
    """Kernels on time steps and on rows of tables, a mixin of `CupyOps`.

    An index is sorted on the host, by `row_index` ahead of the kernels or by `add_rows`.
    """

    # -- rows of a table -------------------------------------------------------------------------------

    def row_index(self, values: HostArray, n_rows: int, before: HostArray | None = None) -> HostArray:
        index, segments = self.labels(values, before), _segments(values, n_rows)
        memory = before.segments if isinstance(before, Uploaded) else None
        fits = memory is not None and memory.shape == segments.shape
        index.segments = memory if fits else self.empty(segments.shape, np.int32)
        self.gpu.put(segments, index.segments)
        return index

    def take_rows(self, table: Array, index: Array, out: Array) -> None:
        n, d = out.shape
        places = self.integers("index", index)
        take = self._on_rows("take_rows", table, out, places)
        steps = (*strides_of(table), *strides_of(out))
        take(*_grid(n, d), (table, places, out, np.int64(n), np.int64(d), *steps))

    def add_rows(self, gy: Array, index: Array, out: Array, accumulate: bool = False) -> None:
        (v, d), n = out.shape, len(index)
        m = min(n, v)
        order = index.segments if isinstance(index, Uploaded) else None
        if order is None:
            order = self.scratch("segments", (n + 2 * m + 1,), np.int32)
            self.gpu.put(_segments(self.to_host(index), v), order)
        if m < v and not accumulate:
            out[...] = 0
        arrays = (gy, order, order[n:], order[n + m + 1 :], out)
        numbers = (np.int64(m), np.int64(d), *strides_of(gy), *strides_of(out), np.bool_(accumulate))
        grid = (-(-d // ADD_COLUMNS), min(max(1, m), MAX_ROWS))
        self._on_rows("add_rows", gy, out, order)(grid, (ADD_THREADS,), (*arrays, *numbers))

    def one_hot(self, index: Array, out: Array) -> None:
        n, v = out.shape
        places = self.integers("index", index)
        mark = self._on_rows("one_hot", out, out, places)
        mark(*_grid(n, v), (places, out, np.int64(n), np.int64(v), *strides_of(out)))

    def _on_rows(self, name: str, given: Array, out: Array, index: Array) -> Any:
        """Return a kernel of ``rows.cu`` for arrays of these types."""
        return self.gpu.function("rows", name, In=given.dtype, Out=out.dtype, Index=index.dtype)

    # -- time steps --------------------------------------------------------------------------------------

    def gru_step(self, xw: Array, hu: Array, h: Array, out: Array, gates: Array) -> None:
        self._step("gru_step", h.shape, xw, hu, h, out, gates)

    def gru_step_grad(self, gates: Array, h: Array, gy: Array, gh: Array) -> None:
        self._step("gru_step_grad", h.shape, gates, h, gy, gh)

    def lstm_step(self, xw: Array, hu: Array, c: Array, out: Array, out_c: Array, gates: Array) -> None:
        self._step("lstm_step", c.shape, xw, hu, c, out, out_c, gates)

    def lstm_step_grad(self, gates: Array, c: Array, out_c: Array, gy: Array, gh: Array, gc: Array) -> None:
        self._step("lstm_step_grad", c.shape, gates, c, out_c, gy, gh, gc)

    def _step(self, name: str, shape: tuple[int, int], *arrays: Array) -> None:
        """Launch a kernel of ``recurrent.cu`` for arrays in the order of its arguments; their rows must be dense."""
        step = self.gpu.function("recurrent", name, Value=arrays[0].dtype)
        grid, block, numbers = _launch(*shape, arrays[0].itemsize, *(array.strides for array in arrays))
        step(grid, block, (*arrays, *numbers))


def _segments(index: HostArray, v: int) -> HostArray:
    """Return the order in which to add rows, the start of the rows of each place in it and their end, and the places.

    The places are all ``v`` of the table; where these are more than the rows, those of the index, then -1.
    """
    n, m = len(index), min(len(index), v)
    segments = np.empty(n + 2 * m + 1, np.int32)
    order, bounds, places = np.split(segments, [n, n + m + 1])
    # few bits sort several times faster; rows of one place stay in order, so their sum repeats to the bit
    order[...] = np.argsort(index.astype(np.int16) if v <= np.iinfo(np.int16).max else index, kind="stable")
    # negative ones come before all places
    present = np.maximum(index, -1)
    if m == v:
        bounds[...], places[...] = np.cumsum(np.bincount(present + 1, minlength=v + 1)), np.arange(v)
    else:
        present = present[order]
        starts = np.flatnonzero(np.diff(present, prepend=-1))
        bounds[...], places[...] = n, -1
        bounds[: len(starts)], places[: len(starts)] = starts, present[starts]
    return segments


def _grid(n: int, d: int) -> tuple[tuple[int, int], tuple[int]]:
    """Return grid and block for n rows of d values, one a thread; at least one block, also without rows."""
    threads = min(MAX_THREADS, -(-d // WARP) * WARP)
    return (-(-d // threads), min(max(1, n), MAX_ROWS)), (threads,)


@functools.lru_cache(maxsize=1024)
def _launch(n: int, d: int, itemsize: int, *strides: tuple[int, int]) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return grid, block and numbers of a launch for arrays with these strides in bytes."""
    if any(column != itemsize for _, column in strides):
        raise ValueError("the values of a row of a time step must lie side by side")
    return *_grid(n, d), (np.int64(n), np.int32(d), *(np.int64(row // itemsize) for row, _ in strides))


class CupyTransfers:
    """The copies of one worker, as `Transfers` says; the ``synchronize`` of its events waits without taking a core."""

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        # downloads wait for kernels; uploads, e.g. of the next batch, should not wait behind them
        with cupy.cuda.Device(gpu.index):
            self._down = cupy.cuda.Stream(non_blocking=True)

    def mark(self) -> Any:
        return self._record(self._gpu.stream)

    def download(self, x: Array, out: HostArray, after: Any) -> Any:
        self._down.wait_event(after)
        runtime.memcpyAsync(out.ctypes.data, x.data.ptr, x.nbytes, runtime.memcpyDeviceToHost, self._down.ptr)
        return self._record(self._down)

    def upload(self, x: HostArray, out: Array, after: Any) -> None:
        copies = self._gpu.copies
        copies.wait_event(after)
        runtime.memcpyAsync(out.data.ptr, x.ctypes.data, x.nbytes, runtime.memcpyHostToDevice, copies.ptr)
        self._gpu.stream.wait_event(self._record(copies))

    def synchronize(self) -> None:
        self._down.synchronize()
        self._gpu.copies.synchronize()

    def _record(self, stream: Any) -> Any:
        with cupy.cuda.Device(self._gpu.index):
            event = cupy.cuda.Event(block=True, disable_timing=True)
        event.record(stream)
        return event


class CupyGraph:
    """Kernels that were captured as a CUDA graph, as `CapturedKernels` says.

    A launch takes the host some microseconds, in a small net longer than the GPU needs for the kernel.

    Parameters
    ----------
    ops : CupyOps
        The backend whose kernels were captured, and whose scratch memory they use.
    graph : cupy.cuda.Graph
    draws : Draws
        The keys of their random numbers.
    weights : list of StepWeights
        What copies weights before them.
    """

    def __init__(self, ops: CupyOps, graph: Any, draws: Draws, weights: list[StepWeights]) -> None:
        self._ops, self._graph, self._draws, self._weights = ops, graph, draws, weights
        self._n_grown = ops.n_grown

    @property
    def is_valid(self) -> bool:
        return self._n_grown == self._ops.n_grown

    def replay(self, key_now: Callable[[Key], Key]) -> None:
        self._draws.put(self._ops.gpu, key_now)
        self._graph.launch(stream=self._ops.gpu.stream)


# GPUs multiply bfloat16 from this compute capability on.
BFLOAT16_FROM = 80


class CupyOps(
    CupyImages,
    CupyConv,
    CupySoftmax,
    CupyBinary,
    CupyNormalisation,
    CupyRecurrent,
    CupyRandom,
    CupyUpdates,
    NumpyOps,
):
    """Kernels for the memory of a GPU: float32, float64, or bfloat16 with weights in float32.

    An object belongs to one thread. Those of one GPU share its stream: kernels run in the order in which they
    are enqueued. A thread calls kernels inside of `activate`. Records, labels and other integers may be host arrays.

    Parameters
    ----------
    gpu : CupyDevice or int
        One of the GPUs that this process sees.
    precision : str
        "float32", "tf32" (matrix products and convolutions), "bf16" or "float64".

    Raises
    ------
    ConfigError
        There is no such GPU, or it has no bfloat16.
    """

    name = "cupy"
    supports_capture = True

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

    def transfers(self) -> CupyTransfers:
        return CupyTransfers(self.gpu)

    def capture(self, run: Callable[[], None]) -> CupyGraph:
        draws = self.draws = Draws(self)
        try:
            graph, weights = self.step_graph(run)
        finally:
            self.draws = None
        return CupyGraph(self, graph, draws, weights)

    def release(self) -> None:
        with self.gpu.activate():
            cupy.get_default_memory_pool().free_all_blocks()
