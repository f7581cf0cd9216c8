"""Weights of records in training: numbers from 0 on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["find_wrong_weight"]


def find_wrong_weight(weights: npt.NDArray[Any]) -> tuple[int, str] | None:
    """Return the index of the first of (n, ...) weights that is negative or not finite, and what is wrong, or None."""
    wrong = ~((weights >= 0) & (weights <= np.finfo(np.float32).max)).reshape(-1)
    if not wrong.any():
        return None
    row = int(wrong.argmax())
    return row, f"the weight {weights.reshape(-1)[row]:g}, expected a number from 0 on that fits in a float of 32 bits"
