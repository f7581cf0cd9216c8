"""ColumnStore: records whose fields have a constant stride in the file. The base of idx, CIFAR and npz.

Blocks of a local file are views of its memory map; a remote file is read by ranges; a compressed one is decompressed
into memory when opened.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.fs.byte_source import Bytes
from singa_dask.data.stores.store import BLOCK_BYTES, Store
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError

__all__ = ["Column", "ColumnStore"]


@dataclass(frozen=True)
class Column:
    """One field of all records.

    Attributes
    ----------
    source : Bytes
    kind : dtype
        Dtype in the file.
    field : Field
        Dtype and shape of the records.
    offset, stride : int
        Offset of the first record's value, and bytes from one to the next.
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
    """Records of constant size; subclasses define the columns in `open_columns`."""

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
        """Return the columns, pixels or data first, and the number of records."""

    def read_block(self, block_id: int) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        try:
            return {name: column.read(first, n) for name, column in self.columns.items()}
        except DataError as error:
            raise DataError(f"{self.url}, block {block_id}: {error}") from error

    def close(self) -> None:
        for column in self.columns.values():
            column.source.close()
