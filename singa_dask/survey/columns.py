"""TableSurvey and ColumnSurvey: the columns of a table, their values, and how its text is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from singa_dask import fs
from singa_dask.data.codecs.category_names import in_order, plain_name
from singa_dask.data.codecs.columns import as_floats, as_texts, is_number, key_texts, missing_of, whole
from singa_dask.data.codecs.dates import DateConf
from singa_dask.data.codecs.lags import DATE, are_compact_dates, times_of
from singa_dask.data.codecs.numbers import NumberConf, Spelling
from singa_dask.data.stores.tables.csv_records import SEPARATORS, check_charset, record_starts, split_rows
from singa_dask.data.stores.tables.open_parts import OpenParts, open_part
from singa_dask.data.stores.tables.table_files import LINES, TableFile, format_of, table_files
from singa_dask.data.stores.tables.table_part import TablePart
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.survey.counts import COUNTED, ColumnCounts, CountFile, Run, count
from singa_dask.survey.options import SurveyOptions, UnsureError, worded
from singa_dask.survey.split import Rows
from singa_dask.texts import charset_of, refuse_wide, split_lines
from singa_dask.wording import listed

# only SEEN_BYTES are read of tables larger than MAX_BYTES, but at least MIN_BYTES of each file
MAX_BYTES, SEEN_BYTES, MIN_BYTES = 1 << 28, 1 << 26, 1 << 16
HEAD_BYTES = 1 << 16
BLOCK_BYTES = 1 << 24
# maximum number of bytes of a columnar file that one task counts
PART_BYTES = 1 << 28
DATES = ("date", "timestamp", "time", "duration")
# integers from MIN_EPOCH (1973) on are Unix times if the name of their column matches EPOCH
EPOCH, MIN_EPOCH = re.compile(r"(?i)time|date|epoch|unix|(^|_)ts$"), 1e8
MAX_SHOWN = 5
# a column of categories has at most MAX_CATEGORIES values, with at least MIN_RECORDS records for each on average; or at
# most MANY_CATEGORIES, with RECORDS_OF_MANY
MAX_CATEGORIES, MIN_RECORDS = 50, 4
MANY_CATEGORIES, RECORDS_OF_MANY = 250, 50


@dataclass(frozen=True, eq=False)
class ColumnSurvey:
    """A column of a table: its position from 1 on, its kind, and the values that were read.

    If numbers are written as text, ``forms`` are the possible formats, and ``example`` is one of the texts. ``words``
    are texts in a column of numbers that may mean missing values. ``unlike`` is a number that ``--thousands`` or
    ``--decimal`` does not fit, and ``is_said`` whether they decided how the column is read. ``proof`` is a number of
    another column that decided it. ``counted`` has counts of the whole table, if Dask workers have counted it.
    ``date`` has the parts of a column of dates that is a feature. ``n_without`` is the number of files that lack the
    column.
    """

    name: str
    position: int
    kind: str
    values: pa.Array
    is_index: bool = False
    fault: str = ""
    forms: tuple[NumberConf, ...] = ()
    example: str = ""
    words: tuple[str, ...] = ()
    unlike: str = ""
    is_said: bool = False
    proof: str = ""
    counted: ColumnCounts | None = None
    date: DateConf | None = None
    n_without: int = 0

    @property
    def n_missing(self) -> int:
        """Number of missing values."""
        return self.counted.n_missing if self.counted else len(self.values) - len(self.present)

    @cached_property
    def _counts(self) -> Mapping[Any, int] | None:
        """Counts of the distinct values in the whole table, if it was counted."""
        counts = self.counted.values if self.counted else None
        if counts is None or self.kind != "number":
            return counts
        by_number = Counter[Any]()
        for value, n in counts.items():
            by_number[float(value) if isinstance(value, str) else value] += n
        return by_number

    @property
    def n(self) -> int:
        """Number of values from which `distinct` was computed."""
        return self.counted.n if self.counted and self._counts is not None else len(self.values)

    @property
    def n_present(self) -> int:
        """Number of values among `n` that are not missing."""
        return self.n - self.n_missing if self._counts is not None else len(self.present)

    @cached_property
    def present(self) -> pa.Array:
        """Values that are not missing, texts as plain names."""
        present = self.values.filter(pa.array(~missing_of(self.values)))
        if self.kind != "string":
            return present
        texts = as_texts(present).dictionary_encode()
        return pa.array(list(map(plain_name, texts.dictionary.to_pylist())), pa.string()).take(texts.indices)

    @cached_property
    def distinct(self) -> pa.Array:
        """Distinct values, sorted."""
        if self._counts is not None:
            return pa.array(sorted(self._counts)).cast(self.present.type)
        values = pc.unique(self.present)
        sortable = values.cast(pa.float32()) if pa.types.is_float16(values.type) else values
        return values.take(pc.sort_indices(sortable))

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """Values that are not missing, of a column of numbers."""
        return as_floats(self.present)

    def value_counts(self) -> Iterator[tuple[Any, int]]:
        """Yield each distinct value and its count."""
        if self._counts is not None:
            yield from self._counts.items()
            return
        values = self.numbers if self.kind == "number" else as_texts(self.present)
        yield from ((each["values"], each["counts"]) for each in pc.value_counts(values).to_pylist())

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers."""
        return self.kind == "number" and bool((self.numbers == self.numbers.round()).all())

    @property
    def is_date(self) -> bool:
        """Whether values are dates, also as text."""
        if self.kind in DATES:
            return True
        if self.kind == "number":
            return self._has_compact_dates
        return self.kind == "string" and all(DATE.fullmatch(text) for text in self.present[:100].to_pylist())

    @property
    def _has_compact_dates(self) -> bool:
        """Whether all values are dates such as 20240131."""
        return are_compact_dates(self.numbers)

    @cached_property
    def times(self) -> list[list[Any]]:
        """Dates as sortable values; empty if the values are not dates.

        There is a list for each way to read them, because e.g. 1/2/2024 can be read in two ways.
        """
        values = self.values.to_pylist() if self.is_date else []
        if self.kind in ("date", "timestamp") and not any(isinstance(value, str) for value in values):
            return [values]
        is_time = EPOCH.search(self.name) and self.is_whole and len(self.present) and self.numbers.min() >= MIN_EPOCH
        if is_time or (self.kind == "number" and self.is_date):
            return [[*self.numbers, *[None] * (len(self.values) - len(self.present))]]
        return times_of(values)

    def are_categories(self, n: int) -> bool:
        """Return whether there are few enough distinct values for categories in ``n`` records."""
        known = len(self.distinct)
        few, many = min(MAX_CATEGORIES, max(n / MIN_RECORDS, 2)), min(MANY_CATEGORIES, n / RECORDS_OF_MANY)
        return known < n and known <= max(few, many)

    def show(self) -> str:
        """Describe position, number of distinct values, and some of them."""
        shown = ", ".join(show_value(each) for each in self.distinct[:MAX_SHOWN].to_pylist())
        more = ", ..." if len(self.distinct) > MAX_SHOWN else ""
        return f"column {self.position}, {len(self.distinct)} different: {shown}{more}"


def show_value(value: Any) -> str:
    """Format a value as short text without line ends."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return f"{text[:30]}..." if len(text) > 33 else text


@dataclass(frozen=True, eq=False)
class TableSurvey:
    """A table: how it is read, its columns, and the ``runs`` of records that were read, of about ``n``."""

    url: str
    format: str
    text: Mapping[str, Any]
    columns: Sequence[ColumnSurvey]
    n: int
    parts: OpenParts
    kinds: Mapping[str, str]
    runs: Sequence[tuple[int, RecordRun]] = field(repr=False)
    group_bytes: int = 0

    @cached_property
    def named(self) -> dict[str, ColumnSurvey]:
        """Columns by name."""
        return {each.name: each for each in self.columns}

    @property
    def _keys(self) -> set[str]:
        """Columns that names of directories give."""
        return {name for name, _ in self.parts.files[0].keys}

    @property
    def n_seen(self) -> int:
        """Number of records that were read."""
        return len(self.columns[0].values)

    @property
    def is_whole(self) -> bool:
        """Whether all records were read."""
        return self.n_seen == self.n

    @property
    def is_counted(self) -> bool:
        """Whether Dask workers have counted all records."""
        return any(each.counted for each in self.columns)

    def count(self, options: SurveyOptions, labels: Collection[str], run: Run) -> TableSurvey:
        """Return the table with counts of all its records, from tasks that ``run`` executes."""
        columns = [each for each in self.columns if each.name in self.kinds and each.kind in COUNTED]
        written = {each.name for each in columns if each.forms or (each.name in labels and self.format == "csv")}
        kinds = {each.name: "string" if each.name in written else self.kinds[each.name] for each in columns}
        numbers = {each.name for each in columns if each.kind == "number"}
        spelling = Spelling({each.name: each.forms[0] for each in self.columns if each.forms}, options.na_values)
        reading = {**self.text, "spelling": Spelling(na_values=options.na_values), "block_bytes": BLOCK_BYTES}
        how = (self.format, reading, kinds, numbers, spelling, options.text, BLOCK_BYTES)
        try:
            found = count([CountFile(self.parts.files, file, i, n, *how) for file, i, n in self._parts()], run, self.n)
        except DataError as error:
            if error.remedy is None or not error.wants("na_values") or error.remedy.text:
                raise
            raise DataError(f"{error} If it means a missing value, add it to --na-values.") from None
        columns = [replace(each, counted=found.get(each.name)) for each in self.columns]
        return replace(self, columns=columns, n=max((each.n for each in found.values()), default=self.n))

    def _parts(self) -> Iterator[tuple[int, int, int]]:
        """Yield each part of a file that a task counts: index of the file, index of the part, number of parts.

        A text file is one part.
        """
        for file in range(len(self.parts.files)):
            n = 1 if self.format in LINES else -(-self.parts(file).source.size // PART_BYTES)
            yield from ((file, index, n) for index in range(n))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the distinct values of a column as they are written, sorted, numbers by value."""
        if self.named[name].kind == "string":
            return in_order(self.named[name].distinct.to_pylist())
        counted = self.named[name].counted
        if counted and counted.values is not None:
            return in_order(as_texts(pa.array(counted.values)).to_pylist())
        different = set[str]()
        for file, run in self.runs:
            texts = as_texts(whole(decoded(self.parts, file, run, {name: "string"}).column(name)))
            different.update(pc.unique(texts.filter(pa.array(~missing_of(texts)))).to_pylist())
        return in_order(different)

    def with_names(self, names: Collection[str], na_values: Sequence[str]) -> TableSurvey:
        """Return the table with columns read as names, also if they look like numbers, such as 01234."""
        columns = []
        for each in self.columns:
            if each.name in names and each.kind != "string" and each.name not in self._keys:
                runs = [decoded(self.parts, file, run, {each.name: "string"}) for file, run in self.runs]
                column = whole(pa.concat_tables(runs, promote_options="permissive").column(each.name))
                texts = as_texts(column)
                is_word = np.asarray(pc.is_in(texts, pa.array([*na_values], pa.string())))
                values = pc.if_else(pa.array(missing_of(column) | is_word), None, texts)
                each = replace(each, kind="string", values=values, fault="")
            columns.append(each)
        return replace(self, columns=columns)

    def keys(self, name: str) -> pa.Array:
        """Return the values of a column that were read, for `SplitConf.of_keys`."""
        if name in self._keys:
            return key_texts(self.named[name].values)
        # read values as strings, because 007 is not a number
        found, at, kinds = list[pa.Array](), 0, {name: "string"}
        for file, run in self.runs:
            if at < self.n_seen:
                found.append(key_texts(whole(decoded(self.parts, file, run, kinds).column(name))))
            at += run.n
        return pa.concat_arrays(found)

    def check_copy(self) -> None:
        """Raise a `DataError` if `write` cannot write records of all files to one file."""
        first = self.parts(0)
        for file in range(1, len(self.parts.files) if self.format == "csv" else 0):
            if (other := self.parts(file)).names != first.names:
                raise DataError(
                    f"{other.url}: its header differs from that of {first.url}, so its records cannot be copied after "
                    f"the same header. Leave out --copy, or write the files with the same header."
                )

    def write(self, url: str, rows: Rows) -> None:
        """Write rows to a file: CSV records unchanged, other tables as Parquet."""
        fs.write_atomic(url, self._rows(rows))

    @property
    def suffix(self) -> str:
        """Suffix of the files that `write` writes."""
        return ".csv" if self.format == "csv" else ".parquet"

    def _rows(self, rows: Rows) -> bytes:
        if self.format == "csv":
            return b"".join(self._lines(np.sort(rows)))
        sink = pa.BufferOutputStream()
        read = pa.table({each.name: each.values for each in self.columns if each.name in self.kinds})
        pq.write_table(read.take(pa.array(np.sort(rows))), sink)
        return bytes(sink.getvalue())

    def _lines(self, rows: Rows) -> Iterator[bytes]:
        first = self.parts(0)
        yield bytes(first.source.read(0, first.start))
        at = 0
        for file, run in self.runs:
            text = bytes(self.parts(file).source.read(run.offset, run.length))
            starts = [*record_starts(text, self.text.get("quotes")).tolist(), len(text)]
            for row in rows[(rows >= at) & (rows < at + run.n)] - at:
                record = text[starts[row] : starts[row + 1]]
                yield record if record.endswith(b"\n") else record + b"\n"
            at += run.n


class OpenTable(NamedTuple):
    """The format of a table, the options of its CSV, its files, and kinds and faults of its columns.

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
        """Return the table with labels read as ``--classes``, which may be words for missing values, such as NA."""
        if self.format != "csv" or not options.classes:
            return self
        listed = dict.fromkeys(options.label, options.classes)
        parts = OpenParts(self.parts.files, partial(self.open_file, listed=listed))
        kinds = {name: "string" if name in listed else kind for name, kind in self.kinds.items()}
        return self._replace(parts=parts, kinds=kinds)


def open_table(place: str, options: SurveyOptions, storage_options: fs.Options = None) -> OpenTable:
    """Open a table, and detect how its text is read.

    Raises
    ------
    DataError
        The table cannot be read. The message says where, and which option helps.
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
        refuse_wide(place, _head(files[0].url, storage_options))
    if options.encoding:
        check_charset(place, options.encoding)
    text = _sniff(files[0].url, options, storage_options) if form == "csv" else {}
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

    Raises a `DataError` if the table cannot be read. The message says where, and which option helps.
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


def decoded(parts: OpenParts, file: int, run: RecordRun, kinds: Mapping[str, str]) -> pa.Table:
    """Read columns of a run of records."""
    return parts.decode(file, run, kinds, parts(file).fetch(run, parts.in_file(file, kinds)))


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
    """Return runs of records in columnar files, their number, and the bytes of the largest row group.

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


# -- reading text files ---------------------------------------------------------------------------------


def _head(place: str, storage_options: fs.Options = None) -> bytes:
    """Return the first bytes of a file, which may be gzipped."""
    source = open_bytes(place, storage_options)
    head = bytes(source.read(0, min(source.size, HEAD_BYTES)))
    source.close()
    return head


def head_lines(place: str, charset: str = "utf-8", storage_options: fs.Options = None) -> list[str]:
    """Return the first lines of a text file, which may be gzipped."""
    head = _head(place, storage_options)
    marked, start = charset_of(head)
    found = split_lines(head[start:].decode(marked if start else charset, errors="replace"))
    return found[:-1] if len(head) == HEAD_BYTES else found


def _sniff(place: str, options: SurveyOptions, storage_options: fs.Options = None) -> dict[str, Any]:
    """Return the options of a CSV file, such as separator and header, that differ from the defaults."""
    lines = head_lines(place, options.encoding or "utf-8", storage_options)
    keys: dict[str, Any] = {}
    separator = options.separator or separator_of(lines)
    if len(separator) != 1:
        raise DataError(f"{place}: --separator {separator!r}. Expected one character.")
    if separator != ",":
        keys["separator"] = separator
    if options.encoding:
        keys["charset"] = options.encoding
    if options.quotes is not None:
        keys["quotes"] = options.quotes
    rows = [row for row in split_rows(lines, separator, options.quotes) if row and not row[0].startswith("sep=")]
    if options.header is not None:
        keys["header"] = options.header
    elif rows and not _has_header(place, rows[0], rows[1:]):
        keys["header"] = False
    return keys


def separator_of(lines: Sequence[str]) -> str:
    """Return the most frequent separator in the first line of a table; a blank if it has none."""
    unquoted = re.sub(r'"[^"]*"', "", lines[0] if lines else "")
    return max((",", *SEPARATORS), key=unquoted.count) if re.search(r"[,;\t|\x01]", unquoted) else " "


def _has_header(place: str, first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line names the columns; raises an UnsureError if that is not clear."""
    numbers = [is_number(text) for text in first if text.strip()]
    texts = [i for i, text in enumerate(first) if text.strip() and not is_number(text)]
    again = sum(first[i] in {row[i] for row in rows if len(row) > i} for i in texts)
    counted = [text.strip() for text in first] == [str(i) for i in range(len(first))] and len(first) > 2
    if not any(numbers) and 2 * again <= len(texts):
        return True
    if (all(numbers) and not counted) or (texts and 2 * again > len(texts)):
        return False
    raise UnsureError(
        place,
        f"does its first line name the columns? It has {listed(list(map(show_value, first)), 8)}.",
        [("the names of the columns", {"header": True}), ("a record", {"header": False})],
        "Pass --header if it does, or --no-header.",
    )
