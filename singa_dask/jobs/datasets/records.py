"""Dataset: an array or frame in partitions.

Each partition is written to one file of records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from singa_dask.arrays import Array
from singa_dask.data.codecs.record_values import find_wrong_weight, is_numeric
from singa_dask.errors import DataError


def place_of(dataset: str, index: int, n_parts: int) -> str:
    """Return the place for error messages: the dataset, and the partition if there are several."""
    return f"dataset {dataset!r}" + (f", partition {index}" if n_parts > 1 else "")


WritePart = Callable[[Any, str, int], int]
"""Function that writes a partition to a file, and returns the number of records. For an empty partition, it writes no
file. Its arguments are the computed partition, the local path of the file in an existing directory, and the index of
the partition. After an error, the caller deletes the file. A `DataError` names dataset, column and partition. The
function can be pickled, and does not contain the data.
"""


@dataclass(frozen=True)
class Dataset:
    """The data of an array or frame, for input layers with ``path: dask://NAME``.

    Attributes
    ----------
    name : str
    parts : tuple
        The partitions, as `dask.delayed.Delayed` or as values.
    write_part : callable
        Writes a partition; see `WritePart`.
    suffix : str
        Suffix of the files: ``.arrow`` for arrays, ``.parquet`` for frames.
    defaults : mapping
        Default values for keys of ``store_conf``, e.g. ``label`` for the column with labels.
    shape : tuple of int or None
        Shape of a record; None if it is unknown before partitions are computed.
    columns : tuple of str
        Names of the columns of a frame, without the columns of y.
    drop : callable or None
        Function that takes names of columns, and returns the dataset without these columns.
    meta : frame or None
        An empty frame of pandas or pyarrow with the same columns and types.
    has_weights : bool
        Whether there are weights in addition to X and y.
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
        """Names of the columns that y and weights add to a frame."""
        names = (*self.defaults.get("label", ()), *self.defaults.get("target", ()))
        return (*names, self.defaults["weight"]) if "weight" in self.defaults else names

    def file_name(self, index: int) -> str:
        """Return the file name of a partition. The order of sorted file names is the order of the partitions."""
        width = max(5, len(str(len(self.parts) - 1)))
        return f"part-{index:0{width}d}{self.suffix}"

    @property
    def pattern(self) -> str:
        """Glob pattern that matches the names of all files."""
        return f"part-*{self.suffix}"


def check_weight_type(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> None:
    """Raise a `DataError` if an array of this type and shape cannot be weights of records."""
    if not is_numeric(dtype):
        raise DataError(f"{where}, weights: the values are of type {dtype}, expected numbers.")
    if len(shape) != 1:
        raise DataError(f"{where}, weights: the shape is {tuple(shape)}, expected (records,).")


def check_count(where: str, whose: str, n: float, name: str, other: float, what: str = "records") -> None:
    """Raise a `DataError` if X and another array have different numbers of records; NaN means unknown."""
    if n != other and not np.isnan([n, other]).any():
        verb = "have" if name == "weights" else "has"
        raise DataError(f"{where}: {whose} has {n} {what}, but {name} {verb} {other}.")


def check_weights(where: str, whose: str, n: int, weights: Array) -> None:
    """Raise a `DataError` if weights are not finite or are negative, or if their number is not ``n``."""
    check_count(where, whose, n, "weights", len(weights))
    wrong = find_wrong_weight(weights)
    if wrong is not None:
        raise DataError(f"{where}, record {wrong[0]}, weights: {wrong[1]}.")
