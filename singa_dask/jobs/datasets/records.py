"""Dataset: data of Python objects in partitions, each of which is written as one file of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from singa_dask.arrays import Array
from singa_dask.data.codecs.values import find_wrong_weight, is_numeric
from singa_dask.errors import DataError


def place_of(dataset: str, index: int, n_parts: int) -> str:
    """Return where errors are: the dataset, and the partition if there are several."""
    return f"dataset {dataset!r}" + (f", partition {index}" if n_parts > 1 else "")


WritePart = Callable[[Any, str, int], int]
"""Writes a partition as a file, and returns the number of its records; of an empty partition no file is written.

It takes what the part is, computed; the local path of the file, in an existing directory; and the index of the
partition. If there is an error, the caller deletes the file. A `DataError` names dataset, column and partition.
It is picklable, without the data.
"""


@dataclass(frozen=True)
class Dataset:
    """Data of Python objects for the input layers with ``path: dask://NAME``.

    Attributes
    ----------
    name : str
    parts : tuple
        One for each partition: a `dask.delayed.Delayed` to be computed, or the value itself.
    write_part : callable
        See `WritePart`.
    suffix : str
        Of the files: ``.arrow`` for arrays, ``.parquet`` for frames.
    defaults : mapping
        Keys of ``store_conf`` that hold where a layer says nothing else, e.g. the column ``label``.
    shape : tuple of int or None
        Of a record, where it is known before the partitions are there.
    columns : tuple of str
        Of a frame, without those of y.
    drop : callable or None
        Returns the dataset of a frame without some of its columns.
    meta : frame or None
        A frame of pandas or pyarrow without records, of its columns and their types.
    has_weights : bool
        Whether there is a weight for each record beside X and y.
    """

    name: str
    parts: tuple[Any, ...]
    write_part: WritePart
    suffix: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    columns: tuple[str, ...] = ()
    drop: Callable[[Collection[str]], Dataset] | None = None
    meta: Any = None
    has_weights: bool = False

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns of y and of weights that are given beside a frame."""
        names = (*self.defaults.get("label", ()), *self.defaults.get("target", ()))
        return (*names, self.defaults["weight"]) if "weight" in self.defaults else names

    def file_name(self, index: int) -> str:
        """Return the name of the file of a partition; names sort in the order of partitions."""
        width = max(5, len(str(len(self.parts) - 1)))
        return f"part-{index:0{width}d}{self.suffix}"

    @property
    def pattern(self) -> str:
        """Pattern of the names of all files."""
        return f"part-*{self.suffix}"


def check_weight_type(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> None:
    """Check that an array can be the weights of records.

    Raises
    ------
    DataError
        It cannot.
    """
    if not is_numeric(dtype):
        raise DataError(f"{where}, weights: values of type {dtype}, expected numbers.")
    if len(shape) != 1:
        raise DataError(f"{where}, weights: shape {tuple(shape)}, expected (records,).")


def check_count(where: str, whose: str, n: float, name: str, other: float, what: str = "records") -> None:
    """Check that y or weights are as many as X or the frame has; NaN is a number that is not known.

    Raises
    ------
    DataError
        They are not.
    """
    if n != other and not np.isnan([n, other]).any():
        verb = "have" if name == "weights" else "has"
        raise DataError(f"{where}: {whose} has {n} {what}, but {name} {verb} {other}.")


def check_weights(where: str, whose: str, n: int, weights: Array) -> None:
    """Raise `DataError` unless there is a finite weight from 0 on for each of ``n`` records."""
    check_count(where, whose, n, "weights", len(weights))
    wrong = find_wrong_weight(weights)
    if wrong is not None:
        raise DataError(f"{where}, record {wrong[0]}, weights: {wrong[1]}.")
