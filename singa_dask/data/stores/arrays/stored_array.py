"""StoredArray: an array in a file. ContiguousArray: an array whose values are contiguous in the file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.blocks import BLOCK_BYTES, rows_per_block
from singa_dask.fs.sources import Bytes, Range


@dataclass
class StoredArray(ABC):
    """An array in a file. Its first axis is the axis of records.

    Attributes
    ----------
    kind : dtype
        Dtype in the file: numbers, or text.
    shape : tuple of int
    chunk_rows : int
        Number of records of a chunk; 1 if the array is not stored in chunks.
    attributes : mapping
    is_view : bool
        Whether `decode` returns a view of the bytes.
    """

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    attributes: Mapping[str, Any]
    chunk_rows = 1
    is_view = False

    @abstractmethod
    def ranges(self, first: int, n: int) -> tuple[Range, ...]:
        """Return the ranges of the file that contain ``n`` records.

        Record ``first`` must be the first record of a chunk.
        """

    @abstractmethod
    def decode(self, first: int, n: int, data: Sequence[memoryview]) -> npt.NDArray[Any]:
        """Decode ``n`` records, given the bytes of their ``ranges``: (n, *shape[1:]) with dtype ``kind``."""

    def texts(self) -> npt.NDArray[Any] | None:
        """Return all values as an array of str; None for an array of numbers."""
        if self.kind.kind not in "SUT":
            return None
        values = [each for piece in self.pieces() for each in piece.reshape(-1).tolist()]
        return np.array([each.decode() if isinstance(each, bytes) else str(each) for each in values], str)

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all records block by block, bypassing the cache."""
        count = self.shape[0] if self.shape else 0
        for first in range(0, count, step := self.rows_per_block()):
            n = min(step, count - first)
            data = [source.scan(offset, length) for source, offset, length in self.ranges(first, n)]
            yield self.decode(first, n, data)

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a record."""
        return math.prod(self.shape[1:]) * self.kind.itemsize

    def rows_per_block(self) -> int:
        """Return the number of records of a block: one chunk, or several chunks of about 1 MiB in total."""
        if self.chunk_rows == 1:
            return rows_per_block(self.row_bytes)
        return self.chunk_rows * max(1, BLOCK_BYTES // max(1, self.chunk_rows * self.row_bytes))


@dataclass
class ContiguousArray(StoredArray):
    """An array whose values are contiguous in a file, or in memory.

    Attributes
    ----------
    source : Bytes
    offset : int
        Offset of the first value.
    """

    source: Bytes
    offset: int
    is_view = True

    def ranges(self, first: int, n: int) -> tuple[Range, ...]:
        return (Range(self.source, self.offset + first * self.row_bytes, n * self.row_bytes),)

    def decode(self, first: int, n: int, data: Sequence[memoryview]) -> npt.NDArray[Any]:
        return np.ndarray((n, *self.shape[1:]), self.kind, data[0])
