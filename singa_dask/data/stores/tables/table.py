"""TableStore: records of tables with named columns, in CSV, Parquet, JSON and other files."""

from __future__ import annotations

import fnmatch
import functools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.category_names import plain_name
from singa_dask.data.codecs.columns import as_texts, key_texts, missing_of, refuse_absent, show_columns, whole
from singa_dask.data.codecs.lags import LagsConf
from singa_dask.data.codecs.numbers import MISSING
from singa_dask.data.codecs.salvage import bisect_rows
from singa_dask.data.codecs.table_encoder import TableEncoder
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.data.codecs.table_statistics import TableStatistics
from singa_dask.data.stores.manifest import Manifest, find_manifest, name_of
from singa_dask.data.stores.range_store import RangeStore, file_bytes, rest_of, summed_bytes
from singa_dask.data.stores.split import Rows, SplitConf
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.stores.tables.open_parts import OpenParts, check_columns, open_part
from singa_dask.data.stores.tables.table_files import (
    LINES,
    WHOLE_SUFFIXES,
    TableFile,
    format_of,
    kind_of_key,
    table_files,
    with_outer_keys,
)
from singa_dask.data.stores.tables.table_index import (
    INDEX_VERSION,
    MIN_INDEXED_BYTES,
    Runs,
    TableBlock,
    TableIndex,
    read_cached,
    runs_from,
    write_cached,
)
from singa_dask.data.stores.tables.table_options import TableOptions
from singa_dask.data.stores.tables.table_parquet import ParquetPart
from singa_dask.data.stores.tables.table_part import TablePart
from singa_dask.data.stores.tables.table_scan import TableScan, refuse_scan
from singa_dask.data.stores.tables.table_series import read_series
from singa_dask.data.stores.tables.table_whole import in_memory
from singa_dask.data.types import Arrays, Block, FileSum, RecordRun, TableColumn
from singa_dask.errors import DataError
from singa_dask.fs.cache import TABLES, cache_folder, key_of
from singa_dask.fs.host_files import SCHEME
from singa_dask.fs.io_threads import decode_threads, io_threads, map_ahead
from singa_dask.fs.sources import Bytes, Range
from singa_dask.fs.versions import version
from singa_dask.version import __version__

# bytes of records that are decoded at a time when a table is read as a whole
GROUP_BYTES = 1 << 26
# minimum bytes and records of a block in a large row group. DECODED_RECORDS does not apply if the records exceed
# `GROUP_BYTES`. Smaller blocks are slow, because each column of a block takes a fixed time.
DECODED_BYTES, DECODED_RECORDS = 1 << 21, 1 << 10
# kinds of columns that can be the key of a split
KEYS = ("string", "number", "boolean", "date", "timestamp", "time", "empty")
PART_OPTIONS = ("separator", "charset", "header", "quotes", "block_bytes", "tolerant")
# number of remote files to open at the same time; gzipped files are held in memory
OPENED_AHEAD = {"csv": 4, "jsonl": 4, "parquet": 32, "whole": 4}


def _folder(storage_options: fs.Options) -> Path:
    """Return the directory of table indices in the cache of this host."""
    return cache_folder((storage_options or {}).get(fs.CACHE)) / TABLES


@STORES.register("table")
class TableStore(RangeStore):
    """Records of a table with named columns.

    Features are the values of ``data``, float32, in the order of the columns in ``features``. Integers and decimals
    become the nearest float. Classes are numbered by their sorted names, or as ``categories`` lists them.

    Parameters
    ----------
    url : str
        A CSV file with a header, a Parquet file, JSON lines, a pattern, or a directory of such files. Directories
        ``key=value`` in it give columns; so do directories above it, if the columns are named and not in the files.

    Raises
    ------
    DataError
        A column is missing or cannot be read as the options say. `read_block` names the place of a wrong value.
    """

    block: ClassVar[type[StoreOptions]] = TableOptions
    block_options: ClassVar[tuple[str, ...]] = (
        "features", "label", "target", "categories", "has_label", "block_bytes", "weight", "texts", "quotes", "split",
        "lags",
    )  # fmt: skip
    suffixes: ClassVar[tuple[str, ...]] = WHOLE_SUFFIXES
    lists_files = True
    rounds_data = True
    # defaults: all records, and nothing known about the split
    _split: SplitConf | None = None
    _of_key: Mapping[str, str] = MappingProxyType({})
    _chosen: Callable[[int, int], Rows] | None = None
    _known: TableFacts | None = None

    @classmethod
    def checked_options(cls, url: str, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super().checked_options(url, options)
        if cls.block is not TableOptions:
            return checked
        # manifests store a single label as a string
        labels = [name for name in checked["label"] if name]
        checked["label"] = labels if len(labels) > 1 else "".join(labels)
        checked["texts"] = {name: text.model_dump() for name, text in checked["texts"].items()}
        checked["numbers"] = {name: form.model_dump() for name, form in checked["numbers"].items()}
        for name in ("split", "lags"):
            checked[name] = checked[name] and checked[name].model_dump()
        # manifests omit these options if they have their default values
        short = ("tolerant", "weight", "header", "quotes", "charset", "texts", "split", "lags", "numbers", "na_values")
        for name in (*short, "unlabelled", "unknown", "blank_texts", "may_be_empty", "forecasts"):
            if checked[name] == TableOptions.model_fields[name].default:
                del checked[name]
        return checked

    def _use_files(self, files: Sequence[TableFile]) -> None:
        self._files = self._named = list(files)
        self._parts, self._compared = OpenParts(self._files, self._open_part), set[int]()
        # file number -> size and version of the file when it was opened
        self._opened: dict[int, tuple[object, ...]] = {}

    def index(self) -> None:
        options = self.options
        self._use_files([])
        self._files += table_files(self.url, self.storage_options)
        self._tolerant = "tolerant" in options
        self._block_bytes = options["block_bytes"]
        self._format = self._file_format = options["format"] or format_of(self._files, self.storage_options)
        self._spec = TableSpec.from_options(options)
        self._split = SplitConf(**options["split"]) if "split" in options else None
        key = self._split.key if self._split else ""
        # the column that determines the part of a record, read as strings
        self._of_key = {key: "string"} if key else {}
        self._chosen = self._split.rows if self._split and not key else None
        self._known = TableFacts.from_dict(options["facts"]) if options["facts"] else None
        if self._known:
            self._spec = replace(self._spec, spelling=self._spec.spelling.over(self._known.spelling))
        named = {
            *self._spec.features,
            *self._spec.outputs,
            *(self._known.features if self._known else ()),
            *self._of_key,
        }
        self._files[:] = with_outer_keys(self._files, named, lambda: self._parts(0).names)
        # get versions before opening a file, so that a file that is replaced meanwhile gets another version
        files = self._cache_files()
        if options["has_label"]:
            names = (*self._parts(0).names, *(name for name, _ in self._files[0].keys))
            self._spec = self._spec.with_label(self.url, names)
        if "lags" in options:
            if self._of_key:
                raise DataError(f"{self.url}: lags, and a key of split. Expected one of both: a series has no keys.")
            self._add_lags(LagsConf(**options["lags"]))
        index = read_cached(files[0], TableIndex.from_dict) if files else None
        if index is None:
            runs = read_cached(files[1], runs_from) if files and self._format in LINES else None
            if files and runs is None and self._format in LINES:
                # estimate the size of the table from the first file, because files of a table have about the same size
                refuse_scan(self._parts(0).source.size * len(self._files), partial(self._scan_elsewhere, files[1].name))
            index = self._scan(runs)
            if files and sum(piece.run.length for piece in index.pieces) >= MIN_INDEXED_BYTES:
                contents: dict[Path, Any] = {files[0]: index.to_dict()}
                if runs is None and self._format in LINES:
                    contents[files[1]] = [(piece.file, *piece.run) for piece in index.pieces]
                write_cached(contents, self.url)
        self._use(index)

    def _scan_elsewhere(self, name: str) -> TableScan:
        """Return the scan of this table for other processes, which keep it in a file of this name."""
        options = {name: self.options[name] for name in PART_OPTIONS if name in self.options}
        part = partial(open_part, format=self._format, storage_options=self.storage_options, **options)
        files, folder = tuple(each.url for each in self._files), partial(_folder, self.storage_options)
        return TableScan(self.url, files, part, self._block_bytes, folder, name)

    def _add_lags(self, lags: LagsConf) -> None:
        """Unless the table has the lags, replace it by a table in memory that has them, from record `n` on."""
        names = [*self._parts(0).names, *(name for name, _ in self._files[0].keys)]
        if not {*lags.names}.isdisjoint(names):
            return
        known = self._known.features if self._known else ()
        refuse_absent(self.url, names, [*(name for name in known if name not in lags.names), *lags.columns])
        form, others = self._format, ("number", "boolean", "string", "vector", "empty")
        # dates in text files are read as strings
        wanted = {name: kind if kind in others or form not in LINES else "string" for name, kind in self._read_kinds()}
        series, place_of = read_series(
            self._parts, form, wanted, GROUP_BYTES,
            lambda table, place: self._spec.spelling.read(table, self._listed, place, self._spec.texts),
        )  # fmt: skip
        n, predicted = len(series), {*lags.columns}.isdisjoint((*self._spec.label, *self._spec.target))
        if n:
            if not self.options.get("forecasts"):  # later steps of a forecast read the same records
                self.gaps = lags.check_order(self.url, series)
            if self._spec.missing == "error" and not self._tolerant:
                lags.refuse_gaps(series, {*lags.columns}.difference(self._spec.categories), place_of)
            if "forecasts" in self.options:
                series, self.n_later = lags.with_forecasts(self.url, series, self.options["forecasts"])
            table = lags.add(self.url, series, predicted=predicted)
        else:
            table = pa.table({name: pa.nulls(0, pa.float64()) for name in (*wanted, *lags.names)})
        n_before = n - self.n_later - len(series)
        source = in_memory(self.url, table)
        self._files, self._format = [TableFile(self.url)], "whole"
        part = ParquetPart(self.url, self.storage_options, source, lambda record: place_of(n_before + record))
        self._parts = OpenParts(self._files, lambda _: part)
        self.n_history, of_part = lags.n, self._chosen or (lambda first, n: np.arange(n))
        self._chosen = lambda first, n: (rows := of_part(first, n))[rows >= lags.n - first]

    def _read_kinds(self) -> Iterable[tuple[str, str]]:
        """Return the kind in which each column is read; categories are strings."""
        kinds, _, _ = self._kinds()
        return (kinds | {name: "string" for name in self._spec.categories if name in kinds}).items()

    def _cache_files(self) -> tuple[Path, Path] | None:
        """Return the cache paths of index and runs: hashes of URL, options and versions.

        Train and test parts share the runs. Returns None if a file has no version, or belongs to a dataset of one job.
        """
        if self.url.startswith(SCHEME):
            return None
        urls = [each.url for each in self._files]
        if not self._known:
            urls += [text.tokenizer for text in self._spec.texts.values() if text.tokenizer]
        threads = io_threads(urls[0])
        versions = list(map_ahead(lambda url: version(url, self.storage_options), urls, threads, threads.n))
        if not all(versions):
            return None
        n, folder = len(self._files), _folder(self.storage_options)
        of_runs = [self.options.get(name) for name in (*PART_OPTIONS, "format")]
        keys = (self.options, urls, versions), (of_runs, urls[:n], versions[:n])
        kept = [json.dumps(key, sort_keys=True, default=str) for key in keys]
        index, runs = (key_of(INDEX_VERSION, __version__, fs.absolute(self.url), key) for key in kept)
        return folder / f"{index}.json", folder / f"{runs}-runs.json"

    def _open_part(self, file: int) -> TablePart:
        options = {name: self.options[name] for name in PART_OPTIONS if name in self.options}
        options |= {"listed": self._listed, "spelling": self._spec.spelling}
        part = open_part(self._named[file].url, self._file_format, self.storage_options, **options)
        # only some files are kept open, so this file may have been opened again
        identity = (part.source.size, part.source.origin, getattr(part.source, "version", ""))
        if self._opened.setdefault(file, identity) != identity:
            raise DataError(f"{part.url}: the file was replaced while it was read.")
        return part

    @functools.cached_property
    def _listed(self) -> dict[str, list[str]]:
        """Return names of categories and classes by column that read like missing values, such as NA."""
        facts = self.options.get("facts") or {}
        names = {**self.options.get("categories", {}), **facts.get("categories", {}), **dict(facts.get("labels", ()))}
        na_values = self._spec.spelling.na_values
        known = {*MISSING[1:], *na_values}
        words_by_column = {
            column: [word for each in of if (word := plain_name(each)) in known] for column, of in names.items()
        }
        # in a column of texts, no word means a missing value
        words_by_column |= {column: list(na_values) for column in self._spec.texts}
        return {column: words for column, words in words_by_column.items() if words}

    def open_sources(self) -> Sequence[Bytes]:
        return self._parts.open_sources()

    def _use(self, index: TableIndex) -> None:
        self._spec = self._spec.with_plain(index.kinds, self._known)
        self._index, self.table_facts = index, index.facts
        self.class_names = index.facts.classes_of(self._spec.label[0]) if len(self._spec.label) == 1 else ()
        self._encoder, self.label_name = TableEncoder(self._spec, index.facts), ", ".join(self._spec.label)
        self.schema = self._encoder.schema
        self._pieces = [piece for piece in index.pieces if piece.kept]
        if not self._pieces and (index.pieces or "may_be_empty" not in self.options):
            which = f" are in the part to {self._split.part} on, and" if self._split else ""
            raise DataError(f"{self.url}: no records{which} without missing values.")
        self.left_out = sum(piece.n - piece.kept for piece in index.pieces)
        starts = {(piece.file, piece.run.offset): i for i, piece in reversed(list(enumerate(self._pieces)))}
        if len(starts) < len(self._pieces):
            self.runs = np.array([starts[piece.file, piece.run.offset] for piece in self._pieces])
        self.decodes_ahead = self.runs is None
        self.blocks = tuple(
            Block(i, piece.kept, self._files[piece.file].url, piece.run.offset, piece.run.length)
            for i, piece in enumerate(self._pieces)
        )
        self.table_columns = self._describe(index)
        self._columns = self._wanted(index.kinds, index.facts.features)

    def _describe(self, index: TableIndex) -> tuple[TableColumn, ...]:
        facts, columns = index.facts, list[TableColumn]()
        features, places = {*facts.features}, {name: i for i, name in enumerate(facts.names)}
        for name, kind in index.kinds.items():
            if name in features:
                at = places[facts.values_of(name)[0]]
                missing = str(self._spec.missing)
                kind = "text" if name in facts.texts else kind
                columns.append(TableColumn(name, kind, "data", at, facts.categories.get(name, ()), missing))
            elif name in self._spec.target:
                columns.append(TableColumn(name, kind, "target", self._spec.target.index(name)))
            elif name and name == self._spec.weight:
                columns.append(TableColumn(name, kind, "weight"))
            elif name in self._spec.label:
                columns.append(TableColumn(name, kind, "label", self._spec.label.index(name), facts.classes_of(name)))
            else:
                columns.append(TableColumn(name, kind, is_index=name in index.numbering))
        return tuple(columns)

    # -- the scan --------------------------------------------------------------------------------------------------

    def _scan(self, runs: Runs | None) -> TableIndex:
        """Find the blocks, unless the runs are known, and learn the facts, unless they are given."""
        kinds, part, names = self._kinds()
        spec, known = self._spec, self._known
        if known:
            refuse_absent(self.url, kinds, known.features)
            # a column without values in this table may have had values in training
            kinds = {name: "number" if kind == "empty" else kind for name, kind in kinds.items()}
        elif absent := [name for name in spec.spelling.numbers if name not in kinds]:
            raise DataError(f"{self.url}: numbers has {absent[0]!r}, which is no column. {show_columns(kinds)}")
        refuse_absent(self.url, kinds, [*self._of_key])
        # the key of the split is a feature only if the job names it
        index = (*part.index, *self._of_key)
        features = known.features if known else spec.select(self.url, kinds, index)
        if known and spec.features and spec.select(self.url, kinds, index) != features:
            raise DataError(f"{self.url}: features differ from those of training: {', '.join(features)}.")
        spec.check(self.url, kinds, features, is_trained=bool(known))
        if known:
            widths = known.widths
        else:
            texts = {name: text.with_tokenizer(self.url, self.storage_options) for name, text in spec.texts.items()}
            spec = replace(spec, texts=texts)
            widths = {name: part.width(name) for name in features if kinds[name] == "vector"}
            widths |= {name: text.length for name, text in texts.items()}
        if empty := [name for name, width in widths.items() if not width]:
            raise DataError(f"{self.url}: column {empty[0]!r} has no values. Leave it out.")
        statistics = TableStatistics(self.url, spec, features, kinds, known, names, widths, part.floats)
        # number of values in a record; unknown categories do not count
        n_names = {
            name: len(known_names) for name, known_names in (known.categories if known else spec.categories).items()
        }
        n_values = {**widths, **({} if spec.encoding == "index" else {name: n or 1 for name, n in n_names.items()})}
        row_bytes = 4 * sum(n_values.get(name, 1) for name in features)
        wanted = self._wanted(kinds, features)
        pieces: Iterable[TableBlock] = self._runs(wanted, row_bytes, runs)
        if not statistics.needed and self._of_key.keys() & {*part.names}:
            wanted = {**self._of_key}
        if self._of_key or statistics.needed:
            pieces = self._learn(statistics, pieces, wanted, row_bytes)
        return TableIndex(kinds, part.index, tuple(pieces), statistics.finish())

    def _learn(
        self,
        statistics: TableStatistics,
        pieces: Iterable[TableBlock],
        wanted: Mapping[str, str],
        row_bytes: int,
    ) -> Iterator[TableBlock]:
        """Learn from the records of pieces; yield the pieces with their counts, wrong records included."""
        threads = decode_threads() if fs.local_path(self._files[0].url) else io_threads(self._files[0].url)

        def read(piece: TableBlock) -> tuple[TableBlock, pa.Table | None, int]:
            return (piece, *self._read_piece(piece, wanted))

        # the parts of a large row group are decoded in order
        results = map_ahead(read, pieces, threads, GROUP_BYTES, lambda each: each.run.length + each.run.n * row_bytes)
        for piece, table, n_bad in results:
            if table is not None:
                piece = piece._replace(n=len(table) + n_bad, kept=statistics.add(table) + n_bad)
            yield piece

    def _read_piece(self, piece: TableBlock, wanted: Mapping[str, str]) -> tuple[pa.Table | None, int]:
        """Return the readable rows of a piece, if there are any, and the number of bad ones."""
        if not piece.kept:
            return None, 0
        try:
            data = self._parts.fetch(piece.file, piece.run, wanted)
            try:
                return self._table(piece, wanted, data), 0
            except DataError:
                if not self._tolerant:
                    raise
                good, bad = bisect_rows(*self._some_rows(piece, wanted, data))
                return pa.concat_tables([table for _, table in good]) if good else None, len(bad)
        except DataError:
            if not self._tolerant:
                raise
            return None, piece.kept

    def _kinds(self) -> tuple[dict[str, str], TablePart, dict[str, tuple[str, ...]]]:
        """Return the kind of each column, the first file with records, and its class names of numeric labels."""
        parts = (self._parts(file) for file in range(len(self._files)))
        part, part_kinds = next(((part, kinds) for part in parts if (kinds := part.kinds)), (None, {}))
        if part is None:
            if not self._known or "may_be_empty" not in self.options:
                raise DataError(f"{self.url}: no records{' but the header' * (self._format == 'csv')}.")
            part = self._parts(0)
            if not part.names:
                raise DataError(f"{self.url}: it is empty.")
            part_kinds = {name: self._known.kind_of(name) for name in part.names}
        kinds = dict(part_kinds)
        if not self._known:
            self._check_faults(part.faults, kinds)
        else:
            self._refuse_bytes(part, kinds, self._known)
            # a string among numbers raises its error when the record is read
            numbers = filter(self._known.is_number, part.faults.keys() - self._spec.spelling.numbers.keys())
            kinds |= {name: "number" for name in numbers if kinds[name] == "string"}
            self._spec = self._spec.with_plain(kinds, self._known)
        for i, (key, _) in enumerate(self._files[0].keys):
            if key in kinds:
                raise DataError(f"{self._files[0].url}: column {key!r} is also a directory {key}=....")
            kinds[key] = kind_of_key(self._files, i)
        names = {name: known for name in self._spec.label if (known := part.class_names(name))}
        named = {*self._spec.label, *self._spec.categories, *self._spec.texts, *self._spec.spelling.numbers}
        return kinds | dict.fromkeys(filter(part.is_text, named), "string"), part, names

    def _refuse_bytes(self, part: TablePart, kinds: Mapping[str, str], known: TableFacts) -> None:
        """Raise a `DataError` for a file of text in another encoding if a column that is read is not UTF-8."""
        spec = self._spec
        read = {*known.features, *spec.outputs, *spec.categories, *spec.texts}
        if part.not_text and any(kinds.get(name) == "binary" for name in read):
            raise part.not_text

    def _check_faults(self, faults: Mapping[str, str], kinds: Mapping[str, str]) -> None:
        """Raise a `DataError` for a faulty column that is used, or would be a feature."""
        spec = self._spec
        for name, fault in faults.items():
            is_text = kinds[name] == "string"
            is_named = name in spec.outputs or any(fnmatch.fnmatchcase(name, each) for each in spec.features)
            is_read = name in (*spec.label, *spec.categories, *spec.texts, *spec.spelling.numbers, *self._of_key)
            if is_text and (is_read or (spec.features and not is_named)):
                continue
            if is_text or is_named or name in spec.categories:
                raise DataError(f"{self.url}: column {name!r}: {fault}")

    def _wanted(self, kinds: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
        """Return the kind in which each column is read, including the key of a split."""
        wanted = self._spec.read_kinds(kinds, features)
        for name in self._of_key:
            if wanted.get(name, "string") != "string" or kinds[name] not in KEYS:
                raise DataError(f"{self.url}: column {name!r} is the key of split, and read as {kinds[name]}.")
        return {**wanted, **self._of_key}

    def _runs(self, columns: Mapping[str, str], row_bytes: int, runs: Runs | None) -> Iterator[TableBlock]:
        """Yield the pieces of all files; with a key, all their records count as part of the split."""
        is_local = fs.local_path(self._files[0].url) is not None
        limit = max(DECODED_BYTES, min(DECODED_RECORDS * row_bytes, GROUP_BYTES))
        limit = self._block_bytes if self._format in LINES else limit
        threads, n_ahead = io_threads(self._files[0].url), 1 if is_local else OPENED_AHEAD[self._format]
        first = 0
        for file, part in enumerate(map_ahead(self._parts, range(len(self._files)), threads, n_ahead)):
            if file:
                wanted = self._parts.in_file(file, columns)
                of_any = (*self._spec.categories, *self._spec.texts, *self._spec.spelling.numbers, *self._of_key)
                check_columns(part, self._format, wanted, self._files[0].url, *of_any)
            for run in part.runs(limit, row_bytes) if runs is None else runs.get(file, ()):
                n = len(self._chosen(first, run.n)) if self._chosen else run.n
                yield TableBlock(file, run, first, n, n)
                first += run.n

    def limit_runs(self, n: int) -> None:
        self._parts.open_runs.n = n

    # -- records -----------------------------------------------------------------------------------------------

    @property
    def is_local(self) -> bool:
        return self._parts(0).source.is_local

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        file, run, *_ = self._pieces[block_id]
        return self._parts(file).ranges(run, self._parts.in_file(file, self._columns))

    def fetch_bytes(self, block_id: int) -> int:
        file, run, *_ = self._pieces[block_id]
        part = self._parts.find(file)
        return part.fetch_bytes(run, self._parts.in_file(file, self._columns)) if part else run.length

    def fetch(self, block_id: int, again: bool = False) -> list[memoryview]:
        file, run, *_ = self._pieces[block_id]
        data = self._parts.fetch(file, run, self._columns, again)
        self._check_file(file, self.blocks[block_id].crc is not None)
        self.verify_crc(block_id, *summed_bytes(self.ranges(block_id), data))
        return data

    def is_cached(self, block_id: int) -> bool:
        # opening a remote file takes requests
        return self._parts.find(self._pieces[block_id].file) is not None and super().is_cached(block_id)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        piece = self._pieces[block_id]
        table = self._table(piece, self._columns, data)
        arrays = self._encoder.encode(table, self._place(piece, self._columns, data))
        if _length(arrays) != piece.kept:
            raise DataError(f"{self.url}, block {block_id}: changed since it was opened.")
        if "data" in arrays and self.counts_filled:
            self.filled[block_id] = self._encoder.count_filled(table, arrays["data"])
        return arrays

    def _table(self, piece: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        table = self._parts.decode(piece.file, piece.run, columns, data)
        chosen = self._rows(piece, lambda: self._keys_of(table))
        table = table if chosen is None else table.take(chosen)
        return self._spec.spelling.read(table, self._listed, self._place(piece, columns, data), self._spec.texts)

    def _rows(self, piece: TableBlock, keys: Callable[[], pa.Array]) -> Rows | None:
        """Return which rows of a piece are in the part to read, None for all; ``keys`` returns their keys."""
        if self._split and self._of_key:
            return self._split.of_keys(keys())
        return self._chosen(piece.first, piece.run.n) if self._chosen else None

    def _keys_of(self, table: pa.Table) -> pa.Array:
        return key_texts(whole(table.column(next(iter(self._of_key)))))

    def _keys(self, piece: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> pa.Array:
        """Return the keys of all rows of a piece with bad rows; null where they cannot be read."""
        # in text formats, the key may be readable even if other values of the record are bad
        is_readable_alone = self._format in LINES and self._of_key.keys() <= {*self._parts(piece.file).names}
        rows = self._parts.rows(piece.file, piece.run, self._of_key if is_readable_alone else columns, data)
        good, bad = bisect_rows(piece.run.n, lambda first, stop: self._keys_of(rows(first, stop)))
        parts = sorted([*good, *((row, pa.nulls(1, pa.string())) for row in bad)], key=operator.itemgetter(0))
        return pa.concat_arrays([part for _, part in parts])

    def _some_rows(
        self, piece: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]
    ) -> tuple[int, Callable[[int, int], pa.Table]]:
        """Return the number of rows of a bad piece in the part to read, and a function to read them.

        The function maps (first, stop) to rows, and raises an error if one is bad.
        """
        rows, place = self._parts.rows(piece.file, piece.run, columns, data), self._place(piece, columns, data)
        chosen = self._rows(piece, lambda: self._keys(piece, columns, data))

        def read(first: int, stop: int) -> pa.Table:
            if chosen is None:
                table = rows(first, stop)
            else:
                table = rows(chosen[first], chosen[stop - 1] + 1).take(chosen[first:stop] - chosen[first])
            where = (lambda row: place(first + row)) if stop - first == 1 else str
            return self._spec.spelling.read(table, self._listed, where, self._spec.texts)

        return piece.run.n if chosen is None else len(chosen), read

    def _place(self, piece: TableBlock, columns: Mapping[str, str], data: Sequence[memoryview]) -> Callable[[int], str]:
        """Return a function that maps a row of a piece to its place in the file, for errors."""
        place = self._parts(piece.file).place(piece.run, data)
        chosen = functools.cache(lambda: self._rows(piece, lambda: self._keys(piece, columns, data)))
        return lambda row: place(row if (rows := chosen()) is None else int(rows[row]))

    def read_texts(self, block_id: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return the values of columns of strings, without missing ones."""
        piece, kinds = self._pieces[block_id], dict.fromkeys([*names, *self._of_key], "string")
        data = self._parts.fetch(piece.file, piece.run, kinds)
        table = self._table(piece, kinds, data)
        texts = {name: as_texts(whole(table.column(name))) for name in names}
        return {name: values.filter(pa.array(~missing_of(values))) for name, values in texts.items()}

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        piece, data = self._pieces[block_id], self.fetch(block_id)
        (n, rows), place = self._some_rows(piece, self._columns, data), self._place(piece, self._columns, data)

        def encode(first: int, stop: int) -> Arrays:
            # finding places is slow, so show them only for single rows
            where = (lambda _: place(first)) if stop - first == 1 else str
            return self._encoder.encode(rows(first, stop), where)

        good, bad = bisect_rows(n, encode)
        zeros = {name: np.zeros((1, *field.shape), field.dtype) for name, field in self.schema.items()}
        parts = sorted([*good, *((row, zeros) for row in bad)], key=operator.itemgetter(0))
        arrays = {name: np.concatenate([part[name] for _, part in parts]) for name in self.schema}
        if _length(arrays) != piece.kept:
            raise DataError(f"{self.url}, block {block_id}: changed since it was opened.")
        # records that are left out have no row in the arrays
        places = np.cumsum([0, *(_length(part) for _, part in parts)]).tolist()
        return arrays, {at: bad[row] for at, (row, _) in zip(places, parts, strict=False) if row in bad}

    # -- the manifest ------------------------------------------------------------------------------------------

    def _known_runs(self, line: int) -> Runs | None:
        """Return the runs in the manifest of a file whose records begin at ``line``; None without a manifest."""
        blocks, runs = self.manifest_blocks(), list[RecordRun]()
        for block in blocks:
            runs.append(RecordRun(block.offset, block.length, block.n, line))
            line += block.n
        return {0: runs} if blocks and blocks[0].offset == self._parts(0).start else None

    @functools.cached_property
    def manifest(self) -> Manifest | None:
        n_bytes = self.manifest_info()["bytes"]
        return find_manifest(self.url, self.backend_name(), self._files[0].url, n_bytes, self.storage_options)

    def manifest_info(self) -> dict[str, Any]:
        # the lengths of several files are compared file by file
        n_bytes = file_bytes(self._parts(0).source) if len(self._files) == 1 else 0
        return {"bytes": n_bytes, **self.chosen_block_options()}

    def files(self) -> list[str]:
        return [each.url for each in self._files]

    def file_sums(self) -> list[FileSum]:
        return [self._file_sum(file) for file in range(len(self._files))]

    def _file_sum(self, file: int) -> FileSum:
        source = self._parts(file).source
        inside = [range for i, piece in enumerate(self._pieces) if piece.file == file for range in self.ranges(i)]
        rest = rest_of(source, [(offset, offset + length) for _, offset, length in inside])
        return FileSum(name_of(source.url, self.url), file_bytes(source), rest)

    def check_rest(self, manifest: Manifest) -> None:
        """Do nothing: there may be many files, so each is compared when its first block is read."""

    def _check_file(self, file: int, has_manifest: bool) -> None:
        """Compare the bytes of a file outside all blocks with the manifest, once."""
        if has_manifest and file not in self._compared and self.manifest is not None:
            self.manifest.check_rest(self._files[file].url, self._file_sum(file))
            self._compared.add(file)

    def named_error(self, block_id: int, error: Exception) -> DataError:
        # the error may name a line or row group, which is more exact; blocks of a series are of several files
        files = {self.blocks[block_id].file, *(each.url for each in self._named)}
        places = tuple(f"{file}, {place}" for file in files for place in ("line", "row group"))
        if isinstance(error, DataError) and str(error).startswith(places):
            return error
        return super().named_error(block_id, error)

    def close(self) -> None:
        super().close()
        self._parts.close()


def _length(arrays: Arrays) -> int:
    return len(next(iter(arrays.values())))
