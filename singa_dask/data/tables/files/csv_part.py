"""CsvPart: a CSV file of a table."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.csv

from singa_dask import fs
from singa_dask.data.blocks import BLOCK_BYTES
from singa_dask.data.codecs.class_types import are_floats
from singa_dask.data.tables.column_names import as_spelled
from singa_dask.data.tables.column_values import column_kind, whole
from singa_dask.data.tables.files.csv_text import (
    AS_CHARACTERS,
    AS_UTF8,
    NEWLINE,
    UNQUOTED,
    UTF8,
    CsvHeader,
    Listed,
    cut_records,
    decimal_comma,
    find_quotes,
    find_wrong,
    has_numbers,
    header_fields,
    parse_columns,
    read_header,
    record_starts,
)
from singa_dask.data.tables.files.table_part import TablePart
from singa_dask.data.tables.spelling import MISSING, THOUSANDS_COMMA, fault_of
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError, FaultError, Remedy
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import Range, scan_ahead
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

# decimal commas are searched for in this number of records
SHOWN_ROWS = 1000
# maximum number of words among numbers that an error names
MAX_WORDS = 8
TYPES = {"number": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "empty": pa.float64()}


class CsvPart(TablePart):
    """A CSV file with a header. A gzipped file is decompressed into memory.

    The kinds of columns are detected in the first ``block_bytes`` bytes. A column without values there counts as
    numeric. If wrong records are skipped, a column is numeric if most of its values are numbers. Names of columns are
    spelled as in ``wanted``; see `as_spelled`.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        separator: str = ",",
        block_bytes: int = BLOCK_BYTES,
        tolerant: bool = False,
        charset: str = UTF8,
        header: bool | None = None,
        listed: Listed = MappingProxyType({}),
        quotes: bool | None = None,
        na_values: Sequence[str] = (),
        wanted: Collection[str] = (),
    ) -> None:
        self.url, self._listed, self._na_values = url, listed, na_values
        self.source = open_bytes(url, storage_options)
        titled = self._read_header(separator, charset, header, quotes)
        self._titles, self._header = titled.names, titled._replace(names=tuple(as_spelled(titled.names, wanted, url)))
        self._block_bytes, self._tolerant = block_bytes, tolerant
        self.names, self.start = self._header.names, self._header.start
        self.index = tuple(name for name in self._header.names if not name or name.startswith("Unnamed: "))

    def _read_header(self, separator: str, charset: str, header: bool | None, quotes: bool | None) -> CsvHeader:
        return read_header(self.url, self.source.scan, self.source.size, separator, charset, header, quotes)

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column, from the first records."""
        first = next(cut_records(self.url, self._chunks(), self._header, self.source.size), None)
        if first is None:
            return {}
        text = bytes(self.source.read(first.offset, first.length))
        try:
            table = parse_columns(text, self._header, None, skip_wrong=self._tolerant, na_values=self._na_values)
        except (pa.ArrowException, ValueError) as error:
            raise self._error(text, first, (), error) from None
        columns = dict(zip(self._header.names, table.columns, strict=True))
        if any(pa.types.is_binary(column.type) for column in columns.values()):
            self.not_text = self._error(text, first, (), ValueError(f"the text is not UTF-8. {AS_UTF8}"))
        self.faults = {name: fault for name, column in columns.items() if (fault := self._fault_of(column))}
        self.floats = {name for name, column in columns.items() if are_floats(column.type)}
        kinds = {name: "string" if name in self._listed else self._kind(column) for name, column in columns.items()}
        is_all = first.offset + first.length >= self.source.size
        return {name: "number" if kind == "empty" and not is_all else kind for name, kind in kinds.items()}

    def _chunks(self) -> Iterator[memoryview]:
        """Read the file in chunks, lazily."""
        size = self.source.size
        for offset in range(self._header.start, size, self._block_bytes):
            yield self.source.scan(offset, min(self._block_bytes, size - offset))

    def _kind(self, column: pa.ChunkedArray) -> str:
        kind = column_kind(column.type)
        is_number = kind == "string" and self._tolerant and has_numbers(column.drop_null().to_pylist())
        return "number" if is_number else kind

    def _fault_of(self, column: pa.ChunkedArray) -> str:
        if pa.types.is_binary(column.type):
            return f"the text is not UTF-8. {AS_UTF8}"
        if not pa.types.is_string(column.type):
            return ""
        texts = column.drop_null().to_pylist()
        if text := decimal_comma(texts[:SHOWN_ROWS]):
            both, end = "has a comma, for decimals or between thousands", "for this column, or features without it."
            commas = [each for each in texts if "," in each]
            if all(map(THOUSANDS_COMMA.fullmatch, commas)):
                return f"{text!r} {both}. Set numbers, with decimal: ',' or thousands: ',' {end}"
            return f"{text!r} has a decimal comma. Set numbers, with decimal: ',' {end}"
        if self._tolerant or not has_numbers(texts):
            return ""
        faults = {text.strip(): fault for text in dict.fromkeys(texts) if (fault := fault_of(text.strip()))}
        advice = "Set features without this column."
        if faults and len(faults) <= MAX_WORDS and not re.search(r"\d", "".join(faults)):
            advice = f"Set na_values: [{', '.join(faults)}] for missing values, or features without this column."
        return f"{next(iter(faults.values()), 'values of several kinds')}. {advice}"

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        chunks = scan_ahead(self.source, self._header.start, self.source.size, block_bytes)
        return cut_records(self.url, chunks, self._header, self.source.size)

    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return (Range(self.source, run.offset, run.length),)

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        text = _whole_bytes(data[0])
        if self._header.quotes is not False and b'"' in text:
            self._refuse_escapes(text, run)
            self._refuse_joined(text, run)
        numbers = [name for name, kind in kinds.items() if kind in ("number", "empty")]
        try:
            table = self._parse(text, kinds)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise self._error(text, run, numbers, error) from None
        if len(table) != run.n:
            fault = ValueError(f"{len(table)} records, expected {run.n}")
            raise self._error(text, run, numbers, fault)
        # if all columns are strings, the header may be a record (without a header, the names are 1, 2, ...)
        if {*kinds.values()} == {"string"} and self._header.names[0] != "1":
            self._refuse_header(table, text, run)
        return table

    def _parse(self, text: bytes, kinds: Mapping[str, str]) -> pa.Table:
        types = {name: TYPES[kind] for name, kind in kinds.items()}
        return parse_columns(text, self._header, types, list(kinds), listed=self._listed, na_values=self._na_values)

    def _refuse_escapes(self, text: bytes, run: RecordRun) -> None:
        """Refuse quotes that are escaped by a backslash, because records would end at the wrong place."""
        separator = re.escape(self._header.separator.encode())
        # search for one byte first, which is much faster than searching for two
        if b"\\" in text and b'\\"' in text and (escape := re.search(rb'\\"(?![\r\n"]|%b|\Z)' % separator, text)):
            raise DataError(
                f"{self._place(text, run, escape.start())}: a quote is escaped by a backslash, as Spark, Hive and "
                'MySQL write it. Double the quote instead, "", in Spark by the option escape=\'"\', or write Parquet.'
            )

    def _refuse_joined(self, text: bytes, run: RecordRun) -> None:
        """Refuse a quoted text of several lines if it ends within a field, or if each line could be a record."""
        if text.count(b"\n") <= run.n:
            return  # each record is exactly one line
        data, separator = np.frombuffer(text, np.uint8), self._header.separator.encode()
        newlines, quotes = np.flatnonzero(data == NEWLINE), find_quotes(data, self._header.quotes)
        pairs = quotes[: len(quotes) // 2 * 2].reshape(-1, 2)
        first, last = np.searchsorted(newlines, pairs).T
        ends = [b"", b"\r", b"\n", b'"', b" ", separator[:1]]
        # blanks may precede the quote at the beginning of a field
        heads = ((at, end, text[max(at - 9, 0) : at].rstrip(b" ")[-1:]) for at, end in pairs[first < last].tolist())
        several = [(at, end) for at, end, before in heads if before in ends]
        for at, end in several:
            if text[end + 1 : end + 2] not in ends:
                fault = "the text that a quote begins here ends on a later line, within a field"
                raise DataError(f"{self._place(text, run, at)}: {fault}. {AS_CHARACTERS}.", remedy=UNQUOTED)
        lines = (line for line in text.split(b"\n") if line.strip(b"\r"))
        n = len(self._header.names) - 1
        if several and self._header.quotes is None and run.n > 1 and all(line.count(separator) == n for line in lines):
            fault = "a quote that begins here ends on a later line, and each line between could be a record"
            either = f"{AS_CHARACTERS}, true if they quote texts of several lines"
            remedy = Remedy("quotes", either, ("false", "true"))
            raise DataError(f"{self._place(text, run, several[0][0])}: {fault}. {either}.", remedy=remedy)

    def _refuse_header(self, table: pa.Table, text: bytes, run: RecordRun) -> None:
        """Refuse a record that repeats the header, as in concatenated files."""
        form = self._header.separator, self._header.charset, self._header.quotes
        titles = dict(zip(self._header.names, self._titles, strict=True))
        same = [pc.fill_null(pc.equal(table.column(name), titles[name]), False) for name in table.column_names]
        for row in np.flatnonzero(functools.reduce(np.logical_and, same, True)):
            starts = [*record_starts(text, self._header.quotes).tolist(), len(text)]
            record = text[starts[row] : starts[row + 1]]
            if tuple(header_fields(self.url, record, *form)) == self._titles:
                raise DataError(
                    f"{self._line(text, run, int(row))}: this line repeats the header. Delete it if files were joined."
                )

    def written(self, run: RecordRun, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns of a run as strings, with blanks and words for missing values as in the file.

        The result is empty if blanks precede the quotes of a field.
        """
        text, types = bytes(self.source.read(run.offset, run.length)), dict.fromkeys(names, pa.string())
        listed = dict.fromkeys(names, MISSING)
        try:
            table = parse_columns(text, self._header, types, names, listed=listed, with_blanks=True)
        except (pa.ArrowException, ValueError):
            return {}
        return {name: whole(table.column(name)) for name in names}

    def rows(
        self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        text = bytes(data[0])
        starts = [*record_starts(text, self._header.quotes).tolist(), len(text)]

        def decode(first: int, stop: int) -> pa.Table:
            part = text[starts[first] : starts[stop]]
            if stop - first == 1:
                line = run.line + text.count(b"\n", 0, starts[first])
                return self.decode(RecordRun(run.offset + starts[first], len(part), 1, line), kinds, [memoryview(part)])
            table = self._parse(part, kinds)
            if len(table) != stop - first:
                raise ValueError(f"{len(table)} records, expected {stop - first}")
            return table

        return decode

    def _error(self, text: bytes, run: RecordRun, numbers: Sequence[str], error: Exception) -> DataError:
        wrong = self.find_wrong(text, numbers) or find_wrong(text, self._header, numbers, _boolean_among_numbers)
        if wrong is None:
            return DataError(f"{self.url}, lines from {run.line} on: {str(error).rstrip('.')}.")
        return self._wrong_record(text, run, *wrong)

    def _wrong_record(self, text: bytes, run: RecordRun, row: int, fault: FaultError) -> DataError:
        return DataError(f"{self._line(text, run, row)}{fault}.", remedy=fault.remedy)

    def find_wrong(self, text: bytes, numbers: Sequence[str]) -> tuple[int, FaultError] | None:
        """Return index and fault of the first invalid record; see `csv_records.find_wrong`."""
        return find_wrong(
            text, self._header, numbers, lambda name, field: None if field in self._na_values else fault_of(field)
        )

    def _line(self, text: bytes, run: RecordRun, row: int) -> str:
        return self._place(text, run, int(record_starts(text, self._header.quotes)[row]))

    def _place(self, text: bytes, run: RecordRun, at: int) -> str:
        line = run.line + text.count(b"\n", 0, at)
        return f"{self.url}, line {line}"

    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        return lambda row: self._line(bytes(data[0]), run, row)


def _whole_bytes(data: memoryview) -> bytes:
    """Return a memoryview as bytes, without a copy if it views a whole bytes object."""
    return data.obj if isinstance(data.obj, bytes) and len(data.obj) == len(data) else bytes(data)


def _boolean_among_numbers(_: str, field: str) -> FaultError | None:
    """Return the fault of a field that is a boolean."""
    is_boolean = field.lower() in ("true", "false")
    return FaultError(f"{field!r} is a boolean, and other values are numbers. Write 1 or 0") if is_boolean else None
