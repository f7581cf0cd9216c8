"""A store of a user's own: records of a format that nobody else reads. Here: a text, gzipped or not."""

from __future__ import annotations

import gzip

import numpy as np

from singa_dask import Block, DataError, Field, Store, StoreOptions, register


class LettersOptions(StoreOptions):
    """Options of texts."""

    window: int = 16
    """Bytes of a record."""
    block_records: int = 4096
    """Records of a block."""


@register("letters")
class Letters(Store):
    """A record for each place in a text: the ``window`` bytes before it, and whether a letter comes next.

    Label 0 is a blank, 1 a small letter, 2 a capital, 3 anything else.
    """

    options_class = LettersOptions

    def __init__(self, url, storage_options=None, **options):
        super().__init__(url, storage_options, **options)
        self.window = window = self.options["window"]
        block_records = self.options["block_records"]
        try:
            with open(url, "rb") as file:
                text = file.read()
        except OSError as error:
            raise DataError(f"{url}: {error.strerror}.") from error
        self.text = np.frombuffer(gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text, np.uint8)
        count = len(self.text) - window
        self.schema = {"pixel": Field(np.dtype(np.uint8), (window,)), "label": Field(np.dtype(np.int32))}
        self.blocks = tuple(
            Block(i, min(block_records, count - first), url, first, min(block_records, count - first))
            for i, first in enumerate(range(0, count, block_records))
        )

    def read_block(self, block_id):
        """Return the records of a block: an array of n rows for each field of the schema."""
        block = self.blocks[block_id]
        places = np.arange(block.offset, block.offset + block.n)
        following = self.text[places + self.window]
        kinds = [following == ord(" "), (following >= ord("a")) & (following <= ord("z"))]
        kinds.append((following >= ord("A")) & (following <= ord("Z")))
        return {
            "pixel": self.text[places[:, None] + np.arange(self.window)],
            "label": np.select(kinds, [0, 1, 2], 3).astype(np.int32),
        }

    def close(self):
        """Let go of the file: it was read at once."""
