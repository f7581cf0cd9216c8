"""CsvPart: a CSV file of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from singa_dask.data import fs
from singa_dask.data.codecs.csv_records import (
    AS_UTF8,
    cut_records,
    decimal_comma,
    fault_of,
    find_wrong,
    has_numbers,
    parse_columns,
    read_header,
    record_starts,
)
from singa_dask.data.codecs.table_columns import column_kind
from singa_dask.data.fs.byte_source import Range, open_bytes, scan_ahead
from singa_dask.data.stores.table_part import TablePart
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError

# records that are looked at for decimal commas
SHOWN_ROWS = 1000
TYPES = {"number": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "empty": pa.float64()}


class CsvPart(TablePart):
    """A CSV file with a header, as it is or gzipped; of a gzipped one all is held in memory.

    Kinds are those of the first ``block_bytes``; a column without a value there is taken for one of numbers. If wrong
    records are to be skipped, so is a column most of whose values are numbers.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options,
        separator: str,
        block_bytes: int,
        tolerant: bool = False,
        charset: str = "utf-8",
        has_names: bool | None = None,
    ) -> None:
        self.url = url
        self.source = open_bytes(url, storage_options)
        self._header = read_header(url, self.source.scan, self.source.size, separator, charset, has_names)
        self._block_bytes, self._tolerant = block_bytes, tolerant
        self.names, self.start = self._header.names, self._header.start
        self.index = tuple(name for name in self._header.names if not name or name.startswith("Unnamed: "))

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column, from the first records."""
        first = next(cut_records(self.url, self._chunks(), self._header, self.source.size), None)
        if first is None:
            return {}
        text = bytes(self.source.read(first.offset, first.length))
        try:
            table = parse_columns(text, self._header, None, skip_wrong=self._tolerant)
        except (pa.ArrowException, ValueError) as error:
            raise self._error(text, first, (), error) from None
        columns = dict(zip(self._header.names, table.columns, strict=True))
        self.faults = {name: fault for name, column in columns.items() if (fault := self._fault_of(column))}
        kinds = {name: self._kind(column) for name, column in columns.items()}
        is_all = first.offset + first.length >= self.source.size
        return {name: "number" if kind == "empty" and not is_all else kind for name, kind in kinds.items()}

    def _chunks(self) -> Iterator[memoryview]:
        """Read the file in chunks, when they are needed."""
        size = self.source.size
        for offset in range(self._header.start, size, self._block_bytes):
            yield self.source.scan(offset, min(self._block_bytes, size - offset))

    def _kind(self, column: pa.ChunkedArray) -> str:
        kind = column_kind(column.type)
        is_number = kind == "string" and self._tolerant and has_numbers(column.drop_null().to_pylist())
        return "number" if is_number else kind

    def _fault_of(self, column: pa.ChunkedArray) -> str:
        if pa.types.is_binary(column.type):
            return f"not UTF-8. {AS_UTF8}"
        if not pa.types.is_string(column.type):
            return ""
        texts = column.drop_null().to_pylist()
        advice = "Write numbers with a decimal point, or set features without this column."
        if text := decimal_comma(texts[:SHOWN_ROWS]):
            return f"{text!r} has a decimal comma. {advice}"
        if self._tolerant or not has_numbers(texts):
            return ""
        advice = "Leave missing values empty, or set features without this column."
        fault = next((fault for text in texts if (fault := fault_of(text.strip()))), "values of several kinds")
        return f"{fault}. {advice}"

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        chunks = scan_ahead(self.source, self._header.start, self.source.size, block_bytes)
        return cut_records(self.url, chunks, self._header, self.source.size)

    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return (Range(self.source, run.offset, run.length),)

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        text = _whole_bytes(data[0])
        numbers = [name for name, kind in kinds.items() if kind in ("number", "empty")]
        try:
            table = parse_columns(text, self._header, _types(kinds), list(kinds))
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise self._error(text, run, numbers, error) from None
        if len(table) != run.n:
            fault = ValueError(f"{len(table)} records, expected {run.n}")
            raise self._error(text, run, numbers, fault)
        return table

    def rows(
        self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        text = bytes(data[0])
        starts = [*record_starts(text).tolist(), len(text)]

        def decode(first: int, stop: int) -> pa.Table:
            part = text[starts[first] : starts[stop]]
            if stop - first == 1:
                line = run.line + text.count(b"\n", 0, starts[first])
                return self.decode(RecordRun(run.offset + starts[first], len(part), 1, line), kinds, [memoryview(part)])
            table = parse_columns(part, self._header, _types(kinds), list(kinds))
            if len(table) != stop - first:
                raise ValueError(f"{len(table)} records, expected {stop - first}")
            return table

        return decode

    def _error(self, text: bytes, run: RecordRun, numbers: Sequence[str], error: Exception) -> DataError:
        wrong = find_wrong(text, self._header, numbers)
        if wrong is None:
            return DataError(f"{self.url}, lines from {run.line} on: {str(error).rstrip('.')}.")
        return DataError(f"{self._line(text, run, wrong[0])}{wrong[1]}.")

    def _line(self, text: bytes, run: RecordRun, row: int) -> str:
        line = run.line + text.count(b"\n", 0, int(record_starts(text)[row]))
        return f"{self.url}, line {line}"

    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        return lambda row: self._line(bytes(data[0]), run, row)


def _types(kinds: Mapping[str, str]) -> dict[str, pa.DataType]:
    return {name: TYPES[kind] for name, kind in kinds.items()}


def _whole_bytes(data: memoryview) -> bytes:
    """Return bytes, without a copy of those that were read from a remote file."""
    return data.obj if isinstance(data.obj, bytes) and len(data.obj) == len(data) else bytes(data)
