"""ColumnStore: a store of records at constant distances in a file.

The base of idx, npy and npz. Blocks of a local file are views of its memory map. A remote file is read by
ranges. A compressed file is decompressed
into memory when it is opened.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.values import as_values, is_rounded
from singa_dask.data.stores.blocks import BLOCK_BYTES, even_blocks
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays, Field
from singa_dask.fs.sources import Bytes, Range


@dataclass(frozen=True)
class FieldColumn:
    """One field of all records.

    Attributes
    ----------
    source : Bytes
    kind : dtype
        Dtype in the file.
    field : Field
        Dtype and shape of the records.
    offset, stride : int
        Offset of the first record's value, and distance between consecutive values, in bytes.
    """

    source: Bytes
    kind: np.dtype[Any]
    field: Field
    offset: int
    stride: int

    @property
    def size(self) -> int:
        """Number of bytes of one record's value."""
        return int(np.prod(self.field.shape, dtype=np.int64)) * self.kind.itemsize

    def part(self, first: int, n: int) -> tuple[int, int]:
        """Return offset and length of the bytes with the values of ``n`` records."""
        return self.offset + first * self.stride, (n - 1) * self.stride + self.size

    def take(self, data: memoryview, first: int, n: int) -> npt.NDArray[Any]:
        """Return the values of ``n`` records, (n, *shape) with dtype ``kind``, as a view of ``data``.

        ``data`` are the bytes at the location that `part` returns.
        """
        width = self.kind.itemsize
        values: npt.NDArray[Any] = np.ndarray((n, self.size // width), self.kind, data, strides=(self.stride, width))
        return values.reshape(n, *self.field.shape)


class ColumnStore(RangeStore):
    """Records of constant size; subclasses define the columns in `open_columns`."""

    columns: Mapping[str, FieldColumn]

    def index(self) -> None:
        self.columns, count = self.open_columns()
        self.schema = {name: column.field for name, column in self.columns.items()}
        self._use_sources()
        kept = [column for name, column in self.columns.items() if name != "label"]
        self.rounds_data = "data" in self.columns and is_rounded(self.columns["data"].kind)
        self.mapped = self.is_local and all(
            type(each) is FieldColumn and each.kind == each.field.dtype for each in kept
        )
        first = next(iter(self.columns.values()))
        n = max(1, BLOCK_BYTES // max(first.stride, 1))
        self.blocks = even_blocks(self.url, count, n, first.stride, first.offset)

    def _use_sources(self) -> None:
        """Close the sources that no column uses."""
        used = {id(column.source): column.source for column in self.columns.values()}
        for source in self.sources:
            if id(source) not in used:
                source.close()
        self.sources = list(used.values())

    @abstractmethod
    def open_columns(self) -> tuple[dict[str, FieldColumn], int]:
        """Return the columns and the number of records. The column of pixels or data comes first."""

    def file_beside(self, rename: Callable[[str], str]) -> str:
        """Return the URL of a file in the same directory; empty if it does not exist.

        ``rename`` is a function that returns the name of that file, given the name of this file.
        """
        folder, slash, name = self.url.rpartition("/")
        url = f"{folder}{slash}{rename(name)}"
        return url if url != self.url and fs.exists(url, self.storage_options) else ""

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        return tuple(Range(column.source, *column.part(first, n)) for column in self.columns.values())

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        arrays = {}
        for (name, column), part in zip(self.columns.items(), data, strict=True):
            values, where = column.take(part, first, n), (column.source.url, first)
            is_label = column.field.dtype == np.int32
            arrays[name] = as_labels(values, *where) if is_label else as_values(values, *where, self.schema[name].dtype)
        return arrays
