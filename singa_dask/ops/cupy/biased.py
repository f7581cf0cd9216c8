"""Matrix products with a bias that is added in the same launch, by cuBLASLt, which CuPy does not bind.

A product's algorithm is what cuBLASLt advises for its shape, types and alignment, looked up once. It is the same in a
captured step as outside, so the bits are too.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from typing import Any, NamedTuple, TypeAlias

import cupy
from cupy.cuda import runtime
from cupy_backends.cuda.libs import cublas

from singa_dask.ops.cupy.device import Array

__all__ = ["BiasedProducts", "Operand", "alignment"]

LOG = logging.getLogger(__name__)

# As in cublasLt.h: attributes of descriptors, and the value of one.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
WORKSPACE_BYTES, ALIGNMENT_A, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D = 1, 5, 6, 7, 8
ADD_BIAS = 4
# The most that cuBLASLt asks of an address.
MAX_ALIGNMENT = 256


class Algorithm(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``; its address is that of the ``cublasLtMatmulAlgo_t`` in it."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


_int, _address, _size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
TYPES = {
    "cublasLtMatmulDescCreate": (_address, _int, _int),
    "cublasLtMatmulDescSetAttribute": (_address, _int, _address, _size),
    "cublasLtMatrixLayoutCreate": (_address, _int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatmulPreferenceCreate": (_address,),
    "cublasLtMatmulPreferenceSetAttribute": (_address, _int, _address, _size),
    "cublasLtMatmulAlgoGetHeuristic": (*(_address,) * 7, _int, _address, _address),
    "cublasLtMatmul": (*(_address,) * 14, _size, _address),
}


class Operand(NamedTuple):
    """A matrix as cuBLAS has it, columns first in memory."""

    address: int
    kind: int
    turned: bool
    step: int


Operands: TypeAlias = tuple[Operand, Operand, Operand]


class Plan(NamedTuple):
    """A product of matrices of some shapes: descriptors, and an algorithm."""

    product: int
    layouts: tuple[int, int, int]
    algorithm: Algorithm


class BiasedProducts:
    """The products of one thread on one device."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], Plan | None] = {}

    def enqueue(
        self, handle: int, operands: Operands, bias: int, sizes: tuple[int, int, int], compute: int, workspace: Array
    ) -> bool:
        """Enqueue ``out = a b + bias`` on the current stream; False if cuBLASLt does not do that.

        Parameters
        ----------
        handle : int
            Of cuBLAS, which serves cuBLASLt too.
        operands : a (m, k), b (k, n), out (m, n)
        bias : int
            The address of m float32.
        sizes : (m, n, k)
        compute : int
            The type that sums have, a 32-bit one.
        workspace : (n_bytes,) uint8
        """
        a, b, out = operands
        key = (a[1:], b[1:], out[1:], sizes, compute, *(alignment(x) for x in (a[0], b[0], out[0], bias)))
        if key not in self._plans:
            self._plans[key] = self._plan(handle, operands, bias, sizes, compute, workspace.nbytes)
        plan = self._plans[key]
        if plan is None:
            return False
        zero, one = ctypes.c_float(0), ctypes.c_float(1)
        set_attribute("MatmulDesc", plan.product, BIAS_POINTER, ctypes.c_void_p(bias))
        first, second, third = plan.layouts
        status = function("cublasLtMatmul")(
            *(handle, plan.product, ctypes.addressof(one), a.address, first, b.address, second),
            *(ctypes.addressof(zero), out.address, third, out.address, third),
            *(ctypes.addressof(plan.algorithm), workspace.data.ptr, workspace.nbytes),
            cupy.cuda.get_current_stream().ptr,
        )
        if status:
            self._plans[key] = None
            LOG.info("ops: cuBLASLt refuses a product of %s by status %d; its bias is a launch of its own", key, status)
        return not status

    def _plan(
        self,
        handle: int,
        operands: Operands,
        bias: int,
        sizes: tuple[int, int, int],
        compute: int,
        workspace_bytes: int,
    ) -> Plan | None:
        """Return how to compute a product, None if cuBLASLt has no algorithm."""
        (a, b, out), (m, n, k) = operands, sizes
        product = create("MatmulDesc", compute, runtime.CUDA_R_32F)
        for attribute, operand in ((TRANSPOSE_A, a), (TRANSPOSE_B, b)):
            turned = cublas.CUBLAS_OP_T if operand.turned else cublas.CUBLAS_OP_N
            set_attribute("MatmulDesc", product, attribute, ctypes.c_int32(turned))
        set_attribute("MatmulDesc", product, EPILOGUE, ctypes.c_uint32(ADD_BIAS))
        # its alignment counts
        set_attribute("MatmulDesc", product, BIAS_POINTER, ctypes.c_void_p(bias))
        shapes = ((k, m) if a.turned else (m, k), (n, k) if b.turned else (k, n), (m, n))
        layouts = [
            create("MatrixLayout", operand.kind, *shape, operand.step)
            for operand, shape in zip(operands, shapes, strict=True)
        ]
        wish = create("MatmulPreference")
        set_attribute("MatmulPreference", wish, WORKSPACE_BYTES, ctypes.c_size_t(workspace_bytes))
        of_operands = ((ALIGNMENT_A, a), (ALIGNMENT_B, b), (ALIGNMENT_C, out), (ALIGNMENT_D, out))
        for attribute, operand in of_operands:
            set_attribute("MatmulPreference", wish, attribute, ctypes.c_uint32(alignment(operand.address)))
        best, n_found = Algorithm(), ctypes.c_int(0)
        status = function("cublasLtMatmulAlgoGetHeuristic")(
            *(handle, product, *layouts, layouts[2], wish, 1),
            *(ctypes.addressof(best), ctypes.addressof(n_found)),
        )
        if status or not n_found.value or best.status:
            return None
        first, second, third = layouts
        return Plan(product, (first, second, third), best)


def alignment(address: int) -> int:
    """Return the largest power of 2 that an address is a multiple of, at most that which counts."""
    return min(MAX_ALIGNMENT, address & -address) if address else MAX_ALIGNMENT


@functools.cache
def function(name: str) -> Any:
    """Return a function of the library that CuPy's is built on."""
    found = getattr(ctypes.CDLL(cublas.__file__), name)
    found.argtypes, found.restype = TYPES[name], ctypes.c_int
    return found


def create(kind: str, *numbers: int) -> int:
    """Return a new descriptor; it stays for the life of the process."""
    made = ctypes.c_void_p()
    _check(function(f"cublasLt{kind}Create")(ctypes.addressof(made), *numbers))
    return int(made.value or 0)


def set_attribute(kind: str, descriptor: int, attribute: int, value: Any) -> None:
    """Set an attribute of a descriptor to a number of C."""
    _check(
        function(f"cublasLt{kind}SetAttribute")(descriptor, attribute, ctypes.addressof(value), ctypes.sizeof(value))
    )


def _check(status: int) -> None:
    if status:
        raise cublas.CUBLASError(status)
