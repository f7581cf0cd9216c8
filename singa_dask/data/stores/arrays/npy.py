"""Records in NumPy's npy files: a file of images or data, and optionally a file of labels."""

from __future__ import annotations

import io
import math
import re
import threading
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from singa_dask import fs
from singa_dask.data.codecs.record_values import is_numeric, value_name
from singa_dask.data.stores.arrays.column import ColumnStore
from singa_dask.data.stores.arrays.stored_array import ContiguousArray
from singa_dask.data.stores.range_store import DAMAGE
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.errors import DataError
from singa_dask.fs.sources import Bytes, BytesInMemory, Range

# a word in the name of a features file -> the word in the name of its labels file
LABEL_WORDS = {"x": "y", "X": "y", "images": "labels", "image": "label", "features": "labels", "data": "labels"}
WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(LABEL_WORDS)})(?![A-Za-z])")
NPY_MAGIC = npy_format.MAGIC_PREFIX
# errors that damaged headers cause in numpy
NPY_DAMAGE = (*DAMAGE, tokenize.TokenError)
# numpy rejects longer headers
MAX_HEADER_BYTES = 10_000 + npy_format.MAGIC_LEN + 4
# numpy parses headers with ast.literal_eval, which is not thread-safe in Python 3.11
# (https://github.com/python/cpython/issues/106905)
_PARSING = threading.Lock()


@dataclass
class NpyArray(ContiguousArray):
    """An array of an npy file or archive.

    Attributes
    ----------
    name : str
        Name of the array in the archive, or the URL, for errors.
    fortran : bool
        Whether values are stored in Fortran order: the first axis changes fastest. The values of a record are then not
        adjacent, so all values are read for each block.
    """

    name: str
    fortran: bool

    def __post_init__(self) -> None:
        self.is_view = not self.fortran

    @property
    def size_bytes(self) -> int:
        """Number of bytes of all values."""
        return math.prod(self.shape) * self.kind.itemsize

    def ranges(self, first: int, n: int) -> tuple[Range, ...]:
        return (Range(self.source, self.offset, self.size_bytes),) if self.fortran else super().ranges(first, n)

    def decode(self, first: int, n: int, data: Sequence[memoryview]) -> npt.NDArray[Any]:
        if not self.fortran:
            return super().decode(first, n, data)
        array: npt.NDArray[Any] = np.ndarray(self.shape, self.kind, data[0], order="F")
        return np.ascontiguousarray(array[first : first + n])


def locate_npy(source: Bytes, start: int = 0, name: str = "") -> NpyArray:
    """Parse the header of an npy file that begins at ``start``.

    Raises a `ValueError` or another error in `NPY_DAMAGE` if it is not an npy file, or the header is damaged.
    """
    head = bytes(source.read(start, min(MAX_HEADER_BYTES, source.size - start)))
    if not head.startswith(NPY_MAGIC):
        raise ValueError("not an npy file")
    file = io.BytesIO(head)
    version = npy_format.read_magic(file)
    if version > (3, 0):
        raise ValueError(f"an npy file of version {'.'.join(map(str, version))}, expected at most 3.0")
    # version 3 differs from version 2 only in the names of structured types
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    with _PARSING:
        shape, fortran, kind = read(file)
    return NpyArray(kind, shape, {}, source, start + file.tell(), name or source.url, fortran and len(shape) > 1)


def decode_npy(data: bytes | bytearray | memoryview) -> npt.NDArray[Any]:
    """Return the array in the bytes of an npy file, as a view of these bytes.

    Raises a `ValueError` or another error in `NPY_DAMAGE` if it is damaged, or its values are objects.
    """
    npy = locate_npy(BytesInMemory("", data))
    if npy.kind.hasobject:
        raise ValueError(f"the array is of type {npy.kind}, expected numbers")
    if len(data) - npy.offset != npy.size_bytes:
        raise ValueError(f"the file has {len(data) - npy.offset} bytes of values, expected {npy.size_bytes}")
    array: npt.NDArray[Any] = np.frombuffer(data, npy.kind, offset=npy.offset)
    return array.reshape(npy.shape, order="F" if npy.fortran else "C")


class NpyOptions(StoreOptions):
    """Options of npy files."""

    labels: str = ""
    """URL of the labels. By default the file beside it with ``y`` in place of the word ``X`` or ``x``, or with
    ``labels`` in place of ``images``, ``features`` or ``data``, if it exists."""


@STORES.register("npy")
class NpyStore(ColumnStore):
    """Records of an npy file. The first axis is the axis of records. Local files are memory-mapped.

    Arrays of uint8 become ``pixel``; other numbers become ``data``, rounded to float32. Values that are too large for
    float32, and labels that are not 32-bit integers, are errors. Remote arrays in Fortran order are read into memory as
    a whole.

    Parameters
    ----------
    url : str
        The images or data, e.g. ``X_train.npy``.

    Raises
    ------
    DataError
        A file is damaged or truncated, has no numbers, or has a wrong number of labels.
    """

    options_class = NpyOptions
    magic = NPY_MAGIC
    title = "an npy file"
    gzipped = True
    suffixes = (".npy",)

    def open_columns(self) -> dict[str, ContiguousArray]:
        labels = self.options["labels"] or self.file_beside(_npy_labels)
        return npy_columns(self.url, self._open(self.url), self._open(labels) if labels else None)

    def _open(self, url: str) -> NpyArray:
        source = self.open_source(url)
        try:
            array = locate_npy(source)
        except NPY_DAMAGE as error:
            empty = "it is empty" if not source.size else str(error)
            raise DataError(f"{url}: not an npy file, or a damaged one: {empty}.") from error
        n_bytes = source.size - array.offset
        if is_numeric(array.kind) and n_bytes != array.size_bytes:
            raise DataError(
                f"{url}: the file has {n_bytes} bytes of values, expected {array.size_bytes} for {array.shape} "
                f"{array.kind}. It is truncated or damaged."
            )
        return array


def _npy_labels(values: str) -> str:
    return WORD.sub(lambda match: LABEL_WORDS[match[0]], values)


def npy_columns(url: str, values: NpyArray, labels: NpyArray | None = None) -> dict[str, ContiguousArray]:
    """Return the columns of npy arrays, values first.

    Raises
    ------
    DataError
        An array does not have numbers or has no axis of records, or the lengths of the arrays differ.
    """
    arrays, columns = [values, *([labels] if labels else [])], dict[str, ContiguousArray]()
    for array in arrays:
        check_array(url, array.name, array.kind, array.shape, array is labels)
        if array.fortran and fs.local_path(array.source.url) is None and not isinstance(array.source, BytesInMemory):
            # read from byte 0, so that the checksum in a manifest covers the header
            data = array.source.read(0, array.offset + array.size_bytes)
            array.source.close()
            array.source = BytesInMemory(array.source.url, data)
        columns["label" if array is labels else value_name(array.kind)] = array
    lengths = {array.name: array.shape[0] for array in arrays}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{url}: the arrays have different lengths: {lengths}.")
    return columns


def check_array(url: str, name: str, kind: np.dtype[Any], shape: tuple[int, ...], is_label: bool) -> None:
    """Check that an array can be values or labels of records.

    Parameters
    ----------
    url, name : str
        URL of the file, and name of the array in the file (or the URL again), for errors.
    kind : dtype
    shape : tuple of int
    is_label : bool

    Raises
    ------
    DataError
        The values are not numbers, the array has no axis of records, or a label is not one number.
    """
    where = url if name == url else f"{url}: {name}"
    if not is_numeric(kind):
        hint = f"numpy.unique({name}, return_inverse=True) returns class_names to save, and labels."
        expected = f"integers. {hint}" if is_label else "numbers."
        raise DataError(f"{where}: the values are of type {kind}, expected {expected}")
    if not shape:
        raise DataError(f"{where}: the array is a single number, expected a row for each record.")
    width = int(np.prod(shape[1:], dtype=np.int64))
    if is_label and width != 1:
        one_hot = " If they are one-hot, write labels.argmax(1)." if len(shape) == 2 and width > 2 else ""
        raise DataError(f"{url}: the labels have shape {shape}, expected one label for each record.{one_hot}")
