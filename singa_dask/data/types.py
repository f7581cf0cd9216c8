"""Types that several rooms of `data` share: arrays by name, the fields of a record, the blocks of a store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "Block", "Field", "Records"]

Arrays = dict[str, npt.NDArray[Any]]
# all at once, or in chunks
Records = Arrays | Iterable[Arrays]


@dataclass(frozen=True)
class Block:
    """A run of records that is read at once.

    Attributes
    ----------
    id : int
        Place in the store, from 0.
    n : int
        Records.
    file : str
        URL of the file it lies in.
    offset, length : int
        Bytes in that file (of LMDB, which has no such order: its first record, and the bytes of its values).
    crc : int or None
        CRC32C of the bytes, where it is known.
    """

    id: int
    n: int
    file: str
    offset: int
    length: int
    crc: int | None = None


@dataclass(frozen=True)
class Field:
    """Type of one value, and shape within one record, of a named array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of one record's array."""
        return math.prod(self.shape) * self.dtype.itemsize
