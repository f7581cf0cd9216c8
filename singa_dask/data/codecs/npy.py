"""Arrays in numpy's npy format, parsed by `numpy.lib.format`."""

from __future__ import annotations

import io
import math
import threading
import tokenize
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from singa_dask.data.fs.byte_source import Bytes

__all__ = ["NPY_DAMAGE", "NPY_MAGIC", "NpyArray", "decode_npy", "locate_npy"]

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
    kind : dtype
    shape : tuple of int
    fortran : bool
        Whether the first axis changes fastest.
    offset : int
        Offset of the first value.
    """

    source: Bytes
    kind: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all values."""
        size = self.kind.itemsize
        for extent in self.shape:
            size *= extent
        return size


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an npy file, and leave the file at its first value.

    Returns
    -------
    shape : tuple of int
    fortran : bool
        Whether the first axis changes fastest.
    kind : dtype

    Raises
    ------
    ValueError and others of NPY_DAMAGE
        It is not an npy file, or the header is damaged.
    """
    version = npy_format.read_magic(file)
    if version > (3, 0):
        raise ValueError(f"an npy file of version {'.'.join(map(str, version))}, expected at most 3.0")
    # version 3 differs in the names of structured types only
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    with _PARSING:
        shape, fortran, kind = read(file)
    return shape, fortran, kind


def locate_npy(source: Bytes, start: int = 0) -> NpyArray:
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
    shape, fortran, kind = _read_header(file)
    return NpyArray(source, kind, shape, fortran and len(shape) > 1, start + file.tell())


def decode_npy(data: bytes | bytearray | memoryview) -> npt.NDArray[Any]:
    """Return the array of a whole npy file, as a view of its bytes.

    Raises
    ------
    ValueError and others of NPY_DAMAGE
        It is damaged, or its values are objects.
    """
    file = io.BytesIO(data)
    shape, fortran, kind = _read_header(file)
    if kind.hasobject:
        raise ValueError(f"an array of {kind}, expected numbers")
    expected, found = math.prod(shape) * kind.itemsize, len(data) - file.tell()
    if found != expected:
        raise ValueError(f"{found} bytes of values, expected {expected}")
    values = np.frombuffer(data, kind, offset=file.tell())
    array: npt.NDArray[Any] = values.reshape(shape, order="F" if fortran else "C")
    return array
