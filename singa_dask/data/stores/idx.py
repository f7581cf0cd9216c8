"""Records in MNIST's idx format: a file of images, and a file of labels."""

from __future__ import annotations

import struct

import numpy as np

from singa_dask.data import fs
from singa_dask.data.fs.byte_source import Bytes
from singa_dask.data.stores.column import Column, ColumnStore
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Field
from singa_dask.errors import DataError

BYTE_MAGIC = b"\0\0\x08"


class IdxOptions(StoreOptions):
    """Options of idx files."""

    labels: str = ""
    """URL of the labels. By default the name of the images with ``labels-idx1`` instead of ``images-idx3``, or
    ``labels`` instead of ``images``, if that file exists."""


@STORES.register("idx")
class IdxStore(ColumnStore):
    """Images of an idx file, gzipped or not.

    Parameters
    ----------
    url : str
        The images, e.g. ``train-images-idx3-ubyte.gz``.

    Raises
    ------
    DataError
        A header or a length is wrong, or the number of labels is not that of images.
    """

    block = IdxOptions
    title = "an idx file"
    gzipped = True
    suffixes = (".idx", ".idx.gz", "-ubyte", "-ubyte.gz")

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return head.startswith(BYTE_MAGIC) or super().matches(url, head)

    def open_columns(self) -> tuple[dict[str, Column], int]:
        images = self.open_source()
        shape = idx_shape(images)
        if len(shape) < 2:
            raise DataError(f"{self.url}: not a file of images. Expected an idx header of 3 or more dimensions.")
        columns = {"pixel": _column(images, shape, np.dtype(np.uint8))}
        url = self.options["labels"] or self._labels_beside()
        if url:
            labels = self.open_source(url)
            found = idx_shape(labels)
            if found != shape[:1]:
                raise DataError(f"{self.url}: {shape[0]} images, but {url} has labels of shape {found}.")
            columns["label"] = _column(labels, found, np.dtype(np.int32))
        return columns, shape[0]

    def _labels_beside(self) -> str:
        folder, slash, name = self.url.rpartition("/")
        other = name.replace("images-idx3", "labels-idx1").replace("images", "labels")
        url = f"{folder}{slash}{other}"
        return url if other != name and fs.exists(url, self.storage_options) else ""


def idx_shape(source: Bytes) -> tuple[int, ...]:
    """Read the shape in the header of an idx file of bytes, and check the length of the file.

    Raises
    ------
    DataError
        The file is not of this format, or truncated.
    """
    url = source.url
    head = bytes(source.read(0, min(4, source.size)))
    if len(head) < 4 or not head.startswith(BYTE_MAGIC) or not head[3]:
        raise DataError(
            f"{url}: not an idx file of bytes: it begins with {head.hex(' ') or 'nothing, it is empty'}, "
            "expected 00 00 08 and the dimensions."
        )
    n_dims = head[3]
    if source.size < 4 + 4 * n_dims:
        raise DataError(f"{url}: truncated within an idx header of {n_dims} dimensions.")
    shape = struct.unpack(f">{n_dims}I", source.read(4, 4 * n_dims))
    body = source.size - 4 - 4 * n_dims
    if body != np.prod(shape, dtype=np.int64):
        raise DataError(f"{url}: {body} bytes after the header, expected those of the shape {shape}.")
    return shape


def _column(source: Bytes, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Column:
    stride = int(np.prod(shape[1:], dtype=np.int64))
    return Column(source, np.dtype(np.uint8), Field(dtype, shape[1:]), 4 + 4 * len(shape), stride)
