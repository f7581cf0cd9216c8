"""Matrix products, as cuBLAS has them: columns first, with leading dimensions."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import ml_dtypes
import numpy as np
from cupy import _compile, _errors, _memory, _stream, _world

from cupy_backends.cuda.libs import _cublas_lt

__all__ = [
    "CUBLAS_COMPUTE_32F",
    "CUBLAS_COMPUTE_32F_FAST_16BF",
    "CUBLAS_COMPUTE_32F_FAST_TF32",
    "CUBLAS_COMPUTE_32F_PEDANTIC",
    "CUBLAS_COMPUTE_64F",
    "CUBLAS_DEFAULT_MATH",
    "CUBLAS_GEMM_DEFAULT",
    "CUBLAS_GEMM_DEFAULT_TENSOR_OP",
    "CUBLAS_OP_N",
    "CUBLAS_OP_T",
    "CUBLAS_POINTER_MODE_HOST",
    "CUBLASError",
    "gemmEx",
    "gemmStridedBatchedEx",
]

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_64F = 68, 69, 70
CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32 = 75, 77
CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT_TENSOR_OP = -1, 99
CUBLAS_DEFAULT_MATH, CUBLAS_POINTER_MODE_HOST = 0, 0

DTYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 14: np.dtype(ml_dtypes.bfloat16)}
SINGLE = (
    CUBLAS_COMPUTE_32F,
    CUBLAS_COMPUTE_32F_PEDANTIC,
    CUBLAS_COMPUTE_32F_FAST_16BF,
    CUBLAS_COMPUTE_32F_FAST_TF32,
)
# The types of A and B, of C, and the types of the computation that go with them.
KNOWN = {
    (0, 0): SINGLE,
    (1, 1): (CUBLAS_COMPUTE_64F,),
    (14, 14): (CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC),
    (14, 0): (CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC),
}
INVALID, NOT_SUPPORTED = "CUBLAS_STATUS_INVALID_VALUE", "CUBLAS_STATUS_NOT_SUPPORTED"


class CUBLASError(RuntimeError):
    """What cuBLAS says of arguments that it does not take."""


def _matrices(address: int, kind: int, rows: int, columns: int, lead: int, stride: int, count: int) -> tuple[Any, Any]:
    """Return the block at an address and its matrices, of shape (count, rows, columns), columns first in memory."""
    if lead < max(1, rows):
        raise CUBLASError(f"{INVALID}: a leading dimension of {lead} for {rows} rows")
    block = _memory.find(address, "gemm")
    dtype = DTYPES[kind]
    last = (count - 1) * stride + (columns - 1) * lead + rows
    offset = address - block.start
    if rows and columns and offset + last * dtype.itemsize > block.nbytes:
        why = f"gemm: {last} elements of {dtype} at byte {offset} of an array of {block.nbytes} bytes"
        raise _errors.CUDARuntimeError(_errors.ILLEGAL_ADDRESS, why)
    if offset % dtype.itemsize:
        raise _errors.CUDARuntimeError(716, "gemm: misaligned address")
    strides = (stride * dtype.itemsize, dtype.itemsize, lead * dtype.itemsize)
    return block, np.ndarray((count, rows, columns), dtype, block.bytes, offset, strides)


def _scalar(address: int, compute: int) -> Any:
    """Read a factor from host memory."""
    kind = ctypes.c_double if compute == CUBLAS_COMPUTE_64F else ctypes.c_float
    value = kind.from_address(address).value
    return np.float64(value) if compute == CUBLAS_COMPUTE_64F else np.float32(value)


def _operand(values: Any, transposed: int, compute: int) -> Any:
    """Return what the multiplication sees of A or B: float32 or float64, with fewer bits where `compute` says so."""
    values = values.transpose(0, 2, 1) if transposed else values
    if compute == CUBLAS_COMPUTE_64F:
        return values
    values = values.astype(np.float32)
    if compute == CUBLAS_COMPUTE_32F_FAST_16BF:
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)
    if compute == CUBLAS_COMPUTE_32F_FAST_TF32:
        bits = values.view(np.uint32)
        rounded = (bits + np.uint32(0x0FFF) + (bits >> 13 & np.uint32(1))) & np.uint32(0xFFFFE000)
        return rounded.view(np.float32)
    return values


def gemmStridedBatchedEx(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    A: int,
    Atype: int,
    lda: int,
    strideA: int,
    B: int,
    Btype: int,
    ldb: int,
    strideB: int,
    beta: int,
    C: int,
    Ctype: int,
    ldc: int,
    strideC: int,
    batchCount: int,
    computeType: int,
    algo: int,
) -> None:
    """Each C = alpha * op(A) op(B) + beta * C, on the current stream."""
    _refuse_capture()
    first, second, third = (handle, transa, transb, m, n, k, alpha), (A, Atype, lda, strideA), (B, Btype, ldb, strideB)
    _enqueue(*first, *second, *third, beta, C, Ctype, ldc, strideC, batchCount, computeType)


def _refuse_capture() -> None:
    """CuPy's calls set the stream of the handle, and refuse one that is being captured."""
    if _stream.get_current_stream().is_capturing():
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


def _check(
    handle: int, transposed: tuple[int, int], sizes: tuple[int, ...], types: tuple[int, int, int], compute: int
) -> None:
    """Refuse what cuBLAS does; ``types`` are those of A, B and C."""
    if handle != 0x5000 + _world.current_device():
        raise CUBLASError("CUBLAS_STATUS_NOT_INITIALIZED: the handle is of another device")
    if types[0] != types[1] or compute not in KNOWN.get(types[1:], ()):
        raise CUBLASError(f"{NOT_SUPPORTED}: types {types} in {compute}")
    if {*transposed} - {CUBLAS_OP_N, CUBLAS_OP_T} or min(sizes) < 0:
        raise CUBLASError(INVALID)


def _enqueue(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    A: int,
    Atype: int,
    lda: int,
    strideA: int,
    B: int,
    Btype: int,
    ldb: int,
    strideB: int,
    beta: int,
    C: int,
    Ctype: int,
    ldc: int,
    strideC: int,
    batchCount: int,
    computeType: int,
    bias: int = 0,
    added: int = 0,
    summed: str = "",
) -> None:
    _check(handle, (transa, transb), (m, n, k, batchCount), (Atype, Btype, Ctype), computeType)
    if min(m, n, batchCount) == 0:
        return
    first, second = _scalar(alpha, computeType), _scalar(beta, computeType)
    rows_a, columns_a = (k, m) if transa else (m, k)
    rows_b, columns_b = (n, k) if transb else (k, n)
    block_a, a = _matrices(A, Atype, rows_a, columns_a, lda, strideA, batchCount)
    block_b, b = _matrices(B, Btype, rows_b, columns_b, ldb, strideB, batchCount)
    block_c, c = _matrices(C, Ctype, m, n, ldc, strideC, batchCount)
    size = n if summed == "b" else m
    # a bias has the type of what is written, as cuBLASLt's has unless it is told another
    block_bias, of_rows = _matrices(bias, Ctype, size, 1, size, 0, 1) if bias else (block_c, None)
    block_more, more = _matrices(added or C, Ctype, m, n, ldc, strideC, batchCount)

    def run() -> None:
        with np.errstate(all="ignore"):
            left, right = _operand(a, transa, computeType), _operand(b, transb, computeType)
            product = first * np.matmul(left, right)
            if summed and of_rows is not None:
                of_rows[0, :, 0] = left[0].sum(axis=1) if summed == "a" else right[0].sum(axis=0)
            elif of_rows is not None:
                product = product + of_rows
            c[...] = product if second == 0 else product + second * more.astype(product.dtype)

    queue = _stream.get_current_stream()._queue
    n_bytes = a.nbytes + b.nbytes + c.nbytes + (more.nbytes if second and added else 0)
    queue.put(_world.Op("gemm", run, (block_a, block_b, block_c, block_bias, block_more), True, n_bytes))


def _enqueue_addresses(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    A: int,
    Atype: int,
    lda: int,
    B: int,
    Btype: int,
    ldb: int,
    beta: int,
    C: int,
    Ctype: int,
    ldc: int,
    count: int,
    computeType: int,
) -> None:
    """Each C[i] = alpha * op(A[i]) op(B[i]) + beta * C[i]; A, B and C are arrays of addresses in device memory."""
    _check(handle, (transa, transb), (m, n, k, count), (Atype, Btype, Ctype), computeType)
    if min(m, n, count) == 0:
        return
    first, second = _scalar(alpha, computeType), _scalar(beta, computeType)
    blocks = [_memory.find(table, "gemm") for table in (A, B, C)]
    tables = [
        np.ndarray(count, np.int64, block.bytes, table - block.start)
        for table, block in zip((A, B, C), blocks, strict=True)
    ]
    kinds = [(Atype, *((k, m) if transa else (m, k)), lda), (Btype, *((n, k) if transb else (k, n)), ldb)]
    kinds.append((Ctype, m, n, ldc))

    def run() -> None:
        for addresses in zip(*tables, strict=True):
            found = [_matrices(int(x), *kind, 0, 1) for x, kind in zip(addresses, kinds, strict=True)]
            for block, _ in found:
                block.check_alive("gemm")
            (_, a), (_, b), (block, c) = found
            with np.errstate(all="ignore"):
                product = first * np.matmul(_operand(a, transa, computeType), _operand(b, transb, computeType))
                c[...] = product if second == 0 else product + second * c.astype(product.dtype)
            block.check_ends("gemm")

    size, size_of_c = DTYPES[Atype].itemsize, DTYPES[Ctype].itemsize
    n_bytes = count * ((m * k + k * n) * size + m * n * size_of_c)
    _stream.get_current_stream()._queue.put(_world.Op("gemm", run, blocks, True, n_bytes))


def gemmEx(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    A: int,
    Atype: int,
    lda: int,
    B: int,
    Btype: int,
    ldb: int,
    beta: int,
    C: int,
    Ctype: int,
    ldc: int,
    computeType: int,
    algo: int,
) -> None:
    """C = alpha * op(A) op(B) + beta * C, on the current stream."""
    first, second, third = (handle, transa, transb, m, n, k, alpha), (A, Atype, lda, 0), (B, Btype, ldb, 0)
    gemmStridedBatchedEx(*first, *second, *third, beta, C, Ctype, ldc, 0, 1, computeType, algo)


# -- the library itself, which CuPy's module is linked to ------------------------------------------------

LIBRARY = """
typedef int (*Gemm)(void*, int, int, int, int, int, void*, void*, int, int, void*, int, int, void*, void*, int, int,
                    int, int);
typedef int (*Batched)(void*, int, int, int, int, int, void*, void*, int, int, long long, void*, int, int, long long,
                       void*, void*, int, int, long long, int, int, int);
typedef int (*Addressed)(void*, int, int, int, int, int, void*, void*, int, int, void*, int, int, void*, void*, int,
                         int, int, int, int);
typedef int (*SetStream)(void*, void*);
typedef int (*SetWorkspace)(void*, void*, unsigned long);
extern "C" {
Gemm gemm;
Batched batched;
Addressed addressed;
SetStream set_stream;
SetWorkspace set_workspace;
int cublasGemmEx(void* handle, int ta, int tb, int m, int n, int k, void* alpha, void* a, int at, int lda, void* b,
                 int bt, int ldb, void* beta, void* c, int ct, int ldc, int compute, int algo) {
    return gemm(handle, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute, algo);
}
int cublasGemmStridedBatchedEx(void* handle, int ta, int tb, int m, int n, int k, void* alpha, void* a, int at, int lda,
                               long long sa, void* b, int bt, int ldb, long long sb, void* beta, void* c, int ct,
                               int ldc, long long sc, int count, int compute, int algo) {
    return batched(handle, ta, tb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, count,
                   compute, algo);
}
int cublasGemmBatchedEx(void* handle, int ta, int tb, int m, int n, int k, void* alpha, void* a, int at, int lda,
                        void* b, int bt, int ldb, void* beta, void* c, int ct, int ldc, int count, int compute,
                        int algo) {
    return addressed(handle, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, count, compute, algo);
}
int cublasSetStream_v2(void* handle, void* stream) { return set_stream(handle, stream); }
int cublasSetWorkspace_v2(void* handle, void* at, unsigned long size) { return set_workspace(handle, at, size); }
}
"""
_int, _long, _address = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_GEMM = ctypes.CFUNCTYPE(
    *(_int, _address, _int, _int, _int, _int, _int, _address),
    *(_address, _int, _int, _address, _int, _int, _address),
    *(_address, _int, _int, _int, _int),
)
_BATCHED = ctypes.CFUNCTYPE(
    *(_int, _address, _int, _int, _int, _int, _int, _address),
    *(_address, _int, _int, _long, _address, _int, _int, _long, _address),
    *(_address, _int, _int, _long, _int, _int, _int),
)
_ADDRESSED = ctypes.CFUNCTYPE(
    *(_int, _address, _int, _int, _int, _int, _int, _address),
    *(_address, _int, _int, _address, _int, _int, _address),
    *(_address, _int, _int, _int, _int, _int),
)
_SET_STREAM = ctypes.CFUNCTYPE(_int, _address, _address)
_SET_WORKSPACE = ctypes.CFUNCTYPE(_int, _address, _address, ctypes.c_size_t)
# CUBLAS_STATUS_INVALID_VALUE, and CUBLAS_STATUS_EXECUTION_FAILED
_INVALID, _FAILED = 7, 13
# as of the handle of each thread
_of_handle = threading.local()


def _gemm(*arguments: Any) -> int:
    first, a, b, (beta, c, kind, lead, compute, algo) = arguments[:7], arguments[7:10], arguments[10:13], arguments[13:]
    return _batched(*first, *a, 0, *b, 0, beta, c, kind, lead, 0, 1, compute, algo)


def _batched(*arguments: Any) -> int:
    return _call(_enqueue, arguments)


def _addressed(*arguments: Any) -> int:
    return _call(_enqueue_addresses, arguments)


def _call(function: Any, arguments: tuple[Any, ...]) -> int:
    if getattr(_of_handle, "stream", None) != _stream.get_current_stream().ptr:
        return _FAILED
    try:
        function(*arguments[:-1])
    except RuntimeError:
        return _INVALID
    return 0


def _set_stream(handle: int, stream: int) -> int:
    _of_handle.stream = stream
    return 0


def _set_workspace(handle: int, address: int, size: int) -> int:
    try:
        block = _memory.find(address, "cublasSetWorkspace")
    except RuntimeError:
        return _INVALID
    return 0 if address + size <= block.start + block.nbytes else _INVALID


# C's way to call them; they stay as long as the library
_CALLED = {
    "gemm": _GEMM(_gemm),
    "batched": _BATCHED(_batched),
    "addressed": _ADDRESSED(_addressed),
    "set_stream": _SET_STREAM(_set_stream),
    "set_workspace": _SET_WORKSPACE(_set_workspace),
    **_cublas_lt.CALLED,
}


@functools.cache
def _library() -> Any:
    found = _compile._load(LIBRARY + _cublas_lt.LIBRARY, "cublas", ())
    for name, function in _CALLED.items():
        _address.in_dll(found, name).value = ctypes.cast(function, _address).value
    return found


# CuPy's module is a library, and finds what it is linked to; the library here is compiled when somebody asks for it.
del __file__


def __getattr__(name: str) -> Any:
    if name == "__file__":
        return _library()._name
    raise AttributeError(name)
