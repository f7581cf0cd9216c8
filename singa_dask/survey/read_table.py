"""Open a table, and read its columns, but only some records of a large table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.stores.tables.table_files import format_of, table_files
from singa_dask.data.tables.column_values import whole
from singa_dask.data.tables.files.csv_text import check_charset
from singa_dask.data.tables.files.folder_keys import TableFile
from singa_dask.data.tables.files.open_parts import OpenParts, open_part
from singa_dask.data.tables.files.table_part import LINES, TablePart
from singa_dask.data.tables.spelling import Spelling
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError
from singa_dask.survey.columns import DATES, ColumnSurvey
from singa_dask.survey.counts import BLOCK_BYTES
from singa_dask.survey.csv_head import head_of, reading_of_csv
from singa_dask.survey.options import SurveyOptions, worded
from singa_dask.survey.table_survey import TableSurvey, decoded
from singa_dask.texts import refuse_wide

# only SEEN_BYTES are read of tables larger than MAX_BYTES, but at least MIN_BYTES of each file
MAX_BYTES, SEEN_BYTES, MIN_BYTES = 1 << 28, 1 << 26, 1 << 16


class OpenTable(NamedTuple):
    """An open table: format, CSV options (``text``), files (``parts``), and kinds and faults of columns.

    ``open_file`` opens a file of the table.
    """

    url: str
    format: str
    text: Mapping[str, Any]
    parts: OpenParts
    kinds: dict[str, str]
    faults: Mapping[str, str]
    open_file: Callable[..., TablePart]

    def with_classes(self, options: SurveyOptions) -> OpenTable:
        """Return the table with the words in ``--classes`` read as classes, even a word such as NA."""
        if self.format != "csv" or not options.classes:
            return self
        listed = dict.fromkeys(options.label, options.classes)
        parts = OpenParts(self.parts.files, partial(self.open_file, listed=listed))
        kinds = {name: "string" if name in listed else kind for name, kind in self.kinds.items()}
        return self._replace(parts=parts, kinds=kinds)


def open_table(place: str, options: SurveyOptions, storage_options: fs.Options = None) -> OpenTable:
    """Open a table; detect its format and, for CSV, its separator, header and encoding.

    Raises
    ------
    DataError
        The table cannot be read. The message names the place, and the option that helps.
    UnsureError
        It is not clear whether the first line names the columns or is a record.
    """
    try:
        return _opened(place, options, storage_options)
    except DataError as error:
        raise worded(error, options.na_values) from None


def _opened(place: str, options: SurveyOptions, storage_options: fs.Options) -> OpenTable:
    files = table_files(place, storage_options)
    form = format_of(files, storage_options)
    if form == "csv":
        refuse_wide(place, head_of(files[0].url, storage_options))
    if options.encoding:
        check_charset(place, options.encoding)
    text = reading_of_csv(files[0].url, options, storage_options) if form == "csv" else {}
    reading = {**text, "spelling": Spelling(na_values=options.na_values), "block_bytes": BLOCK_BYTES}

    def open_file(file: TableFile, **more: Any) -> TablePart:
        return open_part(file.url, form, storage_options, **reading, **more)

    parts = OpenParts(files, open_file)
    found = parts.find_columns()
    if found.part is None:
        raise DataError(f"{place}: no records{' but the header' * (form == 'csv')}.")
    kinds = {name: "string" if found.part.is_text(name) else kind for name, kind in found.kinds.items()}
    kinds |= {name: "string" for name, _ in files[0].keys}
    return OpenTable(place, form, text, parts, kinds, found.faults, open_file)


def read_table(opened: OpenTable, options: SurveyOptions) -> TableSurvey:
    """Read the columns of a table; ``options`` give columns by name.

    Raises a `DataError` if the table cannot be read. The message names the place, and the option that helps.
    """
    try:
        table = _looked_at(opened.with_classes(options))
        if not options.na_values:
            return table
        read = pa.table({each.name: each.values for each in table.columns})
        found = Spelling(na_values=options.na_values).read(read, {}, str, (options.text,))
        return replace(table, columns=[replace(each, values=whole(found[each.name])) for each in table.columns])
    except DataError as error:
        raise worded(error, options.na_values) from None


def _looked_at(opened: OpenTable) -> TableSurvey:
    form, parts, kinds = opened.format, opened.parts, opened.kinds
    read = ("number", "boolean", "string", "vector", "empty")
    if form in LINES:
        # JSON values of other types, such as objects, are not read
        others = ("string", *DATES) if form == "jsonl" else kinds.values()
        wanted = {name: kind if kind in read else "string" for name, kind in kinds.items() if name}
        wanted = {name: kind for name, kind in wanted.items() if kinds[name] in (*read, *others)}
    else:
        wanted = {name: kind for name, kind in kinds.items() if name and kind in (*read, *DATES)}
    sizes, n_without = [], Counter[str]()
    for file in range(len(parts.files)):
        part = parts(file)
        n_without.update(parts.check(file, form, wanted))
        sizes.append(part.source.size)
    if form in LINES:
        (runs, n), group_bytes = _lines_of(parts, sizes, 4 * len(kinds)), 0
    else:
        runs, n, group_bytes = _groups_of(parts, 4 * len(kinds))
    tables = [decoded(parts, file, run, wanted) for file, run in runs]
    table = pa.concat_tables(tables, promote_options="permissive")
    part, none = parts(0), pa.nulls(len(table))
    values = {name: whole(table.column(name)) for name in wanted}
    columns = [
        ColumnSurvey(
            name,
            i,
            kind,
            values.get(name, none),
            is_index=name in part.index,
            fault=opened.faults.get(name, ""),
            n_without=n_without[name],
        )
        for i, (name, kind) in enumerate(kinds.items(), 1)
    ]
    return TableSurvey(opened.url, form, opened.text, columns, n, parts, wanted, runs, group_bytes)


Runs = list[tuple[int, RecordRun]]


def _lines_of(parts: OpenParts, sizes: Sequence[int], row_bytes: int) -> tuple[Runs, int]:
    """Return runs of records in text files, and the number of records.

    For a large table, only the first runs of each file are returned, and the number of all records is estimated.
    """
    total = sum(sizes)
    if total <= MAX_BYTES:
        runs = [(file, run) for file in range(len(sizes)) for run in parts(file).runs(BLOCK_BYTES, row_bytes)]
        return runs, sum(run.n for _, run in runs)
    found, n = Runs(), 0.0
    for file, size in enumerate(sizes):
        wanted, seen, first = max(SEEN_BYTES * size // total, MIN_BYTES), 0, len(found)
        block = min(BLOCK_BYTES, wanted)
        for run in parts(file).runs(block, row_bytes):
            found.append((file, run))
            seen = run.offset + run.length
            if seen > wanted - block / 2:
                break
        n += sum(run.n for _, run in found[first:]) * size / max(seen, 1)
    return found, max(int(float(f"{n:.3g}")), sum(run.n for _, run in found) + 1)


def _groups_of(parts: OpenParts, row_bytes: int) -> tuple[Runs, int, int]:
    """Return runs of columnar records, the number of all records, and the largest row group's bytes.

    For a large table, only some evenly spaced runs are returned.
    """
    # open one run at a time, because runs are decoded in file order
    parts.open_runs.n = 1
    runs = [(file, run) for file in range(len(parts.files)) for run in parts(file).runs(BLOCK_BYTES, row_bytes)]
    n_bytes = sum(run.length for _, run in runs)
    every = -(-n_bytes // SEEN_BYTES) if n_bytes > MAX_BYTES else 1
    of_group = Counter[tuple[int, int]]()
    for file, run in runs:
        of_group[file, run.offset] += run.length
    return runs[::every], sum(run.n for _, run in runs), max(of_group.values(), default=0)
