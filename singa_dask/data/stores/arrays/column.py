"""ColumnStore: a store of records of constant size that has a contiguous array for each field.

It is the base class of the formats idx, npy and npz. Blocks of a local file are views of its memory map. A remote file
is read by ranges. A compressed file is decompressed into memory when it is opened.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from singa_dask import fs
from singa_dask.data.blocks import BLOCK_BYTES, even_blocks
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record_values import as_values, is_rounded
from singa_dask.data.stores.arrays.stored_array import ContiguousArray
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays, Field
from singa_dask.fs.sources import Range

# dtype of the records of each field
DTYPES = {name: np.dtype(kind) for name, kind in (("pixel", np.uint8), ("data", np.float32), ("label", np.int32))}


class ColumnStore(RangeStore):
    """Records of constant size; subclasses open an array for each field in `open_columns`."""

    columns: Mapping[str, ContiguousArray]

    def index(self) -> None:
        self.columns = self.open_columns()
        self.schema = {
            name: Field(DTYPES[name], () if name == "label" else column.shape[1:])
            for name, column in self.columns.items()
        }
        self._use_sources()
        self.rounds_data = "data" in self.columns and is_rounded(self.columns["data"].kind)
        first, field = next(iter(self.columns.values())), next(iter(self.schema.values()))
        self.mapped = self.is_local and first.is_view and first.kind == field.dtype
        n = max(1, BLOCK_BYTES // max(first.row_bytes, 1))
        self.blocks = even_blocks(self.url, first.shape[0], n, first.row_bytes, first.offset)

    def _use_sources(self) -> None:
        """Close the sources that no column uses."""
        used = {id(column.source): column.source for column in self.columns.values()}
        for source in self.sources:
            if id(source) not in used:
                source.close()
        self.sources = list(used.values())

    @abstractmethod
    def open_columns(self) -> dict[str, ContiguousArray]:
        """Return the arrays of the fields. The array of pixels or data comes first."""

    def file_beside(self, rename: Callable[[str], str]) -> str:
        """Return the URL of a file in the same directory; empty if it does not exist.

        ``rename`` is a function that returns the name of that file, given the name of this file.
        """
        folder, slash, name = self.url.rpartition("/")
        url = f"{folder}{slash}{rename(name)}"
        return url if url != self.url and fs.exists(url, self.storage_options) else ""

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        return tuple(part for column in self.columns.values() for part in column.ranges(first, n))

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        arrays = {}
        for (name, field), column, part in zip(self.schema.items(), self.columns.values(), data, strict=True):
            values = column.decode(first, n, [part]).reshape(n, *field.shape)
            where = column.source.url, first
            arrays[name] = as_labels(values, *where) if name == "label" else as_values(values, *where, field.dtype)
        return arrays
