"""UpcastOps: NumPy's kernels for arrays of bfloat16."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.numpy import NumpyOps
from singa_dask.ops.numpy.memory import NumpyMemory

# Methods that need no conversion, because they return memory or accept any dtype.
AS_THEY_ARE = {name for name, _ in inspect.getmembers(NumpyMemory, inspect.isfunction)} | {"lrn_memory", "place_dtype"}


class UpcastOps(NumpyOps):
    """NumpyOps that also accepts bfloat16: it computes in float32, and converts ``out`` back."""


def upcast(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel of NumpyOps that also accepts bfloat16."""
    parameters = list(inspect.signature(kernel).parameters)[1:]

    @functools.wraps(kernel)
    def run(self: UpcastOps, *args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values()) if kwargs else args
        if BFLOAT16 not in [value.dtype for value in values if isinstance(value, np.ndarray)]:
            return kernel(self, *args, **kwargs)
        arguments = dict(zip(parameters, args, strict=False)) | kwargs
        out: Any = arguments.get("out")
        for name, value in arguments.items():
            if is_bf16(value):
                arguments[name] = self.scratch(f"wide {name}", value.shape, np.float32)
                self.copy(value, out=arguments[name])
        result = kernel(self, **arguments)
        if is_bf16(out):
            self.copy(arguments["out"], out=out)
        return result

    return run


def is_bf16(value: Any) -> bool:
    """Return whether a value is an array of bfloat16."""
    return isinstance(value, np.ndarray) and value.dtype == BFLOAT16


for _name, _kernel in inspect.getmembers(NumpyOps, inspect.isfunction):
    if not _name.startswith("_") and _name not in AS_THEY_ARE:
        setattr(UpcastOps, _name, upcast(_kernel))
