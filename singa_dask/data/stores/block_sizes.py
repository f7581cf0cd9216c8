"""Blocks: how many records or lines make one, and `Rechunker`, by which a writer gets records in such chunks.

Therefore the bytes of a store do not depend on the chunks in which its records arrive.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record import check_schema, schema_of
from singa_dask.data.fs.byte_source import Bytes, scan_ahead
from singa_dask.data.types import Arrays, Block, Records
from singa_dask.errors import DataError

BLOCK_BYTES = 1 << 20
# block sizes are multiples of this, so that batches of a power of two lie within a block
EVEN_ROWS = 256
NEWLINE = ord("\n")


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


def even_blocks(url: str, count: int, n: int, record_bytes: int, start: int = 0) -> tuple[Block, ...]:
    """Return blocks of ``n`` records of one size, the last one of fewer; ``start`` is the offset of the first."""
    sizes = [min(n, count - first) for first in range(0, count, n)]
    return tuple(Block(i, size, url, start + i * n * record_bytes, size * record_bytes) for i, size in enumerate(sizes))


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


class Rechunker:
    """A stream of records.

    Parameters
    ----------
    url : str
        URL that the records are written to, for errors.
    records : dict of str to ndarray, or iterable of those
        Empty chunks are skipped.

    Attributes
    ----------
    schema : dict of str to Field
    record_bytes : int
    taken : int
        Number of records returned by `take` so far.

    Raises
    ------
    DataError
        There are no records. `take` raises it if arrays have different lengths, chunks different schemas, or a label
        is not a 32-bit integer.
    """

    def __init__(self, url: str, records: Records) -> None:
        self._url = url
        self._chunks = iter([records] if isinstance(records, dict) else records)
        self._left: Arrays = {}
        self.taken = self._seen = 0
        first = self._next()
        if first is None:
            raise DataError(f"{url}: nothing to write.")
        self._left = first
        self.schema = schema_of(first)
        self.record_bytes = sum(field.size_bytes for field in self.schema.values())

    def take(self, n: int) -> Arrays | None:
        """Return the next ``n`` records (fewer at the end, then None), as views if one chunk contains them."""
        parts: list[Arrays] = []
        missing = n
        while missing:
            chunk = self._left or self._next()
            if chunk is None:
                break
            check_schema(chunk, self.schema, self._url)
            length = len(next(iter(chunk.values())))
            used = min(missing, length)
            parts.append({name: array[:used] for name, array in chunk.items()})
            self._left = {name: array[used:] for name, array in chunk.items()} if used < length else {}
            missing -= used
        self.taken += n - missing
        if len(parts) < 2:
            return parts[0] if parts else None
        return {name: np.concatenate([part[name] for part in parts]) for name in self.schema}

    def chunks(self, n: int) -> Iterator[Arrays]:
        """Yield all records in chunks of ``n``."""
        while (rows := self.take(n)) is not None:
            yield rows

    def _next(self) -> Arrays | None:
        for chunk in self._chunks:
            if not chunk or any(map(len, chunk.values())):
                lengths = {name: len(array) for name, array in chunk.items()}
                if len(set(lengths.values())) != 1 or 0 in lengths.values():
                    raise DataError(f"{self._url}: nothing to write, or arrays of different lengths: {lengths}.")
                # a number is a record of one value
                chunk = {
                    name: array[:, None] if array.ndim == 1 and name != "label" else array
                    for name, array in chunk.items()
                }
                if "label" in chunk:
                    chunk = {**chunk, "label": as_labels(np.asarray(chunk["label"]), self._url, self._seen)}
                self._seen += next(iter(lengths.values()))
                return chunk
        return None
