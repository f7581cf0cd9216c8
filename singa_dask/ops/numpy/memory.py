"""NumpyMemory: the CPU as a device. Host arrays are its arrays, scalars are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np

from singa_dask.ops.contract import Array, CapturedKernels, Device, DType, Memory, Scalar, Transfers
from singa_dask.ops.scratch import Scratch

Ops = TypeVar("Ops", bound="NumpyMemory")


class NumpyMemory(Scratch, Device, Memory):
    """Device and memory, a mixin of `NumpyOps`."""

    device = "cpu"
    supports_capture = False
    prefers_large_kernels = False

    def activate(self) -> AbstractContextManager[None]:
        return nullcontext()

    def for_thread(self: Ops) -> Ops:
        return type(self)()

    def synchronize(self) -> None:
        pass

    @staticmethod
    def count() -> int:
        return 1

    def transfers(self) -> Transfers | None:
        return None

    def capture(self, run: Callable[[], None]) -> CapturedKernels:
        raise TypeError(f"{self.device} captures no kernels")

    def release(self) -> None:
        pass

    # -- arrays ----------------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        return np.empty(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: DType) -> Array:
        return np.zeros(shape, dtype)

    def pinned(self, shape: Sequence[int], dtype: DType) -> Array:
        return np.zeros(shape, dtype)

    def copy(self, x: Array, out: Array) -> None:
        np.copyto(out, x, casting="unsafe")

    def from_host(self, x: Array) -> Array:
        return x

    def to_host(self, x: Scalar) -> Array:
        return np.asarray(x)

    def address(self, x: Array | None) -> int:
        return 0

    def constant(self, values: Array | float | None) -> Array | float | None:
        return values

    def labels(self, values: Array, before: Array | None = None) -> Array:
        return values

    # -- scalars -----------------------------------------------------------------------------------------

    def finite(self, x: Array) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(np.sum(x, dtype=np.float64))
        # a sum of finite values may overflow
        return math.isfinite(total) or bool(np.isfinite(x).all())

    def accumulate(self, value: Scalar, total: Scalar) -> Scalar:
        return total + value

    def reset(self, total: Scalar) -> Scalar:
        return 0.0

    def poll(self, total: Scalar) -> float | None:
        return float(total)
