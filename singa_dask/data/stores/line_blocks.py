"""Blocks of text: runs of whole lines."""

from __future__ import annotations

import numpy as np

from singa_dask.data.fs.byte_source import Bytes
from singa_dask.data.fs.scan import scan_ahead
from singa_dask.data.stores.block_sizes import BLOCK_BYTES
from singa_dask.data.types import Block

__all__ = ["NEWLINE", "cut_lines"]

NEWLINE = ord("\n")


def cut_lines(source: Bytes, start: int = 0, block_bytes: int = BLOCK_BYTES) -> tuple[Block, ...]:
    """Scan a file for the ends of lines, and return blocks of about ``block_bytes``; a longer line is a block.

    Blanks and empty lines at the end of the file, and the end of the last line, are not part of a block.

    Parameters
    ----------
    start : int
        Offset of the first line.
    """
    size = _text_bytes(source)
    blocks: list[Block] = []
    position, lines = start, 0
    for chunk in scan_ahead(source, start, size, block_bytes):
        data = np.frombuffer(chunk, np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        lines += len(ends)
        cut = position + int(ends[-1]) + 1 if len(ends) else start
        position += len(data)
        if position == size:
            blocks.append(Block(len(blocks), lines + 1, source.url, start, size - start))
        elif cut > start:
            blocks.append(Block(len(blocks), lines, source.url, start, cut - start))
            start, lines = cut, 0
    return tuple(blocks)


def _text_bytes(source: Bytes) -> int:
    """Return the length of a file without trailing blanks and empty lines."""
    size = source.size
    while size:
        length = min(BLOCK_BYTES, size)
        tail = len(bytes(source.scan(size - length, length)).rstrip())
        if tail:
            return size - length + tail
        size -= length
    return 0
