"""PartStore: base of stores whose records are columns of files. Files are read run by run."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from singa_dask.data.codecs.salvage import bisect_rows
from singa_dask.data.stores.manifest import Manifest, find_manifest, name_of
from singa_dask.data.stores.range_store import RangeStore, file_bytes, rest_of
from singa_dask.data.tables.block_index import Runs, TableIndex
from singa_dask.data.tables.column_values import as_texts, column_kind, missing_of, whole
from singa_dask.data.tables.encoder import TableEncoder
from singa_dask.data.tables.files.folder_keys import TableFile
from singa_dask.data.tables.files.open_parts import OpenParts
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.percents import count_percents
from singa_dask.data.tables.scaling import Scaling
from singa_dask.data.tables.table_reader import TableReader
from singa_dask.data.types import Arrays, Block, FileSum, RecordRun, TableColumn
from singa_dask.errors import DataError
from singa_dask.fs.sources import Bytes, Range


class PartStore(RangeStore):
    """Records whose fields are columns of one or more files.

    A subclass defines `index`, which sets ``_table``, learns a `TableIndex`, and passes it to `_use`. If the columns
    have names in the files, it also calls `_name_columns`.
    """

    rounds_data = True
    _table: TableReader
    """The files, and how they are read."""
    _named: Sequence[TableFile] = ()
    """The files of a time series, which is read into memory."""
    _filled: dict[int, FillCounts] | None = None
    """The counts of `begin_counting`, or None."""
    _scaling: Scaling | None = None

    @property
    def _parts(self) -> OpenParts:
        return self._table.parts

    def open_sources(self) -> Sequence[Bytes]:
        return self._parts.open_sources()

    # -- the index -------------------------------------------------------------------------------------------------

    def _use(self, index: TableIndex) -> None:
        self._table.spec = spec = self._table.spec.with_plain(index.kinds, self._table.known)
        self._index, self._compared = index, set[int]()
        self.class_names = index.facts.classes_of(spec.label[0]) if len(spec.label) == 1 else ()
        self._encoder = TableEncoder(spec, index.facts)
        self.schema = self._encoder.schema
        self._pieces = [piece for piece in index.pieces if piece.kept]
        if not self._pieces and (index.pieces or not self._table.may_be_empty):
            split = self._table.selection.split
            which = f" in the {split.part} part of split" if split else ""
            raise DataError(f"{self.url}: there are no records without missing values{which}.")
        self.left_out = sum(piece.n - piece.kept for piece in index.pieces)
        starts = {(piece.file, piece.run.offset): i for i, piece in reversed(list(enumerate(self._pieces)))}
        if len(starts) < len(self._pieces):
            self.runs = np.array([starts[piece.file, piece.run.offset] for piece in self._pieces])
        self.decodes_ahead = self.runs is None
        self.blocks = tuple(
            Block(i, piece.kept, self._parts.files[piece.file].url, piece.run.offset, piece.run.length)
            for i, piece in enumerate(self._pieces)
        )
        wanted = spec.read_kinds(index.kinds, index.facts.features)
        self._columns = self._table.selection.with_key(self.url, wanted, index.kinds)

    def _name_columns(self) -> None:
        """Set the names of the store's columns to their names in the files."""
        index, spec = self._index, self._table.spec
        self.table_facts, self.label_name = index.facts, ", ".join(spec.label)
        facts, columns = index.facts, list[TableColumn]()
        features, places = {*facts.features}, {name: i for i, name in enumerate(facts.names)}
        for name, kind in index.kinds.items():
            if name in features:
                at = places[facts.values_of(name)[0]]
                missing = str(spec.missing)
                kind = "text" if name in facts.texts else kind
                columns.append(TableColumn(name, kind, "data", at, facts.categories.get(name, ()), missing))
            elif name in spec.target:
                columns.append(TableColumn(name, kind, "target", spec.target.index(name)))
            elif name and name == spec.weight:
                columns.append(TableColumn(name, kind, "weight"))
            elif name in spec.label:
                columns.append(TableColumn(name, kind, "label", spec.label.index(name), facts.classes_of(name)))
            else:
                columns.append(TableColumn(name, kind, is_index=name in index.numbering))
        self.table_columns = tuple(columns)

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

    def read_bytes(self, block_id: int, again: bool) -> list[memoryview]:
        file, run, *_ = self._pieces[block_id]
        data = self._parts.fetch(file, run, self._columns, again)
        self._check_file(file, self.blocks[block_id].crc is not None)
        return data

    def is_cached(self, block_id: int) -> bool:
        # False for a file that is not open, because opening a remote file takes requests
        return self._parts.find(self._pieces[block_id].file) is not None and super().is_cached(block_id)

    def begin_counting(self, scaling: Scaling | None) -> dict[int, FillCounts]:
        self._filled, self._scaling = {}, scaling
        return self._filled

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        piece = self._pieces[block_id]
        written = self._table.written(piece, self._columns, data)
        place = self._table.place(piece, self._columns, data)
        table = self._table.read(written, place)
        arrays = self._encoder.encode(table, place)
        if _length(arrays) != piece.kept:
            raise DataError(f"{self.url}, block {block_id}: the file has changed since it was opened.")
        if "data" in arrays and self._filled is not None:
            self._filled[block_id] = counts = self._encoder.count_filled(table, arrays["data"])
            kinds = {each.name: column_kind(each.type) for each in written.schema}
            spelling = self._table.spec.spelling
            counts.percents.update(count_percents(table, self._index.facts, spelling, kinds, self._scaling))
        return arrays

    def read_texts(self, block_id: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return the values of columns of strings, without missing values."""
        piece, kinds = self._pieces[block_id], dict.fromkeys([*names, *self._table.selection.key], "string")
        table = self._table.rows(piece, kinds, self._parts.fetch(piece.file, piece.run, kinds))
        texts = {name: as_texts(whole(table.column(name))) for name in names}
        return {name: values.filter(pa.array(~missing_of(values))) for name, values in texts.items()}

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        piece, data = self._pieces[block_id], self.fetch(block_id)
        n, rows = self._table.some_rows(piece, self._columns, data)
        place = self._table.place(piece, self._columns, data)

        def encode(first: int, stop: int) -> Arrays:
            # finding the place of a row is slow, so do it only for single rows
            where = (lambda _: place(first)) if stop - first == 1 else str
            return self._encoder.encode(rows(first, stop), where)

        good, bad = bisect_rows(n, encode)
        zeros = {name: np.zeros((1, *field.shape), field.dtype) for name, field in self.schema.items()}
        parts = sorted([*good, *((row, zeros) for row in bad)], key=operator.itemgetter(0))
        arrays = {name: np.concatenate([part[name] for _, part in parts]) for name in self.schema}
        if _length(arrays) != piece.kept:
            raise DataError(f"{self.url}, block {block_id}: the file has changed since it was opened.")
        # records that are skipped have no row in the arrays
        places = np.cumsum([0, *(_length(part) for _, part in parts)]).tolist()
        return arrays, {at: bad[row] for at, (row, _) in zip(places, parts, strict=False) if row in bad}

    # -- the manifest ------------------------------------------------------------------------------------------

    def _known_runs(self, line: int) -> Runs | None:
        """Return the runs in the manifest of a file whose records begin at ``line``; None if there is none."""
        blocks, runs = self.manifest_blocks(), list[RecordRun]()
        for block in blocks:
            runs.append(RecordRun(block.offset, block.length, block.n, line))
            line += block.n
        return {0: runs} if blocks and blocks[0].offset == self._parts(0).start else None

    @functools.cached_property
    def manifest(self) -> Manifest | None:
        n_bytes = self.manifest_info()["bytes"]
        return find_manifest(self.url, self.backend_name(), self._parts.files[0].url, n_bytes, self.storage_options)

    def manifest_info(self) -> dict[str, Any]:
        # for several files, lengths are compared file by file
        n_bytes = file_bytes(self._parts(0).source) if len(self._parts.files) == 1 else 0
        return {"bytes": n_bytes, **self.chosen_block_options()}

    def files(self) -> list[str]:
        return [each.url for each in self._parts.files]

    def file_sums(self) -> list[FileSum]:
        return [self._file_sum(file) for file in range(len(self._parts.files))]

    def _file_sum(self, file: int) -> FileSum:
        source = self._parts(file).source
        inside = [range for i, piece in enumerate(self._pieces) if piece.file == file for range in self.ranges(i)]
        rest = rest_of(source, [(offset, offset + length) for _, offset, length in inside])
        return FileSum(name_of(source.url, self.url), file_bytes(source), rest)

    def check_rest(self, manifest: Manifest) -> None:
        """Do nothing. Each file is compared when its first block is read, because there may be many files."""

    def _check_file(self, file: int, has_manifest: bool) -> None:
        """Compare the bytes of a file outside all blocks with the manifest, once."""
        if has_manifest and file not in self._compared and self.manifest is not None:
            self.manifest.check_rest(self.url, self._parts.files[file].url, self._file_sum(file))
            self._compared.add(file)

    def named_error(self, block_id: int, error: Exception) -> DataError:
        # keep an error that already names a line or row group; a block of a time series can span several files
        files = {self.blocks[block_id].file, *self.files(), *(each.url for each in self._named)}
        places = tuple(f"{file}, {place}" for file in files for place in ("line", "row group"))
        if isinstance(error, DataError) and str(error).startswith(places):
            return error
        return super().named_error(block_id, error)

    def close(self) -> None:
        super().close()
        if "_table" in vars(self):  # else opening failed before
            self._parts.close()


def _length(arrays: Arrays) -> int:
    return len(next(iter(arrays.values())))
