"""Types of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# An array of any shape and dtype. In the memory of a worker's device it is CuPy's on a GPU, which has no types.
Array: TypeAlias = np.ndarray[Any, Any]
DType: TypeAlias = npt.DTypeLike
