"""Records whose fields lie at constant distances in files: what idx, CIFAR's batches and npz have in common.

A local file is mapped and its blocks are views; a remote one is read by ranges; a compressed one is unpacked into
memory when it is opened.
"""

from __future__ import annotations

import gzip
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.labels import as_labels
from singa_dask.data.ranges import Ranges
from singa_dask.data.store import BLOCK_BYTES, Arrays, Block, Field, Store
from singa_dask.errors import DataError

__all__ = ["Bytes", "Column", "ColumnStore", "Memory", "ReadAhead", "open_bytes"]

GZIP_MAGIC = b"\x1f\x8b"
AHEAD_BYTES = 1 << 22


class Bytes(Protocol):
    """What is read by ranges: a file, or a piece of memory."""

    url: str
    size: int

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on, or raise a `DataError`."""

    def scan(self, offset: int, length: int) -> memoryview:
        """Do so past any cache."""

    def close(self) -> None:
        """Let go of it."""


class Memory:
    """Bytes in memory that came from a URL."""

    def __init__(self, url: str, data: bytes) -> None:
        self.url = url
        self.size = len(data)
        self._data = memoryview(data)

    def read(self, offset: int, length: int) -> memoryview:
        """Return a range of them."""
        if not 0 <= offset <= offset + length <= self.size:
            raise DataError(f"{self.url}: bytes {offset} to {offset + length} of a file of {self.size} bytes.")
        return self._data[offset : offset + length]

    scan = read

    def close(self) -> None:
        """Let go of them."""
        self._data = memoryview(b"")


class ReadAhead:
    """Small reads, each after the other, served from large ones."""

    def __init__(self, source: Bytes) -> None:
        self.url, self.size = source.url, source.size
        self._source = source
        self._start, self._chunk = 0, memoryview(b"")

    def read(self, offset: int, length: int) -> memoryview:
        """Return a range of the source."""
        at = offset - self._start
        if not 0 <= at <= at + length <= len(self._chunk):
            ahead = max(length, min(AHEAD_BYTES, self.size - offset))
            self._start, self._chunk = offset, self._source.scan(offset, ahead)
            at = 0
        return self._chunk[at : at + length]

    def close(self) -> None:
        """Let go of the last large read."""
        self._chunk = memoryview(b"")


def open_bytes(url: str, storage_options: fs.Options = None) -> Bytes:
    """Open a file, unpacked if it is gzipped.

    Raises
    ------
    DataError
        It is missing, or its gzip is damaged.
    """
    ranges = Ranges(url, storage_options)
    if bytes(ranges.read(0, min(2, ranges.size))) != GZIP_MAGIC:
        return ranges
    try:
        return Memory(url, gzip.decompress(ranges.read(0, ranges.size)))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{url}: a damaged gzip file: {error}.") from error
    finally:
        ranges.close()


@dataclass(frozen=True)
class Column:
    """One field of all records.

    Attributes
    ----------
    source : Bytes
    kind : dtype
        Type in the file.
    field : Field
        Type and shape that the records get.
    offset, stride : int
        Bytes before the first record's value, and from one to the next.
    """

    source: Bytes
    kind: np.dtype[Any]
    field: Field
    offset: int
    stride: int

    def read(self, first: int, n: int) -> npt.NDArray[Any]:
        """Return the values of ``n`` records: (n, *shape)."""
        size = int(np.prod(self.field.shape, dtype=np.int64)) * self.kind.itemsize
        length = (n - 1) * self.stride + size
        raw = self.source.read(self.offset + first * self.stride, length)
        values = np.ndarray((n, size // self.kind.itemsize), self.kind, raw, strides=(self.stride, self.kind.itemsize))
        values = values.reshape(n, *self.field.shape)
        if self.field.dtype == np.int32:
            return as_labels(values, self.source.url, first)
        return values.astype(self.field.dtype, copy=False)


class ColumnStore(Store):
    """Records of constant size; a subclass says in `open_columns` where they lie."""

    columns: Mapping[str, Column]

    def __init__(self, url: str, storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(url, storage_options, **options)
        self.columns, count = self.open_columns()
        self.schema = {name: column.field for name, column in self.columns.items()}
        if not count:
            raise DataError(f"{url}: no records.")
        stride = next(iter(self.columns.values())).stride
        start = next(iter(self.columns.values())).offset
        n = max(1, BLOCK_BYTES // max(stride, 1))
        self.blocks = tuple(
            Block(i, min(n, count - first), url, start + first * stride, min(n, count - first) * stride)
            for i, first in enumerate(range(0, count, n))
        )

    @abstractmethod
    def open_columns(self) -> tuple[dict[str, Column], int]:
        """Return the columns, pixels or data first, and how many records there are."""

    def read_block(self, block_id: int) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        try:
            return {name: column.read(first, n) for name, column in self.columns.items()}
        except DataError as error:
            raise DataError(f"{self.url}, block {block_id}: {error}") from error

    def close(self) -> None:
        for column in self.columns.values():
            column.source.close()
