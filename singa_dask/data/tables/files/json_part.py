"""JsonPart: a file of JSON lines of a table."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.json

from singa_dask import fs
from singa_dask.data.blocks import BLOCK_BYTES, cut_lines
from singa_dask.data.codecs.class_types import are_floats
from singa_dask.data.tables.column_names import as_spelled
from singa_dask.data.tables.column_values import column_kind
from singa_dask.data.tables.files.json_text import after_mark, load_object, parse_lines
from singa_dask.data.tables.files.table_part import TablePart
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError, FaultError, Remedy, data_error
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import Range
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

# kind of a column -> Arrow type; all other kinds are numbers
KINDS = {"string": pa.string(), "boolean": pa.bool_(), "vector": pa.list_(pa.float64())}


class JsonPart(TablePart):
    """A file of JSON lines as a table, gzipped or not. Keys are columns; a missing key is a missing value.

    Columns and their kinds are detected in the first ``block_bytes`` bytes. If wrong records are skipped, the kind of a
    column is the kind of most of its values there. Names of columns are spelled as in ``wanted``; see `as_spelled`.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        block_bytes: int = BLOCK_BYTES,
        tolerant: bool = False,
        na_values: Sequence[str] = (),
        listed: Mapping[str, Collection[str]] = MappingProxyType({}),
        wanted: Collection[str] = (),
    ) -> None:
        self.url, self.source = url, open_bytes(url, storage_options)
        self._na_values, self._listed, self._wanted = na_values, listed, wanted
        self.start = after_mark(url, self.source)
        first = next(self.runs(block_bytes, 0), None)
        self._first = bytes(self.source.read(first.offset, first.length)) if first else b""
        if na_values and parse_lines(self._first, None) is None:
            self._first = self._without_words(self._first)
        types = _types_of(self._first)
        self._types = dict(zip(as_spelled([*types], wanted, url), types.values(), strict=True))
        self._titles = dict(zip(self._types, types, strict=True))  # the keys in the file
        self.floats = {name for name, kind in self._types.items() if are_floats(kind)}
        self.names = tuple(self._types)
        if first and not tolerant and parse_lines(self._first, None) is None:
            raise self._error(self._first, first, self.kinds)

    def lacks(self, column: str) -> bool:
        return False  # any record may have keys that earlier records lack

    @property
    def kinds(self) -> dict[str, str]:
        return {name: column_kind(kind) for name, kind in self._types.items()}

    def width(self, column: str) -> int:
        table = parse_lines(self._first, self._schema({column: "vector"}))
        lengths = [] if table is None else pc.list_value_length(table.column(0)).drop_null().to_pylist()
        return int(next(iter(lengths), 0))

    def _schema(self, kinds: Mapping[str, str]) -> pa.Schema:
        """Return the types of columns. Numbers and booleans keep their type, even if strings are wanted."""
        types = {name: KINDS.get(kind, pa.float64()) for name, kind in kinds.items()}
        strings = [name for name, kind in kinds.items() if kind == "string" and name in self._types]
        plain = [name for name in strings if column_kind(self._types[name]) in ("number", "boolean")]
        types |= {name: self._types[name] for name in plain}
        return pa.schema({self._titles.get(name, name): kind for name, kind in types.items()})

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        return cut_lines(self.source, self.start, block_bytes)

    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return (Range(self.source, run.offset, run.length),)

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        text, schema = data[0], self._schema(kinds)
        table = parse_lines(text, schema)
        if table is None and self._na_values:
            text = memoryview(self._without_words(bytes(text)))
            table = parse_lines(text, schema)
        if table is None or len(table) != run.n:
            raise self._error(bytes(text), run, kinds)
        return table.select(schema.names).rename_columns(list(kinds))

    def _without_words(self, text: bytes) -> bytes:
        """Replace words for missing values by null, so that columns of numbers can be parsed."""
        words = {
            json.dumps(word, ensure_ascii=is_ascii).encode() for word in self._na_values for is_ascii in (False, True)
        }
        lines = text.split(b"\n")
        with_words = [i for i, line in enumerate(lines) if any(word in line for word in words)]
        for i in with_words:
            with contextlib.suppress(ValueError):
                record = load_object(lines[i])
                names = as_spelled([*record], self._wanted, self.url)
                for (key, value), name in zip([*record.items()], names, strict=True):
                    if value in self._na_values and value not in self._listed.get(name, ()):
                        record[key] = None
                lines[i] = json.dumps(record).encode()
        return b"\n".join(lines)

    def rows(
        self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        lines = bytes(data[0]).split(b"\n")

        def decode(first: int, stop: int) -> pa.Table:
            text = b"\n".join(lines[first:stop])
            return self.decode(RecordRun(0, len(text), stop - first, run.line + first), kinds, [memoryview(text)])

        return decode

    def _error(self, text: bytes, run: RecordRun, kinds: Mapping[str, str]) -> DataError:
        """Return the error of the first wrong line of a run."""
        schema = self._schema(kinds)
        for line, record in enumerate(text.split(b"\n"), run.line):
            table = parse_lines(record, schema)
            if table is None or len(table) != 1:
                return data_error(f"{self.url}, line {line}", _fault_of(record, schema))
        return DataError(f"{self.url}, lines from {run.line} on: a column has values of several kinds.")

    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        return lambda row: f"{self.url}, line {run.line + row}"


def _types_of(text: bytes) -> dict[str, pa.DataType]:
    """Return the type of each column; if types differ, or lines are wrong, the type of most values."""
    table = parse_lines(text, None)
    if table is not None:
        types = dict(zip(table.schema.names, table.schema.types, strict=True))
        # read integers beyond int64 as uint64 to keep their digits, because they may be names of categories
        floats = [name for name, kind in types.items() if kind == pa.float64()]
        for name in [name for name in floats if 2.0**63 <= (pc.max(table[name]).as_py() or 0) <= 2.0**64]:
            if parse_lines(text, pa.schema({name: pa.uint64()})) is not None:
                types[name] = pa.uint64()
        return types
    values_by_kind = defaultdict[str, dict[str, list[Any]]](dict)
    for line in text.split(b"\n"):
        with contextlib.suppress(ValueError):
            for key, value in load_object(line).items():
                values_by_kind[key].setdefault(column_kind(_type_of([value])), []).append(value)
    return {
        key: _type_of(max(kinds.values(), key=lambda each: (each[0] is not None, len(each))))
        for key, kinds in values_by_kind.items()
    }


def _type_of(values: Sequence[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return pa.float64() if isinstance(values[0], int) else pa.struct([])


def _kind_of(kind: pa.DataType) -> str:
    """Return the kind of a column. Integers in nested lists count as floats."""
    return column_kind(kind).replace(str(pa.int64()), str(pa.float64()))


def _fault_of(line: bytes, schema: pa.Schema) -> FaultError:
    """Return why a line does not fit a schema."""
    try:
        record = load_object(line)
    except ValueError as error:
        return FaultError(str(error))
    for name, wanted in zip(schema.names, schema.types, strict=True):
        kind, value = _kind_of(wanted), record.get(name)
        if isinstance(value, int | float) and abs(value) > sys.float_info.max:
            return FaultError(f"column {name!r}: {value!r:.40} does not fit in a float of 32 bits")
        if value is not None and _kind_of(_type_of([value])) != kind:
            message = f"column {name!r} is {value!r:.40}, expected a {kind}, as in most of the first lines"
            if kind != "number" or not isinstance(value, str):
                return FaultError(message)
            remedy = Remedy("na_values", f"Set na_values: [{value:.40}]", (f"{value:.40}",))
            return FaultError(f"{message}. {remedy.text} if it means a missing value", remedy)
    return FaultError(
        "a key occurs twice, or a text is not Unicode, or a number is not an integer, unlike those of the first lines"
    )
