"""Scaling: columns brought to mean 0 and variance 1, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.estimators.facts import Moments

__all__ = ["Scaling"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of columns; that of a constant column counts as 1.

    Attributes
    ----------
    mean, std : (D,) ndarray of float64
    """

    mean: Array
    std: Array

    @classmethod
    def of(cls, moments: Moments) -> Scaling:
        """Return that of columns (N, D), of which there is a record."""
        std = np.sqrt(moments.squares / moments.n)
        # what rounding makes of a constant column
        constant = std <= 10 * np.finfo(np.float64).eps * np.abs(moments.mean)
        return cls(moments.mean, np.where(constant, 1.0, std))

    def scale(self, values: Any) -> Any:
        """Return scaled columns as 32-bit floats."""
        return ((values - self.mean) / self.std).astype(np.float32)

    def undo(self, values: Array) -> Array:
        """Return columns as they were, in 64-bit floats."""
        return values.astype(np.float64) * self.std + self.mean
