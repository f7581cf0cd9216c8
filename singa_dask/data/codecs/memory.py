"""Arrays and frames in memory, checked, as plain arrays and Arrow tables: alike for training and for prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from singa_dask.arrays import Array
from singa_dask.data.codecs.record import find_wrong_label
from singa_dask.data.types import Field
from singa_dask.errors import DataError

# Arrays: of numbers, or of texts that name classes.


NUMBERS = "biuf"
TEXTS = "UTSO"
HINTS = {
    "c": "Give real and imaginary parts, or absolute values, as features.",
    "O": "Lists of different lengths and mixed types make such arrays. Expected an array of numbers.",
    "M": "Give dates as numbers, e.g. days since a date.",
    "m": "Give durations as numbers, e.g. seconds.",
    "U": "Encode texts as numbers, or give a frame and name the column in categories.",
    "V": "Give a frame for columns of different types.",
}


def plain_array(value: Any, where: str) -> Array:
    """Return an array of NumPy without a mask.

    Raises
    ------
    DataError
        It is none, or has masked values, or a single value.
    """
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise DataError(f"{where}: masked values, expected a value everywhere. Fill them, e.g. by filled(0).")
        return np.asarray(value.data)
    if not isinstance(value, np.ndarray):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        hint = " Say toarray(), for records are dense." if hasattr(value, "toarray") else ""
        raise DataError(f"{where}: an object of type {kind}, expected a NumPy array.{hint}")
    if not value.ndim:
        raise DataError(f"{where}: a single value, expected an array.")
    return np.asarray(value)


def as_stored(values: Array, field: Field, where: str, first: int) -> Array:
    """Return values in the type of the records, the nearest 32-bit floats among them."""
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, field.dtype)
    if field.dtype.kind != "f" or np.isfinite(stored).all():
        return stored
    place = np.unravel_index(int(np.argmin(np.isfinite(stored))), stored.shape)
    value, row = values[place], first + int(place[0])
    inside = f"[{', '.join(map(str, place[1:]))}]"
    hint = "Replace missing values, or give a frame and say missing: mean in store_conf." if np.isnan(value) else ""
    raise DataError(f"{where}, record {row}{inside}: {value}, expected a 32-bit float. {hint}".rstrip())


def texts_of(values: Array, where: str) -> Array:
    """Return names of classes as an array of objects, (n,) str.

    Raises
    ------
    DataError
        A value is no text, or empty.
    """
    values = values.reshape(-1)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    texts = values.astype(object)
    # as floats and integers among texts do, None and NaN have other types
    wrong = next((i for i, value in enumerate(texts) if not (isinstance(value, str) and value)), None)
    if wrong is not None:
        raise DataError(f"{where}, record {wrong}, y: {texts[wrong]!r}, expected the name of a class.")
    return texts


def label_numbers(y: Array, where: str) -> Array:
    """Return labels as (n,) int32.

    Raises
    ------
    DataError
        A value is not the index of a class.
    """
    wrong = find_wrong_label(y)
    if wrong is not None:
        raise DataError(f"{where}, record {wrong[0]}, y: {wrong[1]}.")
    if len(y) and y.min() < 0:
        row = int(y.argmin())
        raise DataError(f"{where}, record {row}, y: the label {y[row]} is negative. Labels are indices of classes.")
    return y.astype(np.int32, copy=False)


# Frames: tables with named columns.


HINT = "Convert it to numbers or strings, or leave it out."


def is_frame(value: Any) -> bool:
    """Return whether a value has named columns: a frame of pandas or Dask, or a table of Arrow."""
    is_arrow = (
        hasattr(value, "__arrow_c_stream__") and not hasattr(value, "iloc") and not isinstance(value, pa.ChunkedArray)
    )
    return is_arrow or (getattr(value, "ndim", 0) == 2 and all(hasattr(value, name) for name in ("columns", "iloc")))


def as_table(value: Any, where: str) -> pa.Table:
    """Return a frame as an Arrow table: of pandas without its index, NaN as null.

    Raises
    ------
    DataError
        A column cannot be converted, or has no name of its own.
    """
    if isinstance(value, pa.Table):
        return _checked(value, where)
    if not hasattr(value, "dtypes") or not hasattr(value, "iloc"):
        if not hasattr(value, "__arrow_c_stream__"):
            kind = f"{type(value).__module__}.{type(value).__name__}"
            raise DataError(f"{where}: an object of type {kind}, expected a frame.")
        return _checked(pa.table(value), where)
    names = names_of(value.columns, where)
    return pa.table({name: as_column(value.iloc[:, i], f"{where}, column {name!r}") for i, name in enumerate(names)})


def names_of(columns: Any, where: str) -> list[str]:
    """Return the names of columns of pandas as texts.

    Raises
    ------
    DataError
        A name has several levels, or occurs twice.
    """
    if getattr(columns, "nlevels", 1) > 1:
        raise DataError(f"{where}: columns with names of {columns.nlevels} levels, expected one. Join the levels.")
    names = [str(name) for name in columns]
    _refuse_twice(names, where)
    return names


def _refuse_twice(names: Sequence[str], where: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise DataError(f"{where}: column {twice!r} occurs twice. Rename one.")


def _checked(table: pa.Table, where: str) -> pa.Table:
    _refuse_twice(table.column_names, where)
    return table


def as_column(values: Any, where: str) -> pa.Array | pa.ChunkedArray:
    """Return values of pandas, NumPy or Arrow as a column."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        column = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        kind = getattr(values, "dtype", type(values).__name__)
        raise DataError(
            f"{where}: values of type {kind} cannot be a column: {str(error).rstrip('.')}. {HINT}"
        ) from error
    # objects that are all missing; those of other partitions are texts
    is_missing = pa.types.is_null(column.type) and getattr(getattr(values, "dtype", None), "kind", "") == "O"
    return column.cast(pa.string()) if is_missing else column
