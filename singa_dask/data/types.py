"""Types shared by the rooms of `data`: arrays by name, fields of a record, blocks of a store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "Block", "Field", "Records"]

Arrays = dict[str, npt.NDArray[Any]]
# all records at once, or in chunks
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
        URL of the file that contains it.
    offset, length : int
        Byte range in that file. For LMDB, whose values are not in order: the first record, and the bytes of all values.
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
