"""CupyLinear: matrix products on a GPU, by cuBLAS, and sums of columns.

cuBLAS is column-major, our matrices are row-major. So cuBLAS is called for the transposed product of the transposed
matrices: a row-major matrix is, in memory, its column-major transpose. A matrix must have a stride of one value along
rows or along columns; other matrices are copied first.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from cupy.cuda import device
from cupy_backends.cuda.libs import cublas

from singa_dask.arrays import Array as HostArray
from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.cupy.cublas import (
    BIAS_EPILOGUE,
    CUDA_TYPES,
    SUMS_OF_A,
    SUMS_OF_B,
    BiasedProducts,
    Matrix,
    gemm_batched_ex,
    gemm_ex,
    gemm_strided_batched_ex,
    workspace,
)
from singa_dask.ops.cupy.device import Array, CupyDevice
from singa_dask.ops.cupy.launch import THREADS, WARP, pack_width, strides_of, sum_type
from singa_dask.ops.cupy.value_kernel import ValueKernel
from singa_dask.ops.cupy.weights import CupyWeights

logger = logging.getLogger(__name__)

# dtype of the computation -> the factors 0 and 1, which cuBLAS reads during its call.
FACTORS = {kind: (np.zeros(1, kind), np.ones(1, kind)) for kind in (np.float32, np.float64)}

# For sums of columns: about how many rows a thread adds up, and about how many blocks there are.
ROWS_OF_THREAD, SUM_BLOCKS = 8, 512

# Maximum errors in the trial of a product with a bias. Results are about 8. BIAS_TOLERANCE is the absolute error with
# TF32, BIAS_ROUNDING the relative error of two results that are rounded to bfloat16.
BIAS_TOLERANCE, BIAS_ROUNDING = 0.05, 2.0**-8
# (device, dtypes, precision, epilogue) -> whether the trial succeeded
_BIAS_IS_RIGHT: dict[tuple[Any, ...], bool] = {}

ADD_BIAS = ValueKernel("add_bias", "Y y, B b", "z = (Z)((W)y + (W)b);")
ADD_TO_BIASED = ValueKernel("add_to_biased", "Y y, B b, M m", "z = (Z)((W)y + (W)b + (W)m);")


class CupyLinear(CupyWeights):
    """Mixin of `CupyOps` with matrix products."""

    def __init__(self, gpu: CupyDevice, precision: str = "float32") -> None:
        super().__init__(gpu, precision)
        self._biased = BiasedProducts()
        self._tables: dict[Any, Array] = {}

    def linear(self, x: Array, w: Array, b: Array | None, out: Array, transpose: bool = False) -> None:
        self._linear(x, w, b, None, out, transpose)

    def linear_add(self, x: Array, w: Array, b: Array | None, more: Array, out: Array, transpose: bool = False) -> None:
        self._linear(x, w, b, more, out, transpose)

    def _linear(self, x: Array, w: Array, b: Array | None, more: Array | None, out: Array, transpose: bool) -> None:
        """Compute ``out = x w^T``, or ``x w`` if ``transpose``; add ``b`` and ``more`` if given."""
        w = self._weights_of_type(w, product_type(x, w, out))
        right = w if transpose else w.T
        if b is not None and self._can_bias(x, b, out):
            # cuBLASLt reads the bias in the dtype of the output
            if self._gemm_with_bias(x, right, self._weights_of_type(b, out.dtype), out, more):
                return
        self.gemm(x, right, out)
        if b is not None and more is not None:
            ADD_TO_BIASED(out, b, more, out)
        elif b is not None or more is not None:
            ADD_BIAS(out, more if b is None else b, out)

    def linear_grad_input(
        self, gy: Array, w: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        w = self._weights_of_type(w, product_type(gy, w, out))
        self.gemm(gy, w.T if transpose else w, out, accumulate)

    def _weights_of_type(self, w: Array, kind: Any) -> Array:
        """Return weights or a bias converted to a dtype; arrays that are not contiguous are not converted."""
        return self.copied_weights(w, kind) if w.dtype != kind and w.flags.c_contiguous else w

    def linear_grad_weight(
        self, x: Array, gy: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        left, right = (x.T, gy) if transpose else (gy.T, x)
        self.gemm(left, right, out, accumulate)

    def linear_grad_bias(self, gy: Array, out: Array, accumulate: bool = False) -> None:
        self.column_sums(gy, out, accumulate)

    def linear_grad_params(
        self,
        x: Array,
        gy: Array,
        grad_weight: Array,
        grad_bias: Array,
        transpose: bool = False,
        accumulate: bool = False,
    ) -> None:
        left, right, sums = (x.T, gy, SUMS_OF_A) if transpose else (gy.T, x, SUMS_OF_B)
        # with TF32, cuBLASLt might sum rounded values
        fusible = not accumulate and self.precision != "tf32" and grad_bias.dtype == grad_weight.dtype == np.float32
        if fusible and self._can_bias(x, grad_bias, grad_weight, sums):
            if self._gemm_with_bias(left, right, grad_bias, grad_weight, epilogue=sums):
                return
        self.gemm(left, right, grad_weight, accumulate)
        self.column_sums(gy, grad_bias, accumulate)

    def gemm(self, a: Array, b: Array, out: Array, accumulate: bool = False) -> None:
        """Compute ``out = a b``; add the product to ``out`` if ``accumulate``.

        Parameters
        ----------
        a : (M, K)
        b : (K, N)
        out : (M, N)
            If one of the three arrays is bfloat16, a and b are rounded to bfloat16, and products are summed in float32.
        """
        kind = product_type(a, b, out)
        left, right = self._matrix("left", a, kind), self._matrix("right", b, kind)
        target = as_matrix(out)
        if target is None or target.turned:
            self._gemm_elsewhere(a, b, out, accumulate)
            return
        compute, factors = gemm_types(kind, self.precision)
        (m, k), n = a.shape, b.shape[1]
        gemm_ex(
            device.get_cublas_handle(),
            cublas.CUBLAS_OP_T if right.turned else cublas.CUBLAS_OP_N,
            cublas.CUBLAS_OP_T if left.turned else cublas.CUBLAS_OP_N,
            *(n, m, k, factors[1].ctypes.data),
            *(right.array.data.ptr, CUDA_TYPES[kind], right.step),
            *(left.array.data.ptr, CUDA_TYPES[kind], left.step),
            factors[accumulate].ctypes.data,
            *(out.data.ptr, CUDA_TYPES[out.dtype], target.step, compute, cublas.CUBLAS_GEMM_DEFAULT),
        )

    def _can_bias(self, x: Array, b: Array, out: Array, epilogue: int = BIAS_EPILOGUE) -> bool:
        """Return whether cuBLASLt can compute a product and its epilogue, e.g. adding a bias, in one launch.

        The first call for a combination of types in a process tries a small product, and compares it with NumPy's.
        """
        kind, target = BFLOAT16 if x.dtype == BFLOAT16 else out.dtype, as_matrix(out)
        if out.dtype not in (np.float32, BFLOAT16) or not (x.size and out.size and b.flags.c_contiguous):
            return False
        if target is None or target.turned:
            return False
        key = (self.gpu.index, kind, out.dtype, self.precision, epilogue)
        if key not in _BIAS_IS_RIGHT and not cupy.cuda.get_current_stream().is_capturing():
            _BIAS_IS_RIGHT[key] = self._try_bias(kind, out.dtype, epilogue)
        return _BIAS_IS_RIGHT.get(key, False)

    def _try_bias(self, kind: Any, dtype: Any, epilogue: int) -> bool:
        """Return whether cuBLASLt adds a bias, or sums columns, correctly; log the reason if it does not."""
        random = np.random.default_rng(0)
        x, w, b = (random.normal(size=size).astype(kind) for size in ((48, 64), (32, 64), (32,)))
        out, expected = self.zeros((48, 32), dtype), x.astype(np.float64) @ w.astype(np.float64).T + b
        try:
            left, right, bias = self.from_host(x), self.from_host(w).T, self.from_host(b.astype(dtype))
            first = self.zeros(out.shape, dtype)
            if epilogue == BIAS_EPILOGUE:
                done = self._gemm_with_bias(left, right, bias, first)
                done = done and self._gemm_with_bias(left, right, bias, out, first)
                pairs = [(out, 2 * expected)]
            else:
                summed = x if epilogue == SUMS_OF_B else w
                sums = self.zeros((len(summed),), dtype)
                done = self._gemm_with_bias(left, right, sums, out, epilogue=epilogue)
                pairs = [(out, expected - b), (sums, summed.astype(np.float64).sum(axis=1))]
            why = "is not there" if not done else ""
            part = BIAS_ROUNDING if dtype == BFLOAT16 else 0.0
            if done and not all(np.allclose(self.to_host(y), z, atol=BIAS_TOLERANCE, rtol=part) for y, z in pairs):
                why = "gives other values than NumPy"
        except (AttributeError, OSError, cublas.CUBLASError) as error:
            why = f"fails: {error}"
        if why:
            what = "a bias" if epilogue == BIAS_EPILOGUE else "sums of columns"
            logger.warning("ops: cuBLASLt's product with %s %s; each bias takes a separate launch", what, why)
        return not why

    def _gemm_with_bias(
        self, a: Array, b: Array, bias: Array, out: Array, more: Array | None = None, epilogue: int = BIAS_EPILOGUE
    ) -> bool:
        """Enqueue ``out = a b + bias``, plus ``more`` if given; return False if cuBLASLt cannot compute it.

        All matrices are row-major. With ``SUMS_OF_B``, the sums of the rows of ``a`` are written to ``bias``; with
        ``SUMS_OF_A``, the sums of the columns of ``b``. The names are exchanged because cuBLASLt is column-major, so
        that ``b`` is its first factor.
        """
        if more is not None and (more.dtype, more.strides) != (out.dtype, out.strides):
            return False
        kind = product_type(a, b, out)
        left, right = self._matrix("left", a, kind), self._matrix("right", b, kind)
        target = Matrix(out, False, max(out.strides[0] // out.itemsize, out.shape[1]))
        (m, k), n = a.shape, b.shape[1]
        compute, _ = gemm_types(kind, self.precision)
        # use a workspace of this thread alone, because another thread may enqueue work between the kernels of a product
        room = self.scratch("product workspace", (workspace(self.gpu.index).nbytes,), np.uint8)
        handle = device.get_cublas_handle()
        return self._biased.enqueue(handle, (right, left, target), bias, more, (n, m, k), compute, room, epilogue)

    def _gemm_elsewhere(self, a: Array, b: Array, out: Array, accumulate: bool) -> None:
        """Compute a product whose result is not row-major: as a transposed product, or in scratch memory."""
        if as_matrix(out) is not None:
            self.gemm(b.T, a.T, out.T, accumulate)
            return
        product = self.scratch("product", out.shape, out.dtype)
        if accumulate:
            self.copy(out, out=product)
        self.gemm(a, b, product, accumulate)
        self.copy(product, out=out)

    def _matrix(self, name: str, x: Array, kind: Any) -> Matrix:
        """Return a matrix in a dtype and a layout that cuBLAS accepts; copy it to scratch memory if necessary."""
        matrix = as_matrix(x) if x.dtype == kind else None
        if matrix is None:
            turned = x.strides[0] < x.strides[1]
            copy = self.scratch(name, x.shape[::-1] if turned else x.shape, kind)
            self.copy(x, out=copy.T if turned else copy)
            matrix = Matrix(copy, turned, max(1, copy.shape[1]))
        return matrix

    def batch_matmul(
        self,
        a: Array,
        b: Array,
        out: Array,
        transpose_a: bool = False,
        transpose_b: bool = False,
        scale: float = 1.0,
    ) -> None:
        a, b = a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b
        if not out.size:
            return
        if a.ndim > 3 and all(x.strides[0] == x.shape[1] * x.strides[1] for x in (a, b, out)):
            a, b, out = (x.reshape(-1, *x.shape[2:]) for x in (a, b, out))
        target = as_matrix(out[(0,) * (out.ndim - 2)])
        if target is None:
            product = self._stack("product", out.shape, out.dtype)
            self.batch_matmul(a, b, out=product, scale=scale)
            self.copy(product, out=out)
        elif target.turned:
            self._products(b.swapaxes(-1, -2), a.swapaxes(-1, -2), out.swapaxes(-1, -2), scale)
        else:
            self._products(a, b, out, scale)

    def _products(self, a: Array, b: Array, out: Array, scale: float) -> None:
        """Compute ``out[i] = scale a[i] b[i]`` for a batch of matrices; ``out`` is row-major.

        The batch has one axis, or two axes that no single stride can replace.
        """
        kind = product_type(a, b, out)
        (*batch, m, k), n = a.shape, b.shape[-1]
        (left, lefts), (right, rights) = self._batch("left", a, kind), self._batch("right", b, kind)
        compute, (zero, one) = gemm_types(kind, self.precision)
        factor = np.full_like(one, scale)
        stacks, steps = (rights, lefts, out), (right.step, left.step, max(out.strides[-2] // out.itemsize, n))
        types = [(CUDA_TYPES[x.dtype], step) for x, step in zip(stacks, steps, strict=True)]
        places: list[tuple[int, ...]]
        if len(batch) == 1:
            enqueue = gemm_strided_batched_ex
            places = [(x.data.ptr, *each, x.strides[0] // x.itemsize) for x, each in zip(stacks, types, strict=True)]
        else:
            enqueue = gemm_batched_ex
            places = [(x.data.ptr, *each) for x, each in zip(self._addresses(*stacks), types, strict=True)]
        enqueue(
            device.get_cublas_handle(),
            cublas.CUBLAS_OP_T if right.turned else cublas.CUBLAS_OP_N,
            cublas.CUBLAS_OP_T if left.turned else cublas.CUBLAS_OP_N,
            *(n, m, k, factor.ctypes.data, *places[0], *places[1], zero.ctypes.data, *places[2]),
            *(math.prod(batch), compute, cublas.CUBLAS_GEMM_DEFAULT),
        )

    def _batch(self, name: str, x: Array, kind: Any) -> tuple[Matrix, Array]:
        """Return the first matrix of a batch (..., M, N) in a layout that cuBLAS accepts, and the batch."""
        first = (0,) * (x.ndim - 2)
        matrix = as_matrix(x[first]) if x.dtype == kind else None
        if matrix is None:
            copy = self._stack(name, x.shape, kind)
            self.copy(x, out=copy)
            matrix, x = Matrix(copy[first], False, max(1, copy.shape[-1])), copy
        return matrix, x

    def _stack(self, name: str, shape: Sequence[int], dtype: Any) -> Array:
        """Return scratch memory (..., M, N) in C order.

        Other scratch memory of four axes has the layout of images.
        """
        return self.scratch(name, (math.prod(shape[:-2]), *shape[-2:]), dtype).reshape(shape)

    def _addresses(self, *stacks: Array) -> Array:
        """Return the addresses of the matrices of stacks (A, B, M, N): (len(stacks), A B) int64 on the device.

        The array is kept, because captured products read it at each replay.
        """
        n_outer, n_inner = stacks[0].shape[:2]
        key = tuple((x.data.ptr, x.strides[:2], n_outer, n_inner) for x in stacks)
        if key not in self._tables:
            i, j = np.ogrid[:n_outer, :n_inner]
            addresses = [x.data.ptr + i * x.strides[0] + j * x.strides[1] for x in stacks]
            self._tables[key] = self.empty((len(stacks), n_outer * n_inner), np.int64)
            self.gpu.put(np.reshape(addresses, (len(stacks), -1)), self._tables[key])
        return self._tables[key]

    def column_sums(self, x: Array, out: Array, accumulate: bool = False) -> None:
        """Sum the rows of ``x`` (R, C), of any strides, to ``out`` (C,); add to ``out`` if ``accumulate``."""
        (n_rows, n_columns), (row, column) = x.shape, strides_of(x)
        width = pack_width(math.gcd(n_columns, int(row)), x) if column == 1 else 1
        n_packs = n_columns // width
        threads = min(WARP, 1 << (n_packs - 1).bit_length()) if n_packs else 1
        lines, n_blocks = THREADS // threads, max(1, -(-n_packs // threads))
        n_splits = max(1, min(SUM_BLOCKS // n_blocks, n_rows // (lines * ROWS_OF_THREAD)))
        parts = self.scratch("column sums", (n_splits, n_columns), sum_type(x.dtype))
        add = self.gpu.function("columns", "columns", X=x.dtype, Y=out.dtype, WIDTH=width)
        sizes = (np.int64(n_rows), np.int32(n_columns), np.int32(accumulate))
        arrays = (x, row, column, parts, self.counters(n_blocks), out)
        add((n_blocks, n_splits), (threads, lines), (*arrays, *sizes))


def as_matrix(x: Array) -> Matrix | None:
    """Return a matrix (M, N) in a layout that cuBLAS accepts; None if it has to be copied first."""
    for turned, view in ((False, x), (True, x.T)):
        (n_rows, n_columns), (row, column) = view.shape, view.strides
        least = max(1, n_columns)
        step = row // x.itemsize if n_rows > 1 else least
        if (column == x.itemsize or n_columns <= 1) and step >= least:
            return Matrix(x, turned, step)
    return None


def product_type(a: Array, b: Array, out: Array) -> Any:
    """Return the dtype of the factors: bfloat16 if any array is bfloat16, else the dtype of ``out``."""
    return BFLOAT16 if BFLOAT16 in (a.dtype, b.dtype, out.dtype) else out.dtype


def gemm_types(kind: Any, precision: str) -> tuple[int, tuple[HostArray, HostArray]]:
    """Return the type in which cuBLAS computes products of a dtype, and the numbers 0 and 1 in that type."""
    if kind == np.float64:
        return cublas.CUBLAS_COMPUTE_64F, FACTORS[np.float64]
    fast = precision == "tf32" and kind == np.float32
    return cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if fast else cublas.CUBLAS_COMPUTE_32F, FACTORS[np.float32]
