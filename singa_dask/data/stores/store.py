"""Store: records at a URL, read as blocks of arrays. STORES: the registry of formats.

A block (about 1 MiB) is the unit of reading, placement and shuffling. A pickled store contains only its URL and
options, and opens the files again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import methodcaller
from typing import Any, BinaryIO, ClassVar

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.conf.base import Conf
from singa_dask.conf.parts import HasOptions, read_options
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.scaling import Scaling
from singa_dask.data.types import Arrays, Block, Field, FileSum, Records, TableColumn
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.io_threads import map_ahead, open_threads
from singa_dask.fs.sources import Bytes
from singa_dask.registry import Registry
from singa_dask.shown import plural
from singa_dask.wording import suggest

# directory next to the data that holds manifests
MANIFEST_DIR = "_singa"
# words in names of files and folders that name a split
SPLIT = re.compile(r"(?<![a-z])(train(?:ing)?|test(?:ing)?|t10k|val(?:id|idation)?|dev|eval)(?![a-z])")
STORES: Registry[Store]


def advice_for(url: str) -> str:
    """Return the advice that ends each error about a store that differs from its manifest."""
    return f"The data is damaged, or newer than its manifest. {rewriting(url)}"


def rewriting(url: str) -> str:
    """Return the advice to write a new manifest of a store, with the command."""
    command = shlex.join(["singa-dask", "data", "verify", url, "--write-manifest"])
    return f"If the data is right, write a new manifest: {command}"


class StoreOptions(Conf):
    """Options of a format, set by ``store_conf`` of a layer, or by ``--option`` of a command."""


class LabelOptions(StoreOptions):
    """Options of a format in which the label is one of several named fields."""

    label: str = ""
    """Column, key or array with the label. By default the only one called label, labels, y, class, target or targets,
    in upper or lower case."""


class Store(HasOptions, ABC):
    """Records at a URL, read as blocks of arrays; the base class of all formats.

    A subclass sets ``blocks`` and ``schema`` in its ``__init__``, which begins with ``super().__init__(...)``, and
    implements ``read_block`` and ``close``. It declares its options as ``block``, a class that extends `StoreOptions`.
    It recognises files of the format by the end of their name (``suffixes``), their first bytes (``magic``), or a check
    of its own (``matches``). To let `convert` write the format, it defines ``write_rows`` and ``write_options``.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
        Arguments of the fsspec filesystem that opens the URL, e.g. credentials.
    options
        Options of the format, e.g. ``separator`` of text.

    Attributes
    ----------
    options : dict
        The validated value of every option that ``block`` declares. A format without ``block`` keeps the options as
        passed.
    blocks : tuple of Block
    schema : dict of str to Field
        ``pixel`` (uint8) or ``data`` (float32), and ``label`` (int32) if the records have labels.
    mapped : bool
        Whether blocks are views of a memory map, which cost no memory to keep.
    reads_labels_alone : bool
        Whether `read_labels` reads only the labels, not the rest of the records.
    decodes_ahead : bool
        Whether several threads can decode blocks of a `RangeStore` at once, faster than one thread. Loaders then decode
        blocks before they are needed.
    class_names : tuple of str
        Name of each class, by label; empty if unknown.
    class_type : str
        Type of the labels in the file, before they were turned into the strings in ``class_names``; see `label_type`.
        Empty if ``table_facts`` contains the type.
    table_columns : tuple of TableColumn
        The columns of a table with named columns, in the order of the file, for display.
    label_name : str
        Name of the column, key or array with the label, where the format has names.
    other_fields : tuple of str
        Names of columns, keys or arrays that could contain labels, but are not read. Error messages list them.
    table_facts : TableFacts or None
        Meaning of the values of records from named columns, so that other data can be read the same way.
    is_converted : bool
        Whether `convert` wrote the records. Their label was then chosen by the conversion; see
        `label_match.check_label`.
    rounds_data : bool
        Whether the file has values of more than 32 bits, which ``data`` rounds to float32; see `widen`.
    left_out : int
        Number of records that are skipped because they have missing values.
    n_history : int
        Number of records at the beginning that are not predicted. They only provide earlier values for later records.
    runs : (n_blocks,) int64, optional
        For each block, the index of its run. None if each block is a run of its own. A run is a part of a file, such as
        a row group of Parquet, that is fetched as a whole and decoded from its beginning. Its blocks are therefore
        cheap to read only in order.
    n_later : int
        Number of records at the end of a time series that cannot be read yet, because each needs the prediction of the
        record before it.
    truncation : str
        Message that says what is missing at the end of a truncated file that was opened with ``truncated=True``. Empty
        for a complete file.

    Raises
    ------
    DataError
        The file is missing or not of this format, or the format lacks one of the options.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    magic: ClassVar[bytes] = b""
    """First bytes of each file of this format; empty if they vary."""
    holds: ClassVar[str] = "arrays"
    """Kind of the records: "arrays"; "images" (encoded images, with the options ``resize`` and ``channels``); or "text"
    (lines of numbers)."""
    table_format: ClassVar[str] = ""
    """Value of the option ``format`` with which the store ``table`` reads the same files by column names; empty if it
    cannot."""
    column_options: ClassVar[tuple[str, ...]] = ()
    """Options of this format that name columns. If any other option names a column, the store ``table`` reads the
    files."""
    directory_files: ClassVar[tuple[str, ...]] = ()
    """File names that mark a directory as a store of this format."""
    is_source: ClassVar[bool] = True
    """Whether `convert` reads files of this format."""
    write_options: ClassVar[tuple[str, ...]] = ()
    """Keyword arguments that ``write_rows`` accepts. `convert` passes ``class_names`` and ``table_facts`` if they are
    listed here."""
    blocks: tuple[Block, ...] = ()
    mapped: bool = False
    reads_labels_alone: bool = False
    decodes_ahead: bool = False
    class_names: tuple[str, ...] = ()
    class_type: str = ""
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
        self.storage_options = dict(storage_options or {})
        self.options = self.checked_options(url, options)

    @classmethod
    def checked_options(cls, url: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given options and the defaults of all others.

        Raises a `DataError` if an option is unknown, or its value is not allowed.
        """
        if cls.options_class is None:
            return dict(options)
        unknown = sorted(options.keys() - cls.option_names())
        if unknown:
            hint = suggest(unknown[0], cls.option_names()) if cls.option_names() else "It takes none."
            raise DataError(f"{url}: stores of format {cls.backend_name()} take no option {unknown[0]!r}. {hint}")
        try:
            return read_options(cls.options_class, options)
        except ConfigError as error:
            raise DataError(f"{url}: {error}") from None

    def manifest_options(self) -> dict[str, Any]:
        """Return the options as a manifest stores them, without options that permit faulty files."""
        kept = {name: value for name, value in self.options.items() if name not in ("tolerant", "truncated")}
        return dict(json.loads(json.dumps(kept, default=plain_option)))

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of the options that the format declares."""
        return list(cls.options_class.model_fields) if cls.options_class else []

    @classmethod
    def is_named(cls, columns: Iterable[str]) -> bool:
        """Return whether the store ``table`` has to read the files, because options name columns."""
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
        records : dict of str to ndarray, or iterable of such dicts
            ``pixel`` (n, ...) uint8 or ``data`` (n, ...) float32, and ``label`` (n,) int32 if there are labels. An
            iterable yields the records in chunks; the size of the chunks does not change the bytes written. Only a few
            blocks are held in memory.
        options
            Options of `write_rows`.
        """
        rows = Rechunker(url, records)
        with fs.staged(url, storage_options) as path, path.open("wb") as file:
            cls.write_rows(file, rows, **options)

    @classmethod
    def write_rows(cls, file: BinaryIO, rows: Rechunker, *_: Any, **options: Any) -> None:
        """Write records to a file. A format that can store class names accepts ``class_names``."""
        raise DataError(f"{rows.url}: records cannot be written in the format of this file.")

    @classmethod
    def can_write(cls) -> bool:
        """Return whether records can be written in this format."""
        return any(not {"write", "write_rows"}.isdisjoint(vars(each)) for each in cls.__mro__ if each is not Store)

    @classmethod
    def naming_options(cls, names: Sequence[str], table_facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return class names and table facts as options for `write`; omit empty and unsupported options."""
        options = {"class_names": tuple(names), "table_facts": table_facts}
        return {name: value for name, value in options.items() if value and name in cls.write_options}

    @classmethod
    def backend_name(cls) -> str:
        """Return the name of the format in `STORES`; or of its base if the class is not registered."""
        return next((names[0] for each in cls.__mro__ if (names := STORES.names_of(each))), "")

    @abstractmethod
    def read_block(self, block_id: int) -> Arrays:
        """Read one block: an array of (n, *shape) per field, a view of the file where possible.

        Raises
        ------
        DataError
            The block cannot be read. The message names the URL, the block and the record.
        """

    def read_labels(self, block_id: int) -> npt.NDArray[Any]:
        """Read the labels of one block: (n,) int32, or (n, labels) if records have several."""
        return self.read_block(block_id)["label"]

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        """Read some records of one block, given by their rows, (m,) int64: (m, *shape) per field."""
        return {name: array[rows] for name, array in self.read_block(block_id).items()}

    @property
    def remote(self) -> bool:
        """Whether reading a block takes a request to remote storage.

        If so, a loader fetches many blocks of a `RangeStore` at a time.
        """
        return False

    def set_table_facts(self, described: Any) -> None:
        """Set `table_facts` and `table_columns` from the description in the file, if a conversion wrote one."""
        if described:
            self.table_facts = TableFacts.from_dict(described)
            names = self.table_facts.names
            self.table_columns = tuple(TableColumn(name, "number", "data", i) for i, name in enumerate(names))

    def widen(self) -> None:
        """Read ``data`` as float64 from now on, if float32 would round its values.

        The order in which records are sampled does not change.
        """
        field, _ = self.schema.get("data"), self.fingerprint
        if field is not None and self.rounds_data:
            # change the schema in place, because an encoder may share it
            self.schema["data"] = Field(np.dtype(np.float64), field.shape)

    def block_bytes(self, block_id: int) -> memoryview | bytes | None:
        """Return the bytes whose checksum a manifest contains; None if the format has no manifests.

        Raises a `DataError` if the bytes cannot be read, or differ from the checksum in the manifest.
        """
        return None

    def check_whole(self) -> None:
        """Verify the checksums inside the file that are not verified when blocks are read.

        Raises a `DataError` if a checksum differs.
        """

    def open_sources(self) -> Sequence[Bytes]:
        """Return the open files; empty for a format that opens a file whenever it reads."""
        return ()

    def check_unchanged(self) -> None:
        """Raise a `DataError` if a file was changed or replaced since it was opened."""
        sources = self.open_sources()
        if any(not source.is_local for source in sources):
            # each remote source takes a request
            list(map_ahead(methodcaller("check_unchanged"), sources, open_threads(), len(sources)))
            return
        for source in sources:
            source.check_unchanged()

    def remote_versions(self) -> dict[str, str]:
        """Return the version of each open remote file, by URL.

        A file is included only if its filesystem reports the same version to every host.
        """
        return {source.url: source.common_version for source in self.open_sources() if source.common_version}

    def manifest_info(self) -> dict[str, Any]:
        """Return values to store in a manifest, so that the file can be opened without a scan.

        ``bytes`` is the length of the file; a format may add other keys.
        """
        return {"bytes": fs.size(self.blocks[0].file, self.storage_options)}

    def file_sums(self) -> list[FileSum]:
        """Return length and checksum of each file for a manifest, in the order in which files are read."""
        return []

    def named_error(self, block_id: int, error: Exception) -> DataError:
        """Return an error as a `DataError` whose message names the URL and the block."""
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
            What is wrong with each bad record, by its row in the block.

        Raises
        ------
        DataError
            The whole block is bad, or records of the format cannot be read one by one.
        """
        raise DataError(f"{self.url}, block {block_id}: cannot be read.")

    def place_of(self, block_id: int, row: int | None) -> tuple[int, int | None]:
        """Return the block and the row at which the files contain a record.

        The result differs from the arguments if this store reads only some of the records in the files.
        """
        return block_id, row

    def record_files(self, first: int, stop: int) -> list[str]:
        """Return the file of each record from ``first`` to ``stop``; empty unless each record is a file."""
        return []

    @property
    def parts(self) -> Sequence[Store]:
        """The stores of single files that form this store; by default only the store itself."""
        return (self,)

    @property
    def count(self) -> int:
        """Number of records."""
        return int(self.starts[-1])

    def warnings(self) -> tuple[str, ...]:
        """Return warnings for the user, e.g. how many records are skipped."""
        if not self.left_out:
            return ()
        left_out = plural(self.left_out, "record is", "records are")
        return (f"{self.url}: {left_out} left out for missing values; {self.count} are read.",)

    def begin_counting(self, scaling: Scaling | None) -> dict[int, FillCounts]:
        """Count the missing values that are filled in from now on.

        Parameters
        ----------
        scaling : Scaling, optional
            Mean and deviation of the values in the training data, to judge plain numbers in percent columns.

        Returns
        -------
        dict of int to FillCounts
            The counts of each block, added when the block is read. Stays empty if the format fills nothing in.
        """
        return {}

    def limit_runs(self, n: int) -> None:
        """Keep at most ``n`` partly read `runs` in memory."""

    @property
    def record_bytes(self) -> int:
        """Size of a record in bytes."""
        return sum(field.size_bytes for field in self.schema.values())

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Index of the first record of each block, and the total count."""
        return np.concatenate([[0], np.cumsum([block.n for block in self.blocks], dtype=np.int64)]).astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """Short hash of the schema and the block sizes.

        Stores with equal fingerprints are sampled in the same order.
        """
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


def check_can_write(backend: str) -> None:
    """Raise a `ConfigError` if records cannot be written in a format."""
    if not STORES.find(backend).can_write():
        known = [name for name in STORES.names() if STORES.find(name).can_write()]
        raise ConfigError(f"records cannot be written as {backend}. Known: {', '.join(known)}.")


def backends_holding(records: str) -> list[str]:
    """Return the names of the formats whose ``holds`` equals ``records``."""
    return [name for name in STORES.names() if STORES.find(name).holds == records]


def plain_option(value: Any) -> Any:
    """Return the value of an option for JSON."""
    return value.model_dump() if isinstance(value, Conf) else str(value)
