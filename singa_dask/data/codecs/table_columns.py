"""Columns of a table as arrays: their kinds, numbers and strings, and which values are missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.errors import DataError


def column_kind(kind: pa.DataType) -> str:
    """Return ``number``, ``boolean``, ``string``, ``empty`` or, for a type that is not supported, its name."""
    types = pa.types
    if types.is_dictionary(kind):
        return column_kind(kind.value_type)
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_null(kind):
        return "empty"
    names = {"date": types.is_date, "timestamp": types.is_timestamp, "time": types.is_time}
    return next((name for name, test in names.items() if test(kind)), str(kind))


def check_label_type(url: str, column: pa.Field) -> None:
    """Raise a `DataError` for a column whose type is none of numbers: it cannot have the labels of arrays."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(
            f"{url}: the label {column.name!r} is of type {column.type}, expected integers: write the index of the "
            f"class, as pandas.factorize returns it. Or name another column: user_conf: {{label: ...}}."
        )


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, not encoded by a dictionary."""
    chunks = column.chunks or [pa.array([], column.type)]
    array = chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks).combine_chunks()
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def missing_of(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values are missing: null, NaN, or the empty string."""
    kind = column.type
    if pa.types.is_floating(kind):
        found = pc.is_null(column, nan_is_null=True)
    elif column_kind(kind) == "string":
        found = pc.fill_null(pc.equal(pc.utf8_length(column), 0), True)
    else:
        found = pc.is_null(column)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def missing_rows(table: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which rows have no value in one of some columns."""
    found = np.zeros(len(table), np.bool_)
    for name in names:
        found |= missing_of(whole(table.column(name)))
    return found


def as_floats(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers and booleans as float64, NaN where there is no value."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def as_texts(column: pa.Array) -> pa.Array:
    """Return the values of a column as strings."""
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
