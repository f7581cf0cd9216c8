"""How many records make a block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from singa_dask.data.types import Block

__all__ = ["BLOCK_BYTES", "cut_blocks", "rows_per_block"]

BLOCK_BYTES = 1 << 20
# block sizes are multiples of this, so that batches of a power of two lie within a block
EVEN_ROWS = 256


def rows_per_block(record_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return the number of records per block: at least one, and a multiple of 256 if more than that."""
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
        Offset of each record in bytes, and the end of the last.
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
