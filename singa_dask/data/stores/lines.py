"""Lines of a text as bytes, one record per line, for parsers of users."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_dask.data import fs
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.data.stores.store import BLOCK_BYTES, STORES, Store
from singa_dask.data.stores.text import TextStore
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError

__all__ = ["LineStore"]

NEWLINE = ord("\n")


@STORES.register("lines")
class LineStore(TextStore):
    """Records with one field, ``line``: uint8 bytes of a line without its end, padded with zeros to the longest.

    Blanks and empty lines at the end of the file are ignored.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    block_bytes : int
        Approximate length of a block.
    """

    suffixes = ()
    accepts_truncated = False

    def __init__(self, url: str, storage_options: fs.Options = None, block_bytes: int = BLOCK_BYTES) -> None:
        Store.__init__(self, url, storage_options, block_bytes=block_bytes)
        self._reader = RangeReader(url, storage_options)
        self.blocks = self._cut(block_bytes)
        if not self.count:
            raise DataError(f"{url}: no lines.")
        longest = max(int(self._read(block.id)[1].max()) for block in self.blocks)
        self.schema = {"line": Field(np.dtype(np.uint8), (max(longest, 1),))}

    def _read(self, block_id: int) -> tuple[Any, Any]:
        """Return the concatenated lines of a block, and the length of each line."""
        block = self.blocks[block_id]
        text = bytes(self._reader.read(block.offset, block.length)).replace(b"\r\n", b"\n").removesuffix(b"\n")
        characters = np.frombuffer(text, np.uint8)
        ends = np.append(np.flatnonzero(characters == NEWLINE), len(characters))
        return characters[characters != NEWLINE], np.diff(ends, prepend=-1) - 1

    def read_block(self, block_id: int) -> Arrays:
        characters, lengths = self._read(block_id)
        (longest,) = self.schema["line"].shape
        lines = np.zeros((len(lengths), longest), np.uint8)
        lines[np.arange(longest) < lengths[:, None]] = characters
        return {"line": lines}

    def block_bytes(self, block_id: int) -> None:  # type: ignore[override]
        """Return None: lines have no manifests."""
        return None

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        return Store.salvage(self, block_id)
