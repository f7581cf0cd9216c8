"""CupyDevice: one GPU of this process, with its streams, compiled kernels, and copies to and from it.

All threads of a process share the GPU. Kernels run in the order in which the threads enqueue them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import cupy
import numpy as np
from cupy.cuda import runtime

from singa_dask.arrays import Array as HostArray
from singa_dask.arrays import DType
from singa_dask.errors import ConfigError, DeviceMemoryError
from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.numpy.memory import channels_last

# An array in GPU memory. CuPy has no type hints, so mypy treats this type as Any.
Array: TypeAlias = cupy.ndarray

SOURCES = Path(__file__).parent / "cuda"
# File that is prepended to each source, with types that CUDA C++ lacks.
TYPES = "types.cuh"
STANDARD = "-std=c++17"
C_NAMES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    BFLOAT16: "bfloat16",
    np.dtype(np.uint8): "unsigned char",
    np.dtype(np.int32): "int",
    np.dtype(np.int64): "long long",
    np.dtype(np.uint64): "unsigned long long",
    np.dtype(np.bool_): "bool",
}

# Number of batches in flight: one is being copied, one is in use, one is waiting.
BATCHES = 3
# Number of small copies in flight before the host waits for the oldest one, and their maximum size.
SMALL_SLOTS = 512
SMALL_BYTES = 1 << 16


class CupyDevice:
    """A GPU. Each GPU has one object in a process, which `find_device` returns.

    Attributes
    ----------
    index : int
        CUDA's number of the GPU in this process.
    name : str
        ``"cuda:<index>"``.
    card : str
        Model of the GPU.
    capability : str
        Compute capability of the GPU, e.g. ``"90"``.
    stream : cupy.cuda.Stream
        Stream for the kernels of all threads.
    copies : cupy.cuda.Stream
        Stream for copies that run in parallel with kernels.
    """

    def __init__(self, index: int) -> None:
        self.index, self.name = index, f"cuda:{index}"
        self.card: str = runtime.getDeviceProperties(index)["name"].decode()
        self.capability: str = cupy.cuda.Device(index).compute_capability
        with cupy.cuda.Device(index):
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.copies = cupy.cuda.Stream(non_blocking=True)
        self._functions: dict[tuple[Any, ...], Any] = {}
        self._modules: dict[tuple[Any, ...], Any] = {}
        self._batches = deque(_Batch(index) for _ in range(BATCHES))
        self._small: deque[_Small] = deque()
        self._n_small = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Make the device and its stream current for this thread, once for all its calls of kernels.

        Raises
        ------
        DeviceMemoryError
            The memory of the GPU is exhausted.
        """
        with cupy.cuda.Device(self.index) as device, self.stream:
            try:
                yield
            except cupy.cuda.memory.OutOfMemoryError as error:
                free, total = (round(n_bytes / 2**20) for n_bytes in device.mem_info)
                raise DeviceMemoryError(f"{self.name}: {error} {free:,} of {total:,} MiB are free.") from error

    def synchronize(self) -> None:
        """Wait for all kernels and copies."""
        self.copies.synchronize()
        self.stream.synchronize()

    def forbid_capture(self, what: str) -> None:
        """Raise `RuntimeError` if this thread captures kernels, because a replay runs nothing on the host."""
        if cupy.cuda.get_current_stream().is_capturing():
            raise RuntimeError(f"{self.name}: {what} while kernels are captured")

    # -- kernels -----------------------------------------------------------------------------------------

    def function(self, file: str, name: str, **types: Any) -> Any:
        """Return a kernel of ``ops/cupy/cuda/<file>.cu``, compiled once for these types.

        ``types`` define names in the source: ``T=x.dtype``, ``T="float"`` or a number.

        Returns
        -------
        callable
            A function ``f(grid, block, args, shared_mem=0)``. ``args`` are device arrays, or numpy scalars of the exact
            type.
        """
        key = (file, name, *types.items())
        try:
            return self._functions[key]
        except KeyError:
            pass
        if (of := (file, *types.items())) not in self._modules:
            self._modules[of] = cupy.RawModule(code=source(file, **types), options=(STANDARD,))
        kernel = self._functions[key] = self._modules[of].get_function(name)
        return kernel

    def compile(self, code: str, name: str) -> Any:
        """Return a kernel of a source text, compiled once."""
        key = (code, name)
        if key not in self._functions:
            self._functions[key] = cupy.RawModule(code=code, options=(STANDARD,)).get_function(name)
        return self._functions[key]

    # -- host memory and copies --------------------------------------------------------------------------

    def pinned(self, shape: Sequence[int], dtype: DType) -> HostArray:
        """Return zeros in page-locked host memory."""
        # set the device, because a thread without a current device would initialise the first GPU
        with cupy.cuda.Device(self.index):
            memory = pinned_bytes(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        memory[...] = 0
        shaped: HostArray = memory.view(dtype).reshape(shape)
        return shaped

    @contextlib.contextmanager
    def upload(self, values: HostArray) -> Iterator[Array]:
        """Copy a batch to the device, in parallel with kernels, for kernels that are called in the context.

        Parameters
        ----------
        values : ndarray
            Values with any strides. They may be overwritten within the context.

        Yields
        ------
        cupy.ndarray
            A copy with the same shape, dtype and order of axes in memory. It is valid only within the context.
        """
        self.forbid_capture("a batch is copied")
        try:
            batch = self._batches.popleft()
        except IndexError:
            # other threads or outer contexts use all batches
            batch = _Batch(self.index)
        try:
            yield batch.fill(self, values)
        finally:
            batch.used.record(self.stream)
            self._batches.append(batch)

    def put(self, values: HostArray, out: Array) -> None:
        """Copy small host values to a device array of the same shape and dtype, in order with kernels."""
        self.forbid_capture("something is copied to it")
        if out.nbytes > SMALL_BYTES or not has_no_gaps(out):
            with self.upload(values) as copy:
                out[...] = copy
            return
        with self._lock:
            slot = self._free_slot()
            staged = laid_out_like(out, slot.memory[: out.nbytes].view(out.dtype))
            np.copyto(staged, values, casting="unsafe")
            runtime.memcpyAsync(
                out.data.ptr, slot.memory.ctypes.data, out.nbytes, runtime.memcpyHostToDevice, self.stream.ptr
            )
            slot.read.record(self.stream)
            self._small.append(slot)

    def _free_slot(self) -> _Small:
        """Return memory for a small copy: free memory, new memory, or the memory of the oldest copy."""
        if self._small and (self._n_small == SMALL_SLOTS or self._small[0].read.done):
            slot = self._small.popleft()
            slot.read.synchronize()
            return slot
        self._n_small += 1
        return _Small(self.index)

    def download(self, x: Array) -> HostArray:
        """Return a copy of a device array in host memory with the same order of axes.

        Waits for earlier kernels.
        """
        self.forbid_capture("something is read from it")
        if not has_no_gaps(x):
            with self.activate():
                x = x.copy()
        copy: HostArray = laid_out_like(x, np.empty(x.size, x.dtype))
        if x.nbytes:
            runtime.memcpyAsync(copy.ctypes.data, x.data.ptr, x.nbytes, runtime.memcpyDeviceToHost, self.stream.ptr)
        self.stream.synchronize()
        return copy


class _Batch:
    """Page-locked and device memory for a batch, each with an event after which it can be rewritten."""

    def __init__(self, index: int) -> None:
        self.staged = np.empty(0, np.uint8)
        self.device: Array = None
        self.copied, self.used = event(index), event(index)

    def fill(self, gpu: CupyDevice, values: HostArray) -> Array:
        """Enqueue a copy of values that later kernels wait for, and return it."""
        self.copied.synchronize()
        if self.device is None or len(self.staged) < values.nbytes:
            self.staged = pinned_bytes(values.nbytes)
            with gpu.activate():
                self.device = cupy.empty(max(1, values.nbytes), np.uint8)
            # wait for kernels that may still read the earlier contents of this memory
            self.used.record(gpu.stream)
        staged = laid_out_like(values, self.staged[: values.nbytes].view(values.dtype))
        np.copyto(staged, values)
        gpu.copies.wait_event(self.used)
        if values.nbytes:
            runtime.memcpyAsync(
                self.device.data.ptr,
                self.staged.ctypes.data,
                values.nbytes,
                runtime.memcpyHostToDevice,
                gpu.copies.ptr,
            )
        self.copied.record(gpu.copies)
        gpu.stream.wait_event(self.copied)
        return laid_out_like(values, self.device[: values.nbytes].view(values.dtype))


class _Small:
    """Page-locked memory for a small copy, and an event that occurs when the copy has been made."""

    def __init__(self, index: int) -> None:
        self.memory = pinned_bytes(SMALL_BYTES)
        self.read = event(index)


def event(index: int) -> Any:
    """Return an event for the streams of a device."""
    with cupy.cuda.Device(index):
        return cupy.cuda.Event(disable_timing=True)


def elapsed(stream: Any, run: Callable[[], None]) -> float:
    """Return the seconds that the device takes for the work that ``run`` enqueues on a stream.

    Waits for this work.
    """
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record(stream)
    run()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3


_DEVICES: dict[int, CupyDevice] = {}
_DEVICES_LOCK = threading.Lock()


def find_device(index: int) -> CupyDevice:
    """Return the object of a GPU. Each process has a single object per GPU.

    Raises
    ------
    ConfigError
        There is no driver, or no GPU with this number.
    """
    with _DEVICES_LOCK:
        if index not in _DEVICES:
            check_device(index)
            _DEVICES[index] = CupyDevice(index)
        return _DEVICES[index]


def count_devices() -> int:
    """Return how many GPUs this process sees, 0 without a driver."""
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return 0


def check_device(index: int) -> None:
    """Raise `ConfigError` if there is no such GPU."""
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise ConfigError(
            f"cuda:{index}: no GPU can be used here: {error}. Install NVIDIA's driver, or set ops: auto without gpu."
        ) from error
    if not 0 <= index < count:
        several = f"there are {count} GPUs here, cuda:0 to cuda:{count - 1}"
        known = {0: "no GPU is seen here", 1: "there is one GPU here, cuda:0"}.get(count, several)
        raise ConfigError(f"cuda:{index}: {known}. CUDA_VISIBLE_DEVICES limits which GPUs a process sees.")


def source(file: str, **types: Any) -> str:
    """Return the source of ``ops/cupy/cuda/<file>.cu`` with its types; see `CupyDevice.function`."""
    # do not use compiler options, because they would also change names in the compiler's headers
    words = [
        f"#define {name} {int(of)}\n"
        if isinstance(of, int)
        else f"typedef {of if isinstance(of, str) else c_name(of)} {name};\n"
        for name, of in types.items()
    ]
    return "".join([(SOURCES / TYPES).read_text(), *words, (SOURCES / f"{file}.cu").read_text()])


def c_name(dtype: DType) -> str:
    """Return the name of a dtype in ``ops/cupy/cuda``."""
    return C_NAMES[np.dtype(dtype)]


def pinned_bytes(size: int) -> HostArray:
    """Return page-locked host memory."""
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(max(1, size)), np.uint8, size)


def in_memory(x: Array) -> tuple[int, ...]:
    """Return the axes of an array from the largest stride to the smallest."""
    return _in_memory(x.shape, x.strides)


@functools.lru_cache(1024)
def _in_memory(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    # ignore the stride of an axis of length 1, which is arbitrary
    steps = [abs(step) if size > 1 else 0 for size, step in zip(shape, strides, strict=True)]
    return tuple(sorted(range(len(shape)), key=lambda axis: -steps[axis]))


def has_no_gaps(x: Array) -> bool:
    """Return whether an array has no gaps in memory, whatever the order of its axes."""
    return bool(x.flags.c_contiguous or x.transpose(in_memory(x)).flags.c_contiguous)


def is_dense(x: Array) -> bool:
    """Return whether the memory order of images is N, H, W, C, or of rows N, C, without gaps."""
    return bool((channels_last(x) if x.ndim == 4 else x).flags.c_contiguous)


def laid_out_like(x: Array, flat: Array) -> Array:
    """Return flat memory as a view with the shape of ``x`` and its order of axes in memory."""
    axes = in_memory(x)
    inverse = tuple(sorted(range(x.ndim), key=axes.__getitem__))
    return flat.reshape(tuple(x.shape[axis] for axis in axes)).transpose(inverse)
