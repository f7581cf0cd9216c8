"""Columns of texts and categories in frames of pandas, as numbers: one for each category, 1 where a record has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from singa_dask.registry import suggest

__all__ = ["Categories", "category_columns"]

Array = npt.NDArray[Any]

UNKNOWN = ("error", "ignore")


def category_columns(x: Any) -> list[str]:
    """Return the columns of a frame of pandas, or of the meta of one of Dask, that have texts or categories."""
    if not hasattr(x, "iloc") or getattr(x, "ndim", 0) != 2 or not x.columns.is_unique:
        return []
    return [name for name, dtype in x.dtypes.items() if _is_category(str(dtype), x[name])]


def _is_category(dtype: str, column: Any) -> bool:
    # numbers may be objects
    return dtype.startswith(("category", "str")) or (
        dtype == "object" and any(isinstance(value, str) for value in column)
    )


class Categories:
    """One-hot codes of some columns of frames like one.

    The categories of a column of the type category are those of its type, else its values. A missing value is a
    category of its own, if there is any. What is no category is refused, or if ``handle_unknown`` is ``"ignore"`` all
    its codes are 0.
    """

    def __init__(self, frame: Any, columns: Sequence[str], handle_unknown: str) -> None:
        if handle_unknown not in UNKNOWN:
            raise ValueError(f"handle_unknown: {handle_unknown!r}. {suggest(str(handle_unknown), UNKNOWN)}")
        self._refuses = handle_unknown == "error"
        self._known = {name: self._categories(name, frame[name]) for name in columns}

    @staticmethod
    def _categories(name: str, column: Any) -> Array:
        values = list(column.cat.categories if hasattr(column, "cat") else column.dropna().unique())
        if len({type(value) for value in values}) > 1:
            raise ValueError(f"column {name!r} of X has values of several types. Expected texts, or numbers.")
        return np.array([*sorted(values), *([None] if column.isna().any() else [])], object)

    def encode(self, frame: Any) -> Array:
        """Return the numbers of a frame, (n, codes and other columns) float: the codes come first."""
        columns = []
        for name, known in self._known.items():
            values = np.where(frame[name].isna(), None, frame[name].to_numpy(object))
            unknown = sorted(map(str, set(values) - set(known)))
            if unknown and self._refuses:
                raise ValueError(
                    f"column {name!r} of X has unknown categories: {', '.join(unknown)}. Known: "
                    f"{', '.join(map(str, known))}. Set handle_unknown='ignore' to take them for none of these."
                )
            columns += [values == category for category in known]
        others = frame.drop(columns=list(self._known))
        if others.shape[1]:
            columns += list(check_array(others, dtype=(np.float64, np.float32), input_name="X").T)
        return np.stack(columns, axis=1).astype(np.float64)
