"""Arrays in device memory: what they are, how they are made, and how they are copied from and to the host."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cupy import _errors, _memory, _stream, _world

IMPLICIT = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)


def enqueue(name: str, run: Any, arrays: Any, stream: Any = None, checked: bool = False) -> None:
    """Put work on arrays into a stream, that of this thread by default. `run` may not hold the arrays themselves."""
    arrays = [a for a in arrays if isinstance(a, ndarray)]
    device = _world.current_device()
    for array in arrays:
        if array.data.device_id != device:
            raise ValueError(
                "Array device must be same as the current device: "
                f"array device = {array.data.device_id} while current = {device}"
            )
    queue = (_stream.current(device) if stream is None else stream)._queue
    n_bytes = sum({(a.data.ptr, a.nbytes): a.nbytes for a in arrays}.values())
    queue.put(_world.Op(name, run, (a._block for a in arrays), checked, n_bytes))


class Flags:
    def __init__(self, flags: Any, owndata: bool) -> None:
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.owndata = owndata
        self.fnc = flags.fnc
        self.forc = flags.forc


class ndarray(NDArrayOperatorsMixin):
    """An array in device memory. What touches its values is enqueued; what describes it is there at once."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: _memory.MemoryPointer | None = None,
        strides: Any = None,
        order: Any = "C",
    ) -> None:
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        dtype = np.dtype(dtype)
        if memptr is None:
            memptr = _memory.allocate(math.prod(shape) * dtype.itemsize)
        self.data = memptr
        self._block = memptr.mem._block
        offset = memptr.ptr - self._block.start
        self._host = np.ndarray(shape, dtype, self._block.bytes, offset, strides, order or "C")
        self.base: Any = None

    def _viewed(self, host: Any) -> ndarray:
        """Return the array of a numpy view of this one's memory."""
        new = object.__new__(ndarray)
        new._block = self._block
        new._host = host
        new.base = self if self.base is None else self.base
        offset = host.ctypes.data - self.data.mem.ptr if host.size else 0
        new.data = _memory.MemoryPointer(self.data.mem, offset)
        return new

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    strides = property(lambda self: self._host.strides)
    itemsize = property(lambda self: self._host.itemsize)
    flags = property(lambda self: Flags(self._host.flags, self.base is None))
    T = property(lambda self: self._viewed(self._host.T))

    @property
    def device(self) -> Any:
        return self.data.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = _stream.get_current_stream().ptr
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": stream or 1,
            "version": 3,
            "strides": None if self.flags.c_contiguous else self.strides,
            "data": (self.data.ptr, False),
        }

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(IMPLICIT)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from cupy import _dispatch

        return _dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from cupy import _dispatch

        return _dispatch.function(function, args, kwargs)

    # Views.
    def transpose(self, *axes: Any) -> ndarray:
        return self._viewed(self._host.transpose(*axes))

    def swapaxes(self, one: int, other: int) -> ndarray:
        return self._viewed(self._host.swapaxes(one, other))

    def view(self, dtype: Any = None) -> ndarray:
        return self._viewed(self._host.view() if dtype is None else self._host.view(np.dtype(dtype)))

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        host = self._host.reshape(*shape, order=order)
        if host.size == 0 or np.may_share_memory(host, self._host):
            return self._viewed(host)
        return self.copy(order).reshape(*shape, order=order)

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def __getitem__(self, key: Any) -> ndarray:
        host = self._host[_basic(key)]
        return self._viewed(host if isinstance(host, np.ndarray) else self._host[(*_tupled(key), ...)])

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[(*_tupled(key), ...)] if Ellipsis not in _tupled(key) else self[key]
        if isinstance(value, ndarray):
            host = value._host
            np.broadcast_to(host, target.shape)
        else:
            host = np.array(value)
            if host.size != 1:
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            host = host.reshape(())
        enqueue("copying to an array", _copying(target._host, host), (target, value))

    def __len__(self) -> int:
        return len(self._host)

    def fill(self, value: Any) -> None:
        self[...] = value

    # New arrays.
    def copy(self, order: str = "C") -> ndarray:
        new = like(self, self.dtype, order)
        new[...] = self
        return new

    def astype(self, dtype: Any, order: str = "K", *, copy: bool = True) -> ndarray:
        if not copy and self.dtype == np.dtype(dtype):
            return self
        new = like(self, dtype, order)
        new[...] = self
        return new

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        from cupy import _dispatch

        return _dispatch.sum_of(self, axis, dtype, out, keepdims)

    # From and to the host.
    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        queue = (_stream.get_current_stream() if stream is None else stream)._queue
        source = _host_source(np.asarray(arr, order="C" if self.flags.c_contiguous else "F"), queue)
        enqueue("copying to an array", _copying(self._host, source), (self,), stream)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        if out is None:
            order = order if order in "CF" else "F" if self.flags.f_contiguous and not self.flags.c_contiguous else "C"
            out = np.empty(self.shape, self.dtype, order)
        elif not isinstance(out, np.ndarray):
            raise TypeError("Only numpy.ndarray can be obtained fromcupy.ndarray")
        elif self.dtype != out.dtype:
            raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
        elif self.shape != out.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual shape: {out.shape}")
        stream = _stream.get_current_stream() if stream is None else stream
        pinned = _memory.find_pinned(out.ctypes.data) is not None
        if stream._queue.capture is not None and (blocking or not pinned):
            raise _errors.CUDARuntimeError(_errors.CAPTURE_UNSUPPORTED)
        enqueue("copying to the host", _copying(out, self._host), (self,), stream)
        if blocking or not pinned:
            stream.synchronize()
        return out

    def item(self) -> Any:
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.item())

    def __repr__(self) -> str:
        return repr(self.get())

    __str__ = __repr__


def _tupled(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _basic(key: Any) -> Any:
    for part in _tupled(key):
        if part is not None and part is not Ellipsis and not isinstance(part, (int, np.integer, slice)):
            raise TypeError(f"an index of type {type(part).__name__} is not in the simulator: slices and numbers only")
    return key


def _copying(target: Any, source: Any) -> Any:
    """Return the work of a copy; it holds bytes only, so that arrays can be let go before it runs."""

    def run() -> None:
        with np.errstate(all="ignore"):
            np.copyto(target, source, casting="unsafe")

    return run


def _host_source(arr: Any, queue: Any) -> Any:
    """Return what an enqueued copy from `arr` reads: page-locked memory when it runs, other memory now."""
    if queue.capture is not None or _memory.find_pinned(arr.ctypes.data) is not None:
        return arr
    return arr.copy()


def like(array: ndarray, dtype: Any, order: str = "K", shape: Any = None) -> ndarray:
    """Make an array with the shape of another, and (order K) its order in memory."""
    dtype = array.dtype if dtype is None else np.dtype(dtype)
    if shape is not None:
        return ndarray(shape, dtype, order="C" if order in "KA" else order)
    if order == "A":
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if order != "K":
        return ndarray(array.shape, dtype, order=order)
    strides = np.empty_like(array._host, dtype, "K").strides
    return ndarray(array.shape, dtype, strides=strides)


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def zeros(shape: Any, dtype: Any = float, order: Any = "C") -> ndarray:
    new = ndarray(shape, dtype, order=order)
    new[...] = 0
    return new


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> ndarray:
    """Make a device array of what is on the host, read at once; return a device array as it is."""
    if isinstance(a, ndarray):
        return a if dtype is None or a.dtype == np.dtype(dtype) else a.astype(dtype)
    host = np.array(a, dtype, order=order or "K")
    new = ndarray(host.shape, host.dtype, strides=host.strides)
    enqueue("copying to an array", _copying(new._host, host), (new,))
    if blocking:
        _stream.get_current_stream().synchronize()
    return new


def asnumpy(a: Any, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: bool = True) -> Any:
    if isinstance(a, ndarray):
        return a.get(stream, order, out, blocking)
    return np.asarray(a, order=order)
