"""Records that are the bytes of text lines, padded to the longest line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.conf.kinds import Size
from singa_dask.data.blocks import BLOCK_BYTES, NEWLINE, cut_lines
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError

# maximum size of a block after its lines are padded to the longest line
MAX_PADDED_BYTES = 1 << 28


class LineOptions(StoreOptions):
    """Options of lines of text."""

    block_bytes: Size = BLOCK_BYTES
    """Approximate length of a block."""


@STORES.register("lines")
class LineStore(RangeStore):
    """Records with the field ``line``: the uint8 bytes of a line, padded with zeros to the longest.

    Blanks and empty lines at the end of the file are ignored. Lines of very different lengths are refused if a block
    would need more than 256 MiB.
    """

    options_class = LineOptions
    # these records are for custom parsers, so the store is not offered as a source
    is_source = False
    block_options = ("block_bytes",)

    def index(self) -> None:
        source = self.open_source()
        self.blocks = self.manifest_blocks() or tuple(
            Block(i, run.n, self.url, run.offset, run.length)
            for i, run in enumerate(cut_lines(source, 0, self.options["block_bytes"]))
        )
        if not self.count:
            raise DataError(f"{self.url}: no lines.")
        longest = max(max(int(self._lengths(block.id).max()) for block in self.blocks), 1)
        self._check_padding(longest)
        self.schema = {"line": Field(np.dtype(np.uint8), (longest,))}

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        characters, lengths = _split(data[0])
        (longest,) = self.schema["line"].shape
        lines = np.zeros((len(lengths), longest), np.uint8)
        lines[np.arange(longest) < lengths[:, None]] = characters
        return {"line": lines}

    def _lengths(self, block_id: int) -> npt.NDArray[np.int64]:
        return _split(self.fetch(block_id)[0])[1]

    def _check_padding(self, longest: int) -> None:
        """Raise a `DataError` if the padded lines of a block need too much memory."""
        most = max(self.blocks, key=lambda block: block.n)
        if most.n * longest <= MAX_PADDED_BYTES:
            return
        block = next(block for block in self.blocks if self._lengths(block.id).max() == longest)
        line = int(self.starts[block.id]) + int(self._lengths(block.id).argmax()) + 1
        typical = float(np.median(self._lengths(most.id))) + 1
        fitting = max(1, int(typical * (MAX_PADDED_BYTES // longest) / 2))
        raise DataError(
            f"{self.url}, line {line}: the line has {longest:,} bytes. Each record is padded to the longest line, and "
            f"{most.n:,} records of a block would need {most.n * longest / 2**30:.1f} GiB, but at most "
            f"{MAX_PADDED_BYTES >> 20} MiB are allowed. Split long lines, or read smaller blocks: "
            f"block_bytes: {fitting}."
        )


def _split(data: memoryview) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the concatenated lines of a block, and the length of each line."""
    text = bytes(data).replace(b"\r\n", b"\n").removesuffix(b"\n")
    characters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(characters == NEWLINE), len(characters))
    return characters[characters != NEWLINE], np.diff(ends, prepend=-1) - 1
