"""Records in a NumPy npz file with images or data, and labels.

Uncompressed arrays, as `numpy.savez` writes them, are read in place. Compressed arrays are decompressed into memory.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import IO, BinaryIO

import numpy as np

from singa_dask import fs
from singa_dask.data.blocks import rows_per_block
from singa_dask.data.codecs.class_lists import parse_names
from singa_dask.data.codecs.record_values import is_numeric
from singa_dask.data.stores.arrays.column import ColumnStore
from singa_dask.data.stores.arrays.npy import NPY_DAMAGE, NpyArray, decode_npy, locate_npy, npy_columns
from singa_dask.data.stores.arrays.stored_array import ContiguousArray
from singa_dask.data.stores.range_store import describe
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, LabelOptions
from singa_dask.errors import DataError
from singa_dask.fs.decompression import limit_of, read_member
from singa_dask.fs.sources import Bytes, BytesInMemory
from singa_dask.wording import listed

ZIP_MAGIC = b"PK\x03\x04"
LOCAL_HEADER_BYTES = 30
# end record of an archive: magic number, size, offset of the number of members, and the number that means "too many"
END_MAGIC = b"PK\5\6"
END_BYTES, COUNT_OFFSET, MANY_MEMBERS = 22, 10, 0xFFFF
# maximum size of archives whose checksums are verified at opening, which takes a second per GB
MAX_CHECKED_BYTES = 1 << 26
CHUNK_BYTES = 1 << 20
IMAGE_NAMES = ("images", "image", "pixel", "data", "features", "x")
CLASS_NAMES = "class_names"


@STORES.register("npz")
class NpzStore(ColumnStore):
    """Records of an npz file with an array ``images`` (or image, pixel, data, x) and an array ``labels``.

    An array of uint8 becomes ``pixel``. Other numbers become ``data`` (float32). An array ``class_names`` of text has
    the class names.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional

    Notes
    -----
    When a local archive of up to 64 MiB without a manifest is opened, its arrays are compared with the checksums in the
    archive. For other archives, `check_whole` compares the checksums.
    """

    options_class = LabelOptions
    title = "an npz file"
    suffixes = (".npz",)
    damage = (*NPY_DAMAGE, zipfile.BadZipFile)
    write_options = ("class_names",)

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        # Excel files are zip archives, too
        is_sheet = url.lower().endswith(".xlsx")
        return (head.startswith(ZIP_MAGIC) and not is_sheet) or super().matches(url, head)

    @classmethod
    def write_rows(cls, file: BinaryIO, rows: Rechunker, class_names: Sequence[str] = ()) -> None:
        """Write one array for each field, and one for class names.

        All records are in memory at the same time.
        """
        blocks = list(rows.chunks(rows_per_block(rows.record_bytes)))
        arrays = {name: np.concatenate([block[name] for block in blocks]) for name in rows.schema}
        if class_names:
            arrays[CLASS_NAMES] = np.array(class_names)
        write_npz(file, arrays)

    def open_columns(self) -> dict[str, ContiguousArray]:
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
        """Verify the directory of the archive: all names, and checksums of arrays that are read in place."""
        for member in archive.infolist():
            # `open` checks that the name before the array equals the name in the directory
            with archive.open(member) as file:
                while member.filename in self._stored and file.read(CHUNK_BYTES):
                    pass

    def _choose(self, members: dict[str, zipfile.ZipInfo]) -> list[str]:
        """Return the names of the members with images and, if there are any, labels."""
        candidates = [each for name in IMAGE_NAMES for each in members if each.lower() == name]
        if len(candidates) > 1:
            raise DataError(
                f"{self.url}: {' and '.join(candidates)} could each be the images or data. Expected one array."
            )
        if not candidates and not any(member.filename.endswith(".npy") for member in members.values()):
            raise DataError(
                f"{self.url}: the file is a zip archive of {listed(list(members)) or 'nothing'}, not of arrays. "
                f"Unpack it."
            )
        if not candidates:
            message = f"{self.url}: there is no array called {' or '.join(IMAGE_NAMES)}. Arrays: {', '.join(members)}."
            raise DataError(f"{message}{_advice(list(members))}")
        self.other_fields = tuple(name for name in members if name not in (*candidates, CLASS_NAMES))
        label = self.choose_label(self.other_fields)
        return [candidates[0], label] if label else candidates

    def _locate(self, reader: Bytes, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NpyArray:
        """Return location and type of an array's values."""
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


def write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as `numpy.savez` does.

    `numpy.savez` cannot write an array with the name of one of its own parameters, such as ``file``.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _check_count(file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """Compare the number of members with the end record of the archive, because zipfile does not."""
    file.seek(-END_BYTES - len(archive.comment), io.SEEK_END)
    end, n_members = file.read(END_BYTES), len(archive.infolist())
    (stated,) = struct.unpack_from("<H", end, COUNT_OFFSET)
    # ignore archives in which other data follow the end record
    if end.startswith(END_MAGIC) and stated not in (n_members, MANY_MEMBERS):
        raise zipfile.BadZipFile(f"it has {n_members} members, not {stated}")


def _advice(names: Sequence[str]) -> str:
    """Return a hint for a file with arrays for training and for tests."""
    parts = [name for name in names if name.lower().endswith("train")]
    if not parts:
        return ""
    arrays = f"images={parts[0]}" + (f", labels={parts[1]}" if len(parts) > 1 else "")
    return f" Write a file for each part: numpy.savez('train.npz', {arrays}), and the others as test.npz."
