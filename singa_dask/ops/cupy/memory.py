"""CupyMemory: the memory of a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import cupy
import numpy as np
from cupy.cuda import runtime

from singa_dask.arrays import Array as HostArray
from singa_dask.arrays import DType
from singa_dask.ops.cupy.device import SMALL_BYTES, Array, CupyDevice, event, has_no_gaps, is_dense, laid_out_like
from singa_dask.ops.cupy.launch import THREADS, blocks, flattened
from singa_dask.ops.cupy.value_kernel import CAST, casts, in_memory_order
from singa_dask.ops.numpy.memory import NumpyMemory, in_layout


class _AsyncScalar:
    """A scalar (1,) float64 that is copied from the device to the host while the device computes."""

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        self._memory = gpu.pinned((1,), np.float64)
        self._event = event(gpu.index)
        self._under_way = False
        self._value: float | None = None

    def newest(self, scalar: Array) -> float | None:
        """Return the newest value that has reached the host, or None; start to copy the current value."""
        if self._under_way and self._event.done:
            self._value, self._under_way = float(self._memory[0]), False
        if not self._under_way:
            stream, target = self._gpu.stream, self._memory.ctypes.data
            runtime.memcpyAsync(target, scalar.data.ptr, scalar.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
            self._event.record(stream)
            self._under_way = True
        return self._value


Ops = TypeVar("Ops", bound="CupyMemory")


class Uploaded(np.ndarray[Any, Any]):
    """Integers in host memory, e.g. labels, with a copy on a device. A slice has no copy.

    Attributes
    ----------
    device : cupy.ndarray of int64, or None
        The copy on the device.
    segments : cupy.ndarray of int32, or None
        The order in which `CupyRecurrent.add_rows` adds rows, if `CupyRecurrent.row_index` made this object.
    """

    device: Array = None
    segments: Array = None


class CupyMemory(NumpyMemory):
    """Base of the mixins of `CupyOps`: allocates arrays on a GPU, and copies to and from it.

    Attributes
    ----------
    gpu : CupyDevice
    precision : str
        The precision of the job.
    """

    prefers_large_kernels = True

    def __init__(self, gpu: CupyDevice, precision: str = "float32") -> None:
        super().__init__()
        self.gpu, self.precision = gpu, precision
        self.device = gpu.name
        # address of a scalar -> its asynchronous copy. The dict stays small, because new scalars reuse the memory of
        # old ones
        self._async_scalars: dict[int, _AsyncScalar] = {}

    def activate(self) -> AbstractContextManager[None]:
        return self.gpu.activate()

    def for_thread(self: Ops) -> Ops:
        return type(self)(self.gpu, self.precision)

    def synchronize(self) -> None:
        self.gpu.synchronize()

    # -- arrays ------------------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        with self.gpu.activate():
            return cupy.empty(tuple(shape), dtype)

    def recycled(self, size: int, dtype: DType) -> Array:
        return self.empty((size,), dtype)

    def zeros(self, shape: Sequence[int], dtype: DType) -> Array:
        with self.gpu.activate():
            return cupy.zeros(tuple(shape), dtype)

    def pinned(self, shape: Sequence[int], dtype: DType) -> HostArray:
        return self.gpu.pinned(shape, dtype)

    def features(self, shape: Sequence[int], dtype: DType) -> Array:
        return in_layout(self.zeros((math.prod(shape),), dtype), shape)

    def scratch(self, name: str, shape: Sequence[int], dtype: DType) -> Array:
        dtype = np.dtype(dtype)
        n_bytes = math.prod(shape) * dtype.itemsize
        if name not in self._scratch or self._scratch[name].size < n_bytes:
            self.gpu.forbid_capture("scratch memory grows")
            self.n_grown += 1
            # allocate at least one byte, because memory without an address has no views
            self._scratch[name] = self.empty((max(1, n_bytes),), np.uint8)
        return in_layout(self._scratch[name][:n_bytes].view(dtype), shape)

    def counters(self, n: int) -> Array:
        """Return n counters (uint32), all zero, for kernels that find out which of their blocks ends last.

        The kernel resets the counters to zero.
        """
        n_grown = self.n_grown
        zeros = self.scratch("counters", (n,), np.uint32)
        if self.n_grown > n_grown:
            zeros[...] = 0
        return zeros

    def copy(self, x: Array, out: Array) -> None:
        if isinstance(out, np.ndarray):
            np.copyto(out, self.to_host(x), casting="unsafe")
        elif not isinstance(x, np.ndarray):
            if casts(x, out):
                CAST(x, out)
            else:
                source, target = in_memory_order(x, out)
                target[...] = source
        elif out.nbytes <= SMALL_BYTES:
            self.gpu.put(x, out)
        else:
            with self.gpu.upload(x) as there:
                self.copy(there, out=out)

    def from_host(self, x: HostArray) -> Array:
        if isinstance(x, Uploaded) and x.device is not None:
            return x.device
        copy = laid_out_like(x, self.empty((x.size,), x.dtype))
        self.copy(x, out=copy)
        return copy

    def to_host(self, x: Array) -> HostArray:
        return self.gpu.download(x) if isinstance(x, cupy.ndarray) else np.asarray(x)

    def address(self, x: Array | HostArray | None) -> int:
        there = x.device if isinstance(x, Uploaded) else x
        return there.data.ptr if isinstance(there, cupy.ndarray) else 0

    def constant(self, values: Array | float) -> Array | float:
        return self.from_host(values) if isinstance(values, np.ndarray) and values.ndim else values

    def labels(self, values: HostArray, before: HostArray | None = None) -> Uploaded:
        labels = values.view(Uploaded)
        there = before.device if isinstance(before, Uploaded) and before.shape == values.shape else None
        labels.device = self.empty(values.shape, np.int64) if there is None else there
        self.gpu.put(values, labels.device)
        return labels

    # -- scalars -----------------------------------------------------------------------------------------

    def finite(self, x: Array) -> bool:
        return not float(self.to_host(self.sum_of("unusual", x))[0])

    def accumulate(self, value: Array | float, total: Array | float) -> Array | float:
        if not isinstance(total, cupy.ndarray):
            begun = self.zeros((1,), np.float64)
            begun += total
            total = begun
        total += value
        return total

    def reset(self, total: Array | float) -> Array | float:
        if not isinstance(total, cupy.ndarray):
            return 0.0
        total[...] = 0
        return total

    def poll(self, total: Array | float) -> float | None:
        if not isinstance(total, cupy.ndarray):
            return float(total)
        address = total.data.ptr
        if address not in self._async_scalars:
            self._async_scalars[address] = _AsyncScalar(self.gpu)
        return self._async_scalars[address].newest(total)

    def sum_of(self, term: str, x: Array) -> Array:
        """Return the sum of an expression over all values, computed by a kernel of ``cuda/sums.cu``.

        The result is (1,) float64 in scratch memory.
        """
        values = self.flat("summed", x)
        n = min(blocks(values.size), THREADS)
        sums, result = (self.scratch(name, (size,), np.float64) for name, size in (("sums", n), ("scalar", 1)))
        add = self.gpu.function("sums", term, X=x.dtype, Y=sums.dtype)
        add((n,), (THREADS,), (values, sums, np.int64(values.size)))
        self.total(sums, result)
        return result

    def total(self, values: Array, out: Array) -> None:
        """Write the sum of ``values`` (n,) to ``out`` (1,); both are float64."""
        add = self.gpu.function("sums", "total", X=values.dtype, Y=out.dtype)
        add((1,), (THREADS,), (values, out, np.int32(values.size)))

    # -- arguments of kernels ----------------------------------------------------------------------------

    def flat(self, name: str, x: Array) -> Array:
        """Return all values as a contiguous array (n,): a view, or a copy in the scratch memory ``name``."""
        if not has_no_gaps(x):
            copy = self.scratch(name, x.shape, x.dtype)
            self.copy(x, out=copy)
            x = copy
        return flattened(x)

    def _made_dense(self, name: str, x: Array) -> Array:
        """Return x without gaps, as kernels require: x itself, or a copy in scratch memory."""
        if is_dense(x):
            return x
        copied = self.scratch(f"dense {name}", x.shape, x.dtype)
        self.copy(x, out=copied)
        return copied

    def _output_buffer(self, name: str, out: Array, dtype: DType) -> Array:
        """Return the array that kernels write: ``out``, or scratch memory that `_commit` copies to ``out``."""
        return out if out.dtype == dtype and is_dense(out) else self.scratch(f"dense {name}", out.shape, dtype)

    def _commit(self, buffer: Array, out: Array) -> None:
        if buffer is not out:
            self.copy(buffer, out=out)

    def integers(self, name: str, values: Array) -> Array:
        """Return integers of the host as an int64 array on the device without gaps; upload them if necessary."""
        if isinstance(values, cupy.ndarray):
            return values
        if isinstance(values, Uploaded) and values.device is not None:
            return values.device
        out = self.scratch(name, (values.size,), np.int64).reshape(values.shape)
        self.gpu.put(values, out)
        return out
