"""SINGA's key-value file: a sequence of ``key length | key | value length | value``, with lengths of 8 bytes.

Little-endian, without header, index or checksums (after SINGA's src/io/kvfile.cc). The values are opaque bytes.
"""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.fs.byte_source import Bytes
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.errors import DataError

__all__ = ["SHARD", "KVFile", "KVFileWriter", "file_url", "write_pairs"]

LENGTH = struct.Struct("<Q")
SHARD = "shard.dat"
CHUNK_BYTES = 1 << 24


def file_url(url: str, storage_options: fs.Options = None) -> str:
    """Return the URL of the file; for a directory the ``shard.dat`` in it, as in SINGA 0.1."""
    return fs.join(url, SHARD) if fs.is_dir(url, storage_options) else url


class KVFile:
    """An index of the pairs in a file.

    Parameters
    ----------
    reader : Bytes
        The file.
    known : mapping, optional
        An earlier result of `index_info`. It saves a scan of the file.

    Attributes
    ----------
    offsets : (n + 1,) int64
        Where each pair begins, and the end of the last complete pair.
    stride : int
        Bytes of a pair if all keys have the same length and all values too, otherwise 0.
    truncated_bytes : int
        Bytes of an incomplete pair at the end of the file.
    """

    def __init__(self, reader: Bytes, known: Mapping[str, Any] | None = None) -> None:
        self.url, self.reader = reader.url, reader
        self._chunk = (0, memoryview(b""))
        if known is None or not self._load_index(known):
            self.stride = self._constant_stride()
            self.offsets = self._even_offsets() if self.stride else self._scan()
        self.truncated_bytes = self.reader.size - int(self.offsets[-1])

    @classmethod
    def open(cls, url: str, storage_options: fs.Options = None) -> KVFile:
        """Open the file at a URL, or ``shard.dat`` of the directory there."""
        return cls(RangeReader(file_url(url, storage_options), storage_options))

    def _even_offsets(self) -> npt.NDArray[np.int64]:
        return np.arange(0, self.reader.size + 1, self.stride, dtype=np.int64)

    def index_info(self) -> dict[str, Any]:
        """Return information for the next opening: the stride, or the compressed lengths of all pairs."""
        facts: dict[str, Any] = {"bytes": self.reader.size, "stride": self.stride}
        if not self.stride:
            lengths = np.diff(self.offsets).astype("<i8").tobytes()
            facts["pairs"] = base64.b64encode(zlib.compress(lengths, 1)).decode()
        return facts

    def _load_index(self, info: Mapping[str, Any]) -> bool:
        """Restore the index from `index_info`; returns False if the first pair of the file contradicts it."""
        try:
            self.stride = int(info["stride"])
            if self.stride:
                self.offsets = self._even_offsets()
            else:
                # a pair has at least two lengths of 8 bytes, so the index is no larger than the file
                packed = base64.b64decode(info["pairs"])
                lengths = np.frombuffer(zlib.decompressobj().decompress(packed, self.reader.size), "<i8")
                self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            first = bytes(self.reader.scan(0, int(self.offsets[1])))
            (key_length,) = LENGTH.unpack_from(first, 0)
            (value_length,) = LENGTH.unpack_from(first, 8 + key_length)
        except (DataError, LookupError, OverflowError, TypeError, ValueError, struct.error, zlib.error):
            return False
        return int(self.offsets[-1]) <= self.reader.size and 16 + key_length + value_length == len(first)

    @property
    def count(self) -> int:
        """Number of pairs."""
        return len(self.offsets) - 1

    def pair(self, index: int) -> tuple[bytes, bytes]:
        """Return key and value of one pair."""
        data = self.read(index, 1)
        (key_length,) = LENGTH.unpack_from(data, 0)
        return bytes(data[8 : 8 + key_length]), bytes(data[16 + key_length :])

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all pairs in file order."""
        return map(self.pair, range(self.count))

    def read(self, first: int, n: int) -> memoryview:
        """Return the bytes of ``n`` pairs."""
        start = int(self.offsets[first])
        return self.reader.read(start, int(self.offsets[first + n]) - start)

    def values(self, first: int, n: int, data: memoryview | None = None) -> npt.NDArray[np.uint8] | list[memoryview]:
        """Return ``n`` values: rows of an (n, length) view if the stride is constant, otherwise a list.

        Parameters
        ----------
        data : memoryview, optional
            The bytes of these pairs, if already read.
        """
        data = self.read(first, n) if data is None else data
        if self.stride:
            (key_length,) = LENGTH.unpack_from(data, 0)
            return np.frombuffer(data, np.uint8).reshape(n, self.stride)[:, 16 + key_length :]
        starts = (self.offsets[first : first + n + 1] - self.offsets[first]).tolist()
        return [
            data[start + 16 + LENGTH.unpack_from(data, start)[0] : end] for start, end in itertools.pairwise(starts)
        ]

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

    def _constant_stride(self) -> int:
        size = self.reader.size
        header = self._header(0)
        if header is None or size % (16 + sum(header)):
            return 0
        stride = 16 + sum(header)
        per_chunk = max(1, CHUNK_BYTES // stride) * stride
        lengths = np.frombuffer(LENGTH.pack(header[0]) + LENGTH.pack(header[1]), np.uint8)
        for start in range(0, size, per_chunk):
            data = self.reader.scan(start, min(per_chunk, size - start))
            rows = np.frombuffer(data, np.uint8).reshape(-1, stride)
            value_at = 8 + header[0]
            same = (rows[:, :8] == lengths[:8]).all() and (rows[:, value_at : value_at + 8] == lengths[8:]).all()
            if not same:
                return 0
        return stride

    def _header(self, offset: int) -> tuple[int, int] | None:
        """Return key and value length of the pair at ``offset``; None if it is incomplete."""
        end = self.reader.size
        if offset + 8 > end:
            return None
        key_length = self._length_at(offset)
        if offset + 16 + key_length > end:
            return None
        value_length = self._length_at(offset + 8 + key_length)
        return (key_length, value_length) if offset + 16 + key_length + value_length <= end else None

    def _length_at(self, offset: int) -> int:
        """Return the length stored at an offset. The file is read in large chunks."""
        start, data = self._chunk
        if not start <= offset <= start + len(data) - 8:
            start, data = offset, self.reader.scan(offset, min(CHUNK_BYTES, self.reader.size - offset))
            self._chunk = start, data
        return int(LENGTH.unpack_from(data, offset - start)[0])

    def _scan(self) -> npt.NDArray[np.int64]:
        offsets = [0]
        while (header := self._header(offsets[-1])) is not None:
            offsets.append(offsets[-1] + 16 + sum(header))
        self._chunk = (0, memoryview(b""))
        return np.array(offsets, np.int64)


class KVFileWriter:
    """Writes pairs one after another; use it in a ``with`` statement.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    append : bool
        Append to a local file. An incomplete pair at its end is removed, and existing keys are refused.
    """

    def __init__(self, url: str, storage_options: fs.Options = None, append: bool = False) -> None:
        self.url = url
        self._keys: set[bytes] = set()
        if append and fs.exists(url, storage_options):
            self._file: IO[Any] = self._open_end(url, storage_options)
        else:
            self._file = fs.open(url, "wb", storage_options)

    def _open_end(self, url: str, storage_options: fs.Options) -> IO[Any]:
        path = fs.local_path(file_url(url, storage_options))
        if path is None:
            raise DataError(f"{url}: only a local file can be appended to.")
        index = KVFile.open(url, storage_options)
        self._keys = {key for key, _ in index.pairs()}
        file = Path(path).open("r+b")
        file.seek(int(index.offsets[-1]))
        file.truncate()
        index.close()
        return file

    def write(self, key: bytes | str, value: bytes) -> bool:
        """Write a pair. Returns False, as in SINGA, for an empty value or a key that existed before an append."""
        key = key.encode() if isinstance(key, str) else key
        if not value or key in self._keys:
            return False
        self._file.write(b"".join((LENGTH.pack(len(key)), key, LENGTH.pack(len(value)), value)))
        return True

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()

    def __enter__(self) -> KVFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_pairs(url: str, pairs: Iterator[tuple[str, bytes]], storage_options: fs.Options = None) -> None:
    """Write a new file of pairs atomically."""
    with fs.staged(url, storage_options) as path, KVFileWriter(str(path)) as writer:
        for key, value in pairs:
            writer.write(key, value)
