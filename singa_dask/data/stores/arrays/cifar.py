"""Records in the binary files of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Sequence

import numpy as np

from singa_dask import fs
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.blocks import BLOCK_BYTES, even_blocks
from singa_dask.data.codecs.class_lists import parse_names
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.fs.sources import Range
from singa_dask.texts import split_lines

# number of label bytes -> file of class names
NAME_FILES = {1: "batches.meta.txt", 2: "fine_label_names.txt"}


class CifarOptions(StoreOptions):
    """Options of CIFAR's files."""

    label_bytes: Size = 1
    """1 in CIFAR-10, 2 in CIFAR-100. The last byte is the label."""
    shape: Many[Size] = KeyField(default=[3, 32, 32])
    """Shape of an image."""


@STORES.register("cifar")
class CifarStore(RangeStore):
    """Records of one batch file, gzipped or not. The format is not detected: set the backend.

    Parameters
    ----------
    url : str
        Class names are read from ``batches.meta.txt`` (CIFAR-100: ``fine_label_names.txt``) in the same directory.
    """

    options_class = CifarOptions
    title = "a batch of CIFAR"
    gzipped = True

    def _names(self) -> tuple[str, ...]:
        """Return the class names in the file next to the batches."""
        url = fs.join(posixpath.dirname(self.url), NAME_FILES.get(self.options["label_bytes"], NAME_FILES[1]))
        if not fs.exists(url, self.storage_options):
            return ()
        names = (line.strip() for line in split_lines(decode_text(url, self.storage_options)))
        return parse_names([name for name in names if name])

    def index(self) -> None:
        source = self.open_source()
        self.class_names = self._names()
        labels, shape = self.options["label_bytes"], tuple(self.options["shape"])
        self._stride = labels + math.prod(shape)
        if not source.size or source.size % self._stride:
            raise DataError(
                f"{self.url}: the file has {source.size} bytes, which are not whole CIFAR records of {self._stride} "
                "bytes."
            )
        self.schema = {"pixel": Field(np.dtype(np.uint8), shape), "label": Field(np.dtype(np.int32))}
        self.mapped, n = self.is_local, max(1, BLOCK_BYTES // self._stride)
        self.blocks = even_blocks(self.url, source.size // self._stride, n, self._stride, labels)

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        # from the last byte of the first record's labels to the end of the last record
        block = self.blocks[block_id]
        skipped = self.options["label_bytes"] - 1
        return (Range(self.sources[0], block.offset - 1, block.length - skipped),)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        n, shape = self.blocks[block_id].n, self.schema["pixel"].shape
        labels = np.ndarray((n,), np.uint8, data[0], strides=(self._stride,))
        pixels = np.ndarray((n, math.prod(shape)), np.uint8, data[0], 1, (self._stride, 1))
        return {"pixel": pixels.reshape(n, *shape), "label": labels.astype(np.int32)}
