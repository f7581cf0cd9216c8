"""Records in MNIST's idx files: a file of images, and a file of labels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.stores.arrays.column import ColumnStore
from singa_dask.data.stores.arrays.stored_array import ContiguousArray
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import Bytes

BYTE_MAGIC = b"\0\0\x08"


class IdxOptions(StoreOptions):
    """Options of idx files."""

    labels: str = ""
    """URL of the labels. By default the file named like the images, with ``labels-idx1`` instead of ``images-idx3``, or
    ``labels`` instead of ``images``, if it exists."""


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
        A header or a length is wrong, or the number of labels differs from the number of images.
    """

    options_class = IdxOptions
    magic = BYTE_MAGIC
    title = "an idx file"
    gzipped = True
    suffixes = (".idx", ".idx.gz", "-ubyte", "-ubyte.gz")

    def open_columns(self) -> dict[str, ContiguousArray]:
        images = self.open_source()
        shape = idx_shape(images)
        if len(shape) < 2:
            raise DataError(f"{self.url}: the file has no images. Expected an idx header of 3 or more dimensions.")
        columns = {"pixel": _idx_array(images, shape)}
        url = self.options["labels"] or self.file_beside(_idx_labels)
        if url:
            labels = self.open_source(url)
            label_shape = idx_shape(labels)
            if label_shape != shape[:1]:
                raise DataError(
                    f"{self.url}: the file has {shape[0]} images, but {url} has labels of shape {label_shape}."
                )
            columns["label"] = _idx_array(labels, label_shape)
        return columns


def _idx_labels(images: str) -> str:
    return images.replace("images-idx3", "labels-idx1").replace("images", "labels")


def idx_shape(source: Bytes) -> tuple[int, ...]:
    """Read the shape in the header of an idx file of bytes.

    Raises a `DataError` if the file has another format or a wrong length.
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
        raise DataError(f"{url}: the file is truncated within an idx header of {n_dims} dimensions.")
    shape = struct.unpack(f">{n_dims}I", source.read(4, 4 * n_dims))
    body = source.size - 4 - 4 * n_dims
    if body != np.prod(shape, dtype=np.int64):
        raise DataError(f"{url}: the file has {body} bytes after the header, which do not fit the shape {shape}.")
    return shape


def read_idx(urls: Sequence[str], storage_options: fs.Options = None) -> Arrays:
    """Read files of images and of labels, in any order. Their headers tell them apart.

    Several files of images, or of labels, are concatenated in the given order.

    Raises
    ------
    DataError
        A header or a length is wrong, or the number of labels differs from the number of images.
    """
    where, images, labels = ", ".join(urls), list[npt.NDArray[Any]](), list[npt.NDArray[Any]]()
    for url in urls:
        source = open_bytes(url, storage_options)
        shape = idx_shape(source)
        start = 4 + 4 * len(shape)
        values = np.frombuffer(source.read(start, source.size - start), np.uint8).reshape(shape)
        (images if len(shape) > 1 else labels).append(values)
    if len({each.shape[1:] for each in images}) > 1:
        raise DataError(f"{where}: the files have records of different shapes: {[each.shape[1:] for each in images]}.")
    if not any(map(len, images)):
        raise DataError(f"{where}: no file has images. Expected an idx header of 3 or more dimensions.")
    # do not copy a single array, so that it stays a view of the mapped file
    pixels = np.concatenate(images) if len(images) > 1 else images[0]
    if not labels:
        return {"pixel": pixels}
    kinds = np.concatenate(labels).astype(np.int32)
    if len(kinds) != len(pixels):
        raise DataError(f"{where}: there are {len(pixels)} images, but {len(kinds)} labels.")
    return {"pixel": pixels, "label": kinds}


def _idx_array(source: Bytes, shape: tuple[int, ...]) -> ContiguousArray:
    return ContiguousArray(np.dtype(np.uint8), shape, {}, source, 4 + 4 * len(shape))
