"""Errors about text or dates where estimators expect numbers.

The errors name the column and the first wrong value.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np

from singa_dask.arrays import Array

DATES = (datetime.date, np.datetime64)


@contextlib.contextmanager
def naming_values(names: Any = None, **arrays: Any) -> Iterator[None]:
    """Return a context that improves the error if its body fails to convert arrays to numbers.

    Parameters
    ----------
    names : sequence of str, optional
        Names of the columns, for arrays without column names.
    **arrays
        The arrays, by the name of the argument: X, y or sample_weight.

    Raises
    ------
    ValueError
        A value is a text or a date. The message names the column and the value, and says what to do.
    TypeError
        A value is an object of another type.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        for argument, values in arrays.items():
            for column, found in _columns(values, names):
                if (wrong := _first_wrong(found)) is None:
                    continue
                said = _text(argument, column, wrong[0])
                if isinstance(wrong[0], (str, *DATES)):
                    raise ValueError(said) from error
                raise TypeError(f"{said} The argument must be a string or a number.") from error
        raise


def refuse_times(x: Any) -> None:
    """Raise a ValueError for a frame with a column of dates, times or durations."""
    if hasattr(x, "dtypes") and getattr(x, "ndim", 0) == 2:
        for name, dtype in zip(x.columns, x.dtypes, strict=True):
            if getattr(dtype, "kind", "") in "mM":
                number = "month" if dtype.kind == "M" else "total_seconds()"
                raise ValueError(
                    f"column {name!r} of X has values of type {dtype}. Expected numbers, texts or categories: drop it, "
                    f"or convert it to numbers, e.g. X[{name!r}].dt.{number}."
                )


def refuse_dates(classes: Array) -> None:
    """Raise a ValueError if classes are dates."""
    if len(classes) and isinstance(classes[0], DATES):
        raise ValueError(f"y has {_shown(classes[0])}. Expected numbers or texts as classes, e.g. y.astype(str).")


def _columns(values: Any, names: Any) -> Iterator[tuple[Any, Array]]:
    """Yield the name or number of each column, and the column; for a vector, the name is None."""
    if hasattr(values, "iloc") and values.ndim == 2:
        yield from ((name, values.iloc[:, i].to_numpy()) for i, name in enumerate(values.columns))
        return
    try:
        array = np.asarray(values)
    except ValueError:  # the rows have different lengths
        return
    if array.ndim == 2:
        yield from zip(range(array.shape[1]) if names is None else names, array.T, strict=False)
    elif array.ndim == 1:
        yield None, array


def _first_wrong(values: Array) -> tuple[Any] | None:
    if values.dtype.kind in "mM" and len(values):
        return (values[0],)
    return next(((each,) for each in values if not _is_number(each)), None) if values.dtype.kind in "OUS" else None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _text(argument: str, column: Any, value: Any) -> str:
    """Return the message about a wrong value in a column of an argument."""
    where = argument if column is None else f"column {column!r} of {argument}"
    code = f"{argument}[{column!r}]" if isinstance(column, str) else argument
    if argument == "X" and isinstance(value, DATES):
        example = f", e.g. pd.to_datetime({code}).dt.month" if isinstance(column, str) else ""
        remedy = f"Drop the column, or derive numbers from it{example}"
    elif isinstance(value, DATES):
        remedy = "Convert dates to numbers, such as days since the first one"
    elif isinstance(value, str) and argument == "X" and not isinstance(column, str):
        remedy = "Convert texts to numbers, or use frames of pandas, whose columns of texts fit encodes as categories"
    elif isinstance(value, str):
        remedy = f"Convert texts to numbers, e.g. by pd.to_numeric({code}, errors='coerce'), or leave such records out"
        remedy += "; SingaClassifier learns classes" if argument == "y" else ""
    else:
        remedy = "Convert the values to numbers, or leave them out"
    return f"{where} has {_shown(value)}. Expected numbers. {remedy}."


def _shown(value: Any) -> str:
    return repr(str(value)) if isinstance(value, str) else f"{str(value)!r} of type {type(value).__name__}"
