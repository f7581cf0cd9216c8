"""UpcastOps: numpy's kernels also for bfloat16, converted to float32 and back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.ops.contract import Array, DType
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.numpy.ops import NumpyOps
from singa_dask.ops.onednn.library import BFLOAT16

__all__ = ["UpcastOps"]

# What gives memory, or takes any type.
AS_THEY_ARE = {name for name, _ in inspect.getmembers(NumpyMemory, inspect.isfunction)} | {"lrn_memory", "place_dtype"}


class UpcastOps(NumpyOps):
    """NumpyOps whose kernels compute in float32 if arrays are bfloat16, and convert ``out`` back."""

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        wide = np.float32 if np.dtype(dtype) == BFLOAT16 else dtype
        return super().lrn_memory(shape, wide, size, alpha, beta, knorm)


def upcast(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel of NumpyOps that also takes bfloat16."""
    parameters = list(inspect.signature(kernel).parameters)[1:]

    @functools.wraps(kernel)
    def run(self: UpcastOps, *args: Any, **kwargs: Any) -> Any:
        if not any(is_bf16(value) for value in (*args, *kwargs.values())):
            return kernel(self, *args, **kwargs)
        given = dict(zip(parameters, args, strict=False)) | kwargs
        out: Any = given.get("out")
        for name, value in given.items():
            if is_bf16(value):
                given[name] = self.scratch(f"wide {name}", value.shape, np.float32)
                self.copy(value, out=given[name])
        result = kernel(self, **given)
        if is_bf16(out):
            self.copy(given["out"], out=out)
        return result

    return run


def is_bf16(value: Any) -> bool:
    """Tell whether a value is an array of bfloat16."""
    return isinstance(value, np.ndarray) and value.dtype == BFLOAT16


for _name, _kernel in inspect.getmembers(NumpyOps, inspect.isfunction):
    if not _name.startswith("_") and _name not in AS_THEY_ARE:
        setattr(UpcastOps, _name, upcast(_kernel))
