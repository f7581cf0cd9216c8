"""Matrix products by cuBLAS, also during a capture, where CuPy's own calls refuse them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.libs import cublas

__all__ = ["gemm_ex", "gemm_strided_batched_ex", "workspace"]

# The workspace of captured products, as large as cuBLAS advises, from this compute capability on and before; without it
# each would allocate in the graph. Graphs of a device run one after the other, so they share it.
LARGE_FROM, LARGE_BYTES, SMALL_BYTES = 90, 1 << 25, 1 << 22

_int, _long, _address = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
TYPES = {
    "cublasSetStream_v2": (_address, _address),
    "cublasSetWorkspace_v2": (_address, _address, ctypes.c_size_t),
    "cublasGemmEx": (
        *(_address, _int, _int, _int, _int, _int, _address),
        *(_address, _int, _int, _address, _int, _int, _address),
        *(_address, _int, _int, _int, _int),
    ),
    "cublasGemmStridedBatchedEx": (
        *(_address, _int, _int, _int, _int, _int, _address),
        *(_address, _int, _int, _long, _address, _int, _int, _long, _address),
        *(_address, _int, _int, _long, _int, _int, _int),
    ),
}


def gemm_ex(handle: int, *arguments: int) -> None:
    """Enqueue a product on the current stream; the arguments are those of CuPy's ``gemmEx``."""
    _enqueue(cublas.gemmEx, "cublasGemmEx", handle, arguments)


def gemm_strided_batched_ex(handle: int, *arguments: int) -> None:
    """Enqueue products on the current stream; the arguments are those of CuPy's ``gemmStridedBatchedEx``."""
    _enqueue(cublas.gemmStridedBatchedEx, "cublasGemmStridedBatchedEx", handle, arguments)


def _enqueue(cupys: Callable[..., None], name: str, handle: int, arguments: Sequence[int]) -> None:
    """Call a function of cuBLAS, by CuPy unless the current stream is captured."""
    stream = cupy.cuda.get_current_stream()
    if not stream.is_capturing():
        cupys(handle, *arguments)
        return
    room = workspace(stream.device_id)
    call("cublasSetStream_v2", handle, stream.ptr)
    call("cublasSetWorkspace_v2", handle, room.data.ptr, room.nbytes)
    # CuPy restores its stream at its next call, and with it its workspace
    call(name, handle, *arguments)


@functools.cache
def workspace(index: int) -> Any:
    """Return memory of a device for captured products, for the life of the process; first called outside a capture."""
    with cupy.cuda.Device(index) as device:
        return cupy.empty(LARGE_BYTES if int(device.compute_capability) >= LARGE_FROM else SMALL_BYTES, np.uint8)


@functools.cache
def function(name: str) -> Any:
    """Return a function of the library that CuPy calls."""
    # through CuPy's module, which is linked to it: several versions may be installed
    found = getattr(ctypes.CDLL(cublas.__file__), name)
    found.argtypes = TYPES[name]
    return found


def call(name: str, *arguments: int) -> None:
    """Call a function of cuBLAS.

    Raises
    ------
    CUBLASError
        It failed.
    """
    status = function(name)(*arguments)
    if status:
        raise cublas.CUBLASError(status)
