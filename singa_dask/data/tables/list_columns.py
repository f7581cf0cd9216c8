"""Columns of lists: recognise them, and return their values as one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from singa_dask.errors import DataError
from singa_dask.shown import plural


def is_list(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def holds_numbers(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are fixed-size binary, or (nested) lists of numbers."""
    leaf = kind
    while is_list(leaf):
        leaf = leaf.value_type
    is_number = pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)
    return bool(pa.types.is_fixed_size_binary(kind) or (is_number and leaf is not kind))


def flat_lists(column: pa.Array, shape: Sequence[int], where: str, first: int = 0) -> pa.Array:
    """Return the concatenated values of a column of (nested) lists.

    Parameters
    ----------
    column : pyarrow.Array
        (n,) lists.
    shape : sequence of int
        Expected length of the lists on each level.
    where : str
        URL and column, for errors.
    first : int
        Index of the first record, for errors.

    Raises
    ------
    DataError
        A list has another length, or a list or a value is null.
    """
    flat, n_lists = column, 1
    for size in shape:
        if flat.null_count:
            what = "record" if flat is column else "list"
            raise DataError(f"{where}: {plural(flat.null_count, f'{what} is', f'{what}s are')} null.")
        if not pa.types.is_fixed_size_list(flat.type):
            lengths = np.diff(np.from_dlpack(flat.offsets))
            if wrong := np.flatnonzero(lengths != size).tolist():
                record = first + wrong[0] // n_lists
                raise DataError(f"{where}, record {record}: {lengths[wrong[0]]} values, expected {size}.")
        flat, n_lists = flat.flatten(), n_lists * size
    if flat.null_count:
        raise DataError(f"{where}: {plural(flat.null_count, 'value is', 'values are')} null.")
    return flat
