"""Check arrays in memory, of numbers or of class names, for training and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.arrays import Array
from singa_dask.data.codecs.class_types import class_values, numbers_of_values
from singa_dask.data.codecs.equal_names import NameNumbers
from singa_dask.data.codecs.labels import find_wrong_label
from singa_dask.data.codecs.record_values import is_numeric
from singa_dask.errors import DataError
from singa_dask.wording import listed

TEXTS = "UTSO"
REAL = (bool, int, float, np.bool_, np.integer, np.floating)
HINTS = {
    "c": "Give real and imaginary parts, or absolute values, as features.",
    "O": "Lists of different lengths and mixed types make such arrays. Expected an array of numbers.",
    "M": "Give dates as numbers, e.g. days since a date.",
    "m": "Give durations as numbers, e.g. seconds.",
    "U": "Encode texts as numbers, or give a frame and name the column in categories.",
    "V": "Give a frame for columns of different types.",
}


def plain_array(value: Any, where: str) -> Array:
    """Return an array without its mask; raise a `DataError` for masked values, or if it is not an array."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise DataError(f"{where}: masked values, expected a value everywhere. Fill them, e.g. by filled(0).")
        return np.asarray(value.data)
    if not isinstance(value, np.ndarray):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        hint = " Call toarray(): records are dense." if hasattr(value, "toarray") else ""
        raise DataError(f"{where}: an object of type {kind}, expected a NumPy array.{hint}")
    if not value.ndim:
        raise DataError(f"{where}: a single value, expected an array.")
    return np.asarray(value)


def as_array(value: Any, where: str) -> Array:
    """Convert any array-like, such as a list or a column of a frame, to an array, as `plain_array` does."""
    if isinstance(value, np.ndarray) or hasattr(value, "toarray"):
        return plain_array(value, where)
    try:
        return plain_array(np.asarray(column_values(value)), where)
    except ValueError as error:
        raise DataError(f"{where}: records of several shapes, expected one: {error}") from None


def column_values(column: Any) -> Any:
    """Return a column of pandas or Arrow as an array; return other values unchanged."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column.to_numpy(zero_copy_only=False)
    return column.to_numpy() if hasattr(column, "iloc") else column


def check_numbers(dtype: np.dtype[Any], where: str, or_texts: bool = False) -> None:
    """Raise a `DataError` if an array does not have numbers or, with ``or_texts``, strings."""
    if not (is_numeric(dtype) or (or_texts and dtype.kind in TEXTS)):
        expected = "numbers or texts" if or_texts else "numbers"
        hint = HINTS.get("U" if dtype.kind in "TS" else dtype.kind, "")
        raise DataError(f"{where}: values of type {dtype}, expected {expected}. {hint}".rstrip())


def as_stored(values: Array, dtype: np.dtype[Any], place: str, first: int = 0) -> Array:
    """Convert numbers to the dtype of the records, rounding to the nearest value.

    Parameters
    ----------
    values : (n, ...) numbers
        Numbers within the range of 32-bit floats.
    dtype : dtype
    place : str
        Name of a record in errors, without its number, e.g. ``x, row``.
    first : int
        Number of the first record.

    Raises
    ------
    DataError
        A value is not finite, or too large.
    """
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, dtype)
        fits = np.isfinite(stored.astype(np.float32, copy=False)) if dtype.kind == "f" else None
    if fits is None or fits.all():
        return stored
    index = np.unravel_index(int(np.argmin(fits)), stored.shape)
    inside = f"[{', '.join(map(str, index[1:]))}]" if index[1:] else ""
    value, record = values[index], f"{place} {first + int(index[0])}{inside}"
    hint = ""
    if np.isnan(value):
        is_output = f", {place}".rpartition(", ")[0].endswith(", y")
        hint = " Replace missing values, or give a frame and set missing: mean in store_conf."
        hint = " Leave records without a label or target out." if is_output else hint
    raise DataError(f"{record}: {value}, expected a 32-bit float.{hint}")


def texts_of(values: Array, place: str) -> Array:
    """Return class names as an array of objects, (n,) str.

    Raises a `DataError` if a value is empty or not a string. See `as_stored` for ``place``.
    """
    values = values.reshape(-1)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    texts = values.astype(object)
    # None, NaN and numbers among the strings have other types
    wrong = next((i for i, value in enumerate(texts) if not (isinstance(value, str) and value)), None)
    if wrong is not None:
        raise DataError(f"{place} {wrong}: {texts[wrong]!r}, expected the name of a class.")
    return texts


def class_numbers(values: Array, names: Sequence[str], place: str, of_type: str = "") -> npt.NDArray[np.int32]:
    """Convert classes, which are numbers or names, to class numbers.

    Parameters
    ----------
    values : (n,) numbers or texts
    names : sequence of str
        Names of all classes; empty if the classes have no names.
    place : str
        See `as_stored`.
    of_type : str
        Type of the labels before they became class names; see `label_type`. If it is set, a number in ``values`` is a
        label of this type, not a class number.

    Raises
    ------
    DataError
        A value is not a class, or is both the number of one class and the name of another class.
    """
    of_classes = class_values(names, of_type)
    is_typed = of_classes.dtype.kind in "bif" and len(names) > 0
    if is_typed and values.dtype.kind == "O" and all(isinstance(value, REAL) for value in values):
        values = np.array(values.tolist())
    if is_typed and values.dtype.kind in "biuf":
        labels = numbers_of_values(values, of_classes)
        if (labels < 0).any():
            row = int(labels.argmin())
            raise DataError(f"{place} {row}: unknown class {values[row]}. Classes: {listed(names)}.")
        return labels
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
    """Return whether the name of class ``number`` reads like the number of another class."""
    try:
        return int(name) != number
    except ValueError:
        return False
