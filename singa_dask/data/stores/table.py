"""TableStore: records of tables with named columns, in CSV or Parquet: one file, a pattern or a directory."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from singa_dask.data import fs
from singa_dask.data.codecs.csv_records import Run
from singa_dask.data.codecs.table_encoder import TableEncoder
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.table_spec import TableSpec, show_columns
from singa_dask.data.codecs.table_statistics import TableStatistics
from singa_dask.data.fs.byte_source import Range
from singa_dask.data.fs.io_threads import decode_threads, io_threads, map_ahead
from singa_dask.data.stores.block_sizes import BLOCK_BYTES
from singa_dask.data.stores.manifest import Manifest, find_manifest, name_of
from singa_dask.data.stores.open_parts import OpenParts
from singa_dask.data.stores.range_store import RangeStore, rest_of
from singa_dask.data.stores.store import STORES
from singa_dask.data.stores.table_csv import CsvPart
from singa_dask.data.stores.table_files import TableFile, format_of, kind_of_key, table_files, with_keys
from singa_dask.data.stores.table_index import Piece, TableIndex, find_index, index_url, keep_index
from singa_dask.data.stores.table_parquet import ParquetPart
from singa_dask.data.stores.table_part import Part
from singa_dask.data.types import Arrays, Block, FileSum, TableColumn
from singa_dask.errors import DataError

__all__ = ["TableStore"]

# maximum size of the records in a part of a row group
GROUP_BYTES = 1 << 26
# remote files that are opened at the same time; gzipped ones are held in memory
OPENED_AHEAD = {"csv": 4, "parquet": 32}


@STORES.register("table")
class TableStore(RangeStore):
    """Records of a table with named columns.

    Features are the values of ``data``, float32, in the order of the columns in ``features``. Integers and decimals
    become the nearest float. Classes are numbered by their sorted names, or as ``categories`` lists them.

    Parameters
    ----------
    url : str
        A CSV file with a header, a Parquet file, a pattern, or a directory of such files. Directories ``key=value`` in
        it are columns.
    storage_options : mapping, optional
    features : sequence of str
        Names of columns, or patterns (``pixel*``). By default all columns of numbers but label and target.
    label : str, or sequence of str
        Column of integers, or of strings, which become ``class_names``. Several columns are several labels of a record,
        (labels,) int32; ``table_facts.labels`` has their classes.
    target : sequence of str
        Columns of numbers to predict.
    missing : {"error", "skip", "mean"} or float
        A record with a missing value is an error or left out, or a feature gets the mean of the training data or a
        number. Missing are nulls, NaN, and in CSV empty fields and pandas' names for them (``NA``, ``null``, ...).
    categories : mapping of str to sequence of str
        Features, or the label, whose values are names, with these names in order. If there are none they are learned
        from the training data, and sorted. A name ``''`` stands for missing values.
    encoding : {"one_hot", "index"}
        A feature of ``categories`` becomes a value for each name, or the index of its name.
    separator : str
        Character between the fields of CSV. Excel's first line ``sep=;`` counts more.
    has_label : bool
        Whether to read label, target and weight.
    format : {"csv", "parquet"}, optional
        Detected by suffix or first bytes.
    facts : mapping, optional
        `TableFacts.to_dict` of the training data, to read other data in the same way.
    block_bytes : int
        Approximate length of a block of CSV.
    tolerant : bool
        Whether wrong records are to be skipped by a loader: opening then learns from the others.
    weight : str
        Column with the weight of each record in training.

    Raises
    ------
    DataError
        A column is missing or cannot be read as the options say. `read_block` names the place of a wrong value.
    """

    block_options = ("features", "label", "target", "categories", "has_label", "block_bytes", "weight")
    lists_files = True

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        features: Sequence[str] = (),
        label: str | Sequence[str] = (),
        target: Sequence[str] = (),
        missing: str | float = "error",
        categories: Mapping[str, Sequence[str]] | None = None,
        encoding: str = "one_hot",
        separator: str = ",",
        has_label: bool = True,
        format: str = "",
        facts: Mapping[str, Any] | None = None,
        block_bytes: int = BLOCK_BYTES,
        tolerant: bool = False,
        weight: str = "",
    ) -> None:
        names = {name: tuple(known) for name, known in (categories or {}).items()}
        labels = tuple(name for name in ([label] if isinstance(label, str) else label) if name)
        spec = TableSpec(tuple(features), labels, tuple(target), missing, names, encoding)
        # one label is a string, as in the keys of indices that were kept before there could be several
        said = {"label": labels if len(labels) > 1 else "".join(labels), "has_label": has_label}
        options = {**vars(spec), **said, "separator": separator, "format": format, "facts": facts}
        del options["weight"]
        # not among the options of other openings, so that kept indices are found
        more: dict[str, Any] = {"tolerant": tolerant} if tolerant else {}
        more |= {"weight": weight} if weight else {}
        super().__init__(url, storage_options, **options, block_bytes=block_bytes, **more)

    def index(self) -> None:
        self._part, options = OpenParts(self._open_part), self.options
        self._compared = set[int]()
        self._spec, self._tolerant = TableSpec.from_options(options), "tolerant" in options
        self._separator, self._block_bytes = options["separator"], options["block_bytes"]
        self._facts = TableFacts.from_dict(options["facts"]) if options["facts"] else None
        self._files = table_files(self.url, self.storage_options)
        self._format = options["format"] or format_of(self._files, self.storage_options)
        place = index_url(self.url, options)
        index = find_index(place, self._files, self.storage_options)
        if index is None:
            index = self._make_index()
            keep_index(place, self._files, self.storage_options, index)
        self._use(index)

    def _open_part(self, file: int) -> Part:
        url = self._files[file].url
        if self._format == "parquet":
            return ParquetPart(url, self.storage_options)
        return CsvPart(url, self.storage_options, self._separator, self._block_bytes, self._tolerant)

    def _use(self, index: TableIndex) -> None:
        self._index, self.table_facts = index, index.facts
        self.class_names = index.facts.classes_of(self._spec.label[0]) if len(self._spec.label) == 1 else ()
        self._encoder = TableEncoder(self._spec, index.facts)
        self.schema = self._encoder.schema
        self._pieces = [piece for piece in index.pieces if piece.kept]
        if not self._pieces:
            raise DataError(f"{self.url}: no records without missing values.")
        # parts of a large row group are decoded one after another
        largest = max(piece.run.n for piece in self._pieces)
        self.decodes_ahead = self._format == "csv" or 4 * largest * len(index.facts.features) < GROUP_BYTES
        self.blocks = tuple(
            Block(i, piece.kept, self._files[piece.file].url, piece.run.offset, piece.run.length)
            for i, piece in enumerate(self._pieces)
        )
        self.table_columns = self._describe(index)
        self._columns = self._wanted(index.kinds, index.facts.features)

    def _describe(self, index: TableIndex) -> tuple[TableColumn, ...]:
        names, facts = index.facts.names, index.facts
        found = []
        for name, kind in index.kinds.items():
            if name in facts.features:
                at = names.index(facts.values_of(name)[0])
                missing = str(self._spec.missing)
                found.append(TableColumn(name, kind, "data", at, facts.categories.get(name, ()), missing))
            elif name in self._spec.target:
                found.append(TableColumn(name, kind, "target", self._spec.target.index(name)))
            elif name == self._spec.weight:
                found.append(TableColumn(name, kind, "weight"))
            elif name in self._spec.label:
                found.append(TableColumn(name, kind, "label", self._spec.label.index(name), facts.classes_of(name)))
            else:
                found.append(TableColumn(name, kind, is_index=name in index.numbering))
        return tuple(found)

    # -- the pass over the data ------------------------------------------------------------------------------

    def _make_index(self) -> TableIndex:
        """Find the blocks, and learn from the columns what no facts are given of."""
        spec = self._spec
        kinds, numbering = self._kinds()
        if self._facts:
            # a column may have values in the training data alone
            kinds = {name: "number" if kind == "empty" else kind for name, kind in kinds.items()}
        features = self._facts.features if self._facts else spec.select(self.url, kinds, numbering)
        if self._facts and spec.features and spec.select(self.url, kinds, numbering) != features:
            raise DataError(f"{self.url}: features differ from those of training: {', '.join(features)}.")
        spec.check(self.url, kinds, features)
        statistics = TableStatistics(self.url, spec, features, kinds, self._facts)
        # the width of a record, before its categories are known
        row_bytes = 4 * len(features)
        wanted = self._wanted(kinds, features)
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
        threads = decode_threads() if fs.local_path(self._files[0].url) else io_threads(self._files[0].url)

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
            data = self._part(file).fetch(run, self._in_file(file, wanted))
            try:
                return self._decode(file, run, wanted, data), 0
            except DataError:
                if not self._tolerant:
                    raise
                table, bad = self._salvage_rows(file, run, wanted, data)
                return table, len(bad)
        except DataError:
            if not self._tolerant:
                raise
            return None, run.n

    def _kinds(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the kind of each column, and the columns that number rows, by the first file and the directories."""
        parts = (self._part(file) for file in range(len(self._files)))
        part, found = next(((part, kinds) for part in parts if (kinds := part.kinds)), (None, {}))
        if part is None:
            raise DataError(f"{self.url}: no records{' but the header' * (self._format == 'csv')}.")
        kinds = dict(found)
        if not self._facts:
            self._check_faults(part.faults, kinds)
        for i, (key, _) in enumerate(self._files[0].keys):
            if key in kinds:
                raise DataError(f"{self._files[0].url}: column {key!r} is also a directory {key}=....")
            kinds[key] = kind_of_key(self._files, i)
        return kinds, part.index

    def _check_faults(self, faults: Mapping[str, str], kinds: Mapping[str, str]) -> None:
        """Raise an error for a column that cannot be read as it is meant, if it is used or would be a feature."""
        spec = self._spec
        for name, fault in faults.items():
            is_text = kinds[name] == "string"
            is_named = name in spec.outputs or any(fnmatch.fnmatchcase(name, each) for each in spec.features)
            if is_text and (name in (*spec.label, *spec.categories) or (spec.features and not is_named)):
                continue
            if is_text or is_named or name in spec.categories:
                raise DataError(f"{self.url}: column {name!r}: {fault}")

    def _wanted(self, kinds: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
        """Return the kind in which each column is read."""
        named = {name: "string" for name in self._spec.categories}
        return {name: named.get(name, kinds[name]) for name in (*features, *self._spec.outputs)}

    def _runs(self, kinds: Mapping[str, str], features: Sequence[str], row_bytes: int) -> Iterator[tuple[int, Run]]:
        limit = GROUP_BYTES if self._format == "parquet" else self._block_bytes
        is_local = fs.local_path(self._files[0].url) is not None
        threads, n_ahead = io_threads(self._files[0].url), 1 if is_local else OPENED_AHEAD[self._format]
        for file, part in enumerate(map_ahead(self._part, range(len(self._files)), threads, n_ahead)):
            if file:
                self._check_columns(part, self._wanted(kinds, features), self._files[file])
            for run in part.runs(limit, row_bytes):
                yield file, run

    def _check_columns(self, part: Part, wanted: Mapping[str, str], file: TableFile) -> None:
        """Check that a file has the columns of the first one."""
        keys = dict(file.keys)
        # of CSV, kinds are a guess from the first records; values of other kinds are found when they are read
        names = (part.kinds if self._format == "parquet" else {}) or dict.fromkeys(part.names, "empty")
        for name, kind in wanted.items():
            if name in keys:
                continue
            if name not in names:
                raise DataError(f"{part.url}: no column {name!r}, unlike {self._files[0].url}. {show_columns(names)}")
            found = names[name]
            if found not in (kind, "empty") and name not in self._spec.categories:
                raise DataError(f"{part.url}: column {name!r} of type {found}, in {self._files[0].url} {kind}.")

    # -- records -----------------------------------------------------------------------------------------------

    def _in_file(self, file: int, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the columns that a file holds, without those that its directories give."""
        keys = dict(self._files[file].keys)
        return {name: kind for name, kind in wanted.items() if name not in keys}

    def _decode(self, file: int, run: Run, wanted: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        return with_keys(self._part(file).decode(run, self._in_file(file, wanted), data), self._files[file], wanted)

    def _salvage_rows(
        self, file: int, run: Run, wanted: Mapping[str, str], data: Sequence[memoryview]
    ) -> tuple[pa.Table, dict[int, str]]:
        """Return the rows of a run that can be read, and what is wrong with each other one."""
        table, bad = self._part(file).salvage(run, self._in_file(file, wanted), data)
        return with_keys(table, self._files[file], wanted), bad

    @property
    def is_local(self) -> bool:
        return self._part(0).source.is_local

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        file, run, _ = self._pieces[block_id]
        return self._part(file).ranges(run, self._in_file(file, self._columns))

    def fetch_bytes(self, block_id: int) -> int:
        file, run, _ = self._pieces[block_id]
        part = self._part.find(file)
        return part.fetch_bytes(run, self._in_file(file, self._columns)) if part else run.length

    def fetch(self, block_id: int, again: bool = False) -> list[memoryview]:
        file, run, _ = self._pieces[block_id]
        data = self._part(file).fetch(run, self._in_file(file, self._columns), again)
        self._check_file(file, self.blocks[block_id].crc is not None)
        self.verify_crc(block_id, *data)
        return data

    def is_cached(self, block_id: int) -> bool:
        # opening a file takes requests
        return self._part.find(self._pieces[block_id].file) is not None and super().is_cached(block_id)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        file, run, kept = self._pieces[block_id]
        table = self._decode(file, run, self._columns, data)
        arrays = self._encoder.encode(table, self._part(file).place(run, data))
        if len(arrays["data"]) != kept:
            raise DataError(f"{self.url}, block {block_id}: changed since it was opened.")
        return arrays

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        file, run, kept = self._pieces[block_id]
        data = self.fetch(block_id)
        table, unread = self._salvage_rows(file, run, self._columns, data)
        arrays, bad = self._encoder.salvage(table, unread, self._part(file).place(run, data))
        if len(arrays["data"]) != kept:
            raise DataError(f"{self.url}, block {block_id}: changed since it was opened.")
        return arrays, bad

    # -- the manifest ------------------------------------------------------------------------------------------

    @cached_property
    def manifest(self) -> Manifest | None:
        n_bytes = self.manifest_info()["bytes"]
        return find_manifest(self.url, self.backend_name(), self._files[0].url, n_bytes, self.storage_options)

    def manifest_info(self) -> dict[str, Any]:
        # of several files, the length of each is compared
        n_bytes = self._part(0).source.size if len(self._files) == 1 else 0
        return {"bytes": n_bytes, **self.chosen_block_options()}

    def files(self) -> list[str]:
        return [each.url for each in self._files]

    def file_sums(self) -> list[FileSum]:
        return [self._file_sum(file) for file in range(len(self._files))]

    def _file_sum(self, file: int) -> FileSum:
        source = self._part(file).source
        inside = [range for i, piece in enumerate(self._pieces) if piece.file == file for range in self.ranges(i)]
        rest = rest_of(source, [(offset, offset + length) for _, offset, length in inside])
        return FileSum(name_of(source.url, self.url), source.size, rest)

    def check_rest(self, manifest: Manifest) -> None:
        """Do nothing: there may be many files, and each is compared with the first block that is read from it."""

    def _check_file(self, file: int, has_manifest: bool) -> None:
        """Compare what is in no block of a file with the manifest, once."""
        if has_manifest and file not in self._compared and self.manifest is not None:
            self.manifest.check_rest(self._files[file].url, self._file_sum(file))
            self._compared.add(file)

    def named_error(self, block_id: int, error: Exception) -> DataError:
        place = str(error).removeprefix(self.blocks[block_id].file)
        # a line says more than a block
        if isinstance(error, DataError) and place.startswith((", line", ", row group")):
            return error
        return super().named_error(block_id, error)

    def close(self) -> None:
        self._part.close()
