"""Details of LMDB files that the library does not expose: the required length, and the offsets of values."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.errors import DataError

__all__ = ["MAGIC", "MAGIC_AT", "ValueMap", "check_length"]

MAGIC = struct.pack("<I", 0xBEEFC0DE)
MAGIC_AT = 16
META_PAGES = 2
PAGE_SIZES = {1 << i for i in range(9, 17)}
NUMBER_BYTES = 8


class ValueMap:
    """Our own memory map of the file, usable without a transaction and after the environment is closed.

    Parameters
    ----------
    path : Path
    page_bytes : int
        Page size of the environment.
    """

    def __init__(self, path: Path, page_bytes: int) -> None:
        with path.open("rb") as file:
            self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._page_bytes = page_bytes

    def find(self, values: Sequence[memoryview]) -> npt.NDArray[np.int64] | None:
        """Return the offset of each value in the file, (n,) int64; None if it cannot be determined.

        Parameters
        ----------
        values : sequence of memoryview
            Values of a transaction, which are views of LMDB's own map.
        """
        offsets = np.array([pa.py_buffer(value).address for value in values], np.int64)
        # a page begins with its page number; pages of LMDB are aligned to pages of the system
        if self._page_bytes != mmap.PAGESIZE:
            return None
        page = int(offsets[0]) // mmap.PAGESIZE * mmap.PAGESIZE
        number = ctypes.string_at(page, NUMBER_BYTES)
        offsets += int.from_bytes(number, "little") * mmap.PAGESIZE - page
        ends = offsets + np.fromiter(map(len, values), np.int64, len(values))
        if offsets.min() < 0 or ends.max() > len(self._data):
            return None
        same = (self._data[offset:end] == value for offset, end, value in self._samples(offsets, ends, values))
        return offsets if all(same) else None

    @staticmethod
    def _samples(
        offsets: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], values: Sequence[memoryview]
    ) -> list[tuple[int, int, memoryview]]:
        """Return offset, end and value of the first and the last value."""
        return [(int(offsets[i]), int(ends[i]), values[i]) for i in (0, -1)]

    def view(self, offset: int, length: int) -> memoryview:
        """Return one value."""
        return self._data[offset : offset + length]

    def rows(self, offsets: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
        """Copy values of one length: (n, length)."""
        # every offset of the file is an element of this array, so one call copies all values
        everywhere = np.ndarray((len(self._data) - length + 1,), f"V{length}", self._data, strides=(1,))
        return everywhere[offsets].view(np.uint8).reshape(len(offsets), length)


def check_length(url: str, path: Path, length: int) -> None:
    """Check that a file is long enough for the last page that its header refers to.

    Raises
    ------
    DataError
        The file is not an LMDB file, or is truncated. Reading a map beyond the end of its file would kill the process.
    """
    try:
        with path.open("rb") as file:
            head = file.read(1 << 17)
    except OSError as error:
        raise DataError(f"{url}: {(error.strerror or str(error)).lower()}.") from error
    head = head[:length]
    if head[MAGIC_AT : MAGIC_AT + 4] != MAGIC:
        raise DataError(f"{url}: not an LMDB file.")
    try:
        needed = _bytes_in_use(head)
    except struct.error as error:
        raise DataError(f"{url}: {length} bytes, the file is truncated.") from error
    if not needed:
        raise DataError(f"{url}: not an LMDB file, or a damaged one: invalid page size.")
    if length < needed:
        raise DataError(f"{url}: {length} bytes, but {needed} according to its header: the file is truncated.")


def _bytes_in_use(head: bytes) -> int:
    """Return the bytes up to the last page in use, according to the newer of the two meta pages.

    Returns 0 if the page size is invalid.
    """
    (page_bytes,) = struct.unpack_from("<I", head, MAGIC_AT + 24)
    if page_bytes not in PAGE_SIZES:
        return 0
    newest = (-1, 0)
    for page in range(META_PAGES):
        meta = page * page_bytes + MAGIC_AT
        if head[meta : meta + 4] == MAGIC:
            last_page, transaction = struct.unpack_from("<QQ", head, meta + 120)
            newest = max(newest, (transaction, last_page))
    return int(newest[1] + 1) * int(page_bytes)
