"""Arrays in numpy's npy format, parsed by `numpy.lib.format`."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from singa_dask.data.codecs.values import is_numeric
from singa_dask.data.fs.byte_source import Bytes
from singa_dask.errors import DataError

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
    version = npy_format.read_magic(file)
    if version > (3, 0):
        raise ValueError(f"an npy file of version {'.'.join(map(str, version))}, expected at most 3.0")
    # version 3 differs in the names of structured types only
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, fortran, kind = read(file)
    return NpyArray(source, kind, shape, fortran and len(shape) > 1, start + file.tell())


def decode_npy(data: Sequence[int] | memoryview | bytes, where: str) -> npt.NDArray[Any]:
    """Decode a whole npy file of numbers.

    Raises
    ------
    DataError
        It is damaged, or the values are no numbers.
    """
    try:
        array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)  # type: ignore[arg-type]
    except NPY_DAMAGE as error:
        raise DataError(f"{where}: a damaged npy file: {error}.") from error
    if not is_numeric(array.dtype):
        raise DataError(f"{where}: values of type {array.dtype}, expected numbers.")
    return array
