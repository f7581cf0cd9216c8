"""Decoding of rows of which some are bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from singa_dask.errors import DataError

__all__ = ["bisect_rows"]

T = TypeVar("T")


def bisect_rows(n: int, decode: Callable[[int, int], T]) -> tuple[list[tuple[int, T]], dict[int, str]]:
    """Decode rows in runs as long as possible, where some of the rows are bad.

    Parameters
    ----------
    n : int
        Number of rows.
    decode : callable
        (first, stop) -> the decoded rows; raises an error if one of them is bad. Its text counts if it is of one row.

    Returns
    -------
    list of (int, T)
        First row and result of each run of good rows, in order.
    dict of int to str
        Bad row -> what is wrong with it.
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
