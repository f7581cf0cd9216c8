"""TableReader: learn how to read a table, and read the rows of its blocks."""

from __future__ import annotations

import fnmatch
import functools
import logging
import operator
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.salvage import bisect_rows
from singa_dask.data.split import Rows
from singa_dask.data.tables.block_index import Runs, TableBlock, TableIndex
from singa_dask.data.tables.column_names import absent_warning, refuse_absent, show_columns
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.facts_learner import FactsLearner
from singa_dask.data.tables.files.folder_keys import kind_of_key
from singa_dask.data.tables.files.open_parts import FoundColumns, OpenParts, no_column
from singa_dask.data.tables.files.table_part import LINES, TablePart
from singa_dask.data.tables.row_selection import RowSelection
from singa_dask.data.tables.spec import TableSpec
from singa_dask.data.types import RecordRun
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import DataError, Remedy
from singa_dask.fs.io_threads import decode_threads, io_threads, map_ahead
from singa_dask.wording import question_of

logger = logging.getLogger(__name__)

FILLED = Remedy("missing", "Set missing: mean to fill its values there, or features without it.", ("mean", "skip"))
# bytes of records that are decoded at a time when a table is read as a whole
GROUP_BYTES = 1 << 26
# minimum bytes and records of a block in a large row group. Smaller blocks are slow, because each column of a block
# takes a fixed time. DECODED_RECORDS does not apply if these records exceed `GROUP_BYTES`.
DECODED_BYTES, DECODED_RECORDS = 1 << 21, 1 << 10
# number of remote files to open at the same time; small for formats that may be gzipped, and are then held in memory
OPENED_AHEAD = {"csv": 4, "jsonl": 4, "parquet": 32, "whole": 4}


@dataclass
class TableReader:
    """Learns the `TableIndex` of a table, and holds the settings with which it is read.

    Attributes
    ----------
    url : str
    storage_options : dict or None
    parts : OpenParts
    format : str
        Format of the files.
    block_bytes : int
        Approximate length of a block of text.
    spec : TableSpec
        Settings of the job for the columns. `find_columns` changes the settings: columns with plain numbers in the
        training data are read as numbers.
    known : TableFacts or None
        Facts learned from the training data, if this table is not the training data.
    selection : RowSelection
        The records that are read.
    may_be_empty : bool
        Whether a table may have no records. It is then read with the facts of the training data.
    tolerant : bool
        Whether a loader skips wrong records. If so, facts are learned without them.
    listed : mapping of str to collection of str
        For each column, names of categories and classes that are also words for missing values, such as NA.
    """

    url: str
    storage_options: fs.Options
    parts: OpenParts
    _: KW_ONLY
    format: str
    block_bytes: int
    spec: TableSpec
    known: TableFacts | None = None
    selection: RowSelection = field(default_factory=RowSelection)
    may_be_empty: bool = False
    tolerant: bool = False
    listed: Mapping[str, Collection[str]] = field(default_factory=dict)

    def read(self, table: pa.Table, where: Callable[[int], str]) -> pa.Table:
        """Return rows with texts parsed as numbers; see `Spelling.read`."""
        return self.spec.spelling.read(table, self.listed, where, self.spec.texts)

    def read_all(self, wanted: Mapping[str, str]) -> tuple[pa.Table, Callable[[int], str]]:
        """Return the records of all files, and a function that returns the place of a record.

        ``wanted`` is the kind in which each column is read.
        """
        tables, starts, runs, parts = list[pa.Table](), [0], list[tuple[int, RecordRun]](), self.parts
        for file in range(len(parts.files)):
            part = parts(file)
            parts.check(file, self.format, wanted, *wanted)
            for run in part.runs(GROUP_BYTES, 4 * len(wanted)):
                data = parts.fetch(file, run, wanted)
                tables.append(self.read(parts.decode(file, run, wanted, data), part.place(run, data)))
                starts.append(starts[-1] + len(tables[-1]))
                runs.append((file, run))
        # close the files; a file is opened again only for an error that names a line
        parts.close()

        @functools.lru_cache(1)
        def places(at: int) -> Callable[[int], str]:
            file, run = runs[at]
            return parts(file).place(run, parts.fetch(file, run, wanted))

        def place_of(record: int) -> str:
            at = bisect_right(starts, record) - 1
            return places(at)(record - starts[at])

        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({}), place_of

    def rows(self, block: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return the rows of a block that are in the part to read, with texts parsed as numbers."""
        return self.read(self.written(block, columns, data), self.place(block, columns, data))

    def written(self, block: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return the rows of a block that are in the part to read, with numbers as written in the files."""
        table = self.parts.decode(block.file, block.run, columns, data)
        chosen = self.selection.rows(block.first, block.run.n, lambda: self.selection.keys_of(table))
        return table if chosen is None else table.take(chosen)

    def _chosen(self, block: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> Rows | None:
        """Return which rows of a block with bad rows are in the part to read; None for all."""
        return self.selection.rows(block.first, block.run.n, lambda: self._keys(block, columns, data))

    def _keys(self, block: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> pa.Array:
        """Return the keys of all rows of a block that has bad rows; null for an unreadable key."""
        # in text formats, the key may be readable even if other values of the record are bad
        key = self.selection.key
        is_readable_alone = self.format in LINES and key.keys() <= {*self.parts(block.file).names}
        rows = self.parts.rows(block.file, block.run, key if is_readable_alone else columns, data)
        good, bad = bisect_rows(block.run.n, lambda first, stop: self.selection.keys_of(rows(first, stop)))
        parts = sorted([*good, *((row, pa.nulls(1, pa.string())) for row in bad)], key=operator.itemgetter(0))
        return pa.concat_arrays([part for _, part in parts])

    def some_rows(
        self, block: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]
    ) -> tuple[int, Callable[[int, int], pa.Table]]:
        """Return how many rows of a bad block are in the part to read, and a function to read these rows.

        The function maps (first, stop) to rows, and raises an error if a row is bad.
        """
        rows, place = self.parts.rows(block.file, block.run, columns, data), self.place(block, columns, data)
        chosen = self._chosen(block, columns, data)

        def read(first: int, stop: int) -> pa.Table:
            if chosen is None:
                table = rows(first, stop)
            else:
                table = rows(chosen[first], chosen[stop - 1] + 1).take(chosen[first:stop] - chosen[first])
            return self.read(table, (lambda row: place(first + row)) if stop - first == 1 else str)

        return block.run.n if chosen is None else len(chosen), read

    def place(self, block: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> Callable[[int], str]:
        """Return a function that maps a row of a block to its place in the file, for errors."""
        place = self.parts(block.file).place(block.run, data)
        chosen = functools.cache(lambda: self._chosen(block, columns, data))
        return lambda row: place(row if (rows := chosen()) is None else int(rows[row]))

    def _good_rows(self, block: TableBlock, columns: Mapping[str, str]) -> tuple[pa.Table | None, int]:
        """Return the readable rows of a block (None if it has none), and the number of bad rows."""
        if not block.kept:
            return None, 0
        try:
            data = self.parts.fetch(block.file, block.run, columns)
            try:
                return self.rows(block, columns, data), 0
            except DataError:
                if not self.tolerant:
                    raise
                good, bad = bisect_rows(*self.some_rows(block, columns, data))
                return pa.concat_tables([table for _, table in good]) if good else None, len(bad)
        except DataError:
            if not self.tolerant:
                raise
            return None, block.kept

    def find_columns(self) -> FoundColumns:
        """Find the columns of the table.

        Raises
        ------
        DataError
            There are no records, or a used column has a fault.
        """
        files, spec, known = self.parts.files, self.spec, self.known
        found = self.parts.find_columns(self._needed())
        part, faults, kinds = found.part, found.faults, found.kinds
        if part is None:
            if not known or not self.may_be_empty:
                raise DataError(f"{self.url}: no records{' but the header' * (self.format == 'csv')}.")
            part = self.parts(0)
            if not part.names:
                raise DataError(f"{self.url}: it is empty.")
            kinds = {name: known.kind_of(name) for name in part.names}
        if not known:
            self._check_faults(faults, kinds)
        else:
            self._refuse_bytes(part, kinds, known)
            # for columns with a form of numbers, a wrong string raises an error when its record is read
            faulty = faults.keys() - spec.spelling.numbers.keys()
            kinds |= {name: "number" for name in faulty if kinds[name] == "string" and spec.has_numbers(name, known)}
            self.spec = spec = spec.with_plain(kinds, known)
        for i, (key, _) in enumerate(files[0].keys):
            if key in kinds:
                raise DataError(f"{files[0].url}: column {key!r} is also a directory {key}=....")
            kinds[key] = kind_of_key(files, i)
        named = {*spec.label, *spec.read_as_text}
        kinds |= dict.fromkeys(filter(part.is_text, named), "string")
        return found._replace(part=part, kinds=kinds)

    def _needed(self) -> Collection[str] | None:
        """Return the columns that the table must have; None if all files have to be searched for features."""
        spec, features = self.spec, self.known.features if self.known else self.spec.features
        if not features or not {*"*?["}.isdisjoint("".join(features)):
            return None
        return {*features, *spec.outputs, *self.selection.key, *spec.spelling.numbers, *spec.spelling.dates}

    def _refuse_bytes(self, part: TablePart, kinds: Mapping[str, str], known: TableFacts) -> None:
        """Raise a `DataError` if a column to read of a text file is in another encoding than UTF-8."""
        spec = self.spec
        read = {*known.features, *spec.outputs, *spec.categories, *spec.texts, *spec.spelling.dates}
        if part.not_text and any(kinds.get(name) == "binary" for name in read):
            raise part.not_text

    def _check_faults(self, faults: Mapping[str, str], kinds: Mapping[str, str]) -> None:
        """Raise a `DataError` for a column with a fault, if it is used or would be a feature."""
        spec = self.spec
        for name, fault in faults.items():
            is_text = kinds[name] == "string"
            is_named = name in spec.outputs or any(fnmatch.fnmatchcase(name, each) for each in spec.features)
            is_read = name in (*spec.label, *spec.read_as_text, *self.selection.key)
            if is_text and (is_read or (spec.features and not is_named)):
                continue
            if is_text or is_named or name in spec.categories:
                raise DataError(f"{self.url}: column {name!r}: {fault}")

    def learn(self, runs: Runs | None = None) -> TableIndex:
        """Find the blocks, unless ``runs`` is passed, and learn the facts, unless they are known.

        Parameters
        ----------
        runs : mapping of int to sequence of RecordRun, optional
            The runs of each file.

        Raises
        ------
        DataError
            The columns do not fit the specification, or differ from the training data.
        """
        part, kinds, _, floats = self.find_columns()
        assert part is not None
        spec, known, key = self.spec, self.known, self.selection.key
        names = {name: classes for name in spec.label if (classes := part.class_names(name))}
        if known:
            absent = spec.absent(self.url, kinds, known)
            if absent:
                warn_once(logger, f"{self.url}: {absent_warning(kinds, absent, known.features)}")
                # keep the order of the features, because patterns of the job are compared with this order
                kinds = {name: kinds.get(name, known.kind_of(name)) for name in known.features} | kinds
            # a column without values in this table may have had values in training
            kinds = {name: "number" if kind == "empty" else kind for name, kind in kinds.items()}
        elif absent := [name for name in (*spec.spelling.numbers, *spec.spelling.dates) if name not in kinds]:
            of = "numbers" if absent[0] in spec.spelling.numbers else "dates"
            message = f"{of} names {absent[0]!r}, which is not a column. {question_of(absent[0], kinds)}"
            raise DataError(f"{self.url}: {message}{show_columns(kinds)}")
        refuse_absent(self.url, kinds, [*key])
        # the key of the split is a feature only if the job names it
        index = (*part.index, *key)
        features = known.features if known else spec.select(self.url, kinds, index)
        if known and spec.features and spec.select(self.url, kinds, index) != features:
            raise DataError(f"{self.url}: features differ from those of training: {', '.join(features)}.")
        spec.check(self.url, kinds, features, is_trained=bool(known))
        if known:
            widths = known.widths
        else:
            texts = {name: text.with_tokenizer(self.url, self.storage_options) for name, text in spec.texts.items()}
            spec = replace(spec, texts=texts)
            if without := next((name for name in features if kinds[name] == "vector" and part.lacks(name)), None):
                raise no_column(part, without)
            widths = {name: part.width(name) for name in features if kinds[name] == "vector"}
            widths |= {name: text.length for name, text in texts.items()}
        if empty := [name for name, width in widths.items() if not width]:
            raise DataError(f"{self.url}: column {empty[0]!r} has no values. Leave it out.")
        statistics = FactsLearner(self.url, spec, features, kinds, known, names, widths, floats)
        # number of values in a record, without unknown categories
        n_names = {
            name: len(known_names) for name, known_names in (known.categories if known else spec.categories).items()
        }
        n_values = {**widths, **({} if spec.encoding == "index" else {name: n or 1 for name, n in n_names.items()})}
        n_values |= {name: len(form.names(name)) for name, form in spec.spelling.dates.items()}
        row_bytes = 4 * sum(n_values.get(name, 1) for name in features)
        wanted = self.selection.with_key(self.url, spec.read_kinds(kinds, features), kinds)
        pieces: Iterable[TableBlock] = self._blocks(spec, wanted, row_bytes, runs)
        if not statistics.needed and key.keys() & {*part.names}:
            wanted = {**key}
        if key or statistics.needed:
            pieces = self._learn_records(statistics, pieces, wanted, row_bytes)
        return TableIndex(kinds, part.index, tuple(pieces), statistics.finish())

    def _learn_records(
        self,
        statistics: FactsLearner,
        pieces: Iterable[TableBlock],
        wanted: Mapping[str, str],
        row_bytes: int,
    ) -> Iterator[TableBlock]:
        """Learn from the records of pieces; yield each piece with its counts. Wrong records are counted, too."""
        threads = decode_threads() if fs.local_path(self.parts.files[0].url) else io_threads(self.parts.files[0].url)

        def read(piece: TableBlock) -> tuple[TableBlock, pa.Table | None, int]:
            return (piece, *self._good_rows(piece, wanted))

        # decode in one thread if pieces are parts of large row groups, because these are decoded in order
        results = map_ahead(read, pieces, threads, GROUP_BYTES, lambda each: each.run.length + each.run.n * row_bytes)
        for piece, table, n_bad in results:
            if table is not None:
                piece = piece._replace(n=len(table) + n_bad, kept=statistics.add(table) + n_bad)
            yield piece

    def _blocks(
        self, spec: TableSpec, columns: Mapping[str, str], row_bytes: int, runs: Runs | None
    ) -> Iterator[TableBlock]:
        """Yield the blocks of all files. With a key, all records of a block count as part of the split."""
        is_local = fs.local_path(self.parts.files[0].url) is not None
        limit = max(DECODED_BYTES, min(DECODED_RECORDS * row_bytes, GROUP_BYTES))
        limit = self.block_bytes if self.format in LINES else limit
        threads, n_ahead = io_threads(self.parts.files[0].url), 1 if is_local else OPENED_AHEAD[self.format]
        first, without = 0, dict[str, list[str]]()
        for file, part in enumerate(map_ahead(self.parts, range(len(self.parts.files)), threads, n_ahead)):
            if len(self.parts.files) > 1:
                for name in self.parts.check(file, self.format, columns, *spec.read_as_text, *self.selection.key):
                    self._refuse_without(part, name, columns[name], spec)
                    without.setdefault(name, []).append(part.url)
            for run in part.runs(limit, row_bytes) if runs is None else runs.get(file, ()):
                n = self.selection.count(first, run.n)
                yield TableBlock(file, run, first, n, n)
                first += run.n
        for name, urls in without.items():
            if len(urls) == len(self.parts.files):  # `learn` has warned
                continue
            which = f"{len(urls)} of {len(self.parts.files)} files have no column {name!r}, the first is {urls[0]}"
            warn_once(logger, f"{self.url}: {which}. Its values are read as missing there.")

    def _refuse_without(self, part: TablePart, name: str, kind: str, spec: TableSpec) -> None:
        """Raise a `DataError` if a file lacks a column whose values cannot be treated as missing."""
        if name in (*spec.true_columns, spec.weight, *self.selection.key) or kind == "vector":
            raise no_column(part, name)
        if spec.missing == "error" and name not in spec.categories and name not in spec.texts:
            raise no_column(part, name, FILLED)
