"""TableIndex: where the blocks of a table are, and its columns; kept beside large tables. TableScan makes it."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import logging
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from singa_dask.data import fs
from singa_dask.data.codecs.csv_records import Run
from singa_dask.data.codecs.table_encoder import TableStatistics
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.table_spec import show_columns
from singa_dask.data.fs.host_files import SCHEME
from singa_dask.data.fs.io_threads import decode_threads, io_threads, map_ahead
from singa_dask.data.fs.range_reader import version
from singa_dask.data.stores.store import MANIFEST_DIR
from singa_dask.data.stores.table_part import Part, TableFile, TableReader, kind_of_key
from singa_dask.errors import DataError

LOG = logging.getLogger(__name__)
VERSION = 1
# the index of a smaller table is not kept: it is made again faster than it is read from a remote file system
MIN_BYTES = 1 << 24
# maximum size of the records in a part of a row group
GROUP_BYTES = 1 << 26
# remote files that are opened at the same time; gzipped ones are held in memory
OPENED_AHEAD = {"csv": 4, "parquet": 32}


class Piece(NamedTuple):
    """A block of a table.

    Attributes
    ----------
    file : int
        Index of its file.
    run : Run
    kept : int
        Number of records that are not left out for missing values.
    """

    file: int
    run: Run
    kept: int


@dataclass(frozen=True)
class TableIndex:
    """What a pass over a table has found.

    Attributes
    ----------
    kinds : mapping of str to str
        Kind of each column.
    numbering : tuple of str
        Columns that number the rows.
    pieces : tuple of Piece
    facts : TableFacts
    """

    kinds: Mapping[str, str]
    numbering: tuple[str, ...]
    pieces: tuple[Piece, ...]
    facts: TableFacts


def index_url(url: str, options: Mapping[str, Any]) -> str:
    """Return where the index of a table is kept: in ``_singa`` beside it, by its name and how it is read."""
    folder, slash, name = url.rstrip("/").rpartition("/")
    key = hashlib.sha256(json.dumps([name, options], sort_keys=True, default=str).encode()).hexdigest()[:16]
    return f"{folder}{slash}{MANIFEST_DIR}/table-{key}.json"


def _versions(files: Sequence[TableFile], storage_options: fs.Options) -> list[list[str]]:
    """Return name and version of each file; empty if a version is not known."""
    threads = io_threads(files[0].url)
    versions = map_ahead(lambda each: version(each.url, storage_options), files, threads, threads.n)
    found = [[posixpath.basename(each.url), known] for each, known in zip(files, versions, strict=True)]
    return found if all(known for _, known in found) else []


def find_index(place: str, files: Sequence[TableFile], storage_options: fs.Options) -> TableIndex | None:
    """Return the index at a URL; None if there is none, or the files have changed."""
    try:
        if not fs.exists(place, storage_options):
            return None
        found = json.loads(fs.read_bytes(place, storage_options=storage_options))
        if found["version"] != VERSION or found["files"] != _versions(files, storage_options):
            return None
        pieces = tuple(Piece(file, Run(*run), kept) for file, run, kept in found["pieces"])
        return TableIndex(found["kinds"], tuple(found["numbering"]), pieces, TableFacts.from_dict(found["facts"]))
    except (DataError, KeyError, TypeError, ValueError) as error:
        LOG.warning("%s: ignored: %s: %s", place, type(error).__name__, error)
        return None


def keep_index(place: str, files: Sequence[TableFile], storage_options: fs.Options, index: TableIndex) -> None:
    """Write the index of a large table; every process reads the whole table once if it cannot be written."""
    # parts of a dataset are there for one job, and cannot be written to
    if place.startswith(SCHEME) or sum(piece.run.length for piece in index.pieces) < MIN_BYTES:
        return
    versions = _versions(files, storage_options)
    if not versions:
        return
    content = {
        "version": VERSION,
        "files": versions,
        "kinds": dict(index.kinds),
        "numbering": list(index.numbering),
        "pieces": index.pieces,
        "facts": index.facts.to_dict(),
    }
    try:
        fs.write_atomic(place, json.dumps(content, separators=(",", ":")).encode() + b"\n", storage_options)
    except DataError as error:
        LOG.warning("%s: not written, so each process reads the whole table when it opens it: %s", place, error)


@dataclass(frozen=True)
class TableScan:
    """Goes over a table once.

    Attributes
    ----------
    url : str
        Of the table, for errors.
    reader : TableReader
    format : {"csv", "parquet"}
    limit : int
        Size of a block in bytes: about that of CSV, at most that of a part of a row group.
    facts : TableFacts or None
        What training has learned; None to learn it.
    tolerant : bool
        Whether to learn from the other records if some are wrong.
    """

    url: str
    reader: TableReader
    format: str
    limit: int
    facts: TableFacts | None
    tolerant: bool

    def index(self) -> TableIndex:
        """Find the blocks, and learn from the columns what no facts are given of."""
        spec = self.reader.spec
        kinds, numbering, names = self._kinds()
        if self.facts:
            # a column may have values in the training data alone
            kinds = {name: "number" if kind == "empty" else kind for name, kind in kinds.items()}
        features = self.facts.features if self.facts else spec.select(self.url, kinds, numbering)
        if self.facts and spec.features and spec.select(self.url, kinds, numbering) != features:
            raise DataError(f"{self.url}: features differ from those of training: {', '.join(features)}.")
        spec.check(self.url, kinds, features)
        statistics = TableStatistics(self.url, spec, features, kinds, self.facts, names)
        # the width of a record, before its categories are known
        row_bytes = 4 * len(features)
        wanted = self.reader.wanted(kinds, features)
        runs = self._runs(kinds, features, row_bytes)
        if statistics.needed:
            pieces = self._learn(statistics, runs, wanted, row_bytes)
        else:
            pieces = [Piece(file, run, run.n) for file, run in runs]
        return TableIndex(kinds, numbering, tuple(pieces), statistics.finish())

    def _learn(
        self,
        statistics: TableStatistics,
        runs: Iterable[tuple[int, Run]],
        wanted: Mapping[str, str],
        row_bytes: int,
    ) -> list[Piece]:
        """Learn from the records of runs; return their places, with those that are to be skipped as wrong."""
        threads = decode_threads() if fs.local_path(self.reader.files[0].url) else io_threads(self.reader.files[0].url)

        def read(place: tuple[int, Run]) -> tuple[int, Run, pa.Table | None, int]:
            return (*place, *self._read_run(*place, wanted))

        # parts of a large row group are decoded one after another
        found = map_ahead(read, runs, threads, GROUP_BYTES, lambda place: place[1].length + place[1].n * row_bytes)
        pieces = []
        for file, run, table, n_bad in found:
            kept = statistics.add(table) + n_bad if table is not None else run.n
            pieces.append(Piece(file, run, kept))
        return pieces

    def _read_run(self, file: int, run: Run, wanted: Mapping[str, str]) -> tuple[pa.Table | None, int]:
        """Return the rows of a run that can be read, if any can, and the number of others."""
        try:
            data = self.reader.parts(file).fetch(run, self.reader.in_file(file, wanted))
            try:
                return self.reader.decode(file, run, wanted, data), 0
            except DataError:
                if not self.tolerant:
                    raise
                table, bad = self.reader.salvage(file, run, wanted, data)
                return table, len(bad)
        except DataError:
            if not self.tolerant:
                raise
            return None, run.n

    def _kinds(self) -> tuple[dict[str, str], tuple[str, ...], dict[str, tuple[str, ...]]]:
        """Return the kind of each column, the columns that number rows, and the class names of labels that are numbers.

        They are those of the first file and the directories.
        """
        parts = (self.reader.parts(file) for file in range(len(self.reader.files)))
        part, found = next(((part, kinds) for part in parts if (kinds := part.kinds)), (None, {}))
        if part is None:
            raise DataError(f"{self.url}: no records{' but the header' * (self.format == 'csv')}.")
        kinds = dict(found)
        if not self.facts:
            self._check_faults(part.faults, kinds)
        for i, (key, _) in enumerate(self.reader.files[0].keys):
            if key in kinds:
                raise DataError(f"{self.reader.files[0].url}: column {key!r} is also a directory {key}=....")
            kinds[key] = kind_of_key(self.reader.files, i)
        names = {name: known for name in self.reader.spec.label if (known := part.class_names(name))}
        return kinds | dict.fromkeys(names, "string"), part.index, names

    def _check_faults(self, faults: Mapping[str, str], kinds: Mapping[str, str]) -> None:
        """Raise an error for a column that cannot be read as it is meant, if it is used or would be a feature."""
        spec = self.reader.spec
        for name, fault in faults.items():
            is_text = kinds[name] == "string"
            is_named = name in spec.outputs or any(fnmatch.fnmatchcase(name, each) for each in spec.features)
            if is_text and (name in (*spec.label, *spec.categories) or (spec.features and not is_named)):
                continue
            if is_text or is_named or name in spec.categories:
                raise DataError(f"{self.url}: column {name!r}: {fault}")

    def _runs(self, kinds: Mapping[str, str], features: Sequence[str], row_bytes: int) -> Iterator[tuple[int, Run]]:
        is_local = fs.local_path(self.reader.files[0].url) is not None
        threads, n_ahead = io_threads(self.reader.files[0].url), 1 if is_local else OPENED_AHEAD[self.format]
        for file, part in enumerate(map_ahead(self.reader.parts, range(len(self.reader.files)), threads, n_ahead)):
            if file:
                self._check_columns(part, self.reader.wanted(kinds, features), self.reader.files[file])
            for run in part.runs(self.limit, row_bytes):
                yield file, run

    def _check_columns(self, part: Part, wanted: Mapping[str, str], file: TableFile) -> None:
        """Check that a file has the columns of the first one."""
        keys = dict(file.keys)
        # of CSV, kinds are a guess from the first records; values of other kinds are found when they are read
        names = (part.kinds if self.format == "parquet" else {}) or dict.fromkeys(part.names, "empty")
        for name, kind in wanted.items():
            if name in keys:
                continue
            if name not in names:
                raise DataError(
                    f"{part.url}: no column {name!r}, unlike {self.reader.files[0].url}. {show_columns(names)}"
                )
            found = "string" if kind == "string" and part.class_names(name) else names[name]
            if found not in (kind, "empty") and name not in self.reader.spec.categories:
                raise DataError(f"{part.url}: column {name!r} of type {found}, in {self.reader.files[0].url} {kind}.")
