"""What LMDB's own library does not tell of a file: how long it has to be, and where in it the values lie."""

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
    """A map of the file of our own: what is found in it outlives the environment, and needs no transaction.

    Parameters
    ----------
    path : Path
    page_bytes : int
        Of the environment.
    """

    def __init__(self, path: Path, page_bytes: int) -> None:
        with path.open("rb") as file:
            self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._page_bytes = page_bytes

    def find(self, values: Sequence[memoryview]) -> npt.NDArray[np.int64] | None:
        """Return where in the file each value begins, (n,) int64; None if that cannot be told.

        Parameters
        ----------
        values : sequence of memoryview
            As LMDB gives them within a transaction, views of a map of its own.
        """
        offsets = np.array([pa.py_buffer(value).address for value in values], np.int64)
        # the page on which a value begins begins with its own number; pages begin where those of the system do
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
        """Return place, end and value of the first and of the last."""
        return [(int(offsets[i]), int(ends[i]), values[i]) for i in (0, -1)]

    def view(self, offset: int, length: int) -> memoryview:
        """Return one value."""
        return self._data[offset : offset + length]

    def rows(self, offsets: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint8]:
        """Copy values of one length: (n, length)."""
        # each place of the file is an element, so one call copies all values
        everywhere = np.ndarray((len(self._data) - length + 1,), f"V{length}", self._data, strides=(1,))
        return everywhere[offsets].view(np.uint8).reshape(len(offsets), length)


def check_length(url: str, path: Path, length: int) -> None:
    """Compare a file's length with the last page that it says it has.

    Raises
    ------
    DataError
        It is no LMDB file, or is cut short: reading a map beyond the end of its file would kill the process.
    """
    try:
        with path.open("rb") as file:
            head = file.read(1 << 17)
    except OSError as error:
        raise DataError(f"{url}: {(error.strerror or str(error)).lower()}.") from error
    head = head[:length]
    if head[MAGIC_AT : MAGIC_AT + 4] != MAGIC:
        raise DataError(f"{url}: no LMDB file.")
    try:
        needed = _bytes_in_use(head)
    except struct.error as error:
        raise DataError(f"{url}: {length} bytes, the file is cut short.") from error
    if not needed:
        raise DataError(f"{url}: no LMDB file, or a damaged one: its pages have no possible size.")
    if length < needed:
        raise DataError(f"{url}: {length} bytes, but it says it has {needed}: the file is cut short.")


def _bytes_in_use(head: bytes) -> int:
    """Return the bytes up to the last page in use, from the newer of the two pages that a file begins with.

    0 means that the size of a page is none that LMDB has.
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
