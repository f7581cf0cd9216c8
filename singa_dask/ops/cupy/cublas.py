"""Matrix products of cuBLAS and cuBLASLt, called through ctypes.

Plain products of cuBLAS can be captured in a CUDA graph; cuBLASLt computes products with a bias.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime
from cupy_backends.cuda.libs import cublas

from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.cupy.device import Array

CUDA_TYPES = {
    np.dtype(np.float32): runtime.CUDA_R_32F,
    np.dtype(np.float64): runtime.CUDA_R_64F,
    BFLOAT16: runtime.CUDA_R_16BF,
}

# Constants of cublasLt.h: attributes of descriptors, and one attribute's values.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
WORKSPACE_BYTES, ALIGNMENTS = 1, (5, 6, 7, 8)
# Epilogues: add a bias to the product, or write the sums of A or B, which are gradients of a bias.
BIAS_EPILOGUE, SUMS_OF_A, SUMS_OF_B = 4, 256, 512
# Maximum alignment of an address that cuBLASLt distinguishes.
MAX_ALIGNMENT = 256

# Size of the workspace for captured products, as cuBLAS recommends: LARGE_BYTES from compute capability LARGE_FROM
# (9.0) on, else SMALL_BYTES. Without a workspace, each captured product would allocate memory. All graphs of a device
# share the workspace, because they run one after the other.
LARGE_FROM, LARGE_BYTES, SMALL_BYTES = 90, 1 << 25, 1 << 22

_int, _int64, _address, _size = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t
TYPES = {
    "cublasSetStream_v2": (_address, _address),
    "cublasSetWorkspace_v2": (_address, _address, _size),
    "cublasGemmEx": (
        *(_address, _int, _int, _int, _int, _int, _address),
        *(_address, _int, _int, _address, _int, _int, _address),
        *(_address, _int, _int, _int, _int),
    ),
    "cublasGemmStridedBatchedEx": (
        *(_address, _int, _int, _int, _int, _int, _address),
        *(_address, _int, _int, _int64, _address, _int, _int, _int64, _address),
        *(_address, _int, _int, _int64, _int, _int, _int),
    ),
    "cublasGemmBatchedEx": (
        *(_address, _int, _int, _int, _int, _int, _address),
        *(_address, _int, _int, _address, _int, _int, _address),
        *(_address, _int, _int, _int, _int, _int),
    ),
    "cublasLtMatmulDescCreate": (_address, _int, _int),
    "cublasLtMatmulDescSetAttribute": (_address, _int, _address, _size),
    "cublasLtMatrixLayoutCreate": (_address, _int, ctypes.c_uint64, ctypes.c_uint64, _int64),
    "cublasLtMatmulPreferenceCreate": (_address,),
    "cublasLtMatmulPreferenceSetAttribute": (_address, _int, _address, _size),
    "cublasLtMatmulAlgoGetHeuristic": (*(_address,) * 7, _int, _address, _address),
    "cublasLtMatmul": (*(_address,) * 14, _size, _address),
}


def gemm_batched_ex(handle: int, *arguments: int) -> None:
    """Enqueue products on the current stream, with the arguments of ``cublasGemmBatchedEx``.

    CuPy lacks this function.
    """
    _call_on_stream("cublasGemmBatchedEx", handle, arguments)


def gemm_ex(handle: int, *arguments: int) -> None:
    """Enqueue a product on the current stream, with the arguments of CuPy's ``gemmEx``."""
    _enqueue(cublas.gemmEx, "cublasGemmEx", handle, arguments)


def gemm_strided_batched_ex(handle: int, *arguments: int) -> None:
    """Enqueue products on the current stream, with the arguments of CuPy's ``gemmStridedBatchedEx``."""
    _enqueue(cublas.gemmStridedBatchedEx, "cublasGemmStridedBatchedEx", handle, arguments)


def _enqueue(cupys: Callable[..., None], name: str, handle: int, arguments: Sequence[int]) -> None:
    """Call a function of cuBLAS: through CuPy, or directly if the current stream is being captured."""
    if cupy.cuda.get_current_stream().is_capturing():
        _call_on_stream(name, handle, arguments)
    else:
        cupys(handle, *arguments)


def _call_on_stream(name: str, handle: int, arguments: Sequence[int]) -> None:
    stream = cupy.cuda.get_current_stream()
    room = workspace(stream.device_id)
    call("cublasSetStream_v2", handle, stream.ptr)
    call("cublasSetWorkspace_v2", handle, room.data.ptr, room.nbytes)
    # the next CuPy call restores CuPy's stream and workspace
    call(name, handle, *arguments)


@functools.cache
def workspace(index: int) -> Any:
    """Return the workspace of a device for captured products. It exists as long as the process.

    The first call must be outside of a capture.
    """
    with cupy.cuda.Device(index) as device:
        return cupy.empty(LARGE_BYTES if int(device.compute_capability) >= LARGE_FROM else SMALL_BYTES, np.uint8)


class Matrix(NamedTuple):
    """A matrix in the form of cuBLAS: (rows, columns) with a stride of one value along rows.

    If ``turned`` is set, the transposed matrix is used.
    """

    array: Array
    turned: bool
    step: int


class LtAlgorithm(ctypes.Structure):
    """A ``cublasLtMatmulHeuristicResult_t``. The ``cublasLtMatmulAlgo_t`` in it has the same address."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class BiasedProducts:
    """Matrix products with a bias by cuBLASLt, for one thread on one device."""

    def __init__(self) -> None:
        self._plans: dict[Any, tuple[int, list[int], LtAlgorithm] | None] = {}

    def enqueue(
        self,
        handle: int,
        matrices: Any,
        bias: Array,
        more: Array | None,
        sizes: Any,
        compute: int,
        workspace: Array,
        epilogue: int = BIAS_EPILOGUE,
    ) -> bool:
        """Enqueue ``out = a b + bias + more``; return False if cuBLASLt does not support it.

        Parameters
        ----------
        handle : int
            Handle of cuBLAS, which cuBLASLt can use, too.
        matrices : three `Matrix`
            The matrices a (m, k), b (k, n) and out (m, n), column by column in memory.
        bias : (m,) in the dtype of out
        more : like out, or None
        sizes : (m, n, k)
        compute : int
            cuBLAS's number of the 32-bit type in which products are summed.
        workspace : (n_bytes,) uint8
        epilogue : int
            With ``SUMS_OF_A`` the sums of a over k, (m,), are written to ``bias``; with ``SUMS_OF_B`` the sums of b
            over k, (n,).
        """
        arrays = [matrix.array for matrix in matrices]
        addresses = [x.data.ptr for x in (*arrays, bias, arrays[2] if more is None else more)]
        least = min(MAX_ALIGNMENT, *(address & -address for address in addresses))
        kinds = tuple((CUDA_TYPES[x.array.dtype], x.turned, x.step) for x in matrices)
        key = (kinds, sizes, compute, least, epilogue)
        if key not in self._plans:
            self._plans[key] = _plan(handle, *key, addresses[3], workspace.nbytes)
        plan = self._plans[key]
        if plan is None:
            return False
        (product, (a, b, out), algorithm), one, share = plan, ctypes.c_float(1), ctypes.c_float(more is not None)
        set_attribute("MatmulDesc", product, BIAS_POINTER, ctypes.c_void_p(addresses[3]))
        status = function("cublasLtMatmul")(
            *(handle, product, ctypes.addressof(one), addresses[0], a, addresses[1], b),
            *(ctypes.addressof(share), addresses[4], out, addresses[2], out),
            *(ctypes.addressof(algorithm), workspace.data.ptr, workspace.nbytes),
            cupy.cuda.get_current_stream().ptr,
        )
        if status:
            self._plans[key] = None
        return not status


def _plan(
    handle: int, kinds: Any, sizes: Any, compute: int, least: int, epilogue: int, bias: int, workspace_bytes: int
) -> Any:
    """Return descriptors of a product and its matrices, and an algorithm; None without an algorithm."""
    (m, n, k), (of_a, of_b, _) = sizes, kinds
    product = create("MatmulDesc", compute, runtime.CUDA_R_32F)
    for attribute, (_, turned, _) in ((TRANSPOSE_A, of_a), (TRANSPOSE_B, of_b)):
        set_attribute("MatmulDesc", product, attribute, ctypes.c_int32(turned))
    set_attribute("MatmulDesc", product, EPILOGUE, ctypes.c_uint32(epilogue))
    # set the pointer now, because cuBLASLt takes its alignment into account
    set_attribute("MatmulDesc", product, BIAS_POINTER, ctypes.c_void_p(bias))
    shapes = ((k, m) if of_a[1] else (m, k), (n, k) if of_b[1] else (k, n), (m, n))
    layouts = [create("MatrixLayout", kind, *shape, step) for (kind, _, step), shape in zip(kinds, shapes, strict=True)]
    wish = create("MatmulPreference")
    set_attribute("MatmulPreference", wish, WORKSPACE_BYTES, ctypes.c_size_t(workspace_bytes))
    for attribute in ALIGNMENTS:
        set_attribute("MatmulPreference", wish, attribute, ctypes.c_uint32(least))
    best, n_found = LtAlgorithm(), ctypes.c_int(0)
    results = (ctypes.addressof(best), ctypes.addressof(n_found))
    status = function("cublasLtMatmulAlgoGetHeuristic")(handle, product, *layouts, layouts[2], wish, 1, *results)
    return None if status or not n_found.value or best.status else (product, layouts, best)


@functools.cache
def function(name: str) -> Any:
    """Return a function of the library that CuPy calls."""
    # load the library by way of CuPy's module, because several versions may be installed
    symbol = getattr(ctypes.CDLL(cublas.__file__), name)
    symbol.argtypes = TYPES[name]
    return symbol


def call(name: str, *arguments: int) -> None:
    """Call a function.

    Raises
    ------
    CUBLASError
        The call failed.
    """
    status = function(name)(*arguments)
    if status:
        raise cublas.CUBLASError(status)


def create(kind: str, *numbers: int) -> int:
    """Return a new descriptor, which exists as long as the process."""
    descriptor = ctypes.c_void_p()
    call(f"cublasLt{kind}Create", ctypes.addressof(descriptor), *numbers)
    return int(descriptor.value or 0)


def set_attribute(kind: str, descriptor: int, attribute: int, value: Any) -> None:
    """Set an attribute of a descriptor to ``value``, a ctypes number."""
    call(f"cublasLt{kind}SetAttribute", descriptor, attribute, ctypes.addressof(value), ctypes.sizeof(value))
