"""Blocks: groups of consecutive records or lines of text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from singa_dask.data.types import Block, RecordRun
from singa_dask.fs.sources import Bytes, scan_ahead

BLOCK_BYTES = 1 << 20
# block sizes are multiples of this, so that a batch whose size is a power of two lies within a block
EVEN_ROWS = 256
NEWLINE = ord("\n")


def rows_per_block(record_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return the number of records in a block: at least 1, and a multiple of 256 if it is over 256."""
    return _even(max(1, block_bytes // max(record_bytes, 1)))


def _even(n: int) -> int:
    return n - n % EVEN_ROWS if n > EVEN_ROWS else n


def cut_blocks(url: str, offsets: npt.NDArray[np.int64], block_bytes: int = BLOCK_BYTES) -> tuple[Block, ...]:
    """Group consecutive records into blocks of about ``block_bytes``.

    Parameters
    ----------
    url : str
        File of the blocks.
    offsets : (n + 1,) int64
        Byte offset of each record, and as last entry the end of the last record.
    block_bytes : int
        Approximate size of a block. A longer record is a block of its own.
    """
    blocks: list[Block] = []
    first, n = 0, len(offsets) - 1
    while first < n:
        end = int(np.searchsorted(offsets, offsets[first] + block_bytes, side="right")) - 1
        end = min(first + _even(max(end - first, 1)), n)
        start = int(offsets[first])
        blocks.append(Block(len(blocks), end - first, url, start, int(offsets[end]) - start))
        first = end
    return tuple(blocks)


def even_blocks(url: str, count: int, n: int, record_bytes: int, start: int = 0) -> tuple[Block, ...]:
    """Return blocks of ``n`` records of equal size.

    The first block begins at byte ``start``; the last block may be smaller.
    """
    sizes = [min(n, count - first) for first in range(0, count, n)]
    return tuple(Block(i, size, url, start + i * n * record_bytes, size * record_bytes) for i, size in enumerate(sizes))


def counted_blocks(url: str, count: int, n: int, record_bytes: int, n_bytes: int | None = None) -> tuple[Block, ...]:
    """Return blocks of ``n`` records for a file without byte offsets, such as LMDB.

    The ``offset`` of a block is the index of its first record. The ``length`` of each block is ``n_bytes``, by default
    the total size of its records.
    """
    sizes = ((first, min(n, count - first)) for first in range(0, count, n))
    return tuple(
        Block(i, size, url, first, size * record_bytes if n_bytes is None else n_bytes)
        for i, (first, size) in enumerate(sizes)
    )


def cut_lines(source: Bytes, start: int, block_bytes: int) -> Iterator[RecordRun]:
    """Scan a file for line ends, and yield runs of about ``block_bytes``.

    Pass the file that `RangeStore.open_source` returns. ``start`` is the offset of the first line. A line that is
    longer than ``block_bytes`` is a run of its own. Trailing blanks, empty lines and line ends of the file belong to no
    run.
    """
    size = text_bytes(source)
    position, lines, line = start, 0, 1
    for chunk in scan_ahead(source, start, size, block_bytes):
        data = np.frombuffer(chunk, np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        lines += len(ends)
        cut = position + int(ends[-1]) + 1 if len(ends) else start
        position += len(data)
        if position == size:
            yield RecordRun(start, size - start, lines + 1, line)
        elif cut > start:
            yield RecordRun(start, cut - start, lines, line)
            start, lines, line = cut, 0, line + lines


def text_bytes(source: Bytes) -> int:
    """Return the length of a file without trailing blanks and empty lines."""
    size = source.size
    while size:
        length = min(BLOCK_BYTES, size)
        tail = len(bytes(source.scan(size - length, length)).rstrip())
        if tail:
            return size - length + tail
        size -= length
    return 0
