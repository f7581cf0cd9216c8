"""Read blocks in which some records are bad: one by one, or in the longest possible runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa

from singa_dask.data.codecs.record_schema import show_schema
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError

T = TypeVar("T")
OTHER_SCHEMA = "holds "
"""Beginning of the message about a record that is readable, but has another schema than expected."""


def salvage_rows(
    n: int, schema: Mapping[str, Field], read_row: Callable[[int], Arrays]
) -> tuple[Arrays, dict[int, str]]:
    """Read the records of a block one by one, and skip bad records.

    Parameters
    ----------
    n : int
    schema : mapping of str to Field
        Expected schema. A record with another schema is bad.
    read_row : callable
        Returns the arrays of one record, without a record axis.

    Returns
    -------
    dict of str to ndarray
        The fields, each (n, *shape). Bad records are zeros.
    dict of int to str
        What is wrong with each bad record, by its row.
    """
    arrays = {name: np.zeros((n, *field.shape), field.dtype) for name, field in schema.items()}
    bad: dict[int, str] = {}
    for row in range(n):
        try:
            record = read_row(row)
        except (DataError, OverflowError, ValueError) as error:
            bad[row] = str(error).rstrip(".")
            continue
        record_schema = {name: Field(array.dtype, array.shape) for name, array in record.items()}
        if record_schema != schema:
            bad[row] = f"{OTHER_SCHEMA}{show_schema(record_schema)}, expected {show_schema(schema)}"
            continue
        for name, array in record.items():
            arrays[name][row] = array
    return arrays, bad


def bisect_rows(n: int, decode: Callable[[int, int], T]) -> tuple[list[tuple[int, T]], dict[int, str]]:
    """Decode the good rows of a block that also has bad rows, in the longest possible runs.

    Parameters
    ----------
    n : int
        Number of rows.
    decode : callable
        Called as ``decode(first, stop)``. Returns the decoded rows; raises an error if a row is bad. If ``decode`` is
        called for a single row, the error says what is wrong with it.

    Returns
    -------
    list of (int, T)
        First row and result of each run of good rows, in order.
    dict of int to str
        What is wrong with each bad row.
    """
    good: list[tuple[int, T]] = []
    bad: dict[int, str] = {}
    waiting = [(0, n)] if n else []
    while waiting:
        first, stop = waiting.pop()
        try:
            good.append((first, decode(first, stop)))
        except (DataError, pa.ArrowException, ValueError) as error:
            if stop - first == 1:
                bad[first] = str(error).rstrip(".")
                continue
            middle = (first + stop) // 2
            waiting += [(middle, stop), (first, middle)]
    return good, bad
