"""Records whose fields have a constant stride in the file: idx, CIFAR, and NumPy's npy and npz.

Blocks of a local file are views of its memory map; a remote file is read by ranges; a compressed one is decompressed
into memory when opened. An npy file has images or data, and one beside it the labels; an npz file holds both.
"""

from __future__ import annotations

import io
import math
import posixpath
import re
import struct
import threading
import tokenize
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from singa_dask import fs
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.values import as_values, is_numeric, is_rounded, value_name
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.range_store import RangeStore, describe
from singa_dask.data.stores.store import (
    BLOCK_BYTES,
    STORES,
    LabelOptions,
    Rechunker,
    StoreOptions,
    even_blocks,
    rows_per_block,
)
from singa_dask.data.types import Arrays, Field, Records
from singa_dask.errors import DataError, listed
from singa_dask.fs.decompression import limit_of, read_member
from singa_dask.fs.open_bytes import decode_text, open_bytes
from singa_dask.fs.sources import Bytes, BytesInMemory, Range
from singa_dask.texts import split_lines


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
        url = self.options["labels"] or self.file_beside(_idx_labels)
        if url:
            labels = self.open_source(url)
            found = idx_shape(labels)
            if found != shape[:1]:
                raise DataError(f"{self.url}: {shape[0]} images, but {url} has labels of shape {found}.")
            columns["label"] = _idx_column(labels, found, np.dtype(np.int32))
        return columns, shape[0]


def _idx_labels(images: str) -> str:
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
        names = (line.strip() for line in split_lines(decode_text(url, self.storage_options)))
        return parse_names([name for name in names if name])

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


# Records in numpy's npy files, one of images or data and one of labels beside it; and in npz files, which hold both.
#
# Uncompressed arrays, as `numpy.savez` writes them, are read in place; others are decompressed into memory.


# a word of a file's name -> the word in the name of the labels
LABEL_WORDS = {"x": "y", "X": "y", "images": "labels", "image": "label", "features": "labels", "data": "labels"}
WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(LABEL_WORDS)})(?![A-Za-z])")
NPY_MAGIC = npy_format.MAGIC_PREFIX
# errors that damaged headers cause in numpy
NPY_DAMAGE = (
    EOFError,
    MemoryError,
    OverflowError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
)
# numpy refuses longer headers
MAX_HEADER_BYTES = 10_000 + npy_format.MAGIC_LEN + 4
# numpy parses headers by ast.literal_eval, and two threads at once break that of Python 3.11
# (https://github.com/python/cpython/issues/106905)
_PARSING = threading.Lock()


@dataclass(frozen=True)
class NpyArray:
    """Where the values of an array are.

    Attributes
    ----------
    source : Bytes
    name : str
        For errors: in the archive, or the URL.
    kind : dtype
    shape : tuple of int
    fortran : bool
        Whether the first axis changes fastest.
    offset : int
        Offset of the first value.
    """

    source: Bytes
    name: str
    kind: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all values."""
        return math.prod(self.shape) * self.kind.itemsize


def locate_npy(source: Bytes, start: int = 0, name: str = "") -> NpyArray:
    """Parse the header of an npy file that begins at ``start``.

    Raises
    ------
    ValueError and others of NPY_DAMAGE
        It is not an npy file, or the header is damaged.
    """
    head = bytes(source.read(start, min(MAX_HEADER_BYTES, source.size - start)))
    if not head.startswith(NPY_MAGIC):
        raise ValueError("not an npy file")
    file = io.BytesIO(head)
    version = npy_format.read_magic(file)
    if version > (3, 0):
        raise ValueError(f"an npy file of version {'.'.join(map(str, version))}, expected at most 3.0")
    # version 3 differs in the names of structured types only
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    with _PARSING:
        shape, fortran, kind = read(file)
    return NpyArray(source, name or source.url, kind, shape, fortran and len(shape) > 1, start + file.tell())


def decode_npy(data: bytes | bytearray | memoryview) -> npt.NDArray[Any]:
    """Return the array of a whole npy file, as a view of its bytes.

    Raises
    ------
    ValueError and others of NPY_DAMAGE
        It is damaged, or its values are objects.
    """
    npy = locate_npy(BytesInMemory("", data))
    if npy.kind.hasobject:
        raise ValueError(f"an array of {npy.kind}, expected numbers")
    if len(data) - npy.offset != npy.size_bytes:
        raise ValueError(f"{len(data) - npy.offset} bytes of values, expected {npy.size_bytes}")
    array: npt.NDArray[Any] = np.frombuffer(data, npy.kind, offset=npy.offset)
    return array.reshape(npy.shape, order="F" if npy.fortran else "C")


class NpyOptions(StoreOptions):
    """Options of npy files."""

    labels: str = ""
    """URL of the labels. By default the file beside it with ``y`` in place of the word ``X`` or ``x``, or with
    ``labels`` in place of ``images``, ``features`` or ``data``, if it exists."""


@STORES.register("npy")
class NpyStore(ColumnStore):
    """Records of an npy file; the first axis is that of records. Local files are memory-mapped.

    Arrays of uint8 become ``pixel``; other numbers become ``data``, rounded to float32. Values that are too large for
    float32, and labels that are not 32-bit integers, are errors. Arrays in Fortran order can be read too; on a remote
    filesystem they are read into memory as a whole.

    Parameters
    ----------
    url : str
        The images or data, e.g. ``X_train.npy``.

    Raises
    ------
    DataError
        A file is damaged or truncated, has no numbers, or the number of labels is not that of records.
    """

    block = NpyOptions
    magic = NPY_MAGIC
    title = "an npy file"
    gzipped = True
    suffixes = (".npy",)

    def open_columns(self) -> tuple[dict[str, FieldColumn], int]:
        labels = self.options["labels"] or self.file_beside(_npy_labels)
        return npy_columns(self.url, self._open(self.url), self._open(labels) if labels else None)

    def _open(self, url: str) -> NpyArray:
        source = self.open_source(url)
        try:
            array = locate_npy(source)
        except NPY_DAMAGE as error:
            empty = "it is empty" if not source.size else str(error)
            raise DataError(f"{url}: not an npy file, or a damaged one: {empty}.") from error
        found = source.size - array.offset
        if is_numeric(array.kind) and found != array.size_bytes:
            raise DataError(
                f"{url}: {found} bytes of values, expected {array.size_bytes} for {array.shape} {array.kind}: "
                "truncated or damaged."
            )
        return array


def _npy_labels(values: str) -> str:
    return WORD.sub(lambda match: LABEL_WORDS[match[0]], values)


def npy_columns(url: str, values: NpyArray, labels: NpyArray | None = None) -> tuple[dict[str, FieldColumn], int]:
    """Return the columns, values first, and the number of records of npy arrays.

    Raises
    ------
    DataError
        An array is not of numbers, has no axis of records, or the lengths differ.
    """
    arrays, columns = [values, *([labels] if labels else [])], dict[str, FieldColumn]()
    for array in arrays:
        check_array(url, array.name, array.kind, array.shape, array is labels)
        name = "label" if array is labels else value_name(array.kind)
        columns[name] = _column(array, name)
    lengths = {array.name: array.shape[0] for array in arrays}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{url}: arrays of different lengths: {lengths}.")
    return columns, values.shape[0]


def check_array(url: str, name: str, kind: np.dtype[Any], shape: tuple[int, ...], is_label: bool) -> None:
    """Check that an array can be values or labels of records.

    Parameters
    ----------
    url, name : str
        URL of the file, and name of the array in it or the URL again, for errors.
    kind : dtype
    shape : tuple of int
    is_label : bool

    Raises
    ------
    DataError
        It is not of numbers, has no axis of records, or is of labels that are not one number each.
    """
    where = url if name == url else f"{url}: {name}"
    if not is_numeric(kind):
        hint = f"numpy.unique({name}, return_inverse=True) returns class_names to save, and labels."
        expected = f"integers. {hint}" if is_label else "numbers."
        raise DataError(f"{where}: values of type {kind}, expected {expected}")
    if not shape:
        raise DataError(f"{where}: a single number, expected an array with a row for each record.")
    width = int(np.prod(shape[1:], dtype=np.int64))
    if is_label and width != 1:
        one_hot = " If they are one-hot, write labels.argmax(1)." if len(shape) == 2 and width > 2 else ""
        raise DataError(f"{url}: labels of shape {shape}, expected one per record.{one_hot}")


def _column(array: NpyArray, name: str) -> FieldColumn:
    dtype = np.dtype(np.int32 if name == "label" else np.uint8 if name == "pixel" else np.float32)
    field = Field(dtype, () if name == "label" else array.shape[1:])
    stride = int(np.prod(array.shape[1:], dtype=np.int64)) * array.kind.itemsize
    if not array.fortran:
        return FieldColumn(array.source, array.kind, field, array.offset, stride)
    source = array.source
    if fs.local_path(source.url) is None and not isinstance(source, BytesInMemory):
        # from the start, so that the header is among what a manifest has checksums of
        data = source.read(0, array.offset + array.size_bytes)
        source.close()
        array = replace(array, source=BytesInMemory(source.url, data))
    return _FortranColumn(array.source, array.kind, field, array.offset, stride, array.shape)


@dataclass(frozen=True)
class _FortranColumn(FieldColumn):
    """A column whose first axis, that of records, changes fastest: values of a record are not adjacent.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array.
    """

    shape: tuple[int, ...]

    def part(self, first: int, n: int) -> tuple[int, int]:
        return self.offset, int(np.prod(self.shape, dtype=np.int64)) * self.kind.itemsize

    def take(self, data: memoryview, first: int, n: int) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = np.ndarray(self.shape, self.kind, data, order="F")
        return np.ascontiguousarray(array[first : first + n]).reshape(n, *self.field.shape)


ZIP_MAGIC = b"PK\x03\x04"
LOCAL_HEADER_BYTES = 30
# the record at the end of an archive, where the number of members is in it, and what stands for more than fit there
END_MAGIC = b"PK\5\6"
END_BYTES, COUNT_OFFSET, MANY_MEMBERS = 22, 10, 0xFFFF
# archives with more bytes of arrays are not compared with their checksums when they are opened: it takes a second a GB
MAX_CHECKED_BYTES = 1 << 26
CHUNK_BYTES = 1 << 20
# errors raised by zipfile, zlib, and the parsing of a header
NPZ_DAMAGE = (
    *NPY_DAMAGE,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
IMAGE_NAMES = ("images", "image", "pixel", "data", "features", "x")
CLASS_NAMES = "class_names"


@STORES.register("npz")
class NpzStore(ColumnStore):
    """Records of an npz file with an array of ``images`` (or image, pixel, data, x) and of ``labels``.

    Arrays of uint8 become ``pixel``, others ``data`` (float32). An array ``class_names`` of text has the class names.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional

    Notes
    -----
    Arrays of a local archive up to 64 MiB without a manifest are compared with the checksums in the archive when it is
    opened; those of others by `check_whole`.
    """

    block = LabelOptions
    title = "an npz file"
    suffixes = (".npz",)
    damage = NPZ_DAMAGE
    write_options = ("class_names",)

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        # Excel's files are archives, too
        is_sheet = url.lower().endswith(".xlsx")
        return (head.startswith(ZIP_MAGIC) and not is_sheet) or super().matches(url, head)

    @classmethod
    def write(
        cls, url: str, records: Records, storage_options: fs.Options = None, class_names: Sequence[str] = ()
    ) -> None:
        """Write an array per field, and one of class names, with `numpy.savez`. All records are held in memory."""
        rows = Rechunker(url, records)
        blocks = list(rows.chunks(rows_per_block(rows.record_bytes)))
        arrays = {name: np.concatenate([block[name] for block in blocks]) for name in rows.schema}
        if class_names:
            arrays[CLASS_NAMES] = np.array(class_names)
        with fs.staged(url, storage_options) as path, path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def open_columns(self) -> tuple[dict[str, FieldColumn], int]:
        reader = self.open_source()
        with fs.open(self.url, storage_options=self.storage_options) as file, zipfile.ZipFile(file) as archive:
            _check_count(file, archive)
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            chosen = [members[name] for name in self._choose(members)]
            arrays = [self._locate(reader, archive, member) for member in chosen]
            if CLASS_NAMES in members:
                known = decode_npy(self._read(archive, members[CLASS_NAMES]))
                self.class_names = parse_names(known.tolist())
            stored = [member for member in chosen if member.compress_type == zipfile.ZIP_STORED]
            self._stored = {member.filename for member in stored}
            n_bytes = sum(member.file_size for member in stored)
            if reader.is_local and n_bytes <= MAX_CHECKED_BYTES and self.manifest is None:
                self._check_sums(archive)
        return npy_columns(self.url, *arrays)

    def _read(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytearray:
        return read_member(archive, member, f"{self.url}, {member.filename}", limit_of(self.storage_options))

    def check_whole(self) -> None:
        try:
            with fs.open(self.url, storage_options=self.storage_options) as file, zipfile.ZipFile(file) as archive:
                self._check_sums(archive)
        except self.damage as error:
            raise DataError(f"{self.url}: not {self.title}, or a damaged one: {describe(error)}.") from error

    def _check_sums(self, archive: zipfile.ZipFile) -> None:
        """Compare names of arrays, and the arrays that are read in place, with what the archive has of both."""
        for member in archive.infolist():
            # compares the name before the array with that in the directory
            with archive.open(member) as file:
                while member.filename in self._stored and file.read(CHUNK_BYTES):
                    pass

    def _choose(self, members: dict[str, zipfile.ZipInfo]) -> list[str]:
        """Return the names of the members with images and, if there are any, labels."""
        found = [each for name in IMAGE_NAMES for each in members if each.lower() == name]
        if len(found) > 1:
            raise DataError(f"{self.url}: {' and '.join(found)} could each be the images or data. Expected one array.")
        if not found and not any(member.filename.endswith(".npy") for member in members.values()):
            raise DataError(f"{self.url}: a zip archive of {listed(list(members)) or 'nothing'}. Unpack it.")
        if not found:
            message = f"{self.url}: no array called {' or '.join(IMAGE_NAMES)}. Arrays: {', '.join(members)}."
            raise DataError(f"{message}{_advice(list(members))}")
        self.other_fields = tuple(name for name in members if name not in (*found, CLASS_NAMES))
        label = self.choose_label(self.other_fields)
        return [found[0], label] if label else found

    def _locate(self, reader: Bytes, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NpyArray:
        """Return where an array's values are."""
        source: Bytes
        if member.compress_type == zipfile.ZIP_STORED:
            header = bytes(reader.read(member.header_offset, LOCAL_HEADER_BYTES))
            source, start = reader, member.header_offset + LOCAL_HEADER_BYTES + sum(struct.unpack("<HH", header[26:]))
        else:
            source, start = BytesInMemory(self.url, self._read(archive, member)), 0
        array = locate_npy(source, start, member.filename.removesuffix(".npy"))
        size = array.offset - start + array.size_bytes
        if is_numeric(array.kind) and size != member.file_size:
            raise ValueError(f"{member.filename} has {member.file_size} bytes, not {size}")
        return array


def _check_count(file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """Compare the number of members with that at the end of the archive, which zipfile does not."""
    file.seek(-END_BYTES - len(archive.comment), io.SEEK_END)
    end, found = file.read(END_BYTES), len(archive.infolist())
    (stated,) = struct.unpack_from("<H", end, COUNT_OFFSET)
    # something else may follow it
    if end.startswith(END_MAGIC) and stated not in (found, MANY_MEMBERS):
        raise zipfile.BadZipFile(f"it has {found} members, not {stated}")


def _advice(names: Sequence[str]) -> str:
    """Return a hint for a file whose arrays have names of other programs."""
    parts = [name for name in names if name.lower().endswith("train")]
    if not parts:
        return ""
    arrays = f"images={parts[0]}" + (f", labels={parts[1]}" if len(parts) > 1 else "")
    return f" Write a file for each part: numpy.savez('train.npz', {arrays}), and the others as test.npz."
