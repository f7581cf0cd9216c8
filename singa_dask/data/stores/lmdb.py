"""Records in LMDB: Caffe's Datum, SINGA's RecordProto, or blocks of raw arrays as our converters write them.

Files are read through a memory map of our own, without locks, so read-only disks work. The library LMDB only writes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.codecs.lmdb_tree import MAGIC, MAGIC_AT, LMDBFile
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
from singa_dask.data.fs.cache_folder import CachedFile
from singa_dask.data.fs.range_reader import version
from singa_dask.data.stores.block_sizes import Rechunker, rows_per_block
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.manifest import find_manifest
from singa_dask.data.stores.store import STORES, Store, StoreOptions
from singa_dask.data.types import Arrays, Block, Field, Records
from singa_dask.errors import DataError

# key of the description of our records; sorts after all other keys
INFO_KEY = b"__singa_dask__"
KEY = b"%012d"
DATA_FILE = "data.mdb"
FETCH_BYTES = 1 << 22
FIRST_MAP_BYTES = 1 << 24
TRANSACTION_BYTES = 1 << 23
TRANSACTION_PAIRS = 1000


@STORES.register("lmdb")
class LMDBStore(Store):
    """Records of an LMDB directory, or of its data file. A remote file is first downloaded to the cache.

    Raises
    ------
    DataError
        The file is missing, truncated, larger than the limit of the cache, or its values are not records.
    """

    block = StoreOptions
    write_options = ("records_per_value", "class_names")
    suffixes = (".lmdb", ".mdb")
    directory_files = (DATA_FILE,)

    def __init__(self, url: str, storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(url, storage_options, **options)
        self._file: LMDBFile | None = None
        self._cached: CachedFile | None = None
        self._decoder: Decoder | None = None
        # by block: offset in the file of each record's pixels, and the other arrays
        self._pixels: dict[int, tuple[npt.NDArray[np.int64], Arrays]] = {}
        try:
            file, path, self._bytes = self._locate()
            self._file = LMDBFile(file, path, self._bytes)
            self._open_records(self._file)
            manifest = find_manifest(url, "lmdb", url, self._bytes, storage_options)
            if manifest is not None:
                self.blocks = manifest.attach(self.blocks)
                manifest.check_described(url, self.schema, self.class_names)
                self.class_names = self.class_names or manifest.class_names
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
        self._cached = open_cache(options.get(fs.CACHE)).file(key, n_bytes, chunks)
        return url, self._cached.path, n_bytes

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return head[MAGIC_AT : MAGIC_AT + 4] == MAGIC or super().matches(url, head)

    def _open_records(self, file: LMDBFile) -> None:
        count = len(file.offsets)
        if not count:
            raise DataError(f"{self.url}: no records.")
        if file.last_key == INFO_KEY:
            self._open_raw(count - 1, *self._read_info(bytes(file.value(count - 1))))
            return
        first = bytes(file.value(0))
        self._decoder, arrays = _recognise(self.url, first)
        self.schema = schema_of(arrays)
        n = rows_per_block(len(first))
        self.blocks = tuple(
            Block(i, min(n, count - start), self.url, start, n * len(first))
            for i, start in enumerate(range(0, count, n))
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
            n_bytes = count * self.record_bytes
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self.url}: a damaged value of {INFO_KEY!r}: {type(error).__name__}: {error}.") from error
        if count < 1 or n < 1 or not 0 < n_bytes <= self._bytes:
            text = f"{count} records, {n} per value, of {n_bytes} bytes in a file of {self._bytes}"
            raise DataError(f"{self.url}: a damaged value of {INFO_KEY!r}: {text}.")
        return count, n

    def _open_raw(self, n_values: int, count: int, n: int) -> None:
        self.blocks = tuple(
            Block(i, min(n, count - first), self.url, first, min(n, count - first) * self.record_bytes)
            for i, first in enumerate(range(0, count, n))
        )
        if n_values != len(self.blocks):
            raise DataError(f"{self.url}: {n_values} values of records, expected {len(self.blocks)}.")
        self.mapped = True

    def read_block(self, block_id: int) -> Arrays:
        block, where = self.blocks[block_id], f"{self.url}, block {block_id}"
        if self._decoder is None:
            return self._split(self.block_bytes(block_id), block.n, where)
        if block_id in self._pixels:
            offsets, others = self._pixels[block_id]
            field = self.schema["pixel"]
            return {"pixel": self._opened.rows(offsets, field.size_bytes).reshape(block.n, *field.shape), **others}
        if block.crc is not None and block_id not in self._verified:
            self.block_bytes(block_id)
        try:
            arrays = self._find_pixels(block) or decode_values(self._values(block_id), self._decoder)
        except ValueError as error:
            raise DataError(f"{where} (records from {block.offset} on): {error}.") from error
        return check_schema(arrays, self.schema, where)

    def copies_rows(self, block_id: int) -> bool:
        return block_id in self._pixels

    def copy_rows(self, block_id: int, first: int, out: Arrays) -> None:
        offsets, others = self._pixels[block_id]
        n, pixel = len(out["pixel"]), self.schema["pixel"]
        rows = self._opened.rows(offsets[first : first + n], pixel.size_bytes)
        out["pixel"][...] = rows.reshape(n, *pixel.shape)
        for name, array in others.items():
            out[name][...] = array[first : first + n]

    @property
    def _opened(self) -> LMDBFile:
        if self._file is None:
            raise DataError(f"{self.url}: closed.")
        return self._file

    def _find_pixels(self, block: Block) -> Arrays | None:
        """Decode a block and store the offsets of its pixels, so that later only pixels are read.

        Returns None if its records have different layouts or another schema.
        """
        file, span = self._opened, slice(block.offset, block.offset + block.n)
        offsets, lengths = file.offsets[span], file.lengths[span]
        if self._decoder is None or (lengths != lengths[0]).any():
            return None
        rows = file.rows(offsets, int(lengths[0]))
        try:
            arrays = self._decoder(rows)
        except ValueError:
            # reported for a single record when they are decoded one by one
            return None
        if arrays is None or "pixel" not in arrays or schema_of(arrays) != self.schema:
            return None
        others = {name: array for name, array in arrays.items() if name != "pixel"}
        self._pixels[block.id] = offsets + (arrays["pixel"].ctypes.data - rows.ctypes.data), others
        return arrays

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        if self._decoder is None:
            return super().salvage(block_id)
        self.block_bytes(block_id)
        return salvage_values(self._values(block_id), self.schema, self._decoder)

    def block_bytes(self, block_id: int) -> memoryview:
        values = self._values(block_id)
        return self.verify_crc(block_id, values[0] if len(values) == 1 else memoryview(b"".join(values)))

    def check_unchanged(self) -> None:
        self._opened.check_unchanged()

    def manifest_info(self) -> dict[str, Any]:
        return {"bytes": self._bytes}

    def _values(self, block_id: int) -> list[memoryview]:
        """Return the values of a block: one, or one for each record."""
        block, file = self.blocks[block_id], self._opened
        if self._decoder is None:
            return [file.value(block_id)]
        return [file.value(i) for i in range(block.offset, block.offset + block.n)]

    def _split(self, value: bytes | memoryview, n: int, where: str) -> Arrays:
        if len(value) != n * self.record_bytes:
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
        if self._cached is not None:
            self._cached.close()
        self._cached = self._file = None


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
