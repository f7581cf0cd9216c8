"""Open the files of a table. OpenParts keeps recently used files open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.tables.column_names import show_columns
from singa_dask.data.tables.files.csv_part import CsvPart
from singa_dask.data.tables.files.folder_keys import TableFile, with_keys
from singa_dask.data.tables.files.parquet_part import ParquetPart
from singa_dask.data.tables.files.table_part import OpenRuns, TablePart
from singa_dask.data.tables.files.whole_files import read_whole
from singa_dask.data.tables.spelling import NO_SPELLING, Spelling
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError, Remedy
from singa_dask.fs.sources import Bytes
from singa_dask.lazy import LazyModule
from singa_dask.wording import question_of

json_part = LazyModule("singa_dask.data.tables.files.json_part")

# maximum numbers of open files: local files, which are mapped, and remote files, which are held in memory
MAX_LOCAL = 8
MAX_REMOTE = 256


def open_part(
    url: str, format: str, storage_options: fs.Options = None, spelling: Spelling = NO_SPELLING, **options: Any
) -> TablePart:
    """Open one file of a table; for ``options`` see `CsvPart`."""
    if format == "csv":
        return CsvPart(url, storage_options, na_values=spelling.na_values, **options)
    if format == "jsonl":
        chosen = {name: options[name] for name in ("block_bytes", "tolerant", "listed", "wanted") if name in options}
        part: TablePart = json_part.JsonPart(url, storage_options, na_values=spelling.na_values, **chosen)
        return part
    source = read_whole(url, storage_options, spelling) if format == "whole" else None
    return ParquetPart(url, storage_options, source, wanted=options.get("wanted", ()))


class _Slot:
    """A file, and the lock of the thread that opens it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.part: TablePart | None = None


class FoundColumns(NamedTuple):
    """Columns of a table whose files may have different columns.

    Attributes
    ----------
    part : TablePart or None
        The first file with records.
    kinds : dict of str to str
        Kind of each column; empty if there are no records.
    faults : dict of str to str
        Like `TablePart.faults`.
    floats : set of str
        Like `TablePart.floats`.
    """

    part: TablePart | None
    kinds: dict[str, str]
    faults: dict[str, str]
    floats: set[str]


def no_column(part: TablePart, name: str, remedy: Remedy | None = None) -> DataError:
    """Return the error for a file that lacks a column of other files."""
    advice = f" {remedy.text}" if remedy else ""
    return DataError(
        f"{part.url}: there is no column {name!r}, unlike in other files of the table. "
        f"{question_of(name, part.names)}{show_columns(part.names)}{advice}",
        remedy=remedy,
    )


class OpenParts:
    """The files of a table, with the columns of their directories. Recently used files stay open.

    Any thread may use this object, and several threads can open files at the same time. A file that is dropped is
    closed when neither the file nor views of it are in use.

    Parameters
    ----------
    files : sequence of TableFile
    open_part : callable
        Takes a file, and returns its `TablePart`.

    Attributes
    ----------
    open_runs : OpenRuns
        Row groups of all files that are partly decoded.
    """

    def __init__(self, files: Sequence[TableFile], open_part: Callable[[TableFile], TablePart]) -> None:
        self.files, self._open = files, open_part
        self._lock = threading.Lock()
        self._slots: OrderedDict[int, _Slot] = OrderedDict()
        self.open_runs = OpenRuns()

    def __call__(self, file: int) -> TablePart:
        """Return a file; open it if necessary."""
        with self._lock:
            slot = self._slots.setdefault(file, _Slot())
            self._slots.move_to_end(file)
        with slot.lock:
            if slot.part is None:
                slot.part = self._open(self.files[file])
                slot.part.open_runs = self.open_runs
                self._limit(MAX_LOCAL if slot.part.source.is_local else MAX_REMOTE)
            return slot.part

    def find(self, file: int) -> TablePart | None:
        """Return a file if it is open, without waiting."""
        with self._lock:
            slot = self._slots.get(file)
        return slot.part if slot else None

    def open_sources(self) -> list[Bytes]:
        """Return the files that are open."""
        with self._lock:
            return [slot.part.source for slot in self._slots.values() if slot.part is not None]

    def _limit(self, n: int) -> None:
        with self._lock:
            while len(self._slots) > n:
                self._slots.popitem(last=False)

    def close(self) -> None:
        """Forget all files."""
        self.open_runs.clear()
        with self._lock:
            self._slots.clear()

    def in_file(self, file: int, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the wanted columns that are in a file itself, not in the names of its directories."""
        keys, part = dict(self.files[file].keys), self(file)
        return {name: kind for name, kind in wanted.items() if name not in keys and not part.lacks(name)}

    def check(self, file: int, format: str, wanted: Mapping[str, str], *of_any: str) -> list[str]:
        """Check the columns of a file; return wanted columns that the file and its directories lack.

        Raises a `DataError` if all wanted columns are missing, or if a column has another kind than ``wanted`` says.
        Columns in ``of_any`` may have any kind.
        """
        keys, part = dict(self.files[file].keys), self(file)
        # compare kinds only for Parquet: for CSV, kinds are guesses from the first records; for JSON, values have kinds
        names = (part.kinds if format == "parquet" else {}) or dict.fromkeys(part.names, "empty")
        sought = [name for name in wanted if name not in keys]
        missing = [name for name in sought if part.lacks(name)]
        if missing and len(missing) == len(sought):
            raise no_column(part, missing[0])
        for name in sought:
            kind, actual = wanted[name], names.get(name, "empty")
            actual = "string" if kind == "string" and name in names and part.is_text(name) else actual
            if actual not in (kind, "empty") and name not in of_any:
                raise DataError(
                    f"{part.url}: column {name!r} is of type {actual}, but of type {kind} in other files of the table."
                )
        return missing

    def find_columns(self, needed: Collection[str] | None = None) -> FoundColumns:
        """Find the columns of all files, in the order of the files and of the columns in each file.

        Parameters
        ----------
        needed : collection of str, optional
            Columns to find. Files are opened only until all these columns are found. By default, all files are opened.
        """
        found = FoundColumns(None, {}, {}, set())
        keys = {name for name, _ in self.files[0].keys}
        for file in range(len(self.files)):
            if found.part and needed is not None and all(name in found.kinds or name in keys for name in needed):
                break
            part = self(file)
            # finding the kinds of columns in a text file requires reading the file, so do this only for new columns
            new = [name for name in part.names if found.kinds.get(name, "empty") == "empty"]
            if found.part:
                if part.names and {*part.names}.isdisjoint(found.part.names):
                    raise no_column(part, found.part.names[0])
                # some files that pandas wrote have an index, and others have none
                new = [name for name in new if name not in part.index or name in (needed or ())]
            if not new or not (kinds := part.kinds):
                continue
            found = found._replace(part=found.part or part)
            found.kinds.update({name: kinds[name] for name in new})
            found.faults.update({name: part.faults[name] for name in new if name in part.faults})
            found.floats.update(part.floats if len(new) == len(part.names) else {*new}.intersection(part.floats))
        return found

    def fetch(self, file: int, run: RecordRun, wanted: Mapping[str, str], again: bool = False) -> list[memoryview]:
        """Read the bytes of columns of a run; see `TablePart.fetch`."""
        return self(file).fetch(run, self.in_file(file, wanted), again)

    def decode(self, file: int, run: RecordRun, wanted: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return the rows of a run, given the bytes of the run."""
        there = self.in_file(file, wanted)
        table = self(file).decode(run, there, data) if there else pa.table({})
        return with_keys(table, run.n, self.files[file], wanted)

    def rows(
        self, file: int, run: RecordRun, wanted: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        """Return a function to read rows of a run for which `decode` fails; see `TablePart.rows`."""
        rows = self(file).rows(run, self.in_file(file, wanted), data)
        return lambda first, stop: with_keys(rows(first, stop), stop - first, self.files[file], wanted)
