"""Records in LMDB: Caffe's Datum, SINGA's RecordProto, or blocks of raw arrays as our converters write them.

Read-only and without locks, so read-only disks serve; one environment a process and file, as LMDB demands. The
file is measured before it is mapped: reading a map beyond the end of its file would kill the process.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from singa_dask.data import fs
from singa_dask.data.record import Decoder, check_schema, decode_datums, decode_records, decode_values, schema_of
from singa_dask.data.store import STORES, Arrays, Block, Field, Store, count_of, rows_per_block
from singa_dask.errors import DataError

__all__ = ["LMDBStore"]

# sorts behind all keys
NOTE = b"__singa_dask__"
KEY = b"%012d"
DATA_FILE = "data.mdb"
MAGIC = struct.pack("<I", 0xBEEFC0DE)
MAGIC_AT = 16
META_PAGES = 2
PAGE_HEADER = 16


Key = tuple[int, int, int]


class _Environments:
    """Open environments of this process: LMDB allows each file to be opened once.

    A file is known by its inode, not by its path: one that took another's place is another file.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Key, tuple[Any, int]] = {}

    def acquire(self, path: Path) -> tuple[Key, Any]:
        status = path.stat()
        key = (os.getpid(), status.st_dev, status.st_ino)
        with self._lock:
            environment, users = self._open.get(key, (None, 0))
            if environment is None:
                environment = lmdb.open(
                    str(path), subdir=False, readonly=True, lock=False, readahead=True, meminit=False, max_spare_txns=0
                )
            self._open[key] = (environment, users + 1)
        return key, environment

    def release(self, key: Key) -> None:
        # what a parent process opened is not this one's to close
        if key[0] != os.getpid():
            return
        with self._lock:
            environment, users = self._open.pop(key)
            if users > 1:
                self._open[key] = (environment, users - 1)
            else:
                environment.close()


_ENVIRONMENTS = _Environments()


@STORES.register("lmdb")
class LMDBStore(Store):
    """Records of a local LMDB directory (or of its data file).

    Raises
    ------
    DataError
        The file is missing, cut short, not local, or its values are no records.
    """

    suffixes = (".lmdb", ".mdb")

    def __init__(self, url: str, storage_options: fs.Options = None) -> None:
        super().__init__(url, storage_options)
        local = fs.local_path(url)
        if local is None:
            raise DataError(f"{url}: LMDB is mapped into memory and must lie on a local disk. Copy it there.")
        self._path = local / DATA_FILE if local.is_dir() else local
        _check_length(self._path)
        self._key: Key | None = None
        self._environment: Any = None
        self._decoder: Decoder | None = None
        self._map: memoryview | None = None
        self._offsets: dict[int, int] = {}
        try:
            self._key, self._environment = _ENVIRONMENTS.acquire(self._path)
            self._open_records()
        except lmdb.Error as error:
            self.close()
            raise DataError(f"{url}: {error}") from error
        except BaseException:
            self.close()
            raise

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return head[MAGIC_AT : MAGIC_AT + 4] == MAGIC or super().matches(url, head)

    def _open_records(self) -> None:
        with self._environment.begin() as transaction:
            note = transaction.get(NOTE)
            if note is not None:
                self._open_raw(json.loads(note))
                return
            with transaction.cursor() as cursor:
                if not cursor.first():
                    raise DataError(f"{self.url}: no records.")
                self._decoder, arrays = _recognise(self.url, bytes(cursor.value()))
                self.schema = schema_of(arrays)
                n = rows_per_block(len(cursor.value()))
                length = n * len(cursor.value())
                keys = list(cursor.iternext(keys=True, values=False))
        self._first_keys = keys[::n]
        self.blocks = tuple(
            Block(i, min(n, len(keys) - first), self.url, first, length)
            for i, first in enumerate(range(0, len(keys), n))
        )

    def _open_raw(self, note: dict[str, Any]) -> None:
        self.schema = {
            name: Field(np.dtype(field["dtype"]), tuple(field["shape"])) for name, field in note["fields"].items()
        }
        count, n = note["count"], note["records_per_value"]
        self._first_keys = [KEY % first for first in range(0, count, n)]
        record_bytes = sum(field.size_bytes for field in self.schema.values())
        self.blocks = tuple(
            Block(i, min(n, count - first), self.url, first, min(n, count - first) * record_bytes)
            for i, first in enumerate(range(0, count, n))
        )
        self._find_values()

    def _find_values(self) -> None:
        """Find where in the file the values lie: views of a map of our own outlive the environment."""
        page_bytes = self._environment.stat()["psize"]
        with self._path.open("rb") as file:
            own = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        offsets = {}
        with self._environment.begin(buffers=True) as transaction:
            for block, key in zip(self.blocks, self._first_keys, strict=True):
                value = transaction.get(key)
                # only what fills a page has pages of its own
                if value is None or len(value) != block.length or len(value) < page_bytes:
                    continue
                # these begin with their number
                header = ctypes.string_at(np.frombuffer(value, np.uint8).ctypes.data - PAGE_HEADER, 8)
                offset = int.from_bytes(header, "little") * page_bytes + PAGE_HEADER
                if own[offset - PAGE_HEADER : offset - PAGE_HEADER + 8] != header or offset + len(value) > len(own):
                    return
                offsets[block.id] = offset
        # a last block of less than a page is copied
        self.mapped, self._map, self._offsets = bool(offsets), own, offsets

    def read_block(self, block_id: int) -> Arrays:
        block, where = self.blocks[block_id], f"{self.url}, block {block_id}"
        if self._map is not None and block_id in self._offsets:
            at = self._offsets[block_id]
            return self._split(self._map[at : at + block.length], block.n, where)
        try:
            # an environment must not be used in a child of the process that opened it
            if self._key is None or self._key[0] != os.getpid():
                self._key, self._environment = _ENVIRONMENTS.acquire(self._path)
            with self._environment.begin(buffers=True) as transaction, transaction.cursor() as cursor:
                if not cursor.set_key(self._first_keys[block_id]):
                    raise DataError(f"{where}: no key {self._first_keys[block_id]!r}.")
                if self._decoder is None:
                    return self._split(bytes(cursor.value()), block.n, where)
                values = list(itertools.islice(cursor.iternext(keys=False), block.n))
                arrays = decode_values(values, self._decoder)
        except ValueError as error:
            raise DataError(f"{where} (records from {block.offset} on): {error}.") from error
        except lmdb.Error as error:
            raise DataError(f"{where}: {error}") from error
        return check_schema(arrays, self.schema, where)

    def _split(self, value: bytes | memoryview, n: int, where: str) -> Arrays:
        if len(value) != n * sum(field.size_bytes for field in self.schema.values()):
            raise DataError(f"{where}: {len(value)} bytes do not make {n} records.")
        arrays, at = {}, 0
        for name, field in self.schema.items():
            size = n * field.size_bytes
            arrays[name] = np.frombuffer(value[at : at + size], field.dtype).reshape(n, *field.shape)
            at += size
        return arrays

    @classmethod
    def write(
        cls,
        url: str,
        records: Arrays,
        storage_options: fs.Options = None,
        keys: str = "",
        records_per_value: int = 256,
    ) -> None:
        """Write a new directory with a ``data.mdb`` of raw arrays.

        Parameters
        ----------
        keys : str
            Not used: a value's key is the number of its first record.
        records_per_value : int
            One value holds so many records, the array of each field after the other.
        """
        if fs.local_path(url) is None:
            raise DataError(f"{url}: LMDB can be written to a local disk only.")
        fields = {name: {"dtype": field.dtype.str, "shape": field.shape} for name, field in schema_of(records).items()}
        note = {
            "version": 1,
            "count": count_of(url, records),
            "records_per_value": records_per_value,
            "fields": fields,
        }
        pairs = itertools.chain(_raw_pairs(records, records_per_value), [(NOTE, json.dumps(note).encode())])
        write_environment(url, pairs, sum(array.nbytes for array in records.values()))

    def close(self) -> None:
        if self._key is not None:
            _ENVIRONMENTS.release(self._key)
        self._key = self._environment = self._map = None


def write_environment(url: str, pairs: Iterator[tuple[bytes, bytes]], size_bytes: int) -> None:
    """Write pairs in the order of their keys as a new LMDB directory, whole or not at all.

    Parameters
    ----------
    size_bytes : int
        About how many bytes the values have; the map grows if it is more.
    """
    with fs.staged(fs.join(url, DATA_FILE)) as target, tempfile.TemporaryDirectory(dir=target.parent) as folder:
        with lmdb.open(folder, map_size=2 * size_bytes + (1 << 20), sync=False) as environment:
            while batch := list(itertools.islice(pairs, 1000)):
                _put(environment, batch)
            environment.sync(True)
        os.replace(Path(folder) / DATA_FILE, target)


def _put(environment: Any, batch: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with environment.begin(write=True) as transaction:
                for key, value in batch:
                    transaction.put(key, value, append=True)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _raw_pairs(records: Arrays, n: int) -> Iterator[tuple[bytes, bytes]]:
    count = len(next(iter(records.values())))
    for first in range(0, count, n):
        yield KEY % first, b"".join(array[first : first + n].tobytes() for array in records.values())


def _recognise(url: str, value: bytes) -> tuple[Decoder, Arrays]:
    """Tell by the first value whether the records are Datum or RecordProto."""
    reasons = []
    # a Datum has its pixels in field 4, where a RecordProto has packed floats: what fits its shape is right
    for decoder in (decode_records, decode_datums):
        try:
            return decoder, decode_values([value], decoder)
        except ValueError as error:
            reasons.append(str(error))
    raise DataError(f"{url}: neither SINGA's records ({reasons[0]}) nor Caffe's ({reasons[1]}).")


def _check_length(path: Path) -> None:
    """Compare a file's length with the last page that it says it has."""
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(1 << 17)
    except OSError as error:
        raise DataError(f"{path}: {(error.strerror or str(error)).lower()}.") from error
    if head[MAGIC_AT : MAGIC_AT + 4] != MAGIC:
        raise DataError(f"{path}: no LMDB file.")
    try:
        needed = _bytes_in_use(head)
    except struct.error as error:
        raise DataError(f"{path}: {length} bytes, the file is cut short.") from error
    if length < needed:
        raise DataError(f"{path}: {length} bytes, but it says it has {needed}: the file is cut short.")


def _bytes_in_use(head: bytes) -> int:
    """Return the bytes up to the last page in use, from the newer of the two pages that a file begins with."""
    (page_bytes,) = struct.unpack_from("<I", head, MAGIC_AT + 24)
    newest = (-1, 0)
    for page in range(META_PAGES):
        meta = page * page_bytes + MAGIC_AT
        if head[meta : meta + 4] == MAGIC:
            last_page, transaction = struct.unpack_from("<QQ", head, meta + 120)
            newest = max(newest, (transaction, last_page))
    return int(newest[1] + 1) * int(page_bytes)
