"""RangeStore: a store whose blocks are ranges of files. It reads the bytes, and a format decodes them."""

from __future__ import annotations

import struct
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from singa_dask import fs
from singa_dask.data.codecs.labels import label_field
from singa_dask.data.stores.manifest import Manifest, find_manifest, name_of
from singa_dask.data.stores.store import Store, advice_for
from singa_dask.data.types import Arrays, Block, FileSum
from singa_dask.errors import ConfigError, DataError, data_error
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.sources import Bytes, Range, read_ranges

# Bytes outside all blocks, such as unread columns, can be large and fragmented. Checksums cover only the first and last
# MAX_END_BYTES of a gap at the start or end of the file, the first and last MAX_GAP_BYTES of another gap, and at most
# MAX_GAPS gaps.
MAX_END_BYTES, MAX_GAP_BYTES, MAX_GAPS = 1 << 22, 1 << 16, 16

# errors that Python and libraries raise for damaged files; a format adds the errors of its own library
DAMAGE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError, SyntaxError,
    SystemError, TypeError, ValueError, struct.error, zlib.error,
)  # fmt: skip


def _crc_of(data: Sequence[memoryview]) -> int:
    crc = 0
    for part in data:
        crc = checksum_of(part, crc)
    return crc


class RangeStore(Store):
    """A store whose blocks are ranges of files: the base class of nearly all formats.

    A format implements two methods:

    ``index()``
        Opens the files with `open_source`, and sets ``blocks``, ``schema``, and ``class_names`` if they are known. The
        options are in ``self.options``. A check for an empty file is not necessary here.
    ``decode(block_id, data)``
        Returns the arrays of a block, given its bytes. It reads no file. One thread at a time calls it, unless the
        format sets ``decodes_ahead``.

    If a block is not one range of the first file, the format also implements `ranges`.

    This class reads the ranges, through the cache if there is one. It verifies the checksums of a manifest, adds URL
    and block to errors, and closes the files.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    options
        Options that the format declares as ``block``.

    Attributes
    ----------
    sources : list of Bytes
        The open files, in the order in which they were opened.

    Examples
    --------
    Records of four bytes; the first byte is the label::

        @STORES.register("quads")
        class Quads(RangeStore):
            title = "a file of quads"
            suffixes = (".quads",)

            def index(self):
                n = self.open_source().size // 4
                self.blocks = cut_blocks(self.url, np.arange(n + 1) * 4)
                self.schema = {"pixel": Field(np.dtype(np.uint8), (3,)), "label": Field(np.dtype(np.int32))}

            def decode(self, block_id, data):
                rows = np.frombuffer(data[0], np.uint8).reshape(-1, 4)
                return {"pixel": rows[:, 1:], "label": rows[:, 0].astype(np.int32)}
    """

    title: ClassVar[str] = "a file of this format"
    """Noun for a file in error messages: "not ``<title>``, or a damaged one"."""
    gzipped: ClassVar[bool] = False
    """Whether a file can be gzipped."""
    block_options: ClassVar[tuple[str, ...]] = ()
    """Names of the options that determine the bytes of a block. A manifest is valid only for the values with which it
    was written."""
    lists_files: ClassVar[bool] = False
    """Whether the store consists of all files of a directory or pattern. A missing or new file is then an error."""
    damage: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors besides `DataError` that ``index`` and ``decode`` raise for damaged files."""

    def __init__(self, url: str, storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(url, storage_options, **options)
        self.sources: list[Bytes] = []
        self._verified: set[int] = set()
        try:
            self._open_checked()
        except BaseException:
            self.close()
            raise

    def _open_checked(self) -> None:
        try:
            self.index()
        except (ConfigError, DataError):
            raise
        except self.damage as error:
            raise DataError(f"{self.url}: not {self.title}, or a damaged one: {describe(error)}.") from error
        if not self.count and not self.options.get("may_be_empty"):
            raise DataError(f"{self.url}: no records.")
        if self.manifest is not None:
            self._compare(self.manifest)

    # -- methods that a format implements --------------------------------------------------------------

    @abstractmethod
    def index(self) -> None:
        """Open the files, and set ``blocks`` and ``schema``.

        Raises
        ------
        DataError, or an error listed in ``damage``
            The file is missing, or not of this format.
        """

    @abstractmethod
    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        """Return the arrays of a block: (n, *shape) per field, views of the bytes where possible.

        Parameters
        ----------
        block_id : int
        data : sequence of memoryview
            The bytes of each range that `ranges` returns for the block.

        Raises
        ------
        DataError, or an error listed in ``damage``
            The bytes are damaged.
        """

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        """Return the ranges of files that `decode` needs for a block; by default one range of the first file."""
        block = self.blocks[block_id]
        return (Range(self.sources[0], block.offset, block.length),)

    # -- methods that a format calls ---------------------------------------------------------------------

    def choose_label(self, names: Sequence[str]) -> str:
        """Return the name of the field that contains the label; empty if there is none.

        The option ``label`` names the field. Without the option, a field with a usual name of labels is chosen.

        Raises a `DataError` if the named field does not exist, or several fields could be the label.
        """
        try:
            self.label_name = label_field(names, self.options["label"])
        except ValueError as error:
            raise data_error(self.url, error) from None
        return self.label_name

    def open_source(self, url: str = "") -> Bytes:
        """Open a file, and decompress it if ``gzipped``. The default is the file at the store's URL.

        Raises a `DataError` if the file is missing, or its gzip is damaged.
        """
        opened = open_bytes if self.gzipped else RangeReader
        self.sources.append(opened(url or self.url, self.storage_options))
        return self.sources[-1]

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest of the file, or None if no manifest exists for a file of this length.

        It can be read as soon as a file is open. ``index`` can take the blocks from `manifest_blocks`, and the values
        that `manifest_info` has stored from `Manifest.opening`. It then need not scan the file. After ``index``, this
        class compares blocks and files with the manifest.
        """
        if not self.sources:
            return None
        source = self.sources[0]
        return find_manifest(self.url, self.backend_name(), source.url, file_bytes(source), self.storage_options)

    def manifest_blocks(self) -> tuple[Block, ...]:
        """Return the blocks that the manifest lists; empty if no manifest has the same ``block_options``."""
        return self.manifest.blocks if self.manifest and self._has_same_blocks(self.manifest) else ()

    @property
    def is_local(self) -> bool:
        """Whether all files are memory-mapped or in memory."""
        return all(source.is_local for source in self.sources)

    # -- reading -----------------------------------------------------------------------------------------

    @property
    def remote(self) -> bool:
        return not self.is_local

    def fetch(self, block_id: int, again: bool = False) -> list[memoryview]:
        """Read the bytes of a block, and compare them with the manifest's checksum. Any thread may call it.

        Parameters
        ----------
        block_id : int
        again : bool
            Whether to use other connections and bypass the cache. Set it if an earlier read of the block takes too
            long.

        Returns
        -------
        list of memoryview
            The bytes of each range that `ranges` returns for the block.

        Raises
        ------
        DataError
            The bytes cannot be read, or their checksum differs from the manifest.
        Aborted
            The job for which this thread reads has ended.
        """
        data = self.read_bytes(block_id, again)
        summed = summed_bytes(self.ranges(block_id), data)
        if not (again or self.is_local or self._has_crc(block_id, summed)):
            # another connection, or another replica of HDFS, may return the right bytes, which replace cached ones
            data = self.read_bytes(block_id, again=True)
            summed = summed_bytes(self.ranges(block_id), data)
        self.verify_crc(block_id, summed)
        return data

    def read_bytes(self, block_id: int, again: bool) -> list[memoryview]:
        """Read the bytes of a block for `fetch`, which compares their checksum."""
        return read_ranges(self.ranges(block_id), again)

    def verify_crc(self, block_id: int, data: Sequence[memoryview]) -> None:
        """Verify the checksum of a block's bytes, the first time that they are read.

        Raises a `DataError` if the checksum differs from the manifest.
        """
        if not self._has_crc(block_id, data):
            block = self.blocks[block_id]
            raise DataError(
                f"{block.file}, block {block_id} ({block.length} bytes from {block.offset} on): the crc32c is "
                f"{_crc_of(data):08x}, expected {block.crc:08x}. {advice_for(self.url)}"
            )

    def _has_crc(self, block_id: int, data: Sequence[memoryview]) -> bool:
        """Return whether the bytes of a block have the manifest's checksum. Computed until it is right once."""
        expected = self.blocks[block_id].crc
        if expected is None or block_id in self._verified:
            return True
        if _crc_of(data) == expected:
            self._verified.add(block_id)
            return True
        return False

    def fetch_bytes(self, block_id: int) -> int:
        """Return how many bytes `fetch` reads for a block.

        A format that reads only a part of each block overrides this method.
        """
        return self.blocks[block_id].length

    def is_cached(self, block_id: int) -> bool:
        """Return whether `fetch` can read a block without a request to remote storage."""
        return all(source.is_cached(offset, length) for source, offset, length in self.ranges(block_id))

    def read_block(self, block_id: int, data: Sequence[memoryview] | None = None) -> Arrays:
        """Read one block: `fetch` and `decode`.

        Parameters
        ----------
        block_id : int
        data : sequence of memoryview, optional
            Result of `fetch` for the block. By default the block is fetched.

        Raises
        ------
        DataError
            The block cannot be read. The message names the URL and the block.
        """
        try:
            return self.decode(block_id, self.fetch(block_id) if data is None else data)
        except DataError as error:
            raise self.named_error(block_id, error) from error.__cause__
        except self.damage as error:
            raise DataError(f"{self.url}, block {block_id}: {describe(error)}.") from error

    def open_sources(self) -> Sequence[Bytes]:
        return self.sources

    # -- the manifest ------------------------------------------------------------------------------------

    def block_bytes(self, block_id: int) -> memoryview | bytes | None:
        if not self.files():
            return None
        data = summed_bytes(self.ranges(block_id), self.fetch(block_id))
        return data[0] if len(data) == 1 else b"".join(data)

    def manifest_info(self) -> dict[str, Any]:
        return {"bytes": file_bytes(self.sources[0]), **self.chosen_block_options()}

    def files(self) -> list[str]:
        """Return the URLs of the files, in the order in which they are read."""
        return [source.url for source in self.sources]

    def file_sums(self) -> list[FileSum]:
        taken: dict[int, list[tuple[int, int]]] = {}
        for block in self.blocks:
            for source, offset, length in self.ranges(block.id):
                taken.setdefault(id(source), []).append((offset, offset + length))
        return [
            FileSum(name_of(source.url, self.url), file_bytes(source), rest_of(source, taken.get(id(source), [])))
            for source in self.sources
        ]

    def chosen_block_options(self) -> dict[str, Any]:
        """Return the values of ``block_options``."""
        return {name: value for name, value in self.manifest_options().items() if name in self.block_options}

    def _has_same_blocks(self, manifest: Manifest) -> bool:
        chosen = self.chosen_block_options()
        return all(manifest.opening.get(name) == chosen.get(name) for name in self.block_options)

    def _compare(self, manifest: Manifest) -> None:
        """Set checksums and class names from the manifest, and compare all other values with it."""
        self.class_names = self.class_names or manifest.class_names
        has_same_options = manifest.options == self.manifest_options()
        if has_same_options or self.lists_files:
            manifest.check_files(self, self.files())
        if not self._has_same_blocks(manifest):
            return
        if all(block.crc is None for block in self.blocks):
            self.blocks = manifest.attach(self.blocks, self.url if self.lists_files else "")
        if all(block.crc is None for block in self.blocks):
            return
        if has_same_options:
            manifest.check_described(self.url, self.schema, self.class_names)
        if manifest.files:
            self.check_rest(manifest)

    def check_rest(self, manifest: Manifest) -> None:
        """Compare the bytes outside all blocks with the manifest."""
        for url, actual in zip(self.files(), self.file_sums(), strict=True):
            manifest.check_rest(self.url, url, actual)

    def close(self) -> None:
        for source in self.sources:
            source.close()


def rest_of(source: Bytes, taken: Sequence[tuple[int, int]]) -> int:
    """Return a checksum of the parts of a file that are outside the ranges ``taken``.

    In a long gap between ranges, only the two ends are read. For bytes that are derived from another file, e.g. by
    decompression, the result is the checksum of that whole file.
    """
    if source.origin:
        return source.origin[1]
    gaps, at = list[tuple[int, int]](), 0
    for start, stop in (*sorted(taken), (source.size, source.size)):
        if at < start:
            gaps.append((at, start))
        at = max(at, stop)
    crc = 0
    for start, stop in [*gaps[:MAX_GAPS], *gaps[MAX_GAPS:][-1:]]:
        limit = MAX_END_BYTES if start == 0 or stop == source.size else MAX_GAP_BYTES
        split = min(start + limit, stop)
        crc = checksum_of(source.read(start, split - start), crc)
        begin = max(split, stop - limit)
        crc = checksum_of(source.read(begin, stop - begin), crc) if begin < stop else crc
    return crc


def file_bytes(source: Bytes) -> int:
    """Return the length of a file; for bytes that are derived from another file, the length of that file."""
    return source.origin[0] if source.origin else source.size


def summed_bytes(ranges: Sequence[Range], data: list[memoryview]) -> list[memoryview]:
    """Return the bytes from which the checksum of a block is computed.

    If the block is derived from another file, e.g. by decompression, the result is a text with length and checksum of
    that file.
    """
    origin = ranges[0].source.origin if ranges else None
    return [memoryview(repr(origin).encode())] if origin else data


def describe(error: Exception) -> str:
    """Return the text of an error, preceded by the type of the error if the text alone is unclear."""
    text = str(error).rstrip(".")
    plain = isinstance(error, (OSError, ValueError)) or type(error).__module__ != "builtins"
    return text if plain and text else f"{type(error).__name__}: {text}"
