"""Records whose fields have a constant stride in the file: the base of idx, CIFAR, npy and npz; idx, and CIFAR.

Blocks of a local file are views of its memory map; a remote file is read by ranges; a compressed one is decompressed
into memory when opened.
"""

from __future__ import annotations

import math
import posixpath
import struct
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.conf.model import Field as KeyField
from singa_dask.conf.model import Many, Size
from singa_dask.data.codecs.record import as_labels, as_values, is_rounded
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import BLOCK_BYTES, STORES, StoreOptions, even_blocks
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import Bytes, Range, open_bytes


@dataclass(frozen=True)
class FieldColumn:
    """One field of all records.

    Attributes
    ----------
    source : Bytes
    kind : dtype
        Dtype in the file.
    field : Field
        Dtype and shape of the records.
    offset, stride : int
        Offset of the first record's value, and bytes from one to the next.
    """

    source: Bytes
    kind: np.dtype[Any]
    field: Field
    offset: int
    stride: int

    @property
    def size(self) -> int:
        """Bytes of one record's value."""
        return int(np.prod(self.field.shape, dtype=np.int64)) * self.kind.itemsize

    def part(self, first: int, n: int) -> tuple[int, int]:
        """Return offset and length of the bytes that hold the values of ``n`` records."""
        return self.offset + first * self.stride, (n - 1) * self.stride + self.size

    def take(self, data: memoryview, first: int, n: int) -> npt.NDArray[Any]:
        """Return the values of ``n`` records, (n, *shape) of ``kind``, as a view of their `part`."""
        width = self.kind.itemsize
        values: npt.NDArray[Any] = np.ndarray((n, self.size // width), self.kind, data, strides=(self.stride, width))
        return values.reshape(n, *self.field.shape)

    def adjoins(self, other: FieldColumn) -> bool:
        """Return whether a record's values of both columns are read together: they are within one stride."""
        ends = (self.offset + self.size, other.offset + other.size)
        together = max(ends) - min(self.offset, other.offset) <= self.stride == other.stride
        return together and self.source is other.source and type(self) is type(other) is FieldColumn


class ColumnStore(RangeStore):
    """Records of constant size; subclasses define the columns in `open_columns`."""

    columns: Mapping[str, FieldColumn]

    def index(self) -> None:
        self.columns, count = self.open_columns()
        self.schema = {name: column.field for name, column in self.columns.items()}
        self._use_sources()
        kept = [column for name, column in self.columns.items() if name != "label"]
        self.rounds_data = "data" in self.columns and is_rounded(self.columns["data"].kind)
        self.mapped = self.is_local and all(
            type(each) is FieldColumn and each.kind == each.field.dtype for each in kept
        )
        first = next(iter(self.columns.values()))
        n = max(1, BLOCK_BYTES // max(first.stride, 1))
        self.blocks = even_blocks(self.url, count, n, first.stride, first.offset)
        # columns that are one range of a block, in lists
        self._groups: list[list[FieldColumn]] = []
        for column in self.columns.values():
            group = next((group for group in self._groups if all(map(column.adjoins, group))), None)
            if group is None:
                self._groups.append([column])
            else:
                group.append(column)

    def _use_sources(self) -> None:
        """Close the sources that no column is in."""
        used = {id(column.source): column.source for column in self.columns.values()}
        for source in self.sources:
            if id(source) not in used:
                source.close()
        self.sources = list(used.values())

    @abstractmethod
    def open_columns(self) -> tuple[dict[str, FieldColumn], int]:
        """Return the columns, pixels or data first, and the number of records."""

    def file_beside(self, rename: Callable[[str], str]) -> str:
        """Return the URL of the file that ``rename`` makes of the name of this one; empty if there is none."""
        folder, slash, name = self.url.rpartition("/")
        url = f"{folder}{slash}{rename(name)}"
        return url if url != self.url and fs.exists(url, self.storage_options) else ""

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        found = []
        for group in self._groups:
            parts = [column.part(first, n) for column in group]
            start, stop = min(start for start, _ in parts), max(start + length for start, length in parts)
            found.append(Range(group[0].source, start, stop - start))
        return tuple(found)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        arrays = {}
        for name, column in self.columns.items():
            start, length = column.part(first, n)
            i = next(i for i, group in enumerate(self._groups) if column in group)
            begin = start - min(each.part(first, n)[0] for each in self._groups[i])
            values = column.take(data[i][begin : begin + length], first, n)
            where = column.source.url, first
            is_label = column.field.dtype == np.int32
            arrays[name] = as_labels(values, *where) if is_label else as_values(values, *where, self.schema[name].dtype)
        return arrays


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
    magic = BYTE_MAGIC
    title = "an idx file"
    gzipped = True
    suffixes = (".idx", ".idx.gz", "-ubyte", "-ubyte.gz")

    def open_columns(self) -> tuple[dict[str, FieldColumn], int]:
        images = self.open_source()
        shape = idx_shape(images)
        if len(shape) < 2:
            raise DataError(f"{self.url}: not a file of images. Expected an idx header of 3 or more dimensions.")
        columns = {"pixel": _idx_column(images, shape, np.dtype(np.uint8))}
        url = self.options["labels"] or self.file_beside(_name_of_labels)
        if url:
            labels = self.open_source(url)
            found = idx_shape(labels)
            if found != shape[:1]:
                raise DataError(f"{self.url}: {shape[0]} images, but {url} has labels of shape {found}.")
            columns["label"] = _idx_column(labels, found, np.dtype(np.int32))
        return columns, shape[0]


def _name_of_labels(images: str) -> str:
    return images.replace("images-idx3", "labels-idx1").replace("images", "labels")


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


def read_idx(urls: Sequence[str], storage_options: fs.Options = None) -> Arrays:
    """Read files of images and of labels in any order: they are distinguished by their headers.

    Several files of images, or of labels, are concatenated in the given order.

    Raises
    ------
    DataError
        A header or a length is wrong, or the number of labels is not that of images.
    """
    where, images, labels = ", ".join(urls), list[npt.NDArray[Any]](), list[npt.NDArray[Any]]()
    for url in urls:
        source = open_bytes(url, storage_options)
        shape = idx_shape(source)
        start = 4 + 4 * len(shape)
        values = np.frombuffer(source.read(start, source.size - start), np.uint8).reshape(shape)
        (images if len(shape) > 1 else labels).append(values)
    if len({each.shape[1:] for each in images}) > 1:
        raise DataError(f"{where}: records of different shapes: {[each.shape[1:] for each in images]}.")
    if not any(map(len, images)):
        raise DataError(f"{where}: no file of images. Expected an idx header of 3 or more dimensions.")
    # of one file the array is a view of the map
    pixels = np.concatenate(images) if len(images) > 1 else images[0]
    if not labels:
        return {"pixel": pixels}
    kinds = np.concatenate(labels).astype(np.int32)
    if len(kinds) != len(pixels):
        raise DataError(f"{where}: {len(pixels)} images but {len(kinds)} labels.")
    return {"pixel": pixels, "label": kinds}


def _idx_column(source: Bytes, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> FieldColumn:
    stride = int(np.prod(shape[1:], dtype=np.int64))
    return FieldColumn(source, np.dtype(np.uint8), Field(dtype, shape[1:]), 4 + 4 * len(shape), stride)


# file of class names, by the number of label bytes
NAME_FILES = {1: "batches.meta.txt", 2: "fine_label_names.txt"}


class CifarOptions(StoreOptions):
    """Options of CIFAR's files."""

    label_bytes: Size = 1
    """1 in CIFAR-10, 2 in CIFAR-100. The last of them is the label."""
    shape: Many[Size] = KeyField(default=[3, 32, 32])
    """Shape of an image."""


@STORES.register("cifar")
class CifarStore(ColumnStore):
    """Records of one batch file, gzipped or not. The format is not detected: name the backend.

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
        text = fs.read_bytes(url, storage_options=self.storage_options).decode(errors="replace")
        return parse_names(text.split())

    def open_columns(self) -> tuple[dict[str, FieldColumn], int]:
        source = self.open_source()
        self.class_names = self._names()
        labels, shape, byte = self.options["label_bytes"], tuple(self.options["shape"]), np.dtype(np.uint8)
        stride = labels + math.prod(shape)
        if not source.size or source.size % stride:
            raise DataError(f"{self.url}: {source.size} bytes, expected CIFAR records of {stride} bytes.")
        columns = {
            "pixel": FieldColumn(source, byte, Field(byte, shape), labels, stride),
            "label": FieldColumn(source, byte, Field(np.dtype(np.int32)), labels - 1, stride),
        }
        return columns, source.size // stride
