"""ArrayStore: records in arrays that are stored in chunks, and found by name. The base of HDF5, and Zarr.

Labels are read when the store is opened. The other values are read block by block: a block consists of whole chunks.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.values import as_values, is_rounded, value_name
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.column import check_array
from singa_dask.data.stores.range_store import RangeStore, name_of
from singa_dask.data.stores.store import ADVICE, BLOCK_BYTES, STORES, StoreOptions, even_blocks, rows_per_block
from singa_dask.data.types import Arrays, Block, Field, FileSum
from singa_dask.errors import DataError, listed
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.decompression import check_decompressed, limit_of
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.sources import BytesInMemory, Range
from singa_dask.lazy import require
from singa_dask.texts import NameNumbers, distinct_names

VALUE_NAMES = ("images", "image", "pixel", "pixels", "data", "x", "features")
CLASS_NAMES = ("class_names", "classes", "names")
# attributes of arrays whose values stand for others
PACKED = ("scale_factor", "add_offset")
# more blocks are a damaged shape
MAX_BLOCKS = 10_000_000
MAX_CLASSES = 10_000


class StoredArray(ABC):
    """An array in a file. The first axis is that of records.

    Attributes
    ----------
    kind : dtype
        Dtype in the file: numbers, or text.
    shape : tuple of int
    chunk_rows : int
        Number of records of a chunk; 1 if the array is not stored in chunks.
    attributes : mapping
    is_view : bool
        Whether `decode` returns a view of the bytes.
    """

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    chunk_rows: int = 1
    attributes: Mapping[str, Any]
    is_view: bool = False

    @abstractmethod
    def ranges(self, first: int, n: int) -> tuple[Range, ...]:
        """Return the ranges that hold ``n`` records; ``first`` is the first one of a chunk."""

    @abstractmethod
    def decode(self, first: int, n: int, data: Sequence[memoryview]) -> npt.NDArray[Any]:
        """Return ``n`` records from the bytes of their ``ranges``: (n, *shape[1:]) of ``kind``."""

    def texts(self) -> npt.NDArray[Any] | None:
        """Return all values as an array of str; None if they are not text."""
        if self.kind.kind not in "SUT":
            return None
        values = [each for piece in self.pieces() for each in piece.reshape(-1).tolist()]
        return np.array([each.decode() if isinstance(each, bytes) else self.text_of(each) for each in values], str)

    def text_of(self, value: Any) -> str:
        """Return the text that a value of text stands for."""
        return str(value)

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all records, those of a block at a time, bypassing the cache."""
        count = self.shape[0] if self.shape else 0
        for first in range(0, count, step := self.rows_per_block()):
            n = min(step, count - first)
            data = [source.scan(offset, length) for source, offset, length in self.ranges(first, n)]
            yield self.decode(first, n, data)

    @property
    def row_bytes(self) -> int:
        """Bytes of a record."""
        return math.prod(self.shape[1:]) * self.kind.itemsize

    def rows_per_block(self) -> int:
        """Return the number of records of a block: whole chunks, of about 1 MiB together if they are smaller."""
        if self.chunk_rows == 1:
            return rows_per_block(self.row_bytes)
        return self.chunk_rows * max(1, BLOCK_BYTES // max(1, self.chunk_rows * self.row_bytes))


class ArrayOptions(StoreOptions):
    """Options of arrays by name."""

    features: str = ""
    """Name of the array of images or data, e.g. ``train/images``. By default the only one of images, image, pixel,
    pixels, data, x or features, in upper or lower case."""
    label: str = ""
    """Name of the array of labels. By default the only one beside it called label, labels, y, class, target or
    targets."""


class ArrayStore(RangeStore):
    """Records of arrays that are stored in chunks; subclasses list the arrays in `list_arrays`, and open them.

    Arrays of uint8 become ``pixel``, other numbers ``data``, rounded to float32. Labels are integers, or text: then the
    ``class_names`` are all labels, sorted. Otherwise they are in an attribute ``class_names``, classes or names of
    the labels or of the file, or in an array of this name.
    """

    block = ArrayOptions
    block_options = ("features", "label")
    labels_apart = True

    @abstractmethod
    def list_arrays(self) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Open the file, and return the names of the arrays, and the attributes of the file.

        The first source is the one whose length the manifest states.
        """

    @abstractmethod
    def open_array(self, name: str) -> StoredArray:
        """Open an array."""

    def index(self) -> None:
        self._names, self._attributes = self.list_arrays()
        name = self._values_name()
        label = self._label_name(name)
        self._values = self._open(name, False)
        self._labels = self._read_labels(label) if label else None
        field = value_name(self._values.kind)
        kind = np.dtype(np.uint8 if field == "pixel" else np.float32)
        self.schema = {field: Field(kind, self._values.shape[1:])}
        self.rounds_data = is_rounded(self._values.kind)
        if self._labels is not None:
            self.schema["label"] = Field(np.dtype(np.int32))
            if len(self._labels) != self._values.shape[0]:
                lengths = {name: self._values.shape[0], label: len(self._labels)}
                raise DataError(f"{self.url}: arrays of different lengths: {lengths}.")
        self.mapped = self.is_local and self._values.is_view and self._values.kind == kind
        self.blocks = self._cut()
        self._compare_labels()

    def _cut(self) -> tuple[Block, ...]:
        """Return the blocks. Their offsets and lengths are those of the values that are not compressed."""
        count, size, n = self._values.shape[0], self._values.row_bytes, self._values.rows_per_block()
        if count > n * MAX_BLOCKS:
            raise DataError(f"{self.url}: an array of shape {self._values.shape} in chunks of {n} records: damaged.")
        check_decompressed(f"{self.url}, block 0", min(n, count) * size, limit_of(self.storage_options))
        return even_blocks(self.url, count, n, size)

    def _compare_labels(self) -> None:
        """Compare the labels, which are in no block, with the manifest."""
        if self.manifest_blocks() and self.manifest and self.manifest.opening.get("labels") != self._labels_crc():
            raise DataError(f"{self.url}: other labels than those of its manifest: {ADVICE}")

    def _labels_crc(self) -> int | None:
        return None if self._labels is None else checksum_of(memoryview(self._labels).cast("B"))

    def manifest_info(self) -> dict[str, Any]:
        return {**super().manifest_info(), "labels": self._labels_crc()}

    # -- arrays by name ----------------------------------------------------------------------------------

    def _values_name(self) -> str:
        """Return the name of the array of images or data."""
        given, names = str(self.options["features"]).strip("/"), self._names
        if names == [""] and not given:
            # a single array
            return ""
        found = [name for name in names if name == given or (not given and name.lower() in VALUE_NAMES)]
        if len(found) == 1:
            return found[0]
        fault = f"no array called {repr(given) if given else ' or '.join(VALUE_NAMES)}"
        fault = f"{' and '.join(found)} could each be the images or data" if found else fault
        hint = "" if given else " Give the options features and label: names of arrays."
        raise DataError(f"{self.url}: {fault}. Arrays: {listed(names) or 'none'}.{hint}")

    def _label_name(self, values: str) -> str:
        """Return the name of the array of labels, which is beside the values unless it is given; empty if none is."""
        given = str(self.options["label"]).strip("/")
        if given:
            if given in self._names:
                self.label_name = given
                return given
            raise DataError(f"{self.url}: no array called {given!r}. Arrays: {listed(self._names)}.")
        folder = f"{values.rpartition('/')[0]}/".lstrip("/")
        beside = [name[len(folder) :] for name in self._names if name.startswith(folder) and name != values]
        self.other_fields = tuple(name for name in beside if "/" not in name)
        found = self.choose_label(self.other_fields)
        return found and folder + found

    def _open(self, name: str, is_label: bool) -> StoredArray:
        array = self.open_array(name)
        packed = [each for each in PACKED if each in array.attributes]
        if packed:
            raise DataError(f"{self.url}: {name}: values with {packed[0]}, which is not applied. Store them unpacked.")
        check_array(self.url, name or "the array", array.kind, array.shape, is_label)
        if 0 in array.shape:
            raise DataError(f"{self.url}: {name}: no records, or no values: the shape is {array.shape}.")
        return array

    # -- labels ------------------------------------------------------------------------------------------

    def _read_labels(self, name: str) -> npt.NDArray[np.int32]:
        texts = self.open_array(name).texts()
        if texts is not None:
            names, labels = np.unique(texts.reshape(-1), return_inverse=True)
            if len(names) > MAX_CLASSES:
                raise DataError(f"{self.url}: {name}: {len(names)} different labels. Expected names of classes.")
            self.class_names = tuple(sorted(distinct_names(map(str, names))))
            numbers = NameNumbers(self.class_names)
            return np.array([numbers[str(name)] for name in names], np.int32)[labels]
        array = self._open(name, True)
        self._find_class_names(name, array)
        where = f"{self.url}, {name}"
        check_decompressed(where, array.shape[0] * array.row_bytes, limit_of(self.storage_options))
        parts, first = [], 0
        for piece in array.pieces():
            parts.append(as_labels(piece.reshape(len(piece)), where, first))
            first += len(piece)
        return np.ascontiguousarray(np.concatenate(parts))

    def _find_class_names(self, label: str, array: StoredArray) -> None:
        found = [each.get(name) for each in (array.attributes, self._attributes) for name in CLASS_NAMES]
        folder, slash, _ = label.rpartition("/")
        beside = f"{folder}{slash}{CLASS_NAMES[0]}"
        found += [self.open_array(beside).texts()] if beside in self._names else []
        self.class_names = next(filter(None, map(_as_names, found)), ())

    # -- reading -----------------------------------------------------------------------------------------

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        return self._values.ranges(int(self.starts[block_id]), self.blocks[block_id].n)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        values = self._values.decode(first, n, data)
        name, field = next(iter(self.schema.items()))
        arrays = {name: as_values(values, self.url, first, field.dtype)}
        return arrays if self._labels is None else {**arrays, "label": self._labels[first : first + n]}

    def read_labels(self, block_id: int) -> npt.NDArray[Any]:
        if self._labels is None:
            return super().read_labels(block_id)
        return self._labels[int(self.starts[block_id]) : int(self.starts[block_id + 1])]


def _as_names(value: Any) -> tuple[str, ...]:
    """Return class names from an attribute or array of text; empty if it has none."""
    plain = value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
    if isinstance(plain, (list, tuple)):
        plain = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in plain]
    return parse_names(plain)


# Records in Zarr, version 2 or 3: a group with an array of images or data and one of labels, or a single array.
#
# Files are read by our file layer; the library zarr reads the metadata, and decodes chunks that are in memory.


# metadata of arrays and of groups, in versions 3 and 2; the attributes of version 2 are in a file of their own
ARRAY_FILES = ("zarr.json", ".zarray")
GROUP_FILES = ("zarr.json", ".zgroup")
ATTRIBUTES = ".zattrs"
# what zarr and numcodecs raise for damaged metadata and chunks
DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)
# deflate makes data at most this many times smaller
MAX_DEFLATE = 1032
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@STORES.register("zarr")
class ZarrStore(ArrayStore):
    """Records of a Zarr group or array, version 2 or 3, with any codec that the library has (``singa-dask[zarr]``).

    Arrays of uint8 become ``pixel``, other numbers ``data``, rounded to float32. Labels are integers, or text: then the
    ``class_names`` are all labels, sorted. Otherwise they are in an attribute ``class_names``, classes or names of
    the labels or of the group, or in an array of this name.

    Chunks that are missing have the fill value, as Zarr defines. Shards are read as a whole.

    Parameters
    ----------
    url : str
        A group, or an array, which has no labels.

    Raises
    ------
    DataError
        Metadata or a chunk is damaged, or the values are not numbers.
    """

    title = "Zarr"
    suffixes = (".zarr",)
    directory_files = (*ARRAY_FILES, *GROUP_FILES)
    damage = DAMAGE

    def list_arrays(self) -> tuple[Sequence[str], Mapping[str, Any]]:
        if not fs.exists(self.url, self.storage_options):
            raise DataError(f"{self.url}: no such file or directory.")
        if not fs.is_dir(self.url, self.storage_options):
            empty = "" if fs.size(self.url, self.storage_options) else " that is empty"
            raise DataError(f"{self.url}: expected a directory of Zarr, got a file{empty}.")
        names = fs.ls(self.url, self.storage_options)
        found = next((name for name in (*ARRAY_FILES, *GROUP_FILES) if name in names), None)
        if found is None:
            raise DataError(f"{self.url}: neither a group nor an array of Zarr: no zarr.json, .zarray or .zgroup.")
        described = json.loads(self._read_metadata(fs.join(self.url, found)))
        self._zarr = require("zarr", "zarr", self.url)
        attributes = described.get("attributes") or {}
        if ATTRIBUTES in names:
            attributes = json.loads(self._read_metadata(fs.join(self.url, ATTRIBUTES)))
        # an array that is the whole store is called ''
        is_array = described.get("node_type") == "array" or ".zarray" in names
        arrays = [""] if is_array else [name for name in names if not name.startswith((".", "_", "zarr.json"))]
        return arrays, attributes

    def open_array(self, name: str) -> StoredArray:
        url = fs.join(self.url, name) if name else self.url
        names = fs.ls(url, self.storage_options) if fs.is_dir(url, self.storage_options) else []
        files = [each for each in (*ARRAY_FILES, ATTRIBUTES) if each in names]
        if not files or files == [ATTRIBUTES]:
            raise DataError(f"{url}: no array of Zarr. Expected zarr.json or .zarray in it.")
        metadata = {each: self._read_metadata(fs.join(url, each)) for each in files}
        return _ZarrArray(self._zarr, url, self.storage_options, metadata)

    def _read_metadata(self, url: str) -> bytes:
        """Read a file, which the manifest then has as one of the sources."""
        known = next((source for source in self.sources if source.url == url), None)
        source = known or self.open_source(url)
        return bytes(source.read(0, source.size))

    def is_cached(self, block_id: int) -> bool:
        # to ask the cache takes a request for each chunk
        return self.is_local

    def file_sums(self) -> list[FileSum]:
        # chunks are files of their own, and metadata is in no block
        return [
            FileSum(name_of(source.url, self.url), source.size, checksum_of(source.read(0, source.size)))
            for source in self.sources
        ]


class _ZarrArray(StoredArray):
    """An array, of which chunks in memory are decoded by the library."""

    def __init__(self, zarr: Any, url: str, storage_options: fs.Options, metadata: Mapping[str, bytes]) -> None:
        self._url, self._storage_options, self._limit = url, storage_options, limit_of(storage_options)
        self._to_buffer = zarr.core.buffer.cpu.Buffer.from_bytes
        self._chunks = {name: self._to_buffer(data) for name, data in metadata.items()}
        self._array = array = zarr.open_array(store=zarr.storage.MemoryStore(self._chunks), mode="r")
        self.kind, self.shape, self.attributes = np.dtype(array.dtype), tuple(array.shape), dict(array.attrs)
        self._shape_of_chunks = tuple(array.shards or array.chunks)
        if self.shape:
            self.chunk_rows = self._shape_of_chunks[0]
        self._key = array.metadata.encode_chunk_key
        self._codecs = _codecs(array)

    def _keys(self, first: int, n: int) -> Iterator[str]:
        rows = range(first // self.chunk_rows, -(-(first + n) // self.chunk_rows))
        others = zip(self.shape[1:], self._shape_of_chunks[1:], strict=True)
        for place in itertools.product(rows, *(range(-(-extent // size)) for extent, size in others)):
            yield self._key(place)

    def ranges(self, first: int, n: int) -> tuple[Range, ...]:
        return tuple(self._range(fs.join(self._url, key)) for key in self._keys(first, n))

    def _range(self, url: str) -> Range:
        """Return the whole file of a chunk; nothing if it is missing."""
        try:
            source = RangeReader(url, self._storage_options)
        except DataError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return Range(BytesInMemory(url, b""), 0, 0)
            raise
        if not source.size:
            raise DataError(f"{url}: a chunk that is empty: truncated or damaged.")
        return Range(source, 0, source.size)

    def decode(self, first: int, n: int, data: Sequence[memoryview]) -> npt.NDArray[Any]:
        n_bytes = int(np.prod(self._shape_of_chunks, dtype=object)) * self.kind.itemsize
        added = {}
        for key, part in zip(self._keys(first, n), data, strict=True):
            if len(part):
                self._check_size(f"{self._url}, chunk {key}", part, n_bytes)
                added[key] = self._to_buffer(bytes(part))
        self._chunks.update(added)
        try:
            found: npt.NDArray[Any] = np.asarray(self._array[first : first + n])
        finally:
            for key in added:
                del self._chunks[key]
        return found

    def _check_size(self, where: str, data: memoryview, n_bytes: int) -> None:
        """Raise an error if a chunk would decompress to more than its values."""
        outermost = self._codecs[-1] if self._codecs else ""
        stated = _stated_bytes(outermost, bytes(data[:32]))
        if stated is not None and stated > n_bytes and self.kind.kind != "T":
            raise DataError(f"{where}: decompresses to {stated} bytes, expected {n_bytes}: damaged.")
        if outermost in ("gzip", "zlib") and len(data) * MAX_DEFLATE > self._limit:
            stream, n, rest = zlib.decompressobj(zlib.MAX_WBITS | 32), 0, bytes(data)
            while rest and not stream.eof:
                n += len(stream.decompress(rest, 1 << 20))
                rest = stream.unconsumed_tail
                check_decompressed(where, n, self._limit)


def _codecs(array: Any) -> list[str]:
    """Return the names of all codecs of an array, the one applied last at the end."""
    if array.metadata.zarr_format == 2:
        found = [*(array.metadata.filters or ()), array.metadata.compressor]
        return [str(each.codec_id) for each in found if each is not None]
    return [str(each.to_dict().get("name")) for each in array.metadata.codecs]


def _stated_bytes(codec: str, head: bytes) -> int | None:
    """Return the decompressed length that the first bytes of a chunk state; None if they state none."""
    if codec == "blosc":
        return int.from_bytes(head[4:8], "little")
    if codec == "lz4":
        return int.from_bytes(head[:4], "little")
    if codec != "zstd" or not head.startswith(ZSTD_MAGIC) or len(head) < 5:
        return None
    flags = head[4]
    single = flags >> 5 & 1
    size = (single, 2, 4, 8)[flags >> 6]
    start = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    if not size:
        return None
    return int.from_bytes(head[start : start + size], "little") + (256 if size == 2 else 0)
