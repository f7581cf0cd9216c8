"""Records in HDF5: a file with an array of images or data, and an array of labels.

The library h5py reads the structure of the file. The values are then read by ranges. This module undoes the filters
gzip and shuffle; the library undoes all other filters. The library does not check the decoded length of a chunk, and
returns uninitialised memory for a damaged chunk. So this module checks lengths.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.stores.arrays.array_store import CLASS_NAMES, PACKED, ArrayStore
from singa_dask.data.stores.arrays.stored_array import ContiguousArray, StoredArray
from singa_dask.data.stores.range_store import DAMAGE
from singa_dask.data.stores.store import STORES
from singa_dask.errors import DataError
from singa_dask.fs.range_file import RangeFile
from singa_dask.fs.sources import Bytes, BytesInMemory, Range
from singa_dask.lazy import require

GZIP, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALE_OFFSET = 1, 2, 3, 4, 5, 6
# filters whose C code may read beyond the end of damaged data
REFUSED = {SZIP: "szip", NBIT: "nbit", SCALE_OFFSET: "scaleoffset"}
CHECKSUM_BYTES = 4


class Filter(NamedTuple):
    """A filter that was applied to chunks when they were written; ``values`` are its parameters."""

    id: int
    flags: int
    values: tuple[int, ...]
    name: str


def decode_chunk(data: memoryview, n_bytes: int, itemsize: int, filters: Sequence[Filter], mask: int) -> Any:
    """Return the bytes of the values of a chunk.

    Parameters
    ----------
    data : memoryview
        The chunk as stored.
    n_bytes, itemsize : int
        Number of bytes of all values of the chunk, and of one value.
    filters : sequence of Filter
        Filters in the order in which they were applied.
    mask : int
        Bit i is set if filter i was not applied.

    Raises
    ------
    ValueError
        The chunk is damaged.
    """
    decoded: Any = data
    applied = [each for i, each in enumerate(filters) if not mask >> i & 1]
    for each in reversed(applied):
        if each.id == GZIP:
            decoded = _inflate(decoded, n_bytes)
        elif each.id == SHUFFLE:
            decoded = _unshuffle(decoded, itemsize)
        elif each.id == FLETCHER32:
            decoded = _by_library(decoded, len(decoded) - CHECKSUM_BYTES, each)
        else:
            decoded = _by_library(decoded, n_bytes, each)
    if len(decoded) != n_bytes:
        raise ValueError(f"a chunk has {len(decoded)} bytes of values, expected {n_bytes}")
    return decoded


def _inflate(data: Any, n_bytes: int) -> bytes:
    # a checksum may follow the values
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, n_bytes + CHECKSUM_BYTES)
        if not stream.eof:
            # a further call may be needed to reach the end of the stream
            inflated += stream.decompress(stream.unconsumed_tail, 1)
    except zlib.error as error:
        raise ValueError(f"a chunk is damaged: {error}") from error
    if not stream.eof:
        raise ValueError(f"a chunk is truncated, or has more than {n_bytes} bytes of values")
    return inflated


def _unshuffle(data: Any, itemsize: int) -> Any:
    """Undo a shuffle, which stores the first bytes of all values, then the second bytes, and so on."""
    if itemsize == 1:
        return data
    n = len(data) // itemsize
    values = np.frombuffer(data, np.uint8)
    rows = values[: n * itemsize].reshape(itemsize, n).T
    return np.concatenate([rows.reshape(-1), values[n * itemsize :]])


def _by_library(data: Any, n_bytes: int, each: Filter) -> Any:
    """Undo one filter with the library, through a file in memory that contains only this chunk."""
    h5py = require("h5py", "hdf5", "")
    if n_bytes < 1:
        raise ValueError(f"a chunk has {len(data)} bytes, but should have {n_bytes} bytes of values")
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((n_bytes,))
        plist.set_filter(each.id, each.flags, each.values)
        space = h5py.h5s.create_simple((n_bytes,))
        dataset = h5py.h5d.create(file.id, b"chunk", h5py.h5t.NATIVE_UINT8, space, plist)
        dataset.write_direct_chunk((0,), bytes(data))
        decoded = np.empty(n_bytes, np.uint8)
        try:
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, decoded)
        except OSError as error:
            raise ValueError(f"a chunk is damaged according to the filter {each.name or each.id}") from error
        return decoded


MAGIC = b"\x89HDF\r\n\x1a\n"
HEAP_MAGIC = b"GCOL"
# bytes of the header of a heap, and of the header of each object in it
HEAP_HEADER = 16
# a reference to a string in a heap
TEXT = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
# an attribute that MATLAB writes to its arrays
MATLAB = "MATLAB_class"
# size and maximum number of the pages in which h5py reads a remote file
PAGE_BYTES, MAX_PAGES = 1 << 16, 256
# ranges with a smaller gap between them are read together
GAP_BYTES = 1 << 12


@STORES.register("hdf5")
class HDF5Store(ArrayStore):
    """Records of an HDF5 file with gzip, lzf, shuffle and fletcher32 (``singa-dask[hdf5]``).

    An array of uint8 becomes ``pixel``. Other numbers become ``data``, rounded to float32. Labels are integers or text.
    If they are text, the class names are the sorted labels. Otherwise the class names are read from an attribute
    ``class_names``, ``classes`` or ``names`` of the labels or of the file, or from an array with one of these names.

    Raises
    ------
    DataError
        The file is damaged, chunks of an array are missing, or its values are not numbers of a standard type.
    """

    magic = MAGIC
    title = "an HDF5 file"
    suffixes = (".h5", ".hdf5")
    damage = DAMAGE

    def index(self) -> None:
        source = self.open_source()
        if not source.size:
            raise ValueError("it is empty")
        self._h5py = require("h5py", "hdf5", self.url)
        read = source.read if source.is_local else _Pages(source).read
        with self._h5py.File(RangeFile(read, source.size), "r") as self._file:
            super().index()
        del self._file

    def list_arrays(self) -> tuple[Sequence[str], Mapping[str, Any]]:
        if self._file.userblock_size:
            raise DataError(f"{self.url}: the file has a user block, which is not supported. Write it without one.")
        names: list[str] = []

        def add(name: str, item: Any) -> None:
            if isinstance(item, self._h5py.Dataset):
                names.append(name)

        self._file.visititems(add)
        return names, _attributes(self._file)

    def open_array(self, name: str) -> StoredArray:
        dataset = self._file[name]
        where = f"{self.url}, {name}"
        attributes = _attributes(dataset)
        if MATLAB in attributes:
            raise DataError(f"{where}: MATLAB stores the axes of arrays in reverse order. Write the file with h5py.")
        if dataset.is_virtual or dataset.external:
            raise DataError(
                f"{where}: the values are in other files. Copy them into this file, or open one of the other files."
            )
        kind, shape = dataset.dtype, dataset.shape
        if shape is None:
            raise DataError(f"{where}: the array is empty.")
        if kind.kind in "iuf" and not self._h5py.h5t.py_create(kind).equal(dataset.id.get_type()):
            raise DataError(f"{where}: the numbers are of a type that NumPy lacks. Store them as {kind}.")
        text = self._h5py.check_string_dtype(kind)
        if text is None:
            return self._located(name, dataset, kind, attributes)
        # fixed-length strings are stored in place as padded bytes
        values = self._located(name, dataset, TEXT if text.length is None else kind, attributes)
        return _Text(values, _Heaps(self.sources[0])) if text.length is None else values

    def _located(self, name: str, dataset: Any, kind: np.dtype[Any], attributes: Mapping[str, Any]) -> StoredArray:
        """Return an array with its location in the file; ``kind`` is the dtype of the values."""
        where, shape = f"{self.url}, {name}", dataset.shape
        if dataset.chunks is not None:
            return self._chunked(where, dataset, kind, attributes)
        offset, n_bytes = dataset.id.get_offset(), dataset.size * kind.itemsize
        if offset is None and n_bytes:
            # the values are stored in the header
            if dataset.id.get_storage_size() != n_bytes:
                raise DataError(f"{where}: the values were never written.")
            if kind == TEXT:
                raise DataError(
                    f"{where}: the texts are stored in the header, which is not supported. Write the file with h5py."
                )
            data = np.ascontiguousarray(dataset[()]).tobytes()
            return ContiguousArray(kind, shape, attributes, BytesInMemory(self.url, data), 0)
        if offset is not None and offset + n_bytes > self.sources[0].size:
            raise ValueError(
                f"{name} has {n_bytes} bytes from byte {offset} on, but the file has {self.sources[0].size}"
            )
        return ContiguousArray(kind, shape, attributes, self.sources[0], offset or 0)

    def _chunked(self, where: str, dataset: Any, kind: np.dtype[Any], attributes: Mapping[str, Any]) -> StoredArray:
        plist = dataset.id.get_create_plist()
        filters = []
        for i in range(plist.get_nfilters()):
            number, flags, values, name = plist.get_filter(i)
            filters.append(Filter(number, flags, values, name.decode("ascii", "replace")))
            if number in REFUSED:
                raise ValueError(
                    f"its chunks are encoded by {REFUSED[number]}, which is not supported. Store them with gzip"
                )
            if not self._h5py.h5z.filter_avail(number):
                called = filters[-1].name or f"number {number}"
                raise ValueError(
                    f"its chunks are encoded by the filter {called}, which h5py lacks. Store them with gzip"
                )
        entries: list[tuple[int, ...]] = []
        dataset.id.chunk_iter(
            lambda each: entries.append((*each.chunk_offset, each.byte_offset, each.size, each.filter_mask))
        )
        chunks, shape = dataset.chunks, dataset.shape
        expected = int(np.prod([-(-extent // n) for extent, n in zip(shape, chunks, strict=True)], dtype=object))
        table = np.array(sorted(set(entries)), np.int64).reshape(len(set(entries)), len(chunks) + 3)
        grid = np.unique(table[:, : len(chunks)], axis=0)
        if len(entries) != expected or len(grid) != expected or (table[:, : len(chunks)] % chunks).any():
            text = f"{len(entries)} of {expected} chunks are there" if len(entries) < expected else "a damaged index"
            raise DataError(f"{where}: {text}. The others were never written, or the file is damaged.")
        if int(table[:, -2].sum()) > self.sources[0].size:
            raise ValueError(f"the index of {where} lists more bytes in chunks than the file has")
        return _Chunked(kind, shape, attributes, self.sources[0], tuple(chunks), tuple(filters), table)


class _Pages:
    """Serves small reads of h5py from larger pages of the file."""

    def __init__(self, source: Bytes) -> None:
        self._source, self.size = source, source.size
        self._page = functools.lru_cache(MAX_PAGES)(self._read_page)

    def _read_page(self, i: int) -> memoryview:
        return self._source.scan(i * PAGE_BYTES, min(PAGE_BYTES, self.size - i * PAGE_BYTES))

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on."""
        first, last = offset // PAGE_BYTES, (offset + length - 1) // PAGE_BYTES
        data = b"".join(self._page(i) for i in range(first, last + 1))
        return data[offset - first * PAGE_BYTES :][:length]


class _Heaps:
    """The heaps of a file, which contain strings of different lengths.

    The library is not used to read heaps, because with a damaged length it could allocate 4 GiB or hang.
    """

    def __init__(self, source: Bytes) -> None:
        self._source = source
        self._objects = functools.lru_cache(MAX_PAGES)(self._read)

    def text(self, length: int, address: int, index: int) -> str:
        """Return a text: object ``index`` of the heap at ``address``."""
        if not length:
            return ""
        stored = self._objects(address).get(index, b"")
        if length > len(stored):
            raise ValueError(f"a text has {length} bytes, but its object has {len(stored)}")
        return stored[:length].decode()

    def _read(self, address: int) -> dict[int, bytes]:
        """Return the objects of a heap."""
        head = bytes(self._source.scan(address, HEAP_HEADER))
        n_bytes = int.from_bytes(head[8:16], "little")
        if not head.startswith(HEAP_MAGIC) or n_bytes > self._source.size - address:
            raise ValueError(f"there is no heap at {address}")
        heap, at, objects = bytes(self._source.scan(address, n_bytes)), HEAP_HEADER, {}
        while at + HEAP_HEADER <= n_bytes:
            index, size = struct.unpack_from("<H6xQ", heap, at)
            if not index:
                # the rest of the heap is unused
                break
            at += HEAP_HEADER
            objects[index] = heap[at : at + size]
            at += -(-size // 8) * 8
        return objects


def _attributes(item: Any) -> dict[str, Any]:
    """Return the attributes that this module uses. Values of other attributes are not read."""
    attributes = {name: item.attrs[name] for name in CLASS_NAMES if name in item.attrs}
    return attributes | {name: True for name in (*PACKED, MATLAB) if name in item.attrs}


class _Text(StoredArray):
    """An array of strings. The file stores it as an array of references to heaps."""

    def __init__(self, references: StoredArray, heaps: _Heaps) -> None:
        super().__init__(np.dtype(str), references.shape, references.attributes)
        self._references, self._heaps = references, heaps

    def texts(self) -> npt.NDArray[Any]:
        strings = [
            self._heaps.text(*each) for piece in self._references.pieces() for each in piece.reshape(-1).tolist()
        ]
        return np.array(strings, str)

    def ranges(self, first: int, n: int) -> tuple[Range, ...]:
        return self._references.ranges(first, n)

    def decode(self, first: int, n: int, data: Sequence[memoryview]) -> npt.NDArray[Any]:
        return self._references.decode(first, n, data)


@dataclass
class _Chunked(StoredArray):
    """An array in chunks.

    Attributes
    ----------
    source : Bytes
    chunks : tuple of int
        Shape of a chunk.
    filters : tuple of Filter
    table : (n_chunks, n_axes + 3) int64
        One row for each chunk, sorted by position. A row has the position of the chunk's first value, its offset in the
        file, its length, and its filter mask.
    """

    source: Bytes
    chunks: tuple[int, ...]
    filters: tuple[Filter, ...]
    table: npt.NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        self.chunk_rows = self.chunks[0]

    def _rows(self, first: int, n: int) -> npt.NDArray[np.int64]:
        """Return the rows of the table for ``n`` records."""
        bounds = np.searchsorted(self.table[:, 0], [first, first + n])
        return self.table[bounds[0] : bounds[1]]

    def ranges(self, first: int, n: int) -> tuple[Range, ...]:
        offsets, sizes = self._rows(first, n)[:, -3:-1].T
        order = np.argsort(offsets)
        starts, ends = offsets[order], np.maximum.accumulate((offsets + sizes)[order])
        begins = np.flatnonzero(np.concatenate([[True], starts[1:] > ends[:-1] + GAP_BYTES]))
        stops = np.append(begins[1:], len(starts)) - 1
        return tuple(
            Range(self.source, int(starts[i]), int(ends[j] - starts[i])) for i, j in zip(begins, stops, strict=True)
        )

    def decode(self, first: int, n: int, data: Sequence[memoryview]) -> npt.NDArray[Any]:
        begins = np.array([each.offset for each in self.ranges(first, n)])
        out = np.empty((n, *self.shape[1:]), self.kind)
        n_bytes = int(np.prod(self.chunks, dtype=np.int64)) * self.kind.itemsize
        for row in self._rows(first, n):
            place, (offset, size, mask) = row[:-3], row[-3:].tolist()
            i = int(np.searchsorted(begins, offset, side="right")) - 1
            at = offset - int(begins[i])
            chunk = decode_chunk(data[i][at : at + size], n_bytes, self.kind.itemsize, self.filters, mask)
            values: npt.NDArray[Any] = np.ndarray(self.chunks, self.kind, chunk)
            place = place - [first, *[0] * (len(place) - 1)]
            # the last chunk of each axis may extend beyond the array
            kept = tuple(slice(0, end - at) for at, end in zip(place.tolist(), out.shape, strict=True))
            target = tuple(slice(at, at + size) for at, size in zip(place.tolist(), self.chunks, strict=True))
            out[target] = values[kept]
        return out
