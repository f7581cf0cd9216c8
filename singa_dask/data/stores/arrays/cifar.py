"""Records in the binary files of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import math
import posixpath

import numpy as np

from singa_dask import fs
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.stores.arrays.column import ColumnStore, FieldColumn
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Field
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
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
class CifarStore(ColumnStore):
    """Records of one batch file, gzipped or not. The format is not detected: set the backend.

    Parameters
    ----------
    url : str
        Class names are read from ``batches.meta.txt`` (CIFAR-100: ``fine_label_names.txt``) in the same directory.
    """

    block = CifarOptions
    title = "a batch of CIFAR"
    gzipped = True

    def _names(self) -> tuple[str, ...]:
        """Return the class names in the file next to the batches."""
        url = fs.join(posixpath.dirname(self.url), NAME_FILES.get(self.options["label_bytes"], NAME_FILES[1]))
        if not fs.exists(url, self.storage_options):
            return ()
        names = (line.strip() for line in split_lines(decode_text(url, self.storage_options)))
        return parse_names([name for name in names if name])

    def open_columns(self) -> tuple[dict[str, FieldColumn], int]:
        source = self.open_source()
        self.class_names = self._names()
        labels, shape, byte = self.options["label_bytes"], tuple(self.options["shape"]), np.dtype(np.uint8)
        stride = labels + math.prod(shape)
        if not source.size or source.size % stride:
            raise DataError(
                f"{self.url}: the file has {source.size} bytes, which are not whole CIFAR records of {stride} bytes."
            )
        columns = {
            "pixel": FieldColumn(source, byte, Field(byte, shape), labels, stride),
            "label": FieldColumn(source, byte, Field(np.dtype(np.int32)), labels - 1, stride),
        }
        return columns, source.size // stride
