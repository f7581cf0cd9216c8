"""Records in Zarr, version 2 or 3: a group with arrays of values and labels, or a single array."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.stores.arrays.array_store import ArrayStore
from singa_dask.data.stores.arrays.stored_array import StoredArray
from singa_dask.data.stores.manifest import name_of
from singa_dask.data.stores.range_store import DAMAGE
from singa_dask.data.stores.store import STORES
from singa_dask.data.types import FileSum
from singa_dask.errors import DataError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.decompression import check_decompressed, limit_of
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.sources import BytesInMemory, Range
from singa_dask.lazy import require

# metadata files of arrays and groups in versions 3 and 2; version 2 has a separate file of attributes
ARRAY_FILES = ("zarr.json", ".zarray")
GROUP_FILES = ("zarr.json", ".zgroup")
ATTRIBUTES = ".zattrs"
# deflate compresses data by at most this factor
MAX_DEFLATE = 1032
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@STORES.register("zarr")
class ZarrStore(ArrayStore):
    """Records of a Zarr group or array, version 2 or 3, with any codec (``singa-dask[zarr]``).

    An array of uint8 becomes ``pixel``. Other numbers become ``data``, rounded to float32. Labels are integers or text.
    If they are text, the class names are the sorted labels. Otherwise the class names are read from an attribute
    ``class_names``, ``classes`` or ``names`` of the labels or of the group, or from an array with one of these names.

    Missing chunks have the fill value, as Zarr defines. Shards are read as a whole.

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
            raise fs.no_file(self.url, self.storage_options)
        if not fs.is_dir(self.url, self.storage_options):
            empty = "" if fs.size(self.url, self.storage_options) else " that is empty"
            raise DataError(f"{self.url}: expected a directory of Zarr, got a file{empty}.")
        names = fs.ls(self.url, self.storage_options)
        metadata_file = next((name for name in (*ARRAY_FILES, *GROUP_FILES) if name in names), None)
        if metadata_file is None:
            raise DataError(
                f"{self.url}: the directory is neither a group nor an array of Zarr: it has no zarr.json, .zarray or "
                f".zgroup."
            )
        described = json.loads(self._read_metadata(fs.join(self.url, metadata_file)))
        self._zarr = require("zarr", "zarr", self.url)
        attributes = described.get("attributes") or {}
        if ATTRIBUTES in names:
            attributes = json.loads(self._read_metadata(fs.join(self.url, ATTRIBUTES)))
        # if the whole store is one array, the name of the array is ''
        is_array = described.get("node_type") == "array" or ".zarray" in names
        arrays = [""] if is_array else [name for name in names if not name.startswith((".", "_", "zarr.json"))]
        return arrays, attributes

    def open_array(self, name: str) -> StoredArray:
        url = fs.join(self.url, name) if name else self.url
        names = fs.ls(url, self.storage_options) if fs.is_dir(url, self.storage_options) else []
        files = [each for each in (*ARRAY_FILES, ATTRIBUTES) if each in names]
        if not files or files == [ATTRIBUTES]:
            raise DataError(f"{url}: there is no Zarr array here. Expected zarr.json or .zarray in it.")
        metadata = {each: self._read_metadata(fs.join(url, each)) for each in files}
        return _ZarrArray(self._zarr, url, self.storage_options, metadata)

    def _read_metadata(self, url: str) -> bytes:
        """Read a metadata file, and add it to the sources that the manifest covers."""
        known = next((source for source in self.sources if source.url == url), None)
        source = known or self.open_source(url)
        return bytes(source.read(0, source.size))

    def is_cached(self, block_id: int) -> bool:
        # for a remote store, checking the cache would take a request for each chunk
        return self.is_local

    def file_sums(self) -> list[FileSum]:
        # metadata is outside all blocks, because chunks are separate files
        return [
            FileSum(name_of(source.url, self.url), source.size, checksum_of(source.read(0, source.size)))
            for source in self.sources
        ]


class _ZarrArray(StoredArray):
    """An array whose chunks the library decodes in memory."""

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
        """Return the whole file of a chunk; an empty range if it is missing."""
        try:
            source = RangeReader(url, self._storage_options)
        except DataError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return Range(BytesInMemory(url, b""), 0, 0)
            raise
        if not source.size:
            raise DataError(f"{url}: a chunk is empty. It is truncated or damaged.")
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
            values: npt.NDArray[Any] = np.asarray(self._array[first : first + n])
        finally:
            for key in added:
                del self._chunks[key]
        return values

    def _check_size(self, where: str, data: memoryview, n_bytes: int) -> None:
        """Raise an error if a chunk would decompress to more than its values."""
        outermost = self._codecs[-1] if self._codecs else ""
        # for a truncated chunk, blosc returns whatever is in memory after it
        if outermost == "blosc" and len(data) != (header_length := int.from_bytes(data[12:16], "little")):
            raise DataError(
                f"{where} is damaged: it has {len(data)} bytes, expected {header_length} according to its header."
            )
        stated = _stated_bytes(outermost, bytes(data[:32]))
        if stated is not None and stated > n_bytes and self.kind.kind != "T":
            raise DataError(f"{where} is damaged: it decompresses to {stated} bytes, expected {n_bytes}.")
        if outermost in ("gzip", "zlib") and len(data) * MAX_DEFLATE > self._limit:
            stream, n, rest = zlib.decompressobj(zlib.MAX_WBITS | 32), 0, bytes(data)
            while rest and not stream.eof:
                n += len(stream.decompress(rest, 1 << 20))
                rest = stream.unconsumed_tail
                check_decompressed(where, n, self._limit)


def _codecs(array: Any) -> list[str]:
    """Return the names of all codecs of an array, in the order of encoding."""
    if array.metadata.zarr_format == 2:
        codecs = [*(array.metadata.filters or ()), array.metadata.compressor]
        return [str(each.codec_id) for each in codecs if each is not None]
    return [str(each.to_dict().get("name")) for each in array.metadata.codecs]


def _stated_bytes(codec: str, head: bytes) -> int | None:
    """Return the decompressed length from the first bytes of a chunk; None if they do not contain it."""
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
