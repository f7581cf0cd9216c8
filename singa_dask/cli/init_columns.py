"""The columns of a table that ``init`` looks at: their values, whether the file names them, and rows for a test set."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from singa_dask.cli.init_records import Options, Rows, UnsureError
from singa_dask.data import fs
from singa_dask.data.codecs.csv_records import check_charset, record_starts
from singa_dask.data.codecs.table_columns import as_floats, as_texts, is_number, missing_of, whole
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.data.fs.byte_source import open_bytes
from singa_dask.data.stores.table import open_part
from singa_dask.data.stores.table_part import OpenParts, TableReader, format_of, table_files
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError

# of larger tables the first records are looked at
MAX_BYTES = 1 << 28
HEAD_BYTES = 1 << 16
BLOCK_BYTES = 1 << 24
BOM = b"\xef\xbb\xbf"
DATES = ("date", "timestamp", "time", "duration")
DATE = re.compile(r"\d{4}-\d\d?-\d\d?([ T].*)?|\d\d?[./]\d\d?[./]\d{2,4}([ T].*)?")
MAX_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table: its position from 1 on, its kind, and its values as far as they were looked at."""

    name: str
    position: int
    kind: str
    values: pa.Array
    is_index: bool = False
    fault: str = ""

    @cached_property
    def present(self) -> pa.Array:
        """Values that are not missing."""
        return self.values.filter(pa.array(~missing_of(self.values)))

    @cached_property
    def distinct(self) -> pa.Array:
        """Different values, sorted."""
        found = pc.unique(self.present)
        return found.take(pc.sort_indices(found))

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """Values that are not missing, of a column of numbers."""
        return as_floats(self.present)

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers."""
        return self.kind == "number" and bool((self.numbers == self.numbers.round()).all())

    @property
    def is_date(self) -> bool:
        """Whether values are dates, also as text."""
        if self.kind in DATES:
            return True
        return self.kind == "string" and all(DATE.fullmatch(text) for text in self.present[:100].to_pylist())

    def show(self) -> str:
        """Return position, number of different values, and some of them."""
        shown = ", ".join(show_value(each) for each in self.distinct[:MAX_SHOWN].to_pylist())
        more = ", ..." if len(self.distinct) > MAX_SHOWN else ""
        return f"column {self.position}, {len(self.distinct)} different: {shown}{more}"


def show_value(value: Any) -> str:
    """Return a value as text: short, without line ends."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return f"{text[:30]}..." if len(text) > 33 else text


@dataclass(frozen=True, eq=False)
class Table:
    """A table: how it is read, its columns, and where its records are."""

    url: str
    format: str
    text: Mapping[str, Any]
    columns: Sequence[Column]
    n: int
    reader: TableReader
    kinds: Mapping[str, str]
    runs: Sequence[tuple[int, RecordRun]] = field(repr=False)

    @cached_property
    def named(self) -> dict[str, Column]:
        """Columns by name."""
        return {each.name: each for each in self.columns}

    @property
    def is_whole(self) -> bool:
        """Whether all records were looked at."""
        return all(len(each.values) == self.n for each in self.columns if each.name)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the different values of a column as they are written, sorted, those of numbers by value."""
        found = set[str]()
        for file, run in self.runs:
            texts = as_texts(whole(_decoded(self.reader, file, run, {name: "string"}).column(name)))
            found.update(pc.unique(texts.filter(pa.array(~missing_of(texts)))).to_pylist())
        try:
            return tuple(sorted(sorted(found), key=float))
        except ValueError:
            return tuple(sorted(found))

    def write(self, url: str, rows: Rows) -> None:
        """Write rows to a file of the same form, CSV record by record as they are; other tables to Parquet."""
        fs.write_atomic(url, self._rows(rows))

    @property
    def suffix(self) -> str:
        """Of the files that `write` writes."""
        return ".csv" if self.format == "csv" else ".parquet"

    def _rows(self, rows: Rows) -> bytes:
        if self.format == "csv":
            return b"".join(self._lines(np.sort(rows)))
        sink = pa.BufferOutputStream()
        pq.write_table(self._decoded().take(pa.array(np.sort(rows))), sink)
        return bytes(sink.getvalue())

    def _decoded(self) -> pa.Table:
        tables = [_decoded(self.reader, file, run, self.kinds) for file, run in self.runs]
        return pa.concat_tables(tables, promote_options="permissive")

    def _lines(self, rows: Rows) -> Iterator[bytes]:
        first = self.reader.parts(0)
        yield bytes(first.source.read(0, first.start))
        at = 0
        for file, run in self.runs:
            text = bytes(self.reader.parts(file).source.read(run.offset, run.length))
            starts = [*record_starts(text).tolist(), len(text)]
            for row in rows[(rows >= at) & (rows < at + run.n)] - at:
                record = text[starts[row] : starts[row + 1]]
                yield record if record.endswith(b"\n") else record + b"\n"
            at += run.n


class LaggedTable(Table):
    """A table with more columns than its file, so that `write` writes all of them to Parquet."""

    def _decoded(self) -> pa.Table:
        return pa.table({each.name: each.values for each in self.columns if each.name in self.kinds})


def with_lags(table: Table, names: Sequence[str], n: int) -> Table:
    """Return a table whose records also have the last values of some columns, ``NAME_lag1`` to ``NAME_lagN``.

    It begins with the first record that has ``n`` records before it.

    Raises
    ------
    DataError
        It is too short, or too large to be looked at as a whole, or has columns of these names.
    """
    said = "" if table.is_whole else f"expected a table of at most {MAX_BYTES >> 20} MiB"
    said = said or (f"it has {table.n} records. Expected more" if table.n <= n else "")
    if said:
        raise DataError(f"{table.url}: --lags {n}: {said}.")
    columns, kinds = [replace(each, values=each.values[n:]) for each in table.columns], dict(table.kinds)
    for name in names:
        of = table.named[name]
        for k in range(1, n + 1):
            lag = Column(f"{name}_lag{k}", len(columns) + 1, of.kind, of.values[n - k : len(of.values) - k])
            if lag.name in kinds:
                raise DataError(f"{table.url}: --lags {n}: it has a column {lag.name!r} already.")
            kinds[lag.name] = of.kind
            columns.append(lag)
    return LaggedTable(table.url, "parquet", {}, columns, table.n - n, table.reader, kinds, table.runs)


def read_table(place: str, options: Options) -> Table:
    """Read the columns of a table.

    Raises
    ------
    DataError
        It cannot be read; says where, and which option helps.
    UnsureError
        Its first line may name the columns, or be a record.
    """
    files = table_files(place)
    form = format_of(files)
    if options.encoding:
        check_charset(place, options.encoding)
    try:
        text = _sniff(files[0].url, options) if form == "csv" else {}
        parts = OpenParts(lambda file: open_part(files[file].url, form, block_bytes=BLOCK_BYTES, **text))
        reader = TableReader(parts, files, TableSpec())
        part = next((parts(file) for file in range(len(files)) if parts(file).kinds), None)
        if part is None:
            raise DataError(f"{place}: no records{' but the header' * (form == 'csv')}.")
        kinds = {name: "string" if part.class_names(name) else kind for name, kind in part.kinds.items()}
        kinds |= {name: "string" for name, _ in files[0].keys}
        return _looked_at(place, form, text, reader, kinds)
    except DataError as error:
        if "charset" in str(error) or "UTF-8" in str(error):
            said = str(error).replace(", or set charset, such as latin-1", "")
            raise DataError(f"{said} Or give --encoding, such as latin-1 or cp1252.") from None
        raise


def _decoded(reader: TableReader, file: int, run: RecordRun, kinds: Mapping[str, str]) -> pa.Table:
    return reader.decode(file, run, kinds, reader.parts(file).fetch(run, reader.in_file(file, kinds)))


def _looked_at(place: str, form: str, text: Mapping[str, Any], reader: TableReader, kinds: dict[str, str]) -> Table:
    read = ("number", "boolean", "string", "empty")
    if form == "csv":
        wanted = {name: kind if kind in read else "string" for name, kind in kinds.items() if name}
    else:
        wanted = {name: kind for name, kind in kinds.items() if name and kind in (*read, *DATES)}
    runs, tables, n_bytes = list[tuple[int, RecordRun]](), list[pa.Table](), 0
    for file in range(len(reader.files)):
        for run in reader.parts(file).runs(BLOCK_BYTES, 4 * len(kinds)):
            runs.append((file, run))
            n_bytes += run.length
            if n_bytes <= MAX_BYTES or not tables:
                tables.append(_decoded(reader, file, run, wanted))
    table = pa.concat_tables(tables, promote_options="permissive")
    part, none = reader.parts(0), pa.nulls(len(table))
    values = {name: whole(table.column(name)) for name in wanted}
    columns = [
        Column(name, i, kind, values.get(name, none), name in part.index, part.faults.get(name, ""))
        for i, (name, kind) in enumerate(kinds.items(), 1)
    ]
    return Table(place, form, text, columns, sum(run.n for _, run in runs), reader, wanted, runs)


# -- text -----------------------------------------------------------------------------------------------


def head_lines(place: str, charset: str = "utf-8") -> list[str]:
    """Return the first lines of a text, as it is or gzipped."""
    source = open_bytes(place)
    head = bytes(source.read(0, min(source.size, HEAD_BYTES)))
    source.close()
    lines = [line.decode(charset, errors="replace") for line in head.removeprefix(BOM).splitlines()]
    return lines[:-1] if len(head) == HEAD_BYTES else lines


def _sniff(place: str, options: Options) -> dict[str, Any]:
    """Return separator, encoding and whether there is a header, as far as they are not the usual ones."""
    lines = head_lines(place, options.encoding or "utf-8")
    found: dict[str, Any] = {}
    separator = options.separator or separator_of(lines)
    if len(separator) != 1:
        raise DataError(f"{place}: --separator {separator!r}. Expected one character.")
    if separator != ",":
        found["separator"] = separator
    if options.encoding:
        found["charset"] = options.encoding
    rows = [row for row in csv.reader(lines, delimiter=separator) if row and not row[0].startswith("sep=")]
    if options.header is not None:
        found["header"] = options.header
    elif rows and not _has_header(place, rows[0], rows[1:]):
        found["header"] = False
    return found


def separator_of(lines: Sequence[str]) -> str:
    """Return the separator that the first line of a table has most of; a blank if it has none."""
    unquoted = re.sub(r'"[^"]*"', "", lines[0] if lines else "")
    return max((",", ";", "\t", "|"), key=unquoted.count) if re.search(r"[,;\t|]", unquoted) else " "


def _has_header(place: str, first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line names the columns.

    Raises
    ------
    UnsureError
        It may.
    """
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
        f"does its first line name the columns? It has {', '.join(show_value(each) for each in first[:8])}.",
        [("the names of the columns", {"header": True}), ("a record", {"header": False})],
        "Give --header if it does, or --no-header.",
    )
