"""cuBLASLt: products with a bias, of descriptors whose attributes are kept by number as cublasLt.h has them."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

from cupy import _memory, _stream

LIBRARY = """
extern "C" {
int (*lt_create)(void**, int, long, long, long);
int (*lt_set)(void*, int, void*, unsigned long);
int (*lt_find)(void*, void*, void*, void*, void*, void*, void*, int, void*, void*);
int (*lt_multiply)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                   unsigned long, void*);
int cublasLtMatmulDescCreate(void** made, int compute, int scale) { return lt_create(made, compute, scale, 0, 0); }
int cublasLtMatrixLayoutCreate(void** made, int kind, unsigned long rows, unsigned long columns, long lead) {
    return lt_create(made, kind, (long)rows, (long)columns, lead);
}
int cublasLtMatmulPreferenceCreate(void** made) { return lt_create(made, 0, 0, 0, 0); }
int cublasLtMatmulDescSetAttribute(void* of, int attribute, void* value, unsigned long size) {
    return lt_set(of, attribute, value, size);
}
int cublasLtMatmulPreferenceSetAttribute(void* of, int attribute, void* value, unsigned long size) {
    return lt_set(of, 100 + attribute, value, size);
}
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d, void* wish, int n,
                                   void* found, int* n_found) {
    return lt_find(handle, product, a, b, c, d, wish, n, found, n_found);
}
int cublasLtMatmul(void* handle, void* product, void* alpha, void* a, void* at, void* b, void* bt, void* beta, void* c,
                   void* ct, void* d, void* dt, void* algorithm, void* workspace, unsigned long size, void* stream) {
    return lt_multiply(handle, product, alpha, a, at, b, bt, beta, c, ct, d, dt, algorithm, workspace, size, stream);
}
}
"""
_int, _long, _address, _size = ctypes.c_int, ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t
INVALID = 7
# Attributes, preferences from 100 on, and the size of each.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS = 3, 4, 7, 8
# A bias; sums of A, and of B, over k.
EPILOGUES = ADDED, SUMS_OF_A, SUMS_OF_B = 4, 256, 512
SIZES = {3: 4, 4: 4, 7: 4, 8: 8, 101: 8, 105: 4, 106: 4, 107: 4, 108: 4}
# The number that an algorithm begins with.
MAGIC = 0x17EA

_numbers = itertools.count(0x7000)
# What was given when each was made, and its attributes.
_made: dict[int, tuple[tuple[int, ...], dict[int, int]]] = {}


def _create(made: Any, *given: int) -> int:
    made[0] = next(_numbers)
    _made[made[0]] = (given, {})
    return 0


def _set(of: int, attribute: int, value: int, size: int) -> int:
    if of not in _made or SIZES.get(attribute) != size:
        return INVALID
    _made[of][1][attribute] = int.from_bytes(ctypes.string_at(value, size), "little")
    return 0


def _find(handle: int, product: int, *given: Any) -> int:
    *layouts, wish, n, found, n_found = given
    (_, scale, *_), attributes = _made[product]
    shapes = [_made[layout][0][1:3] for layout in layouts]
    (m, k), (k_of_b, n_columns) = (
        shape[::-1] if attributes.get(which) else shape
        for shape, which in zip(shapes[:2], (TRANSPOSE_A, TRANSPOSE_B), strict=True)
    )
    wishes = [_made[wish][1].get(100 + number, 256) for number in (5, 6, 7, 8)]
    if (
        n != 1
        or scale
        or k != k_of_b
        or shapes[2:] != [(m, n_columns)] * 2
        or attributes.get(EPILOGUE) not in EPILOGUES
    ):
        return INVALID
    numbers = [MAGIC, *wishes, min(256, attributes[BIAS] & -attributes[BIAS]), 0, 0, _made[wish][1][101] // 2]
    ctypes.memmove(found, (ctypes.c_uint64 * 9)(*numbers), 72)
    # status and waves
    ctypes.memset(found + 72, 0, 8)
    n_found[0] = 1
    return 0


def _multiply(*given: Any) -> int:
    from cupy_backends.cuda.libs import cublas

    handle, product, alpha, a, at, b, bt, beta, c, ct, d, dt, algorithm, workspace, size, stream = given
    magic, *alignments = (ctypes.c_uint64 * 6).from_address(algorithm)
    (compute, *_), attributes = _made[product]
    bias = attributes[BIAS]
    if magic != MAGIC or any(x % least for x, least in zip((a, b, c, d, bias), alignments, strict=True)):
        return INVALID
    if ct != dt or (stream or 0) != _stream.get_current_stream().ptr:
        return INVALID
    block = _memory.find(workspace, "cublasLtMatmul")
    if workspace + size > block.start + block.nbytes:
        return INVALID
    (kind_a, rows, columns, lead_a), (kind_b, *_, lead_b) = _made[at][0], _made[bt][0]
    kind_d, m, n, lead_d = _made[dt][0]
    turned = attributes.get(TRANSPOSE_A, 0), attributes.get(TRANSPOSE_B, 0)
    k = rows if turned[0] else columns
    try:
        cublas._enqueue(
            *(handle, *turned, m, n, k, alpha, a, kind_a, lead_a, 0, b, kind_b, lead_b, 0, beta),
            *(
                d,
                kind_d,
                lead_d,
                0,
                1,
                compute,
                bias,
                c,
                {SUMS_OF_A: "a", SUMS_OF_B: "b"}.get(attributes[EPILOGUE], ""),
            ),
        )
    except RuntimeError:
        return INVALID
    return 0


_numbers_of = ctypes.POINTER(_long)
CALLED = {
    "lt_create": ctypes.CFUNCTYPE(_int, _numbers_of, _int, _long, _long, _long)(_create),
    "lt_set": ctypes.CFUNCTYPE(_int, _address, _int, _address, _size)(_set),
    "lt_find": ctypes.CFUNCTYPE(_int, *(_address,) * 7, _int, _address, ctypes.POINTER(_int))(_find),
    "lt_multiply": ctypes.CFUNCTYPE(_int, *(_address,) * 14, _size, _address)(_multiply),
}
