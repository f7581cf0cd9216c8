"""Records in numpy's npz files: an array of images or data, and one of labels.

Uncompressed arrays, as `numpy.savez` writes them, are read in place; others are decompressed into memory.
"""

from __future__ import annotations

import ast
import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.data import fs
from singa_dask.data.fs.byte_source import Bytes, Memory
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.column import Column, ColumnStore
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, rows_per_block
from singa_dask.data.types import Field, Records
from singa_dask.errors import DataError

__all__ = ["NpzStore"]

MAGIC = b"PK\x03\x04"
LOCAL_HEADER_BYTES = 30
# errors raised by zipfile, zlib, and the parsing of a header
DAMAGE = (
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
IMAGE_NAMES = ("images", "image", "pixel", "data", "x")
LABEL_NAMES = ("labels", "label", "y")
CLASS_NAMES = "class_names"


@STORES.register("npz")
class NpzStore(ColumnStore):
    """Records of an npz file with an array of ``images`` (or image, pixel, data, x) and of ``labels`` (label, y).

    Arrays of uint8 become ``pixel``, others ``data`` (float32). An array ``class_names`` of text has the class names.
    """

    suffixes = (".npz",)

    def __init__(self, url: str, storage_options: fs.Options = None) -> None:
        super().__init__(url, storage_options)

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return head.startswith(MAGIC) or super().matches(url, head)

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

    def open_columns(self) -> tuple[dict[str, Column], int]:
        reader = RangeReader(self.url, self.storage_options)
        try:
            with fs.open(self.url, storage_options=self.storage_options) as file, zipfile.ZipFile(file) as archive:
                members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
                chosen = self._choose(members)
                arrays = {name: self._locate(reader, archive, members[key]) for name, key in chosen.items()}
                if CLASS_NAMES in members:
                    names = np.load(io.BytesIO(archive.read(members[CLASS_NAMES])), allow_pickle=False)
                    self.class_names = parse_names(names.tolist())
        except DataError:
            raise
        except DAMAGE as error:
            raise DataError(f"{self.url}: not an npz file, or a damaged one: {error}.") from error
        lengths = {chosen[name]: shape[0] if shape else 0 for name, (_, _, shape, _) in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"{self.url}: arrays of different lengths: {lengths}.")
        columns = {}
        for name, (source, kind, shape, offset) in arrays.items():
            record = shape[1:] if name != "label" else ()
            if name == "label" and (width := np.prod(shape[1:], dtype=np.int64)) != 1:
                one_hot = " If they are one-hot, write labels.argmax(1)." if len(shape) == 2 and width > 2 else ""
                raise DataError(f"{self.url}: labels of shape {shape}, expected one per record.{one_hot}")
            stride = int(np.prod(shape[1:], dtype=np.int64)) * kind.itemsize
            as_type = np.dtype(np.int32 if name == "label" else np.uint8 if kind == np.uint8 else np.float32)
            columns["label" if name == "label" else "pixel" if as_type == np.uint8 else "data"] = Column(
                source, kind, Field(as_type, record), offset, stride
            )
        return columns, lengths[chosen["image"]]

    def _choose(self, members: dict[str, Any]) -> dict[str, str]:
        """Return the names of the members with images and labels."""
        image = next((name for name in IMAGE_NAMES if name in members), None)
        label = next((name for name in LABEL_NAMES if name in members), None)
        if image is None:
            message = f"{self.url}: no array called {' or '.join(IMAGE_NAMES)}. Arrays: {', '.join(members)}."
            raise DataError(f"{message}{_advice(list(members))}")
        return {"image": image} if label is None else {"image": image, "label": label}

    def _locate(
        self, reader: RangeReader, archive: zipfile.ZipFile, member: zipfile.ZipInfo
    ) -> tuple[Bytes, np.dtype[Any], tuple[int, ...], int]:
        """Return source, dtype, shape and offset of an array's values."""
        source: Bytes
        if member.compress_type == zipfile.ZIP_STORED:
            header = bytes(reader.read(member.header_offset, LOCAL_HEADER_BYTES))
            source, start = reader, member.header_offset + LOCAL_HEADER_BYTES + sum(struct.unpack("<HH", header[26:]))
        else:
            source, start = Memory(self.url, archive.read(member)), 0
        try:
            kind, shape, header_bytes = _npy_header(bytes(source.read(start, min(1 << 12, source.size - start))))
        except ValueError as error:
            name = member.filename.removesuffix(".npy")
            if name in LABEL_NAMES and str(error).startswith("values of type"):
                hint = f"numpy.unique({name}, return_inverse=True) returns class_names to save, and labels."
                raise DataError(f"{self.url}: {name}: {error}, expected integers. {hint}") from None
            raise
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if header_bytes + size != member.file_size:
            raise ValueError(f"{member.filename} has {member.file_size - header_bytes} bytes of values, not {size}")
        return source, kind, shape, start + header_bytes


def _advice(names: Sequence[str]) -> str:
    """Return a hint for a file whose arrays have names of other programs."""
    if "x" in (lowered := [name.lower() for name in names]):
        return f" Name it x, not {names[lowered.index('x')]}."
    parts = [name for name in names if name.lower().endswith("train")]
    if not parts:
        return ""
    arrays = f"images={parts[0]}" + (f", labels={parts[1]}" if len(parts) > 1 else "")
    return f" Write a file for each part: numpy.savez('train.npz', {arrays}), and the others as test.npz."


def _npy_header(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Parse the header of an npy file: dtype, shape, and length of the header."""
    if not head.startswith(b"\x93NUMPY"):
        raise ValueError("a member is not an npy file")
    wide = head[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", head, 8)
    start = 12 if wide else 10
    header = ast.literal_eval(head[start : start + length].decode("latin1"))
    kind = np.dtype(header["descr"])
    if kind.kind not in "biuf" or header["fortran_order"]:
        raise ValueError(f"values of type {kind}{', in Fortran order' if header['fortran_order'] else ''}")
    return kind, tuple(header["shape"]), start + length
