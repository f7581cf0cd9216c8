"""Store: records at a URL, read as blocks of arrays. STORES: the registry of formats.

A block (about 1 MiB) is the unit of reading, placement and shuffling. Stores avoid loops over single records. A pickled
store contains its URL and options only, and opens the files again.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import methodcaller
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.conf.base import Conf
from singa_dask.conf.parts import read_options
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.types import Arrays, Block, Field, FileSum, Records, TableColumn
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.io_threads import map_ahead, open_threads
from singa_dask.fs.sources import Bytes
from singa_dask.registry import Registry, suggest
from singa_dask.shown import plural

# directory of manifests, next to the data
MANIFEST_DIR = "_singa"
# words for one of the sets that records are split into, in names of files and folders
SPLIT = re.compile(r"(?<![a-z])(train(?:ing)?|test(?:ing)?|t10k|val(?:id|idation)?|dev|eval)(?![a-z])")
# ends errors of data that differs from its manifest
ADVICE = (
    "damaged, or newer than its manifest. If the data is right, write a new manifest: "
    "singa-dask data verify URL --write-manifest."
)
STORES: Registry[Store]


class StoreOptions(Conf):
    """Options of a format: keys of ``store_conf`` and of its ``user_conf``, ``--option`` of the verbs."""


class LabelOptions(StoreOptions):
    """Options of records whose label is a field with a name."""

    label: str = ""
    """Column, key or array with the label. By default the only one called label, labels, y, class, target or targets,
    in upper or lower case."""


class Store(ABC):
    """Records at a URL.

    A subclass sets ``blocks`` and ``schema`` in its ``__init__``, which begins with ``super().__init__(...)``, and
    implements ``read_block`` and ``close``. It declares its options as ``block``, a class that extends `StoreOptions`.
    It defines ``suffixes``, ``magic`` or ``matches`` to be detected by a file's name or first bytes, and ``write`` and
    ``write_options`` if records can be converted to it.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
        Passed to the filesystem.
    options
        Options of the format, e.g. ``separator`` of text.

    Attributes
    ----------
    options : dict
        All options that ``block`` declares, checked; without a block those that were given.
    blocks : tuple of Block
    schema : dict of str to Field
        ``pixel`` (uint8) or ``data`` (float32), and ``label`` (int32) if the records have labels.
    mapped : bool
        Whether blocks are views of a memory map, which cost no memory to keep.
    labels_apart : bool
        Whether `read_labels` does not read the rest of the records.
    decodes_ahead : bool
        Whether several threads may decode blocks of a `RangeStore` at the same time, and gain by it. If so, loaders
        decode ahead.
    class_names : tuple of str
        Name of each class, by label; empty if unknown.
    table_columns : tuple of TableColumn
        The columns of a table with named columns, in the order of the file; for people to read.
    label_name : str
        Name of the column, key or array with the label, where the format has names.
    other_fields : tuple of str
        Names of columns, keys or arrays that could hold labels, but are not read; for an error.
    table_facts : TableFacts or None
        What the values of records from named columns mean, so that other data can be read in the same way.
    is_converted : bool
        Whether a conversion has written the records, and chosen what their label is; see `label_match.check_label`.
    rounds_data : bool
        Whether ``data`` is rounded from values of more than 32 bits; see `widen`.
    left_out : int
        Number of records that are not read, as they have missing values.
    filled : dict of int to dict of str to int
        Number of values that were filled in, by block that was read, and column; where no labels or targets are read.
    n_history : int
        Number of records at the beginning that are not read, as they are only earlier values of others.
    runs : (n_blocks,) int64, optional
        The run that each block belongs to, if some runs have several. A run is a part of a file, such as a row group
        of Parquet, that is fetched as a whole and decoded from its beginning, so its blocks are cheap to read one after
        the other alone.
    n_later : int
        Number of records at the end that are not read, as they need the prediction for the last one that is.
    truncation : str
        Describes what is missing at the end of a truncated file that was opened with ``truncated=True``; else empty.

    Raises
    ------
    DataError
        The file is missing, or not of this format; or the format has no such option.
    """

    block: ClassVar[type[Conf] | None] = None
    suffixes: ClassVar[tuple[str, ...]] = ()
    magic: ClassVar[bytes] = b""
    """First bytes of each file of this format, if it has some of its own."""
    holds: ClassVar[str] = "arrays"
    """What records are in the files: "arrays"; "images", encoded, which the options resize and channels scale; or
    "text", lines of numbers."""
    table_format: ClassVar[str] = ""
    """The option ``format`` of the store ``table`` that reads the same files by named columns, if there is one."""
    column_options: ClassVar[tuple[str, ...]] = ()
    """Options of the format itself that name columns: others say that its files are a table."""
    directory_files: ClassVar[tuple[str, ...]] = ()
    """Names of files: a directory that has one of them is a store of this format."""
    is_source: ClassVar[bool] = True
    """Whether `convert` reads files of this format."""
    write_options: ClassVar[tuple[str, ...]] = ()
    """Keywords of ``write``. `convert` passes ``class_names`` and ``table_facts`` where they are among these."""
    blocks: tuple[Block, ...] = ()
    mapped: bool = False
    labels_apart: bool = False
    decodes_ahead: bool = False
    class_names: tuple[str, ...] = ()
    table_columns: tuple[TableColumn, ...] = ()
    label_name: str = ""
    other_fields: tuple[str, ...] = ()
    table_facts: TableFacts | None = None
    is_converted: bool = False
    rounds_data: bool = False
    left_out: int = 0
    n_history: int = 0
    runs: npt.NDArray[np.int64] | None = None
    n_later: int = 0
    truncation: str = ""
    schema: dict[str, Field]

    def __init__(self, url: str, storage_options: fs.Options = None, **options: Any) -> None:
        self.url = url
        self.filled: dict[int, dict[str, int]] = {}
        self.storage_options = dict(storage_options or {})
        self.options = self.checked_options(url, options)
        self._verified: set[int] = set()

    @classmethod
    def checked_options(cls, url: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with the defaults of the others; raise a `DataError` for one that is wrong or unknown."""
        if cls.block is None:
            return dict(options)
        unknown = sorted(options.keys() - cls.option_names())
        if unknown:
            hint = suggest(unknown[0], cls.option_names()) if cls.option_names() else "It takes none."
            raise DataError(f"{url}: stores of format {cls.backend_name()} take no option {unknown[0]!r}. {hint}")
        try:
            return read_options(cls.block, options)
        except ConfigError as error:
            raise DataError(f"{url}: {error}") from None

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of the options that the format declares."""
        return list(cls.block.model_fields) if cls.block else []

    @classmethod
    def is_named(cls, columns: Iterable[str]) -> bool:
        """Return whether `table` reads files of this format, given the names of options that name columns."""
        return bool(cls.table_format) and not {*columns} <= {*cls.column_options}

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        """Return whether a file that begins with ``head`` is of this format."""
        return bool(cls.magic and head.startswith(cls.magic)) or url.lower().endswith(cls.suffixes)

    @classmethod
    def write(cls, url: str, records: Records, storage_options: fs.Options = None, *_: Any, **options: Any) -> None:
        """Write records as a new store, atomically.

        Parameters
        ----------
        records : dict of str to ndarray, or iterable of those
            ``pixel`` (n, ...) uint8 or ``data`` (n, ...) float32, and ``label`` (n,) int32 if there are labels. The
            bytes written do not depend on the chunks of an iterable. Only a few blocks are held in memory.
        options
            Options of the format. One that can store class names accepts ``class_names``.
        """
        raise DataError(f"{url}: records cannot be written in this format.")

    @classmethod
    def backend_name(cls) -> str:
        """Return the name of the format, as jobs give it; of a class of a user's own that of the one it extends."""
        return next((names[0] for each in cls.__mro__ if (names := STORES.names_of(each))), "")

    @abstractmethod
    def read_block(self, block_id: int) -> Arrays:
        """Read one block: an array of (n, *shape) per field, a view of the file where possible.

        Raises
        ------
        DataError
            The block cannot be read. Names URL, block and record.
        """

    def read_labels(self, block_id: int) -> npt.NDArray[Any]:
        """Read the labels of one block: (n,) int32, or (n, labels) if records have several.

        Formats that can do so without the rest of the records override this.
        """
        return self.read_block(block_id)["label"]

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        """Read some records of one block, given by their rows, (m,) int64: (m, *shape) per field.

        Formats in which that saves work override this.
        """
        return {name: array[rows] for name, array in self.read_block(block_id).items()}

    @property
    def remote(self) -> bool:
        """Whether it takes requests to read a block, so that a loader fetches many at a time from a `RangeStore`."""
        return False

    def set_table_facts(self, described: Any) -> None:
        """Set `table_facts` and `table_columns` from what a converter wrote, None for nothing."""
        if described:
            self.table_facts = TableFacts.from_dict(described)
            names = self.table_facts.names
            self.table_columns = tuple(TableColumn(name, "number", "data", i) for i, name in enumerate(names))

    def widen(self) -> None:
        """Read ``data`` as 64-bit floats from now on, if it would be rounded otherwise; in the same order."""
        field, _ = self.schema.get("data"), self.fingerprint
        if field is not None and self.rounds_data:
            # in place, as what decodes the records may share it
            self.schema["data"] = Field(np.dtype(np.float64), field.shape)

    def block_bytes(self, block_id: int) -> memoryview | bytes | None:
        """Return the bytes of a block for its checksum in a manifest; None if the format has no manifests.

        Raises
        ------
        DataError
            The bytes cannot be read, or differ from the checksum in the manifest.
        """
        return None

    def check_whole(self) -> None:  # noqa: B027
        """Compare the whole file with checksums in it that reading the blocks does not, if the format has some.

        Raises
        ------
        DataError
            They differ.
        """

    def open_sources(self) -> Sequence[Bytes]:
        """Return the files that are open; none where a format opens them for each read."""
        return ()

    def check_unchanged(self) -> None:
        """Check that what was read of the files is of the version that was opened; closing does not.

        Raises
        ------
        DataError
            A file was written in place, or a remote one was replaced.
        """
        sources = self.open_sources()
        if any(not source.is_local for source in sources):
            # a request each
            list(map_ahead(methodcaller("check_unchanged"), sources, open_threads(), len(sources)))
            return
        for source in sources:
            source.check_unchanged()

    def remote_versions(self) -> dict[str, str]:
        """Return the version of each open remote file by URL, where other hosts see the same version of it."""
        return {source.url: source.common_version for source in self.open_sources() if source.common_version}

    def manifest_info(self) -> dict[str, Any]:
        """Return what a manifest stores for the next opening: ``bytes`` of the file, and values of the format."""
        return {"bytes": fs.size(self.blocks[0].file, self.storage_options)}

    def file_sums(self) -> list[FileSum]:
        """Return the files of the store for its manifest, in the order of reading."""
        return []

    def verify_crc(self, block_id: int, *data: memoryview) -> memoryview:
        """Return the bytes of a block (its first range); at first they are compared with the manifest's checksum.

        Raises
        ------
        DataError
            The checksum differs.
        """
        block = self.blocks[block_id]
        if block.crc is not None and block_id not in self._verified:
            found = 0
            for part in data:
                found = checksum_of(part, found)
            if found != block.crc:
                raise DataError(
                    f"{block.file}, block {block_id} ({block.length} bytes from {block.offset} on): crc32c {found:08x}"
                    f", expected {block.crc:08x}: {ADVICE}"
                )
            self._verified.add(block_id)
        return data[0]

    def named_error(self, block_id: int, error: Exception) -> DataError:
        """Return an error as one that names URL and block."""
        where, file = f"{self.url}, block {block_id}", self.blocks[block_id].file
        if not isinstance(error, DataError):
            return DataError(f"{where}: {type(error).__name__}: {error}")
        rest = str(error).removeprefix(file)
        if rest == str(error) or rest[:1] not in (",", ":"):
            return DataError(f"{where}: {error}", remedy=error.remedy)
        return error if ", block " in rest else DataError(f"{file}, block {block_id}{rest}", remedy=error.remedy)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        """Read the good records of a block for which `read_block` fails.

        Returns
        -------
        dict of str to ndarray
            (n, *shape) per field, zeros for bad records.
        dict of int to str
            Row of each bad record -> what is wrong with it.

        Raises
        ------
        DataError
            The whole block is bad, as always in formats whose records cannot be read one by one.
        """
        raise DataError(f"{self.url}, block {block_id}: cannot be read.")

    def place_of(self, block_id: int, row: int | None) -> tuple[int, int | None]:
        """Return block and row as they are in the files, of a store that has some of their records alone."""
        return block_id, row

    def record_files(self, first: int, stop: int) -> list[str]:
        """Return the file of each record from ``first`` to ``stop``; empty unless each record has its own file."""
        return []

    @property
    def parts(self) -> Sequence[Store]:
        """The stores of single files that this one consists of: itself, unless it is of several files."""
        return (self,)

    @property
    def count(self) -> int:
        """Number of records."""
        return int(self.starts[-1])

    def describe_left_out(self) -> str:
        """Return how many records are left out, as values are missing; empty if all are read."""
        left_out = plural(self.left_out, "record is", "records are")
        said = f"{self.url}: {left_out} left out for missing values; {self.count} are read."
        return said if self.left_out else ""

    def limit_runs(self, n: int) -> None:  # noqa: B027 - only stores that have runs
        """Keep at most ``n`` of the `runs` that have been read in part."""

    @property
    def record_bytes(self) -> int:
        """Bytes of a record."""
        return sum(field.size_bytes for field in self.schema.values())

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Index of the first record of each block, and the total count."""
        return np.concatenate([[0], np.cumsum([block.n for block in self.blocks], dtype=np.int64)]).astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """Short hash of what a sampling order depends on: schema and block sizes, not the URL."""
        schema = sorted((name, field.dtype.str, field.shape) for name, field in self.schema.items())
        blocks = [(block.n, block.length) for block in self.blocks]
        return hashlib.sha256(repr((schema, blocks)).encode()).hexdigest()[:16]

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.url, self.storage_options, **self.options), ()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


STORES = Registry("store backend")
STORES.base = Store


def backends_holding(records: str) -> list[str]:
    """Return the names of the formats with such records: of those that ``holds`` this."""
    return [name for name in STORES.names() if STORES.find(name).holds == records]
