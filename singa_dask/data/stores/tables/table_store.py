"""TableStore: records of tables with named columns, in CSV, Parquet, JSON and other files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.equal_names import plain_name
from singa_dask.data.stores.store import STORES, StoreOptions, plain_option
from singa_dask.data.stores.tables.part_store import PartStore
from singa_dask.data.stores.tables.table_files import WHOLE_SUFFIXES, format_of, table_files
from singa_dask.data.stores.tables.table_options import TableOptions
from singa_dask.data.tables.block_index import (
    INDEX_VERSION,
    MIN_INDEXED_BYTES,
    TableIndex,
    read_cached,
    runs_from,
    write_cached,
)
from singa_dask.data.tables.column_names import refuse_absent
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.files.folder_keys import TableFile, with_outer_keys
from singa_dask.data.tables.files.open_parts import OpenParts, open_part
from singa_dask.data.tables.files.parquet_part import ParquetPart
from singa_dask.data.tables.files.table_part import LINES, TablePart
from singa_dask.data.tables.files.whole_files import in_memory
from singa_dask.data.tables.lags import LagsConf
from singa_dask.data.tables.row_selection import RowSelection
from singa_dask.data.tables.shared_scan import TableScan, refuse_scan
from singa_dask.data.tables.spec import TableSpec
from singa_dask.data.tables.spelling import MISSING
from singa_dask.data.tables.table_reader import TableReader
from singa_dask.errors import DataError
from singa_dask.fs.cache import key_of
from singa_dask.fs.cache_folder import TABLES, cache_folder
from singa_dask.fs.host_files import SCHEME
from singa_dask.fs.io_threads import io_threads, map_ahead
from singa_dask.fs.versions import version
from singa_dask.version import __version__

# options that manifests omit if they have their default values
OMITTED = frozenset(
    "weight header quotes charset texts split lags numbers na_values dates unlabelled unknown blank_texts fill_absent "
    "may_be_empty forecasts".split()
)
PART_OPTIONS = ("separator", "charset", "header", "quotes", "block_bytes", "tolerant")


def _folder(storage_options: fs.Options) -> Path:
    """Return the directory of table indices in the cache of this host."""
    return cache_folder((storage_options or {}).get(fs.CACHE)) / TABLES


@STORES.register("table")
class TableStore(PartStore):
    """Records of a table with named columns.

    Features become the values of ``data``, float32, in the order of the columns in ``features``. Integers and decimals
    become the nearest float. Classes are numbered in the order of their sorted names, or as ``categories`` lists them.

    Parameters
    ----------
    url : str
        A CSV file with a header, a Parquet file, a file of JSON lines, a pattern, or a directory of such files.
        Directories named ``key=value`` inside the directory become columns. Directories above it become columns, too,
        if the job names these columns and the files lack them.

    Raises
    ------
    DataError
        A column is missing, or cannot be read with these options. Errors of `read_block` name the place of a wrong
        value.
    """

    options_class: ClassVar[type[StoreOptions]] = TableOptions
    block_options: ClassVar[tuple[str, ...]] = (
        "features", "label", "target", "categories", "has_label", "block_bytes", "weight", "texts", "quotes", "split",
        "lags",
    )  # fmt: skip
    suffixes: ClassVar[tuple[str, ...]] = WHOLE_SUFFIXES
    lists_files = True
    _gaps = ""
    """Message about gaps in the times of a series with ``lags``; empty if there are none."""

    @classmethod
    def is_named(cls, columns: Iterable[str]) -> bool:
        return True

    def warnings(self) -> tuple[str, ...]:
        return (*super().warnings(), *filter(None, [self._gaps]))

    def manifest_options(self) -> dict[str, Any]:
        options = super().manifest_options()
        # manifests store a single label as a string
        labels = [name for name in options["label"] if name]
        options["label"] = labels if len(labels) > 1 else "".join(labels)
        is_default = {name: value == TableOptions.model_fields[name].default for name, value in self.options.items()}
        return {name: value for name, value in options.items() if name not in OMITTED or not is_default[name]}

    def index(self) -> None:
        options = self.options
        # URL of a file -> size and version of the file when it was opened
        self._opened: dict[str, tuple[object, ...]] = {}
        files = table_files(self.url, self.storage_options)
        format = options["format"] or format_of(files, self.storage_options)
        known = TableFacts.from_dict(options["facts"]) if options["facts"] else None
        spec = TableSpec.from_options(self.manifest_options())
        if known:
            spec = replace(spec, spelling=spec.spelling.over(known.spelling))
        self._table = TableReader(
            self.url,
            self.storage_options,
            OpenParts(files, partial(self._open_part, format)),
            format=format,
            block_bytes=options["block_bytes"],
            spec=spec,
            known=known,
            selection=RowSelection(options["split"]),
            may_be_empty=options["may_be_empty"],
            tolerant=options["tolerant"],
            listed=self._names_of_missing(spec.spelling.na_values),
        )
        files[:] = with_outer_keys(files, self._wanted(), lambda: self._parts(0).names)
        # get versions before opening a file, so that a file that is replaced in between has another version
        cached = self._cache_files()
        if options["has_label"]:
            names = (*self._parts(0).names, *(name for name, _ in files[0].keys))
            self._table.spec = self._table.spec.with_label(self.url, names)
        if lags := options["lags"]:
            if self._table.selection.key:
                raise DataError(
                    f"{self.url}: lags and a key of split are both set. Set only one of them: a series has no keys."
                )
            self._table.spec = replace(self._table.spec, column_of=lags.column_of)
            self._add_lags(lags)
        index = read_cached(cached[0], TableIndex.from_dict) if cached else None
        if index is None:
            is_text = self._table.format in LINES
            runs = read_cached(cached[1], runs_from) if cached and is_text else None
            if cached and runs is None and is_text:
                # estimate the size of the table from its first file, because files of a table usually have similar
                # sizes
                refuse_scan(self._parts(0).source.size * len(files), partial(self._scan_elsewhere, cached[1].name))
            index = self._table.learn(runs)
            if cached and sum(piece.run.length for piece in index.pieces) >= MIN_INDEXED_BYTES:
                contents: dict[Path, Any] = {cached[0]: index.to_dict()}
                if runs is None and is_text:
                    contents[cached[1]] = [(piece.file, *piece.run) for piece in index.pieces]
                write_cached(contents, self.url)
        self._use(index)
        self._name_columns()

    def _scan_elsewhere(self, name: str) -> TableScan:
        """Return the scan of this table, for other processes. The result is stored in a file called ``name``."""
        options = {name: self.options[name] for name in PART_OPTIONS}
        part = partial(open_part, format=self._table.format, storage_options=self.storage_options, **options)
        folder = partial(_folder, self.storage_options)
        return TableScan(self.url, tuple(self.files()), part, self._table.block_bytes, folder, name)

    def _add_lags(self, lags: LagsConf) -> None:
        """Replace a table that lacks the lags by a table in memory that has the lags, from record `n` on."""
        reader, files = self._table, self._parts.files
        names = [*self._parts(0).names, *(name for name, _ in files[0].keys)]
        if not {*lags.names}.isdisjoint(names):
            return
        if reader.known and (known := [name for name in reader.known.features if name not in lags.names]):
            reader.spec.absent(self.url, names, reader.known, known)
        refuse_absent(self.url, names, lags.columns)
        kinds, others = reader.find_columns().kinds, ("number", "boolean", "string", "vector", "empty")
        spec = reader.spec
        # categories, and dates in text files, are read as strings
        kinds |= {
            name: "string"
            for name, kind in kinds.items()
            if name in spec.categories or (kind not in others and reader.format in LINES)
        }
        series, place_of = reader.read_all(kinds)
        n, predicted = len(series), {*lags.columns}.isdisjoint((*spec.label, *spec.target))
        if n:
            if not self.options["forecasts"]:  # later steps of a forecast read the same records
                self._gaps = lags.check_order(self.url, series)
            if spec.missing == "error" and not reader.tolerant:
                numbers = {*lags.columns}.difference(spec.categories)
                lags.refuse_gaps(series, numbers, place_of, spec.true_columns)
            if self.options["forecasts"] is not None:
                series, self.n_later = lags.with_forecasts(self.url, series, self.options["forecasts"])
            table = lags.add(self.url, series, predicted=predicted)
        else:
            table = pa.table({name: pa.nulls(0, pa.float64()) for name in (*kinds, *lags.names)})
        n_before = n - self.n_later - len(series)
        source = in_memory(self.url, table)
        part = ParquetPart(self.url, self.storage_options, source, lambda record: place_of(n_before + record))
        self._named, self.n_history = files, lags.n
        parts = OpenParts([TableFile(self.url)], lambda _: part)
        selection = replace(reader.selection, n_skipped=lags.n)
        self._table = replace(reader, parts=parts, format="whole", selection=selection)

    def _cache_files(self) -> tuple[Path, Path] | None:
        """Return the cache paths of index and runs: hashes of URL, options and versions.

        Train and test parts of a table share the runs. Returns None if a file has no version, or belongs to a dataset
        of one job.
        """
        if self.url.startswith(SCHEME):
            return None
        urls = self.files()
        if not self._table.known:
            urls += [text.tokenizer for text in self._table.spec.texts.values() if text.tokenizer]
        threads = io_threads(urls[0])
        versions = list(map_ahead(lambda url: version(url, self.storage_options), urls, threads, threads.n))
        if not all(versions):
            return None
        n, folder = len(self._parts.files), _folder(self.storage_options)
        of_runs = [self.options[name] for name in (*PART_OPTIONS, "format")]
        keys = (self.options, urls, versions), (of_runs, urls[:n], versions[:n])
        kept = [json.dumps(key, sort_keys=True, default=plain_option) for key in keys]
        index, runs = (key_of(INDEX_VERSION, __version__, fs.absolute(self.url), key) for key in kept)
        return folder / f"{index}.json", folder / f"{runs}-runs.json"

    def _open_part(self, format: str, file: TableFile) -> TablePart:
        options = {name: self.options[name] for name in PART_OPTIONS}
        options |= {"listed": self._table.listed, "spelling": self._table.spec.spelling, "wanted": self._wanted()}
        part = open_part(file.url, format, self.storage_options, **options)
        # compare with the first opening, because only some files stay open, and this file may be opened again
        identity = (part.source.size, part.source.origin, getattr(part.source, "version", ""))
        if self._opened.setdefault(file.url, identity) != identity:
            raise DataError(f"{part.url}: the file was replaced while it was read.")
        return part

    def _wanted(self) -> set[str]:
        """Return the columns that the job or the training data name."""
        spec, lags = self._table.spec, self.options["lags"].sources if self.options["lags"] else ()
        known = self._table.known.features if self._table.known else ()
        others = {*spec.read_as_text, *self._table.selection.key, *lags}
        return {*known, *spec.features, *spec.outputs, *others}

    def _names_of_missing(self, na_values: Sequence[str]) -> dict[str, list[str]]:
        """Return, by column, the categories and classes, such as NA, that are also words for missing values."""
        facts = self.options["facts"] or {}
        names = {**self.options["categories"], **facts.get("categories", {}), **dict(facts.get("labels", ()))}
        known = {*MISSING[1:], *na_values}
        words_by_column = {
            column: [word for each in of if (word := plain_name(each)) in known] for column, of in names.items()
        }
        # in a column of texts, no word means a missing value
        words_by_column |= {column: list(na_values) for column in self.options["texts"]}
        return {column: words for column, words in words_by_column.items() if words}
