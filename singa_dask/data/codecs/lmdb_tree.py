"""The values of an LMDB file, and the tree that they are in.

The tree is checked, which the library does not: a wrong byte in a page would end the process.

A file begins with two meta pages. The newer one has the number of the root page. Branch pages refer to other pages,
leaf pages contain keys and values, or refer to the pages of a long value (after LMDB's mdb.c, version 0.9).

The library LMDB is not used to read: it trusts what a file says, holds locks, and must not be used after a fork.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.fs.mapped_file import note_read
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.errors import DataError

MAGIC = struct.pack("<I", 0xBEEFC0DE)
MAGIC_AT = 16
META_PAGES = 2
PAGE_SIZES = {1 << i for i in range(9, 17)}
NO_PAGE = (1 << 64) - 1
# flags of a page: its kind, without those that concern a writer
BRANCH, LEAF, KIND = 0x01, 0x02, 0x6F
# flags of a tree that do not change its layout: order of bytes in keys, integers as keys
KEY_ORDERS = 0x02 | 0x08
# flags of a value: on pages of its own, a named database
LONG, NAMED = 0x01, 0x02
PAGE_HEAD_BYTES, NODE_HEAD_BYTES = 16, 8
MAX_DEPTH = 32
PAGES_AT_A_TIME = 1 << 12

Numbers = npt.NDArray[np.int64]
HEAD_BYTES = META_PAGES << 16


class Meta(NamedTuple):
    """What the newer meta page says of the file, and of the tree of records in it."""

    transaction: int
    page_bytes: int
    last_page: int
    flags: int
    depth: int
    entries: int
    root: int


def newest_meta(head: bytes) -> Meta | None:
    """Return the newer meta page of a file, given its first pages; None if the page size is invalid.

    Raises
    ------
    struct.error
        The file is too short.
    """
    (page_bytes,) = struct.unpack_from("<I", head, MAGIC_AT + 24)
    if page_bytes not in PAGE_SIZES:
        return None
    metas = []
    for at in (MAGIC_AT, page_bytes + MAGIC_AT):
        flags, depth = struct.unpack_from("<HH", head, at + 76)
        entries, root, last_page, transaction = struct.unpack_from("<QQQQ", head, at + 104)
        if head[at : at + 4] == MAGIC:
            metas.append(Meta(transaction, page_bytes, last_page, flags, depth, entries, root))
    # of two equal ones the library takes the first
    return max(metas, key=lambda meta: meta.transaction) if metas else None


class Values(NamedTuple):
    """Where the values of a file are, in the order of their keys.

    Attributes
    ----------
    offsets, lengths : (n,) int64
    last_key : bytes
    """

    offsets: Numbers
    lengths: Numbers
    last_key: bytes


def find_values(url: str, data: memoryview, meta: Meta) -> Values:
    """Find the values of a file by reading its tree, level by level.

    Raises
    ------
    DataError
        A page is not of the expected kind, or refers to something outside of itself or of the file.
    """
    if meta.root == NO_PAGE:
        return Values(np.empty(0, np.int64), np.empty(0, np.int64), b"")
    if meta.flags & ~KEY_ORDERS or not 1 <= meta.depth <= MAX_DEPTH:
        raise DataError(f"{url}: a damaged LMDB file: flags {meta.flags:#x}, depth {meta.depth} in its header.")
    pages = _Pages(data, meta)
    numbers, seen = np.array([min(meta.root, meta.last_page + 1)], np.int64), 0
    for _ in range(meta.depth - 1):
        seen += len(numbers)
        numbers = pages.children(url, numbers)
        if seen + len(numbers) > meta.last_page:
            raise DataError(f"{url}: a damaged LMDB file: more pages in the tree than in the file.")
    parts = []
    for first in range(0, len(numbers), PAGES_AT_A_TIME):
        parts.append(pages.values(url, numbers[first : first + PAGES_AT_A_TIME]))
        note_read(PAGES_AT_A_TIME * meta.page_bytes)
    offsets, lengths = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    if len(offsets) != meta.entries:
        text = f"{len(offsets)} values, but {meta.entries} according to its header"
        raise DataError(f"{url}: a damaged LMDB file: {text}.")
    return Values(offsets, lengths, parts[-1].last_key)


class _Pages:
    """The pages of a file as arrays."""

    def __init__(self, data: memoryview, meta: Meta) -> None:
        self._n, self._bytes = meta.last_page + 1, meta.page_bytes
        raw = data[: self._n * self._bytes]
        self._raw = np.frombuffer(raw, np.uint8)
        self._halves = np.frombuffer(raw, "<u2")
        self._numbers = np.frombuffer(raw, "<u8")[:: self._bytes // 8]

    def children(self, url: str, numbers: Numbers) -> Numbers:
        """Return the pages that branch pages refer to."""
        pages, at = self._nodes(url, numbers, BRANCH)
        low, high, top, key_bytes = self._heads(at)
        children = low | high << 16 | top << 32
        inside = at % self._bytes + NODE_HEAD_BYTES + key_bytes <= self._bytes
        self._check(url, pages, inside & (children >= META_PAGES) & (children < self._n))
        return children

    def values(self, url: str, numbers: Numbers) -> Values:
        """Return where the values of leaf pages are."""
        pages, at = self._nodes(url, numbers, LEAF)
        low, high, flags, key_bytes = self._heads(at)
        length = low | high << 16
        is_long = (flags & LONG) > 0
        start = at + NODE_HEAD_BYTES + key_bytes
        end = start % self._bytes + np.where(is_long, 8, length)
        inside = (start // self._bytes == pages) & (end <= self._bytes)
        self._check(url, pages, inside & (flags & ~(LONG | NAMED) == 0))
        last = slice(int(at[-1]) + NODE_HEAD_BYTES, int(start[-1]))
        first = self._raw[start[is_long][:, None] + np.arange(8)].view("<u8")[:, 0]
        n = -(-(length[is_long] + PAGE_HEAD_BYTES) // self._bytes)
        fits = (first >= META_PAGES) & (first < self._n)
        self._check(url, pages[is_long], fits & (np.where(fits, first, 0).astype(np.int64) + n <= self._n))
        start[is_long] = first.astype(np.int64) * self._bytes + PAGE_HEAD_BYTES
        return Values(start, length, self._raw[last].tobytes())

    def _nodes(self, url: str, numbers: Numbers, kind: int) -> tuple[Numbers, Numbers]:
        """Return page and offset in the file of each node in some pages, after a check of the heads of the pages."""
        self._check(url, numbers, numbers < self._n)
        at = numbers * (self._bytes // 2)
        flags, lower, upper = (self._halves[at + i].astype(np.int64) for i in (5, 6, 7))
        counts = (lower - PAGE_HEAD_BYTES) // 2
        right = (self._numbers[numbers] == numbers.astype(np.uint64)) & (flags & KIND == kind) & (lower % 2 == 0)
        right &= (counts >= (2 if kind == BRANCH else 1)) & (lower <= upper) & (upper <= self._bytes)
        self._check(url, numbers, right)
        pages = np.repeat(numbers, counts)
        index = np.arange(len(pages)) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets = self._halves[pages * (self._bytes // 2) + PAGE_HEAD_BYTES // 2 + index].astype(np.int64)
        right = (offsets >= np.repeat(upper, counts)) & (offsets % 2 == 0) & (offsets + NODE_HEAD_BYTES <= self._bytes)
        self._check(url, pages, right)
        return pages, pages * self._bytes + offsets

    def _heads(self, at: Numbers) -> tuple[Numbers, ...]:
        return tuple(self._halves[at // 2 + i].astype(np.int64) for i in range(4))

    @staticmethod
    def _check(url: str, pages: Numbers, right: npt.NDArray[Any]) -> None:
        if not right.all():
            raise DataError(f"{url}: a damaged LMDB file: page {pages[int(right.argmin())]} is invalid.")


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
        return self._source.scan(int(self.offsets[index]), int(self.lengths[index]))

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
