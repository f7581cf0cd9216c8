"""CupyRecurrent: time steps and rows of tables on a GPU; each kernel is one launch.

The kernels are in ``cuda/recurrent.cu`` and ``cuda/rows.cu``.

The arguments of launches are cached, because a launch can take as long as the step of a recurrent layer.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from singa_dask.arrays import Array as HostArray
from singa_dask.ops.cupy.device import Array
from singa_dask.ops.cupy.launch import strides_of
from singa_dask.ops.cupy.memory import CupyMemory, Uploaded
from singa_dask.ops.numpy.recurrent import NumpyRecurrent

# MAX_THREADS is the maximum number of threads per block; a small number gives a time step many blocks. A block has at
# least one warp.
MAX_THREADS, WARP = 128, 32
# Maximum rows of a grid.
MAX_ROWS = 65535
# Threads and columns per block of add_rows.
ADD_THREADS, ADD_COLUMNS = 512, 32


class CupyRecurrent(CupyMemory, NumpyRecurrent):
    """Mixin of `CupyOps` with kernels on time steps and on rows of tables.

    The host sorts an index of rows in `row_index`, before the kernels run. `add_rows` sorts an index that is not from
    `row_index`.
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
        """Launch a kernel of ``recurrent.cu``; the arrays are in the order of its arguments, their rows dense."""
        step = self.gpu.function("recurrent", name, Value=arrays[0].dtype)
        grid, block, numbers = _launch(*shape, arrays[0].itemsize, *(array.strides for array in arrays))
        step(grid, block, (*arrays, *numbers))


def _segments(index: HostArray, v: int) -> HostArray:
    """Return an order of rows that groups equal indices, and the bounds and the index of each group.

    There is a group for each of the ``v`` rows of the table. If there are fewer rows to add than that, there are only
    groups for the indices that occur, and the remaining places have -1.
    """
    n, m = len(index), min(len(index), v)
    segments = np.empty(n + 2 * m + 1, np.int32)
    order, bounds, places = np.split(segments, [n, n + m + 1])
    # 16-bit integers sort several times faster. The stable sort keeps the rows of each table row in order, so that each
    # run computes the same sum.
    order[...] = np.argsort(index.astype(np.int16) if v <= np.iinfo(np.int16).max else index, kind="stable")
    # negative indices sort before all rows of the table
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
    """Return grid and block for n rows of d values, a thread for each value; one block for no rows."""
    threads = min(MAX_THREADS, -(-d // WARP) * WARP)
    return (-(-d // threads), min(max(1, n), MAX_ROWS)), (threads,)


@functools.lru_cache(maxsize=1024)
def _launch(n: int, d: int, itemsize: int, *strides: tuple[int, int]) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return grid, block and numbers of a launch for arrays with these strides in bytes."""
    if any(column != itemsize for _, column in strides):
        raise ValueError("the values of a row of a time step must lie side by side")
    return *_grid(n, d), (np.int64(n), np.int32(d), *(np.int64(row // itemsize) for row, _ in strides))
