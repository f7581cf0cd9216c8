"""Values of columns: kinds, missing values, and conversion to floats or strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.tables.list_columns import is_list
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")


def column_kind(kind: pa.DataType) -> str:
    """Return the kind of a column.

    Kinds are ``number``, ``boolean``, ``string``, ``vector`` and ``empty``. For other types the result is Arrow's name
    of the type.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return column_kind(kind.value_type)
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if is_list(kind) and column_kind(kind.value_type) in ("number", "boolean"):
        return "vector"
    if types.is_null(kind):
        return "empty"
    names = {"date": types.is_date, "timestamp": types.is_timestamp, "time": types.is_time}
    return next((name for name, test in names.items() if test(kind)), str(kind))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array without dictionary encoding."""
    chunks = column.chunks or [pa.array([], column.type)]
    array = chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks).combine_chunks()
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def missing_of(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are null, NaN, blank strings, or vectors with a missing value."""
    kind = column.type
    if is_list(kind):
        rows = np.repeat(np.arange(len(column)), pc.fill_null(pc.list_value_length(column), 0).to_numpy())
        missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
        missing[rows[missing_of(column.flatten())]] = True
        return missing
    if pa.types.is_floating(kind):
        missing_values = pc.is_null(column, nan_is_null=True)
    elif column_kind(kind) == "string":
        missing_values = pc.fill_null(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column)), 0), True)
    else:
        missing_values = pc.is_null(column)
    return np.asarray(missing_values.to_numpy(zero_copy_only=False), np.bool_)


def missing_rows(table: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows with a missing value in at least one of the columns ``names``."""
    is_missing = np.zeros(len(table), np.bool_)
    for name in names:
        is_missing |= missing_of(whole(table.column(name)))
    return is_missing


def as_floats(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers and booleans as float64, with NaN for missing values."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if pa.types.is_decimal(column.type):
        # cast by way of strings to get the nearest float, because a direct cast of decimals rounds twice
        column = column.cast(pa.string())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def as_texts(column: pa.Array) -> pa.Array:
    """Return values as strings: whole numbers without a decimal point, decimals without trailing zeros."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    texts = column.cast(pa.string())
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    if pa.types.is_floating(kind):
        numbers = column.cast(pa.float64())
        is_whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), 2.0**63))
        return pc.if_else(is_whole, numbers.cast(pa.int64(), safe=False).cast(pa.string()), texts)
    return texts


def cast_known(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert strings to another type. A string that Arrow cannot convert becomes null."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        different = texts.dictionary_encode()
        return pa.array([_cast(each, kind) for each in different.dictionary], kind).take(different.indices)


def _cast(text: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def key_texts(column: pa.Array) -> pa.Array:
    """Return keys as strings, which do not depend on the format of the table.

    7.0 becomes 7, a time at midnight becomes a date, and a missing key becomes null.
    """
    texts = pc.utf8_trim_whitespace(as_texts(column))
    if pa.types.is_timestamp(column.type):
        texts = pc.replace_substring_regex(texts, r"( 00:00:00)?(\.0+)?$", "")
    elif column_kind(column.type) == "string":
        texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0+$", r"\1")
    return pc.if_else(pa.array(missing_of(column)), None, texts)
