"""Types shared by the packages of `data`: arrays by name, fields of a record, blocks of a store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
# records as one dict of arrays, or as an iterable of such dicts (chunks)
Records = Arrays | Iterable[Arrays]


@dataclass(frozen=True)
class Block:
    """A run of consecutive records that are read together.

    Attributes
    ----------
    id : int
        Index in the store.
    n : int
        Number of records.
    file : str
        URL of the file that contains the block.
    offset, length : int
        Byte range in that file. For LMDB, whose values have no byte order, ``offset`` is the index of the first record,
        and ``length`` the total size of the values.
    crc : int or None
        CRC32C of the bytes, if known.
    """

    id: int
    n: int
    file: str
    offset: int
    length: int
    crc: int | None = None


@dataclass(frozen=True)
class Field:
    """Dtype and shape of one record's array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Size of one record's array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class RecordRun(NamedTuple):
    """Consecutive records of a table file: their byte range, and the number of their first line or record."""

    offset: int
    length: int
    n: int
    line: int


class FileSum(NamedTuple):
    """A file of a store, as its manifest describes it.

    Attributes
    ----------
    name : str
        Relative to the directory of the store.
    n_bytes : int
    crc : int
        CRC32C of the bytes outside all blocks, such as headers. For a file that is read as a whole, CRC32C of all
        bytes.
    """

    name: str
    n_bytes: int
    crc: int


@dataclass(frozen=True)
class TableColumn:
    """A named column of a table.

    Attributes
    ----------
    name : str
    kind : str
        Type in the file, e.g. ``double``, ``string``.
    field : str
        Field of the records that contains its values; empty if the column is not read.
    index : int
        Index of the column's value in the flattened field.
    categories : tuple of str
        The text of each category, if the records have indices of categories; empty otherwise.
    missing : str
        Treatment of missing values, e.g. ``error``, ``mean``.
    is_index : bool
        Whether the column numbers or names the rows, as the index of pandas or Dask does. Such a column is a feature
        only if the user names it.
    """

    name: str
    kind: str
    field: str = ""
    index: int = 0
    categories: tuple[str, ...] = ()
    missing: str = ""
    is_index: bool = False
