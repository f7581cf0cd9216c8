"""Arrays and frames in memory, checked, as plain arrays and Arrow tables: alike for training and for prediction."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.arrays import Array
from singa_dask.data.codecs.columns import refuse_twice
from singa_dask.data.codecs.numbers import NumberForm, Spelling
from singa_dask.data.codecs.record import find_wrong_label, is_numeric
from singa_dask.errors import DataError, listed
from singa_dask.texts import NameNumbers

# Arrays: of numbers, or of texts that name classes.


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


def as_array(value: Any, where: str) -> Array:
    """Return as `plain_array` does what NumPy makes an array of, e.g. a list, or a column of a frame."""
    if isinstance(value, np.ndarray) or hasattr(value, "toarray"):
        return plain_array(value, where)
    try:
        return plain_array(np.asarray(column_values(value)), where)
    except ValueError as error:
        raise DataError(f"{where}: records of several shapes, expected one: {error}") from None


def column_values(column: Any) -> Any:
    """Return a column of pandas or Arrow as an array; anything else as it is."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column.to_numpy(zero_copy_only=False)
    return column.to_numpy() if hasattr(column, "iloc") else column


def check_numbers(dtype: np.dtype[Any], where: str, or_texts: bool = False) -> None:
    """Check that the values of an array are numbers, or else texts.

    Raises
    ------
    DataError
        They are not; the message says what to do.
    """
    if not (is_numeric(dtype) or (or_texts and dtype.kind in TEXTS)):
        expected = "numbers or texts" if or_texts else "numbers"
        hint = HINTS.get("U" if dtype.kind in "TS" else dtype.kind, "")
        raise DataError(f"{where}: values of type {dtype}, expected {expected}. {hint}".rstrip())


def as_stored(values: Array, dtype: np.dtype[Any], place: str, first: int = 0) -> Array:
    """Return numbers in the type of the records: the nearest floats, all of which fit in 32 bits.

    Parameters
    ----------
    values : (n, ...) numbers
    dtype : dtype
    place : str
        What errors call a record, without its number, e.g. ``x, row``.
    first : int
        Number of the first record.

    Raises
    ------
    DataError
        A value is not finite, or too large.
    """
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, dtype)
        fits = np.isfinite(stored.astype(np.float32, copy=False)) if dtype.kind == "f" else True
    if np.all(fits):
        return stored
    index = np.unravel_index(int(np.argmin(fits)), stored.shape)
    inside = f"[{', '.join(map(str, index[1:]))}]" if index[1:] else ""
    value, record = values[index], f"{place} {first + int(index[0])}{inside}"
    hint = "Replace missing values, or give a frame and say missing: mean in store_conf." if np.isnan(value) else ""
    raise DataError(f"{record}: {value}, expected a 32-bit float. {hint}".rstrip())


def texts_of(values: Array, place: str) -> Array:
    """Return names of classes as an array of objects, (n,) str; for ``place`` see `as_stored`.

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
        raise DataError(f"{place} {wrong}: {texts[wrong]!r}, expected the name of a class.")
    return texts


def class_numbers(values: Array, names: Sequence[str], place: str) -> npt.NDArray[np.int32]:
    """Return the numbers of classes, given by these or by their names.

    Parameters
    ----------
    values : (n,) numbers or texts
    names : sequence of str
        Of all classes; empty if they have none.
    place : str
        See `as_stored`.

    Raises
    ------
    DataError
        A value is no class, or could be the number of one and the name of another.
    """
    if names and values.dtype.kind in TEXTS:
        numbers, texts = NameNumbers(names), texts_of(values, place)
        labels = np.fromiter((numbers[text] for text in texts), np.int32, len(texts))
        if (labels < 0).any():
            row = int(labels.argmin())
            raise DataError(f"{place} {row}: unknown class {texts[row]!r}. Classes: {listed(names)}.")
        return labels
    if len(values) and any(_is_another_number(name, i) for i, name in enumerate(names)):
        raise DataError(
            f"{place} 0: {values[0]}, the name or the number of a class? The classes are named {listed(names)}. "
            "Expected names, as texts."
        )
    wrong = find_wrong_label(values)
    if wrong is None and len(values) and values.min() < 0:
        row = int(values.argmin())
        wrong = row, f"the label {values[row]} is negative. Labels are indices of classes"
    if wrong is not None:
        hint = " The classes have no names." if values.dtype.kind in TEXTS else ""
        raise DataError(f"{place} {wrong[0]}: {wrong[1]}.{hint}")
    return values.astype(np.int32, copy=False)


def _is_another_number(name: str, number: int) -> bool:
    """Return whether the name of a class reads as the number of another one."""
    try:
        return int(name) != number
    except ValueError:
        return False


# Frames: tables with named columns.


# texts among numbers that are named
MAX_WORDS = 5
HINT = "Convert it to numbers or strings, or leave it out."


def is_frame(value: Any) -> bool:
    """Return whether a value has named columns: a frame of pandas or Dask, a table of Arrow, or a stream of one."""
    if hasattr(value, "iloc"):
        return hasattr(value, "columns") and getattr(value, "ndim", 0) == 2
    return hasattr(value, "__arrow_c_stream__") and (hasattr(value, "columns") or hasattr(value, "schema"))


def as_table(value: Any, where: str, spelling: Spelling | None = None) -> pa.Table:
    """Return a frame as an Arrow table: of pandas without its index, NaN as null, bytes that are UTF-8 as texts.

    ``spelling`` says what texts among numbers mean; without it there are none.

    Raises
    ------
    DataError
        A column cannot be converted, or has no name of its own.
    """
    if not is_frame(value):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        raise DataError(f"{where}: an object of type {kind}, expected a frame.")
    if hasattr(value, "iloc"):
        columns = {name: value.iloc[:, i] for i, name in enumerate(names_of(value.columns, where))}
        table = pa.table(as_columns(columns, where, spelling))
    else:
        table = value if isinstance(value, pa.Table) else pa.table(value)
        refuse_twice(table.column_names, where)
    for i, column in enumerate(table.schema):
        if column.type in (pa.binary(), pa.large_binary()):
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(i, column.name, table.column(i).cast(pa.string()))
    return table


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
    refuse_twice(names, where)
    return names


def as_columns(
    columns: Mapping[str, Any], where: str, spelling: Spelling | None
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return columns of values of pandas, NumPy or Arrow; for ``spelling`` see `as_table`."""
    found = {}
    for name, values in columns.items():
        known = (spelling.words_of(name), spelling.numbers.get(name)) if spelling else ()
        found[name] = as_column(values, f"{where}, column {name!r}", *known)
    return found


def as_column(
    values: Any, where: str, na_values: Collection[str] | None = None, form: NumberForm | None = None
) -> pa.Array | pa.ChunkedArray:
    """Return values of pandas, NumPy or Arrow as a column.

    Among numbers, ``na_values`` are texts for missing values, and others are written in a ``form``, if there is one;
    None: there are no texts among numbers.
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
                are_words = len(unknown) <= MAX_WORDS and not re.search(r"\d", "".join(unknown))
                said = f"Set na_values: [{', '.join(unknown)}] if they mean missing values." if are_words else HINT
                raise DataError(f"{where}: texts among numbers: {listed(unknown, MAX_WORDS)}. {said}") from None
            return pa.array(
                [known.get(each, each) if isinstance(each, str) else each for each in values], from_pandas=True
            )
        kinds = () if hasattr(values, "dtype") else sorted({type(each).__name__ for each in values if each is not None})
        kind = " and ".join(kinds) or getattr(values, "dtype", type(values).__name__)
        raise DataError(
            f"{where}: values of type {kind} cannot be a column: {str(error).rstrip('.')}. {HINT}"
        ) from error
    # objects that are all missing; those of other partitions are texts
    is_missing = pa.types.is_null(column.type) and getattr(getattr(values, "dtype", None), "kind", "") == "O"
    return column.cast(pa.string()) if is_missing else column


def _as_numbers(values: Sequence[float | None]) -> pa.Array:
    """Return integers from 2**63 on, and large ones among floats, as a column, with all digits if it has no others."""
    try:
        return pa.array(values, pa.uint64())
    except (pa.ArrowException, OverflowError):
        return pa.array([None if each is None else float(each) for each in values], from_pandas=True)


def _texts_among_numbers(values: Any) -> list[str]:
    """Return the different texts of a column of numbers and texts; none if it has values of other kinds, too."""
    found = {type(each) for each in values if each is not None}
    is_mixed = str in found and all(issubclass(each, (str, int, float, np.number)) for each in found)
    return list(dict.fromkeys(each for each in values if isinstance(each, str))) if is_mixed else []
