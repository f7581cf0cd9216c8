"""LMDBFile: the values of an LMDB file, read through our own map of it.

The library LMDB is not used to read: it trusts what a file says, holds locks, and must not be used after a fork.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs.lmdb_tree import MAGIC, MAGIC_AT, META_PAGES, Meta, find_values, newest_meta
from singa_dask.data.fs.mapped_file import note_read
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.errors import DataError

__all__ = ["LMDBFile"]

HEAD_BYTES = META_PAGES << 16


class LMDBFile:
    """The values of an LMDB file, in the order of their keys.

    Parameters
    ----------
    url : str
        For errors.
    path : Path
    length : int
        Bytes of the file that belong to LMDB.

    Attributes
    ----------
    offsets, lengths : (n,) int64
        Of each value in the file.
    last_key : bytes

    Raises
    ------
    DataError
        The file is not an LMDB file, is truncated, or its tree is damaged.
    """

    def __init__(self, url: str, path: Path, length: int) -> None:
        self._source = RangeReader(str(path))
        self._data = self._source.scan(0, self._source.size)
        meta = _checked_meta(url, bytes(self._data[: min(HEAD_BYTES, length)]), length)
        self.offsets, self.lengths, self.last_key = find_values(url, self._data, meta)

    def check_unchanged(self) -> None:
        """Raise a `DataError` if the file was written since it was opened."""
        self._source.check_unchanged()

    def value(self, index: int) -> memoryview:
        """Return one value, a view of the map."""
        return self.view(int(self.offsets[index]), int(self.lengths[index]))

    def view(self, offset: int, length: int) -> memoryview:
        """Return bytes of the map."""
        return self._source.scan(offset, length)

    def rows(self, offsets: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
        """Copy values, or parts of them, of one length: (n, length)."""
        self.check_unchanged()
        note_read(len(offsets) * length)
        # every offset of the file is an element of this array, so one call copies all values
        everywhere = np.ndarray((len(self._data) - length + 1,), f"V{length}", self._data, strides=(1,))
        return everywhere[offsets].view(np.uint8).reshape(len(offsets), length)


def _checked_meta(url: str, head: bytes, length: int) -> Meta:
    """Return the newer meta page, after a check of the length of the file."""
    if head[MAGIC_AT : MAGIC_AT + 4] != MAGIC:
        raise DataError(f"{url}: not an LMDB file.")
    try:
        meta = newest_meta(head)
    except struct.error as error:
        raise DataError(f"{url}: {length} bytes, the file is truncated.") from error
    if meta is None:
        raise DataError(f"{url}: not an LMDB file, or a damaged one: invalid page size.")
    needed = (meta.last_page + 1) * meta.page_bytes
    if length < needed:
        raise DataError(f"{url}: {length} bytes, but {needed} according to its header: the file is truncated.")
    return meta
