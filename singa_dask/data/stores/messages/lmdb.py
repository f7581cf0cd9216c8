"""Records in LMDB: Caffe's Datum, SINGA's RecordProto, or raw arrays of a converter.

This module reads files through a memory map, without locks, so that files on read-only disks can be read. The library
LMDB is used only to write files. The library's reader can crash the process if a byte in a page is wrong, and must not
be used after a fork.

A file begins with two meta pages. The newer meta page has the number of the root page. Branch pages refer to other
pages. Leaf pages contain keys and values, or refer to the pages of a long value. (After LMDB's mdb.c, version 0.9.)
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import lmdb
import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.blocks import counted_blocks, rows_per_block
from singa_dask.data.codecs import record, record_schema
from singa_dask.data.codecs.class_lists import parse_names
from singa_dask.data.stores.images.image_decoding import ImageOptions, decode_image
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays, FileSum, Records
from singa_dask.errors import DataError, MissingPackageError
from singa_dask.fs.cache import key_of, open_cache
from singa_dask.fs.mapped_file import note_read
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.sources import Bytes
from singa_dask.fs.versions import version

MAGIC = struct.pack("<I", 0xBEEFC0DE)
MAGIC_AT = 16
META_PAGES = 2
PAGE_SIZES = {1 << i for i in range(9, 17)}
NO_PAGE = (1 << 64) - 1
# page flags: branch page, leaf page, and the mask of the page kind
BRANCH, LEAF, KIND = 0x01, 0x02, 0x6F
# tree flags that do not change the layout: reversed keys, integer keys
KEY_ORDERS = 0x02 | 0x08
# value flags: value on separate pages, value is a named database
LONG, NAMED = 0x01, 0x02
PAGE_HEAD_BYTES, NODE_HEAD_BYTES = 16, 8
MAX_DEPTH = 32
PAGES_AT_A_TIME = 1 << 12

Numbers = npt.NDArray[np.int64]
HEAD_BYTES = META_PAGES << 16


class Meta(NamedTuple):
    """The newer meta page of a file. It describes the file and the tree of its records."""

    transaction: int
    page_bytes: int
    last_page: int
    flags: int
    depth: int
    entries: int
    root: int


def _newest_meta(url: str, head: bytes, length: int) -> Meta:
    """Return the newer of the meta pages in ``head``; raise a `DataError` if the file is truncated."""
    if head[MAGIC_AT : MAGIC_AT + 4] != MAGIC:
        raise DataError(f"{url}: not an LMDB file.")
    metas = []
    try:
        (page_bytes,) = struct.unpack_from("<I", head, MAGIC_AT + 24)
        if page_bytes not in PAGE_SIZES:
            raise DataError(f"{url}: not an LMDB file, or a damaged one: invalid page size.")
        for at in (MAGIC_AT, page_bytes + MAGIC_AT):
            flags, depth = struct.unpack_from("<HH", head, at + 76)
            entries, root, last_page, transaction = struct.unpack_from("<QQQQ", head, at + 104)
            if head[at : at + 4] == MAGIC:
                metas.append(Meta(transaction, page_bytes, last_page, flags, depth, entries, root))
    except struct.error as error:
        raise DataError(f"{url}: the file has {length} bytes: it is truncated.") from error
    # if both transactions are equal, take the first meta page, as the LMDB library does
    meta = max(metas, key=lambda meta: meta.transaction)
    needed = (meta.last_page + 1) * meta.page_bytes
    if length < needed:
        raise DataError(f"{url}: the file has {length} bytes, but {needed} according to its header: it is truncated.")
    return meta


class LMDBFile:
    """The values of an LMDB file, in the order of their keys.

    Parameters
    ----------
    source : Bytes
        The file, which is memory-mapped.

    Attributes
    ----------
    offsets, lengths : (n,) int64
        Offset and length of each value in the file.
    last_key : bytes

    Raises
    ------
    DataError
        The file is not an LMDB file, is truncated, or has a damaged tree. A tree is damaged if a page has the wrong
        kind, or refers to bytes outside of the page or of the file.
    """

    def __init__(self, source: Bytes) -> None:
        self._source, self._data = source, source.scan(0, source.size)
        meta = _newest_meta(source.url, bytes(self._data[:HEAD_BYTES]), source.size)
        self._n, self._bytes = meta.last_page + 1, meta.page_bytes
        raw = self._data[: self._n * self._bytes]
        self._raw, self._halves = np.frombuffer(raw, np.uint8), np.frombuffer(raw, "<u2")
        self._numbers = np.frombuffer(raw, "<u8")[:: self._bytes // 8]
        self.offsets, self.lengths, self.last_key = self._find_values(meta)

    def value(self, index: int) -> memoryview:
        """Return one value, a view of the map."""
        return self._source.scan(int(self.offsets[index]), int(self.lengths[index]))

    def values(self, first: int, n: int) -> list[memoryview]:
        """Return consecutive values: if lengths are equal, one copy of all values, else a view of each."""
        offsets, lengths = self.offsets[first : first + n], self.lengths[first : first + n]
        length = int(lengths[0])
        if (lengths != length).any():
            return [self.value(i) for i in range(first, first + n)]
        self._source.check_unchanged()
        note_read(n * length)
        # this array has one element for each offset in the file, so that one call copies all values
        everywhere = np.ndarray((len(self._data) - length + 1,), f"V{length}", self._data, strides=(1,))
        return [memoryview(everywhere[offsets].view(np.uint8))]

    # -- pages of the tree, read level by level as arrays ---------------------------------------------------

    def _find_values(self, meta: Meta) -> tuple[Numbers, Numbers, bytes]:
        """Return offsets and lengths of the values, and the last key."""
        if meta.root == NO_PAGE:
            return np.empty(0, np.int64), np.empty(0, np.int64), b""
        if meta.flags & ~KEY_ORDERS or not 1 <= meta.depth <= MAX_DEPTH:
            raise self._damaged(f"its header has flags {meta.flags:#x} and depth {meta.depth}")
        numbers, seen = np.array([min(meta.root, self._n)], np.int64), 0
        for _ in range(meta.depth - 1):
            seen += len(numbers)
            numbers = self._children(numbers)
            if seen + len(numbers) > meta.last_page:
                raise self._damaged("its tree has more pages than the file")
        parts = []
        for first in range(0, len(numbers), PAGES_AT_A_TIME):
            parts.append(self._values(numbers[first : first + PAGES_AT_A_TIME]))
            note_read(PAGES_AT_A_TIME * self._bytes)
        offsets, lengths = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        if len(offsets) != meta.entries:
            raise self._damaged(f"it has {len(offsets)} values, but {meta.entries} according to its header")
        return offsets, lengths, parts[-1][2]

    def _children(self, numbers: Numbers) -> Numbers:
        """Return the pages that branch pages refer to."""
        pages, at = self._nodes(numbers, BRANCH)
        low, high, top, key_bytes = self._heads(at)
        children = low | high << 16 | top << 32
        inside = at % self._bytes + NODE_HEAD_BYTES + key_bytes <= self._bytes
        self._check(pages, inside & (children >= META_PAGES) & (children < self._n))
        return children

    def _values(self, numbers: Numbers) -> tuple[Numbers, Numbers, bytes]:
        """Return offsets and lengths of the values of leaf pages, and the last key."""
        pages, at = self._nodes(numbers, LEAF)
        low, high, flags, key_bytes = self._heads(at)
        length = low | high << 16
        is_long = (flags & LONG) > 0
        start = at + NODE_HEAD_BYTES + key_bytes
        end = start % self._bytes + np.where(is_long, 8, length)
        inside = (start // self._bytes == pages) & (end <= self._bytes)
        self._check(pages, inside & (flags & ~(LONG | NAMED) == 0))
        last = slice(int(at[-1]) + NODE_HEAD_BYTES, int(start[-1]))
        first = self._raw[start[is_long][:, None] + np.arange(8)].view("<u8")[:, 0]
        n = -(-(length[is_long] + PAGE_HEAD_BYTES) // self._bytes)
        fits = (first >= META_PAGES) & (first < self._n)
        self._check(pages[is_long], fits & (np.where(fits, first, 0).astype(np.int64) + n <= self._n))
        start[is_long] = first.astype(np.int64) * self._bytes + PAGE_HEAD_BYTES
        return start, length, self._raw[last].tobytes()

    def _nodes(self, numbers: Numbers, kind: int) -> tuple[Numbers, Numbers]:
        """Return page and file offset of each node in some pages, and check the heads of the pages."""
        self._check(numbers, numbers < self._n)
        at = numbers * (self._bytes // 2)
        flags, lower, upper = (self._halves[at + i].astype(np.int64) for i in (5, 6, 7))
        counts = (lower - PAGE_HEAD_BYTES) // 2
        right = (self._numbers[numbers] == numbers.astype(np.uint64)) & (flags & KIND == kind) & (lower % 2 == 0)
        right &= (counts >= (2 if kind == BRANCH else 1)) & (lower <= upper) & (upper <= self._bytes)
        self._check(numbers, right)
        pages = np.repeat(numbers, counts)
        index = np.arange(len(pages)) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets = self._halves[pages * (self._bytes // 2) + PAGE_HEAD_BYTES // 2 + index].astype(np.int64)
        right = (offsets >= np.repeat(upper, counts)) & (offsets % 2 == 0) & (offsets + NODE_HEAD_BYTES <= self._bytes)
        self._check(pages, right)
        return pages, pages * self._bytes + offsets

    def _heads(self, at: Numbers) -> tuple[Numbers, ...]:
        return tuple(self._halves[at // 2 + i].astype(np.int64) for i in range(4))

    def _check(self, pages: Numbers, right: npt.NDArray[Any]) -> None:
        if not right.all():
            raise self._damaged(f"page {pages[int(right.argmin())]} is invalid")

    def _damaged(self, what: str) -> DataError:
        return DataError(f"{self._source.url}: the LMDB file is damaged: {what}.")


# key of the entry that describes raw records; it sorts after all other keys
INFO_KEY = b"__singa_dask__"
KEY = b"%012d"
DATA_FILE = "data.mdb"
FETCH_BYTES = 1 << 22
FIRST_MAP_BYTES = 1 << 24
TRANSACTION_BYTES = 1 << 23
TRANSACTION_PAIRS = 1000


class LMDBOptions(ImageOptions, StoreOptions):
    """Options of LMDB: size and channels of Caffe's encoded images."""


@STORES.register("lmdb")
class LMDBStore(RangeStore):
    """Records of an LMDB directory, or of its data file. A remote file is first downloaded to the cache.

    Encoded images of Caffe are decoded with channels in Caffe's order, blue first.

    Raises
    ------
    DataError
        The file is missing, truncated, or larger than the limit of the cache, or its values are not records. Or options
        for images are set, but the records are not images.
    """

    options_class = LMDBOptions
    write_options = ("records_per_value", "class_names")
    title = "an LMDB file"
    suffixes = (".lmdb", ".mdb")
    directory_files = (DATA_FILE,)

    def index(self) -> None:
        self._decoder: record.Decoder | None = None
        local = fs.local_path(self.url)
        if local is None:
            self.sources.append(self._download())
        else:
            self.open_source(str(local / DATA_FILE if local.is_dir() else local))
        self._open_records(LMDBFile(self.sources[0]))

    def _download(self) -> Bytes:
        """Return the cache entry of a remote file; download the file if the entry is missing."""
        options = self.storage_options
        url = fs.join(self.url, DATA_FILE) if fs.is_dir(self.url, options) else self.url
        n_bytes, known = fs.size(url, options), version(url, options)

        def chunks() -> Iterator[bytes]:
            with fs.open(url, storage_options=options) as file:
                while chunk := file.read(FETCH_BYTES):
                    yield chunk
            if version(url, options) != known:
                raise DataError(f"{url}: the file was replaced while it was read.")

        path = open_cache(options.get(fs.CACHE)).file(key_of("file", url, n_bytes, known), n_bytes, chunks)
        source = RangeReader(str(path))
        # the entry is longer than the file, because the cache appends a seal
        source.url, source.size, source.common_version = url, n_bytes, known
        return source

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return head[MAGIC_AT : MAGIC_AT + 4] == MAGIC or super().matches(url, head)

    def _open_records(self, file: LMDBFile) -> None:
        self._file, count = file, len(file.offsets)
        if not count:
            raise DataError(f"{self.url}: no records.")
        first = bytes(file.value(0))
        resize, channels = self.options["resize"], self.options["channels"]
        has_pictures = file.last_key != INFO_KEY and _has_picture(first)
        if (resize or channels != 3) and not has_pictures:
            raise DataError(f"{self.url}: resize and channels are for encoded images, but the records have none.")
        if file.last_key == INFO_KEY:
            self._open_raw(count - 1, *self._read_info(bytes(file.value(count - 1))))
            return
        self._decoder, arrays = _recognise(self.url, first, partial(_picture, resize=resize, channels=channels))
        self.schema = record_schema.schema_of(arrays)
        n = rows_per_block(len(first))
        self.blocks = counted_blocks(self.url, count, n, len(first), n * len(first))

    def _read_info(self, info: bytes) -> tuple[int, int]:
        """Set the schema from the description; return the number of records, and of records per value."""
        try:
            described = json.loads(info)
            self.schema = record_schema.fields_of(described["fields"])
            self.class_names = parse_names(described.get("class_names"))
            count, n = int(described["count"]), int(described["records_per_value"])
            n_bytes = count * self.record_bytes
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.url}: the value of {INFO_KEY!r} is damaged: {type(error).__name__}: {error}."
            ) from error
        if count < 1 or n < 1 or not 0 < n_bytes <= self.sources[0].size:
            text = f"{count} records, {n} per value, of {n_bytes} bytes in a file of {self.sources[0].size}"
            raise DataError(f"{self.url}: the value of {INFO_KEY!r} is damaged: {text}.")
        return count, n

    def _open_raw(self, n_values: int, count: int, n: int) -> None:
        self.blocks = counted_blocks(self.url, count, n, self.record_bytes)
        if n_values != len(self.blocks):
            raise DataError(f"{self.url}: the file has {n_values} values of records, expected {len(self.blocks)}.")
        self.mapped = True

    def fetch(self, block_id: int, again: bool = False) -> list[memoryview]:
        block = self.blocks[block_id]
        data = [self._file.value(block_id)] if self._decoder is None else self._file.values(block.offset, block.n)
        self.verify_crc(block_id, data)
        return data

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        block, where = self.blocks[block_id], f"{self.url}, block {block_id}"
        if self._decoder is None:
            return self._split(data[0], block.n, where)
        try:
            # values of the same length are in one piece
            same = np.frombuffer(data[0], np.uint8).reshape(block.n, -1) if len(data) < block.n else None
            arrays = record.decode_values(data if same is None else same, self._decoder)
        except ValueError as error:
            raise DataError(f"{where} (records from {block.offset} on): {error}.") from error
        return record_schema.check_schema(arrays, self.schema, where)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        if self._decoder is None:
            return super().salvage(block_id)
        self.fetch(block_id)  # compares the values with the manifest
        block = self.blocks[block_id]
        values = [self._file.value(i) for i in range(block.offset, block.offset + block.n)]
        return record.salvage_values(values, self.schema, self._decoder)

    def file_sums(self) -> list[FileSum]:
        # the pages between the values are checked when the file is opened
        return []

    def close(self) -> None:
        super().close()
        vars(self).pop("_file", None)  # release the memory map

    def _split(self, value: bytes | memoryview, n: int, where: str) -> Arrays:
        if len(value) != n * self.record_bytes:
            raise DataError(f"{where}: the value has {len(value)} bytes, which do not fit {n} records.")
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
            Number of records in each value. A value consists of the fields' arrays, one after the other.
        class_names : sequence of str
            Written to the description of the records.
        """
        if fs.local_path(url) is None:
            raise DataError(f"{url}: LMDB can only be written to a local disk.")
        write_environment(url, _raw_pairs(Rechunker(url, records), records_per_value, class_names))


def write_environment(url: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Write pairs, sorted by key, as a new LMDB directory, atomically."""
    with fs.staged(fs.join(url, DATA_FILE)) as path:
        try:
            with lmdb.open(bytes(path), map_size=FIRST_MAP_BYTES, subdir=False, lock=False, sync=False) as environment:
                for batch in _batches(pairs):
                    _put(environment, batch)
                environment.sync(True)
        except lmdb.Error as error:
            raise DataError(f"{url}: cannot write it: {error}. Is the disk full?") from error


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
    info: dict[str, Any] = {"version": 1, "count": rows.taken, "records_per_value": n}
    info["fields"] = record_schema.describe_fields(rows.schema)
    if class_names:
        info["class_names"] = list(class_names)
    yield INFO_KEY, json.dumps(info).encode()


def _picture(data: bytes, resize: Sequence[int] | None, channels: int) -> npt.NDArray[np.uint8]:
    """Decode an image of Caffe, blue first; raise a `ValueError` if it is damaged."""
    try:
        return decode_image(data, "its image", resize, channels)[::-1]
    except MissingPackageError:
        raise
    except DataError as error:
        raise ValueError(str(error).rstrip(".")) from error


def _has_picture(value: bytes) -> bool:
    try:
        return record.holds_pictures(np.frombuffer(value, np.uint8)[None])
    except ValueError:
        return False


def _recognise(url: str, value: bytes, picture: Callable[[bytes], Any]) -> tuple[record.Decoder, Arrays]:
    """Detect from the first value whether the records are Datum or RecordProto messages."""
    reasons = []
    # field 4 holds pixels in a Datum, and packed floats in a RecordProto: only one of them fits the shape
    decoders: list[record.Decoder] = [record.decode_records, partial(record.decode_datums, picture=picture)]
    for decoder in decoders:
        try:
            return decoder, record.decode_values([value], decoder)
        except ValueError as error:
            reasons.append(str(error))
    raise DataError(f"{url}: the values are neither records of SINGA ({reasons[0]}) nor of Caffe ({reasons[1]}).")
