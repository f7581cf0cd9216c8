"""CupyMemory: the memory of a GPU, and the arguments of its kernels: integers of the host, strides, grids."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import cupy
import numpy as np
from cupy.cuda import runtime

from singa_dask.arrays import Array as HostArray
from singa_dask.arrays import DType
from singa_dask.ops.cupy.device import SMALL_BYTES, Array, CupyDevice, dense, event, in_memory, laid_out_like
from singa_dask.ops.numpy.memory import NumpyMemory, channels_last, in_layout
from singa_dask.ops.onednn.library import BFLOAT16

# Bytes that a thread reads or writes at once.
PACK_BYTES = 16
# Kernels count packs in int.
MAX_PACKS = (1 << 31) - 1

# Kernels compute in `wide` of the type that they write: float, or double for doubles.
WIDE = """
template <typename V> struct wide { typedef float type; };
template <> struct wide<double> { typedef double type; };
"""
PACK = """
template <typename V, int N> struct alignas(sizeof(V) * N) pack { V at[N]; };
"""


class ValueKernel:
    """A kernel that computes ``z`` from values of broadcast arrays and from numbers.

    Call it with what it reads, then with the array ``out`` that it writes, which may be one of those that it reads.

    Parameters
    ----------
    name : str
    given : str
        What it reads: ``"X x, Y y, float64 slope"``. A type of one letter is that of an array.
    step : str
        C++ that assigns ``z`` of type Z; it computes in type W.
    """

    def __init__(self, name: str, given: str, step: str) -> None:
        self.name, self.step = name, f"typedef wide<Z>::type W; {step}"
        self.params = [param.split() for param in given.split(",")]
        self.single = cupy.ElementwiseKernel(given, "Z z", self.step, name, preamble=WIDE)
        self.packed = functools.cache(self._packed)

    def __call__(self, *arguments: Any, **named: Any) -> None:
        if named:
            names = [*(name for _, name in self.params), "out"][len(arguments) :]
            if named.keys() != {*names}:
                raise TypeError(f"{self.name}: expected {', '.join(names)}, got {', '.join(named)}")
            arguments = (*arguments, *(named[name] for name in names))
        *inputs, out = arguments = in_memory_order(*arguments)
        arrays = [x for x in arguments if isinstance(x, cupy.ndarray)]
        width = PACK_BYTES // max(x.itemsize for x in arrays)
        if not out.size or not all(_in_packs(x, out, width) for x in arrays):
            self.single(*arguments)
            return
        rows = [0 if x.size == out.size else x.size // width for x in arrays[:-1]]
        flat = (x.reshape(-1) if isinstance(x, cupy.ndarray) else x for x in inputs)
        kernel = self.packed(width, tuple(row > 0 for row in rows))
        kernel(*flat, *filter(None, rows), out.size, out.reshape(-1), size=-(-out.size // width))

    def _packed(self, width: int, repeated: tuple[bool, ...]) -> Any:
        """Return the kernel that takes ``width`` values a thread.

        Parameters
        ----------
        width : int
        repeated : tuple of bool
            For each array that it reads, whether its values repeat along those of z.
        """
        arrays = [param for param in self.params if len(param[0]) == 1]
        inputs = [f"raw {kind} all_{name}" if len(kind) == 1 else f"{kind} {name}" for kind, name in self.params]
        of_packs, of_values, loads = [], [], []
        for (kind, name), repeats in zip(arrays, repeated, strict=True):
            place = f"(unsigned int)i % (unsigned int)row_{name}" if repeats else "i"
            inputs += [f"int32 row_{name}"] * repeats
            loads.append(
                f"const pack<{kind}, {width}> pack_{name} ="
                f" reinterpret_cast<const pack<{kind}, {width}>*>(&all_{name}[(ptrdiff_t)0])[{place}];"
            )
            of_packs.append(f"pack_{name}.at[k]")
            of_values.append(f"all_{name}[{'(ptrdiff_t)0' if repeats else 'k'}]")
        takes = "".join(f"const {kind} {name}, " for kind, name in arrays)
        # arrays that repeat have whole packs, and so has z then
        operation = f"""
        auto one = [&]({takes}Z &z) {{ {self.step} }};
        if ((i + 1) * {width} <= count) {{
            {" ".join(loads)}
            pack<Z, {width}> made;
            #pragma unroll
            for (int k = 0; k < {width}; ++k) one({", ".join([*of_packs, "made.at[k]"])});
            reinterpret_cast<pack<Z, {width}>*>(&all_z[(ptrdiff_t)0])[i] = made;
        }} else {{
            #pragma unroll 1
            for (ptrdiff_t k = i * {width}; k < count; ++k) one({", ".join([*of_values, "all_z[k]"])});
        }}
        """
        return cupy.ElementwiseKernel(
            ", ".join([*inputs, "int64 count"]), "raw Z all_z", operation, self.name, preamble=WIDE + PACK
        )


def _in_packs(x: Array, out: Array, width: int) -> bool:
    """Tell whether packs of x are those of ``out``, or repeat along them; ``out`` itself has to be contiguous."""
    if not x.flags.c_contiguous or x.data.ptr % (width * x.itemsize) or out.size > MAX_PACKS * width:
        return False
    if x.shape == out.shape:
        return True
    inner = x.shape[next((axis for axis, size in enumerate(x.shape) if size != 1), x.ndim) :]
    return bool(x.size % width == 0 and inner == out.shape[out.ndim - len(inner) :])


CAST = ValueKernel("cast", "X x", "z = (Z)x;")
FLOATS = {np.dtype(np.float32), np.dtype(np.float64), BFLOAT16}


def casts(x: Array, out: Array) -> bool:
    """Tell whether `CAST` copies one array to another; CuPy does where it need not cast, and of integers."""
    return x.dtype != out.dtype and {x.dtype, out.dtype} <= FLOATS


def in_memory_order(*arrays: Any) -> tuple[Any, ...]:
    """Return views for an elementwise kernel, with axes in the order in which the last array lies in memory.

    So dense arrays are contiguous. Arrays with fewer axes are broadcast; numbers stay as they are.
    """
    last = arrays[-1]
    if last.flags.c_contiguous:
        return arrays
    axes = in_memory(last)
    if axes == tuple(range(last.ndim)):
        return arrays
    return tuple(_with_axes(x, last.ndim).transpose(axes) if hasattr(x, "ndim") else x for x in arrays)


def _with_axes(x: Array, n: int) -> Array:
    return x if x.ndim == n else x.reshape((1,) * (n - x.ndim) + x.shape)


class _AsyncScalar:
    """The newest value of a scalar (1,) float64 that has reached the host, and page-locked memory for the next."""

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        self._memory = gpu.pinned((1,), np.float64)
        self._event = event(gpu.index)
        self._under_way = False
        self._value: float | None = None

    def newest(self, scalar: Array) -> float | None:
        """Return the newest value on the host, None before the first; asks for the current one."""
        if self._under_way and self._event.done:
            self._value, self._under_way = float(self._memory[0]), False
        if not self._under_way:
            stream, target = self._gpu.stream, self._memory.ctypes.data
            runtime.memcpyAsync(target, scalar.data.ptr, scalar.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
            self._event.record(stream)
            self._under_way = True
        return self._value


Ops = TypeVar("Ops", bound="CupyMemory")

# Threads of a block of an elementwise kernel.
THREADS = 256
WARP = 32
# More blocks than any device runs at once; with more values each thread takes several.
MAX_BLOCKS = 1 << 14


class Uploaded(np.ndarray[Any, Any]):
    """Integers in host memory, e.g. labels, with a copy on a device; their slices have none.

    Attributes
    ----------
    device : cupy.ndarray of int64, or None
        The copy.
    segments : cupy.ndarray of int32, or None
        Of `CupyRecurrent.row_index`: the order in which `CupyRecurrent.add_rows` adds rows.
    """

    device: Array = None
    segments: Array = None


class CupyMemory(NumpyMemory):
    """Memory of a GPU, a base of the mixins of `CupyOps`.

    Attributes
    ----------
    gpu : CupyDevice
    precision : str
        As a job has it.
    """

    prefers_large_kernels = True

    def __init__(self, gpu: CupyDevice, precision: str = "float32") -> None:
        super().__init__()
        self.gpu, self.precision = gpu, precision
        self.device = gpu.name
        # by the address of the scalar; these are few, as a new scalar may take the memory of an old one
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
            # at least one byte: memory without an address has no views
            self._scratch[name] = self.empty((max(1, n_bytes),), np.uint8)
        return in_layout(self._scratch[name][:n_bytes].view(dtype), shape)

    def counters(self, n: int) -> Array:
        """Return n zeros (uint32) for kernels that find their last block by counting, and leave zeros."""
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
                self.copy(there, out)

    def from_host(self, x: HostArray) -> Array:
        if isinstance(x, Uploaded) and x.device is not None:
            return x.device
        copy = laid_out_like(x, self.empty((x.size,), x.dtype))
        self.copy(x, copy)
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
        """Return the sum over all values of a term, a kernel of ``cuda/sums.cu``; (1,) float64 in scratch memory."""
        values = self.flat("summed", x)
        n = min(blocks(values.size), THREADS)
        sums, result = (self.scratch(name, (size,), np.float64) for name, size in (("sums", n), ("scalar", 1)))
        add = self.gpu.function("sums", term, X=x.dtype, Y=sums.dtype)
        add((n,), (THREADS,), (values, sums, np.int64(values.size)))
        self.total(sums, result)
        return result

    def total(self, values: Array, out: Array) -> None:
        """``out`` (1,) = sum of ``values`` (n,), both float64."""
        add = self.gpu.function("sums", "total", X=values.dtype, Y=out.dtype)
        add((1,), (THREADS,), (values, out, np.int32(values.size)))

    # -- arguments of kernels ----------------------------------------------------------------------------

    def flat(self, name: str, x: Array) -> Array:
        """Return all values as contiguous memory (n,): a view, or a copy in scratch memory of this name."""
        if not dense(x):
            copy = self.scratch(name, x.shape, x.dtype)
            self.copy(x, copy)
            x = copy
        return flattened(x)

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

    def _commit(self, buffer: Array, out: Array) -> None:
        if buffer is not out:
            self.copy(buffer, out=out)

    def integers(self, name: str, values: Array) -> Array:
        """Return integers of the host as a dense device array of int64, in scratch memory unless they are there.

        Parameters
        ----------
        name : str
            Of the scratch memory.
        values : integers, ndarray, `Uploaded` or cupy.ndarray of int64
        """
        if isinstance(values, cupy.ndarray):
            return values
        if isinstance(values, Uploaded) and values.device is not None:
            return values.device
        out = self.scratch(name, (values.size,), np.int64).reshape(values.shape)
        self.gpu.put(values, out)
        return out


def is_dense(x: Array) -> bool:
    """Tell whether images lie in memory as N, H, W, C without gaps, and rows as N, C."""
    return bool((channels_last(x) if x.ndim == 4 else x).flags.c_contiguous)


def strides_of(x: Array) -> tuple[np.int64, ...]:
    """Return the strides of an array in values, ready as arguments of a kernel."""
    return tuple(np.int64(step // x.itemsize) for step in x.strides)


def flattened(x: Array) -> Array:
    """Return the view (n,) of a dense array, in the order of its memory."""
    return x.transpose(in_memory(x)).reshape(-1)


def blocks(n: int, threads: int = THREADS) -> int:
    """Return the number of blocks for n values, one a thread, or several with very many values."""
    return max(1, min(-(-n // threads), MAX_BLOCKS))


# Kernels count up to so many values in int; threads step beyond the last one.
INT_VALUES = 1 << 30


def run(function: Any, n: int, *arguments: Sequence[Any]) -> None:
    """Launch a kernel with a thread for each of n values."""
    function((blocks(n),), (THREADS,), tuple(value for some in arguments for value in some))


def ints(*values: int) -> tuple[np.int32, ...]:
    """Return numbers as kernels take them."""
    return tuple(np.int32(value) for value in values)


def sum_type(dtype: DType) -> Any:
    """Return the dtype that kernels compute in for values of a dtype, `wide` of types.cuh."""
    return np.float64 if dtype == np.float64 else np.float32


def index_type(n_values: int) -> np.dtype[Any]:
    """Return the dtype that kernels count values in: int32 if that is enough, as it takes half the work."""
    return np.dtype(np.int32 if n_values <= INT_VALUES else np.int64)


def divisor(d: int) -> np.uint64:
    """Return what `quotient` of types.cuh divides by d with: a factor, and how far to shift the product."""
    d = max(1, d)
    shift = 31 + (d - 1).bit_length()
    return np.uint64(-(-(1 << shift) // d) << 8 | shift)


def pack_width(channels: int, *arrays: Array) -> int:
    """Return how many neighbouring channels a thread takes at once, at most PACK_BYTES of each array."""
    for width in (8, 4, 2):
        if channels % width == 0 and all(
            width * x.itemsize <= PACK_BYTES and x.data.ptr % (width * x.itemsize) == 0 for x in arrays
        ):
            return width
    return 1


# The most threads of a block, which has a row.
ROW_THREADS = 512


def row_threads(n: int) -> int:
    """Return how many threads a block has for n values: whole warps."""
    return min(ROW_THREADS, max(1, -(-n // WARP)) * WARP)
