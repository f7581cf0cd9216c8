"""The types of what kernels take and return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "DType", "Key", "Pair", "Scalar"]

# An array in the memory of the worker's device: numpy's on a CPU, CuPy's on a GPU, which has no types of its own.
Array: TypeAlias = np.ndarray[Any, Any]
# What a reduction to one number returns: a number on a CPU, an array (1,) float64 on a GPU.
Scalar: TypeAlias = Array | float
DType: TypeAlias = npt.DTypeLike
# Vertical and horizontal: the size, stride or padding of a window.
Pair: TypeAlias = tuple[int, int]
# The key of random numbers, e.g. (seed, layer, step).
Key: TypeAlias = Sequence[int | str]
