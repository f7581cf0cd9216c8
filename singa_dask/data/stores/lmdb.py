"""Records in LMDB: Caffe's Datum, SINGA's RecordProto, or blocks of raw arrays as our converters write them.

Files are opened read-only and without locks, so read-only disks work. There is one environment per process and file,
as LMDB requires. The file length is checked before it is mapped: reading a map beyond the end of its file would kill
the process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.codecs.lmdb_file import MAGIC, MAGIC_AT, ValueMap, check_length
from singa_dask.data.codecs.record import (
    Decoder,
    check_schema,
    decode_datums,
    decode_records,
    decode_values,
    salvage_values,
    schema_of,
)
from singa_dask.data.fs.cache import key_of, open_cache
from singa_dask.data.fs.range_reader import version
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.manifest import find_manifest
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, Store, rows_per_block
from singa_dask.data.types import Arrays, Block, Field, Records
from singa_dask.errors import DataError

__all__ = ["LMDBStore"]

# key of the description of our records; sorts after all other keys
INFO_KEY = b"__singa_dask__"
KEY = b"%012d"
DATA_FILE = "data.mdb"
FETCH_BYTES = 1 << 22
FIRST_MAP_BYTES = 1 << 24
TRANSACTION_BYTES = 1 << 23
TRANSACTION_PAIRS = 1000


Key = tuple[int, int, int]


class _Environments:
    """Open environments of this process, with reference counts: LMDB allows a file to be opened only once.

    Files are identified by inode, not by path: a file that replaced another is a different one.
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
        # environments of a parent process must not be closed here
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
    """Records of an LMDB directory, or of its data file. A remote file is first downloaded to the cache.

    Raises
    ------
    DataError
        The file is missing, truncated, larger than the limit of the cache, or its values are not records.
    """

    suffixes = (".lmdb", ".mdb")

    def __init__(self, url: str, storage_options: fs.Options = None) -> None:
        super().__init__(url, storage_options)
        self._file, self._path, self._bytes = self._locate()
        check_length(self._file, self._path, self._bytes)
        self._key: Key | None = None
        self._environment: Any = None
        self._decoder: Decoder | None = None
        self._map: ValueMap | None = None
        # by block: offset in the file of the raw block, or of each record's pixels; and the other arrays
        self._offsets: dict[int, tuple[npt.NDArray[np.int64], Arrays]] = {}
        try:
            self._key, self._environment = _ENVIRONMENTS.acquire(self._path)
            self._map = ValueMap(self._path, self._environment.stat()["psize"])
            self._open_records()
            manifest = find_manifest(url, "lmdb", url, self._bytes, storage_options)
            if manifest is not None:
                self.blocks = manifest.attach(self.blocks)
                self.class_names = self.class_names or manifest.class_names
        except lmdb.Error as error:
            self.close()
            raise DataError(f"{url}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _locate(self) -> tuple[str, Path, int]:
        """Return URL, local path and length of the data file; downloads it if it is remote."""
        local = fs.local_path(self.url)
        if local is not None:
            path = local / DATA_FILE if local.is_dir() else local
            return str(path), path, path.stat().st_size if path.exists() else 0
        options = self.storage_options
        url = fs.join(self.url, DATA_FILE) if fs.is_dir(self.url, options) else self.url
        n_bytes = fs.size(url, options)

        def chunks() -> Iterator[bytes]:
            with fs.open(url, storage_options=options) as file:
                while chunk := file.read(FETCH_BYTES):
                    yield chunk

        key = key_of("file", url, n_bytes, version(url, options))
        # the cached file is longer by the seal of the cache
        return url, open_cache(options.get(fs.CACHE)).file(key, n_bytes, chunks), n_bytes

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return head[MAGIC_AT : MAGIC_AT + 4] == MAGIC or super().matches(url, head)

    def _open_records(self) -> None:
        with self._environment.begin() as transaction:
            info = transaction.get(INFO_KEY)
            if info is not None:
                self._open_raw(*self._read_info(info))
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

    def _read_info(self, info: bytes) -> tuple[int, int]:
        """Set the schema from our converters' description; return the number of records, and of those per value."""
        try:
            described = json.loads(info)
            self.schema = {
                name: Field(np.dtype(field["dtype"]), tuple(field["shape"]))
                for name, field in described["fields"].items()
            }
            self.class_names = parse_names(described.get("class_names"))
            count, n = int(described["count"]), int(described["records_per_value"])
            n_bytes = count * sum(field.size_bytes for field in self.schema.values())
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self.url}: a damaged value of {INFO_KEY!r}: {type(error).__name__}: {error}.") from error
        if count < 1 or n < 1 or not 0 < n_bytes <= self._bytes:
            text = f"{count} records, {n} per value, of {n_bytes} bytes in a file of {self._bytes}"
            raise DataError(f"{self.url}: a damaged value of {INFO_KEY!r}: {text}.")
        return count, n

    def _open_raw(self, count: int, n: int) -> None:
        self._first_keys = [KEY % first for first in range(0, count, n)]
        record_bytes = sum(field.size_bytes for field in self.schema.values())
        self.blocks = tuple(
            Block(i, min(n, count - first), self.url, first, min(n, count - first) * record_bytes)
            for i, first in enumerate(range(0, count, n))
        )
        self._find_values()

    def _find_values(self) -> None:
        """Find the offsets of raw blocks, which are then read as views of the map."""
        assert self._map is not None
        with self._environment.begin(buffers=True) as transaction:
            for block, key in zip(self.blocks, self._first_keys, strict=True):
                value = transaction.get(key)
                offsets = self._map.find([value]) if value is not None and len(value) == block.length else None
                if offsets is not None:
                    self._offsets[block.id] = offsets, {}
        self.mapped = bool(self._offsets)

    def read_block(self, block_id: int) -> Arrays:
        block, where = self.blocks[block_id], f"{self.url}, block {block_id}"
        if self._map is not None and block_id in self._offsets:
            offsets, others = self._offsets[block_id]
            if self._decoder is None:
                value = self._map.view(int(offsets[0]), block.length)
                return self._split(self.verify_crc(block_id, value), block.n, where)
            field = self.schema["pixel"]
            return {"pixel": self._map.rows(offsets, field.size_bytes).reshape(block.n, *field.shape), **others}
        with self._values(block_id) as values:
            if block.crc is not None and block_id not in self._verified:
                self.verify_crc(block_id, memoryview(b"".join(values)))
            if self._decoder is None:
                return self._split(bytes(values[0]), block.n, where)
            arrays = self._find_pixels(block_id, values) or decode_values(values, self._decoder)
        return check_schema(arrays, self.schema, where)

    def _find_pixels(self, block_id: int, values: list[memoryview]) -> Arrays | None:
        """Decode a block and store the offsets of its pixels, so that later only pixels are read.

        Returns None if its records have different layouts or another schema, or cannot be found in the file.
        """
        if self._map is None or self._decoder is None or len(set(map(len, values))) > 1:
            return None
        offsets = self._map.find(values)
        if offsets is None:
            return None
        rows = self._map.rows(offsets, len(values[0]))
        try:
            arrays = self._decoder(rows)
        except ValueError:
            # reported for a single record when they are decoded one by one
            return None
        if arrays is None or "pixel" not in arrays or schema_of(arrays) != self.schema:
            return None
        others = {name: array for name, array in arrays.items() if name != "pixel"}
        self._offsets[block_id] = offsets + (arrays["pixel"].ctypes.data - rows.ctypes.data), others
        return arrays

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        if self._decoder is None:
            return super().salvage(block_id)
        self.block_bytes(block_id)
        with self._values(block_id) as values:
            if len(values) != self.blocks[block_id].n:
                return super().salvage(block_id)
            return salvage_values(values, self.schema, self._decoder)

    def block_bytes(self, block_id: int) -> memoryview:
        with self._values(block_id) as values:
            return self.verify_crc(block_id, memoryview(b"".join(values)))

    def manifest_info(self) -> dict[str, Any]:
        return {"bytes": self._bytes}

    @contextlib.contextmanager
    def _values(self, block_id: int) -> Iterator[list[memoryview]]:
        """Yield the values of a block, valid within the ``with`` statement only."""
        block, where = self.blocks[block_id], f"{self.url}, block {block_id}"
        n = block.n if self._decoder is not None else 1
        try:
            # an environment must not be used in a forked child
            if self._key is None or self._key[0] != os.getpid():
                self._key, self._environment = _ENVIRONMENTS.acquire(self._locate()[1])
            with self._environment.begin(buffers=True) as transaction, transaction.cursor() as cursor:
                if not cursor.set_key(self._first_keys[block_id]):
                    raise DataError(f"{where}: no key {self._first_keys[block_id]!r}.")
                yield list(itertools.islice(cursor.iternext(keys=False), n))
        except ValueError as error:
            raise DataError(f"{where} (records from {block.offset} on): {error}.") from error
        except lmdb.Error as error:
            raise DataError(f"{where}: {error}") from error

    def _split(self, value: bytes | memoryview, n: int, where: str) -> Arrays:
        if len(value) != n * sum(field.size_bytes for field in self.schema.values()):
            raise DataError(f"{where}: {len(value)} bytes, expected those of {n} records.")
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
        records: Records,
        storage_options: fs.Options = None,
        records_per_value: int = 256,
        class_names: Sequence[str] = (),
    ) -> None:
        """Write a new LMDB directory of raw arrays.

        Parameters
        ----------
        records_per_value : int
            Number of records per value, which holds the arrays of the fields one after the other.
        class_names : sequence of str
            Written to the description of the records.
        """
        if fs.local_path(url) is None:
            raise DataError(f"{url}: LMDB can only be written to a local disk.")
        write_environment(url, _raw_pairs(Rechunker(url, records), records_per_value, class_names))

    def close(self) -> None:
        if self._key is not None:
            _ENVIRONMENTS.release(self._key)
        self._key = self._environment = self._map = None


def write_environment(url: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Write pairs, sorted by key, as a new LMDB directory, atomically."""
    with fs.staged(fs.join(url, DATA_FILE)) as path:
        with lmdb.open(str(path), subdir=False, lock=False, map_size=FIRST_MAP_BYTES, sync=False) as environment:
            for batch in _batches(pairs):
                _put(environment, batch)
            environment.sync(True)


def _batches(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the pairs of one transaction at a time."""
    batch: list[tuple[bytes, bytes]] = []
    n_bytes = 0
    for pair in pairs:
        batch.append(pair)
        n_bytes += len(pair[1])
        if n_bytes >= TRANSACTION_BYTES or len(batch) == TRANSACTION_PAIRS:
            yield batch
            batch, n_bytes = [], 0
    yield batch


def _put(environment: Any, batch: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with environment.begin(write=True) as transaction:
                for key, value in batch:
                    transaction.put(key, value, append=True)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _raw_pairs(rows: Rechunker, n: int, class_names: Sequence[str]) -> Iterator[tuple[bytes, bytes]]:
    """Yield a pair for each ``n`` records, and finally their description."""
    for first, block in zip(itertools.count(0, n), rows.chunks(n), strict=False):
        yield KEY % first, b"".join(block[name].tobytes() for name in rows.schema)
    fields = {name: {"dtype": field.dtype.str, "shape": field.shape} for name, field in rows.schema.items()}
    info: dict[str, Any] = {"version": 1, "count": rows.taken, "records_per_value": n, "fields": fields}
    if class_names:
        info["class_names"] = list(class_names)
    yield INFO_KEY, json.dumps(info).encode()


def _recognise(url: str, value: bytes) -> tuple[Decoder, Arrays]:
    """Detect by the first value whether the records are Datum or RecordProto."""
    reasons = []
    # field 4 of a Datum has pixels, that of a RecordProto has packed floats: only one fits the shape
    for decoder in (decode_records, decode_datums):
        try:
            return decoder, decode_values([value], decoder)
        except ValueError as error:
            reasons.append(str(error))
    raise DataError(f"{url}: neither records of SINGA ({reasons[0]}) nor of Caffe ({reasons[1]}).")
