"""Records in webdataset tars: adjacent files with the same key are a record, e.g. ``0001.png`` and ``0001.cls``.

Headers are scanned at opening; a block is one range of the file.
"""

from __future__ import annotations

import io
import posixpath
import tokenize
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.codecs.image import IMAGE_SUFFIXES, decode_image
from singa_dask.data.codecs.record import check_schema, salvage_rows, schema_of
from singa_dask.data.fs.byte_source import Bytes, ReadAhead, open_bytes
from singa_dask.data.stores.store import STORES, Store, cut_blocks
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

__all__ = ["TarStore"]

BLOCK = 512
LABEL_SUFFIX = ".cls"
VALUE_SUFFIXES = (*IMAGE_SUFFIXES, ".npy")
LONG_NAME, PAX = b"L", b"x"

# a file of a record: suffix, offset and length
Member = tuple[str, int, int]


@STORES.register("webdataset")
class TarStore(Store):
    """Records of a tar: .png, .jpg or .npy with the image or data, .cls with the label; other files are ignored.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    resize, channels
        For encoded images, see `image.decode_image`.

    Raises
    ------
    DataError
        A header is damaged, the file is truncated, or files with the same key are not adjacent.
    """

    suffixes = (".tar", ".tar.gz", ".tgz")

    def __init__(
        self, url: str, storage_options: fs.Options = None, resize: Sequence[int] | None = None, channels: int = 3
    ) -> None:
        super().__init__(url, storage_options, resize=resize and tuple(resize), channels=channels)
        self._source = open_bytes(url, storage_options)
        self._keys, self._members, offsets = _group(self._source)
        if not self._keys:
            raise DataError(f"{url}: no records. The file is empty or has no {', '.join(VALUE_SUFFIXES)}.")
        self.blocks = cut_blocks(url, np.array(offsets, np.int64))
        self.schema = schema_of({name: array[None] for name, array in self._record(0).items()})

    def read_block(self, block_id: int) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        records = [self._record(i) for i in range(first, first + n)]
        for i, record in enumerate(records, first):
            check_schema(
                {name: array[None] for name, array in record.items()},
                self.schema,
                f"{self.url}, block {block_id}, record {self._keys[i]}",
            )
        return {name: np.stack([record[name] for record in records]) for name in self.schema}

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first = int(self.starts[block_id])
        return salvage_rows(self.blocks[block_id].n, self.schema, lambda row: self._record(first + row))

    def _record(self, index: int) -> Arrays:
        where = f"{self.url}, record {self._keys[index]}"
        arrays: Arrays = {}
        for suffix, offset, length in self._members[index]:
            data = self._source.read(offset, length)
            if suffix == LABEL_SUFFIX:
                arrays["label"] = _label(bytes(data), where)
            elif suffix == ".npy":
                array = _npy(data, where)
                arrays["pixel" if array.dtype == np.uint8 else "data"] = array
            else:
                arrays["pixel"] = decode_image(data, where, self.options["resize"], self.options["channels"])
        if not arrays.keys() - {"label"}:
            raise DataError(f"{where}: has none of {', '.join(VALUE_SUFFIXES)}.")
        return dict(sorted(arrays.items(), key=lambda item: item[0] == "label"))

    def close(self) -> None:
        self._source.close()


def _label(text: bytes, where: str) -> npt.NDArray[np.int32]:
    try:
        return np.array(int(text), np.int32)
    except (ValueError, OverflowError):
        raise DataError(f"{where}: the label {text[:40]!r} is not a 32-bit integer.") from None


def _npy(data: memoryview, where: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except (EOFError, MemoryError, OverflowError, SyntaxError, TypeError, ValueError, tokenize.TokenError) as error:
        raise DataError(f"{where}: a damaged npy file: {error}.") from error
    return array if array.dtype == np.uint8 else array.astype(np.float32)


def _group(source: Bytes) -> tuple[list[str], list[list[Member]], list[int]]:
    """Return keys and files of the records; offset of each record, and the end of the last."""
    keys: list[str] = []
    members: list[list[Member]] = []
    offsets: list[int] = []
    seen: set[str] = set()
    end = 0
    for name, start, offset, length in _files(source):
        folder, base = posixpath.split(name)
        stem, dot, suffix = base.partition(".")
        key, suffix = posixpath.join(folder, stem), f"{dot}{suffix}".lower()
        if suffix not in (*VALUE_SUFFIXES, LABEL_SUFFIX):
            continue
        if not keys or key != keys[-1]:
            if key in seen:
                raise DataError(f"{source.url}: the files of record {key} are not adjacent (byte {start}).")
            seen.add(key)
            keys.append(key)
            members.append([])
            offsets.append(start)
        members[-1].append((suffix, offset, length))
        end = offset + length
    return keys, members, [*offsets, end]


def _files(source: Bytes) -> Iterator[tuple[str, int, int, int]]:
    """Yield (name, offset of the header, offset, length) of the files in a tar."""
    ahead, at, long_name = ReadAhead(source), 0, ""
    while at + BLOCK <= source.size:
        head = bytes(ahead.read(at, BLOCK))
        if not head.strip(b"\0"):
            return
        length, kind = _size(head, f"{source.url}: byte {at}"), head[156:157]
        start, at_next = at + BLOCK, at + BLOCK + -(-length // BLOCK) * BLOCK
        if start + length > source.size:
            raise DataError(f"{source.url}: the file at byte {at} is incomplete: the tar is truncated.")
        if kind == LONG_NAME:
            long_name = bytes(ahead.read(start, length)).rstrip(b"\0").decode(errors="replace")
        elif kind == PAX:
            long_name = _pax_path(bytes(ahead.read(start, length)))
        else:
            if kind in (b"0", b"\0"):
                yield long_name or _name(head), at, start, length
            long_name = ""
        at = at_next
    if source.size:
        raise DataError(f"{source.url}: no end-of-archive block at byte {at}: the tar is truncated.")


def _size(head: bytes, where: str) -> int:
    """Verify the checksum of a header, and return the length of the file."""
    try:
        expected = int(head[148:156].strip(b" \0"), 8)
        if sum(head[:148]) + 8 * ord(" ") + sum(head[156:]) != expected:
            raise ValueError
        # lengths from 8 GiB on are binary
        return int.from_bytes(head[125:136], "big") if head[124] & 0x80 else int(head[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        raise DataError(f"{where}: not a tar header, or a damaged one.") from None


def _name(head: bytes) -> str:
    name, prefix = (part.split(b"\0", 1)[0].decode(errors="replace") for part in (head[:100], head[345:500]))
    return f"{prefix}/{name}" if prefix and head[257:263] == b"ustar\0" else name


def _pax_path(data: bytes) -> str:
    for line in data.split(b"\n"):
        key, _, value = line.partition(b" ")[2].partition(b"=")
        if key == b"path":
            return value.decode(errors="replace")
    return ""
