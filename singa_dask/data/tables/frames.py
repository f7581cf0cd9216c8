"""Data frames in memory, checked and converted to Arrow tables, for training and for prediction."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from singa_dask.data.tables.column_names import refuse_twice
from singa_dask.data.tables.dates import date_texts
from singa_dask.data.tables.spelling import NumberConf, Spelling, refusal
from singa_dask.errors import DataError, Remedy
from singa_dask.wording import listed

# maximum number of words among numbers that a message names
MAX_WORDS = 5
HINT = "Convert it to numbers or strings, or leave it out."


def is_frame(value: Any) -> bool:
    """Return whether a value is a frame of pandas or Dask, an Arrow table, or a stream of one."""
    if hasattr(value, "iloc"):
        return hasattr(value, "columns") and getattr(value, "ndim", 0) == 2
    return hasattr(value, "__arrow_c_stream__") and (hasattr(value, "columns") or hasattr(value, "schema"))


def as_table(
    value: Any,
    where: str,
    spelling: Spelling | None = None,
    row: Callable[[int], str] | None = None,
    texts: Collection[str] = (),
) -> pa.Table:
    """Convert a frame to an Arrow table.

    The index of a pandas frame is left out, NaN becomes null, and UTF-8 bytes become strings. ``spelling`` defines the
    meaning of strings in columns of numbers; if it is not passed, such strings are errors. ``row`` is a function that
    returns the place of a row for errors. ``texts`` names columns of text; numbers in these columns are errors.

    Raises a `DataError` if a column cannot be converted, or has no name of its own.
    """
    if not is_frame(value):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        raise DataError(f"{where}: an object of type {kind}, expected a frame.")
    if hasattr(value, "iloc"):
        columns = {name: value.iloc[:, i] for i, name in enumerate(names_of(value.columns, where))}
        table = pa.table(as_columns(columns, where, spelling, row, texts))
    else:
        table = value if isinstance(value, pa.Table) else pa.table(value)
        refuse_twice(table.column_names, where)
    for i, column in enumerate(table.schema):
        if column.type in (pa.binary(), pa.large_binary()):
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(i, column.name, table.column(i).cast(pa.string()))
    return table


def names_of(columns: Any, where: str) -> list[str]:
    """Return the column names of a pandas frame as strings.

    Raises a `DataError` if the names have several levels, or if a name occurs twice.
    """
    if getattr(columns, "nlevels", 1) > 1:
        raise DataError(f"{where}: columns with names of {columns.nlevels} levels, expected one. Join the levels.")
    names = [str(name) for name in columns]
    refuse_twice(names, where)
    return names


def as_columns(
    columns: Mapping[str, Any],
    where: str,
    spelling: Spelling | None,
    row: Callable[[int], str] | None = None,
    texts: Collection[str] = (),
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Convert columns of pandas, NumPy or Arrow to Arrow. See `as_table` for the other parameters."""
    converted = {}
    for name, values in columns.items():
        if spelling and name in spelling.dates and getattr(getattr(values, "dtype", None), "kind", "O") == "O":
            # Arrow would read times with several offsets, and times without an offset, as times in UTC
            values = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else date_texts(values)
        of_name = None if name in texts else spelling
        words, form = (of_name.words_of(name), of_name.numbers.get(name)) if of_name else (None, None)
        converted[name] = as_column(values, f"{where}, column {name!r}", words, form, row)
    return converted


def as_column(
    values: Any,
    where: str,
    na_values: Collection[str] | None = None,
    form: NumberConf | None = None,
    row: Callable[[int], str] | None = None,
) -> pa.Array | pa.ChunkedArray:
    """Convert values of pandas, NumPy or Arrow to an Arrow column.

    In a column of numbers, the strings in ``na_values`` are missing values, and strings in the form ``form`` are
    numbers. If ``na_values`` is None, all strings in such a column are errors.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        try:
            column = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, OverflowError):
            if not all(each is None or type(each) in (int, float) for each in values):
                raise
            column = _as_numbers(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if na_values is not None and (words := _texts_among_numbers(values)):
            numbers = form.parse(pa.array(words)).to_pylist() if form else ()
            known = {word: number for word, number in zip(words, numbers, strict=False) if number is not None}
            known |= {word: None for word in words if word.strip() in na_values}
            if unknown := [word for word in words if word not in known]:
                if form and row:
                    index = next(i for i, each in enumerate(values) if isinstance(each, str) and each == unknown[0])
                    column_name = where.rpartition(", column ")[2].strip("'")
                    raise refusal(row(index), column_name, unknown[0], {column_name: form}) from None
                are_words = len(unknown) <= MAX_WORDS and not re.search(r"\d", "".join(unknown))
                remedy = Remedy("na_values", f"Set na_values: [{', '.join(unknown)}]", tuple(unknown))
                advice = f"{remedy.text} if they mean missing values." if are_words else HINT
                message = f"{where}: texts among numbers: {listed(unknown, MAX_WORDS)}. {advice}"
                raise DataError(message, remedy=remedy if are_words else None) from None
            read = [known.get(each, each) if isinstance(each, str) else each for each in values]
            return pa.array(map(_as_float, read) if form else read, from_pandas=True)
        types = [] if hasattr(values, "dtype") else [type(each) for each in values]
        kinds = sorted({each.__name__ for each in types if each is not type(None)})
        if row and len(kinds) > 1:
            first = next(each for each in types if each is not type(None))
            index = next(i for i, each in enumerate(types) if each not in (first, type(None)))
            place = f"{row(index)}, column {where.rpartition(', column ')[2]}"
            message = f"a value of type {types[index].__name__} among values of type {first.__name__}. {HINT}"
            raise DataError(f"{place}: {message}") from error
        kind = " and ".join(kinds) or getattr(values, "dtype", type(values).__name__)
        raise DataError(
            f"{where}: values of type {kind} cannot be a column: {str(error).rstrip('.')}. {HINT}"
        ) from error
    # if this partition of an object column has no values, other partitions may have strings
    is_missing = pa.types.is_null(column.type) and getattr(getattr(values, "dtype", None), "kind", "") == "O"
    return column.cast(pa.string()) if is_missing else column


def _as_numbers(values: Sequence[float | None]) -> pa.Array:
    """Convert numbers, including integers of 2**63 and more, to a column of uint64, or else of floats."""
    try:
        return pa.array(values, pa.uint64())
    except (pa.ArrowException, OverflowError):
        return pa.array([None if each is None else float(each) for each in values], from_pandas=True)


def _as_float(value: Any) -> float | None:
    """Return a number as a float; None for a value that is not a number."""
    return float(value) if isinstance(value, (int, float, np.number)) else None


def _texts_among_numbers(values: Any) -> list[str]:
    """Return the distinct strings in a column of numbers and strings; empty for other mixtures of types."""
    types = {type(each) for each in values if each is not None}
    is_mixed = str in types and all(issubclass(each, (str, int, float, np.number)) for each in types)
    is_mixed = is_mixed and bool not in types
    return list(dict.fromkeys(each for each in values if isinstance(each, str))) if is_mixed else []
