"""Records in JSON lines, an object per line, such as ``{"x": [0.5, 1.5], "label": 3}``; and lines as bytes.

pyarrow parses whole blocks; only a block that it refuses is parsed line by line, to name the wrong one.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from singa_dask import fs
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.codecs.columns import column_kind
from singa_dask.data.codecs.labels import find_wrong_label, label_field
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.values import flat_lists
from singa_dask.data.stores.blocks import BLOCK_BYTES, NEWLINE, cut_lines
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES, LabelOptions, StoreOptions
from singa_dask.data.stores.table_part import TablePart
from singa_dask.data.types import Arrays, Field, RecordRun
from singa_dask.errors import DataError, listed
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import Bytes, Range
from singa_dask.lazy import LazyModule
from singa_dask.texts import NameNumbers, distinct_names

pc = LazyModule("pyarrow.compute")

BOM = codecs.BOM_UTF8
# or a string, which may have it inside
NAN = re.compile(rb'"(?:[^"\\]|\\.)*"|\bNaN\b')
# types of columns, by kind; others are numbers
KINDS = {"string": pa.string(), "boolean": pa.bool_(), "vector": pa.list_(pa.float64())}
PIXEL_KEYS = ("pixel", "pixels", "image", "images")
VALUE_KEYS = ("features", "data", "x", *PIXEL_KEYS)


@dataclass(frozen=True)
class JsonRecords:
    """How lines become records.

    Attributes
    ----------
    keys : tuple of str
        The key of the values, a nested list; or the keys of numbers that are the values in a row.
    is_row : bool
        Whether the values are numbers of keys, not a list.
    shape : tuple of int
        Shape of the values.
    pixel : bool
        Whether the values are integers from 0 to 255.
    label : str
        Key of the label; empty if there is none.
    text : bool
        Whether labels are text.
    classes : tuple of str
        Names of the classes, if labels are text.
    dtype : str
        Of values that are no pixels.
    """

    keys: tuple[str, ...]
    is_row: bool
    shape: tuple[int, ...]
    pixel: bool
    label: str
    text: bool
    classes: tuple[str, ...] = ()
    dtype: str = "f4"

    @property
    def schema(self) -> dict[str, Field]:
        """Fields of the records."""
        values = {"pixel": Field(np.dtype(np.uint8), self.shape)} if self.pixel else {}
        values = values or {"data": Field(np.dtype(np.float32), self.shape)}
        return values | ({"label": Field(np.dtype(np.int32))} if self.label else {})

    def decode(self, text: memoryview | bytes, n: int) -> Arrays | None:
        """Return the arrays of ``n`` lines; None if one of them is not such a record."""
        columns = _parse(text, self._arrow_schema())
        if columns is None or len(columns) != n or any(column.null_count for column in columns.columns):
            return None
        values = self._values(columns, n)
        if values is None:
            return None
        arrays: Arrays = {"pixel" if self.pixel else "data": values}
        if self.label:
            labels = self._labels(columns[self.label])
            if labels is None:
                return None
            arrays["label"] = labels
        return arrays

    def _arrow_schema(self) -> pa.Schema:
        number: pa.DataType = pa.uint8() if self.pixel else pa.float64()
        for _ in self.shape if not self.is_row else ():
            number = pa.list_(number)
        fields = [pa.field(key, number) for key in self.keys]
        label = [pa.field(self.label, pa.string() if self.text else pa.int64())] if self.label else []
        return pa.schema([*fields, *label])

    def _values(self, columns: pa.Table, n: int) -> npt.NDArray[Any] | None:
        if self.is_row:
            rows = [np.from_dlpack(columns[key].combine_chunks()) for key in self.keys]
            return self._as_floats(np.stack(rows, axis=1)) if not self.pixel else np.stack(rows, axis=1)
        try:
            flat = flat_lists(columns[self.keys[0]].combine_chunks(), self.shape, self.keys[0])
        except DataError:
            return None
        values = np.from_dlpack(flat).reshape(n, *self.shape)
        return values if self.pixel else self._as_floats(values)

    def _as_floats(self, values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
        """Return values of `dtype`; None if one does not fit."""
        return None if (np.abs(values) > np.finfo(np.float32).max).any() else values.astype(self.dtype)

    @cached_property
    def _numbers(self) -> NameNumbers:
        return NameNumbers(self.classes)

    def _labels(self, column: pa.ChunkedArray) -> npt.NDArray[np.int32] | None:
        if not self.text:
            values = np.from_dlpack(column.combine_chunks())
            return None if find_wrong_label(values) else values.astype(np.int32)
        found = column.combine_chunks().dictionary_encode()
        table = [self._numbers[name] for name in found.dictionary.to_pylist()]
        labels: npt.NDArray[np.int32] = np.array(table, np.int32)[np.from_dlpack(found.indices)]
        return None if (labels < 0).any() else labels

    def names_in(self, text: memoryview | bytes, n: int) -> set[str]:
        """Return the labels, which are text, of ``n`` lines, without those of lines that are no records."""
        columns = _parse(text, pa.schema([pa.field(self.label, pa.string())]))
        if columns is not None and len(columns) == n and not columns[self.label].null_count:
            return set(columns[self.label].combine_chunks().unique().to_pylist())
        labels = set[Any]()
        for line in bytes(text).split(b"\n"):
            with contextlib.suppress(ValueError):
                labels.add(_load_object(line).get(self.label))
        return {label for label in labels if isinstance(label, str)}

    def decode_line(self, line: bytes) -> Arrays:
        """Return the arrays of one line.

        Raises
        ------
        ValueError
            It is not such a record.
        """
        found = _load_object(line)
        values = [_value(found, key) for key in self.keys]
        array = _as_array(values if self.is_row else values[0], self.keys)
        shown = listed(self.keys)
        if array.shape != self.shape:
            raise ValueError(f"{shown} of shape {array.shape}, expected {self.shape} like the first line")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{shown} has values that are not numbers")
        if self.pixel and (array.dtype.kind == "f" or array.min(initial=0) < 0 or array.max(initial=0) > 255):
            raise ValueError(
                f"{shown} has other values than integers from 0 to 255, unlike the first line. Set dtype: float32"
            )
        converted = array.astype(np.uint8) if self.pixel else self._as_floats(array)
        if converted is None:
            raise ValueError(f"{shown} has a value that is too large for float32")
        arrays: Arrays = {"pixel" if self.pixel else "data": converted}
        if self.label:
            arrays["label"] = np.array(self._label_of(found), np.int32)
        return arrays

    def _label_of(self, found: dict[str, Any]) -> int:
        """Return the label of one line; raise a `ValueError` if it is missing, or not a label."""
        label = _value(found, self.label)
        if self.text:
            if not isinstance(label, str):
                raise ValueError(f"the label {label!r}, expected text like in the first line")
            number = self._numbers[label]
            if number < 0:
                raise ValueError(f"the label {label!r} is not one of the classes: {listed(self.classes)}")
            return number
        if isinstance(label, bool) or not isinstance(label, int):
            raise ValueError(f"the label {label!r}, expected an integer like in the first line")
        if not -(2**31) <= label < 2**31:
            raise ValueError(f"the label {label} does not fit in 32 bits")
        return label


def _records_like(line: bytes, options: Mapping[str, Any]) -> JsonRecords:
    """Return how lines like the first one become records, by the options of `JsonLinesStore`.

    Raises
    ------
    ValueError
        The line is not an object of JSON, or has no such keys.
    """
    features, dtype = options["features"], options["dtype"]
    found = _load_object(line)
    label = options["label"] or label_field([key for key in found if key not in features])
    keys = tuple(features) or _value_keys(found, label)
    if label in keys:
        raise ValueError(f"{label} is both a feature and the label")
    values = [_value(found, key) for key in keys]
    is_row = len(keys) > 1 or not isinstance(values[0], list)
    for key, value in zip(keys, values, strict=True) if is_row else ():
        if not isinstance(value, int | float):
            raise ValueError(f"{key} is {value!r:.40}, expected a number")
    array = _as_array(values if is_row else values[0], keys)
    if array.dtype.kind not in "biuf" or not array.size:
        raise ValueError(f"{keys[0]} is not a list of numbers")
    whole = array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= 255
    pixel = dtype == "uint8" or (not dtype and not is_row and keys[0] in PIXEL_KEYS and bool(whole))
    text = bool(label) and isinstance(_value(found, label), str)
    return JsonRecords(keys, is_row, array.shape, pixel, label, text, tuple(options["classes"]))


def _load_object(line: bytes) -> dict[str, Any]:
    """Parse a line; raise a `ValueError` if it is not an object of JSON."""
    if not line.strip():
        raise ValueError("empty, expected an object of JSON")
    try:
        found = json.loads(line)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError('not an object of JSON: expected {"features": [...], "label": ...}')
    return found


def _value_keys(found: dict[str, Any], label: str) -> tuple[str, ...]:
    chosen = tuple(key for key in VALUE_KEYS if key != label and isinstance(found.get(key), list))
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} could each be the values of a record. Set features")
    if chosen:
        return chosen
    numbers = tuple(key for key, value in found.items() if key != label and isinstance(value, int | float))
    others = [key for key in found if key != label and key not in numbers]
    if others or not numbers:
        known = listed([*numbers, *others])
        raise ValueError(f"has no key {', '.join(VALUE_KEYS)} of a list of numbers. Give features, of the keys {known}")
    return numbers


def _value(found: dict[str, Any], key: str) -> Any:
    value = found.get(key)
    if value is None:
        known = listed(list(found))
        raise ValueError(
            f"{key} is null, expected a value" if key in found else f"column {key!r} is missing. Columns: {known}"
        )
    return value


def _as_array(value: Any, keys: Sequence[str]) -> npt.NDArray[Any]:
    try:
        return np.array(value)
    except (OverflowError, ValueError):
        raise ValueError(f"the lists of {keys[0]} have different lengths") from None


def _after_mark(source: Bytes) -> int:
    """Return where the first line begins: after the mark of UTF-8, if there is one."""
    return len(BOM) if bytes(source.read(0, min(len(BOM), source.size))) == BOM else 0


def _parse(text: memoryview | bytes, schema: pa.Schema | None) -> pa.Table | None:
    """Parse lines of JSON into columns, those of a schema or all; None if one of them does not fit."""
    unexpected = "ignore" if schema else "infer"
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(pa.py_buffer(text)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 2)),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
        # the parser does not look whether texts are UTF-8
        table.validate(full=True)
    except (pa.ArrowException, KeyError):
        # as Python writes missing numbers
        plain = NAN.sub(lambda found: found[0] if found[0] != b"NaN" else b"null", bytes(text))
        return _parse(plain, schema) if plain != bytes(text) else None
    return table


class JsonLinesOptions(LabelOptions):
    """Options of JSON lines."""

    features: Many[str] = KeyField(default=[])
    """Key of a list of numbers, nested for records of several dimensions; or keys of numbers. By default features,
    data, x, pixel, pixels, image or images, or else all keys if they are of numbers."""
    dtype: Literal["", "uint8", "float32"] = ""
    """By default uint8 for the keys pixel, pixels, image and images if the first line has integers from 0 to 255, and
    float32 otherwise."""
    classes: Many[str] = KeyField(default=[])
    """Names of the classes, by label, if labels are text. By default the file is searched for them at opening, unless a
    manifest lists them."""
    block_bytes: Size = BLOCK_BYTES
    """Approximate length of a block."""


@STORES.register("jsonl")
class JsonLinesStore(RangeStore):
    """Records of a file of JSON lines, gzipped or not.

    All lines have the same keys as the first. Values become ``data`` (float32), or ``pixel`` (uint8). Labels are
    integers, or text: then the ``class_names`` are all labels of the file, sorted.

    Raises
    ------
    DataError
        The file is missing or empty, or its first line is not such a record. `read_block` names the line of a wrong
        record.
    """

    block = JsonLinesOptions
    title = "a file of JSON lines"
    suffixes = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
    gzipped = True
    block_options = ("block_bytes",)
    decodes_ahead = True
    rounds_data = True

    def index(self) -> None:
        source, options = self.open_source(), self.options
        start = _after_mark(source)
        self.blocks = self.manifest_blocks() or tuple(cut_lines(source, start, options["block_bytes"]))
        if not self.blocks:
            raise DataError(f"{self.url}: no lines. The file is empty.")
        first = bytes(source.read(self.blocks[0].offset, self.blocks[0].length)).split(b"\n", 1)[0]
        try:
            self._records = _records_like(first, options)
        except ValueError as error:
            raise DataError(f"{self.url}, line 1: {error}.") from None
        self.schema, self.label_name = self._records.schema, self._records.label
        if self._records.is_row:
            # the order of keys is that of the first line
            self.set_table_facts(TableFacts(self._records.keys).to_dict())
        if self._records.text:
            stored = self.manifest.class_names if self.manifest else ()
            self.class_names = tuple(options["classes"]) or stored or self._find_classes()
            self._records = replace(self._records, classes=self.class_names)

    def widen(self) -> None:
        super().widen()
        self._records = replace(self._records, dtype="f8")

    def _find_classes(self) -> tuple[str, ...]:
        """Return all labels of the file, sorted."""
        names = set[str]()
        for block in self.blocks:
            # a wrong line is an error when it is read, or tolerated
            names |= self._records.names_in(self.sources[0].scan(block.offset, block.length), block.n)
        return tuple(sorted(distinct_names(names)))

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        arrays = self._records.decode(data[0], self.blocks[block_id].n)
        return arrays if arrays is not None else self._decode_lines(block_id, bytes(data[0]))

    def _decode_lines(self, block_id: int, text: bytes) -> Arrays:
        """Decode a block line by line, and raise the error of the first wrong one."""
        arrays, bad = self._rows(block_id, text)
        if bad:
            row = min(bad)
            raise DataError(f"{self.url}, line {int(self.starts[block_id]) + row + 1}: {bad[row]}.")
        return arrays

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        return self._rows(block_id, bytes(self.fetch(block_id)[0]))

    def _rows(self, block_id: int, text: bytes) -> tuple[Arrays, dict[int, str]]:
        lines = text.split(b"\n")
        return salvage_rows(self.blocks[block_id].n, self.schema, lambda row: self._records.decode_line(lines[row]))


class JsonPart(TablePart):
    """A file of JSON lines as a table, gzipped or not: keys are columns, and a key that a line lacks has no value.

    Columns and their kinds are those of the first ``block_bytes``; if wrong records are to be skipped, a column has the
    kind of most of its values there.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        block_bytes: int = BLOCK_BYTES,
        tolerant: bool = False,
        na_values: Sequence[str] = (),
        listed: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        self.url, self.source = url, open_bytes(url, storage_options)
        self._na_values, self._listed = na_values, listed
        self.start = _after_mark(self.source)
        first = next(self.runs(block_bytes, 0), None)
        self._first = bytes(self.source.read(first.offset, first.length)) if first else b""
        if na_values and _parse(self._first, None) is None:
            self._first = self._without_words(self._first)
        self._types = _types_of(self._first)
        self.names = tuple(self._types)
        if first and not tolerant and _parse(self._first, None) is None:
            raise self._error(self._first, first, self.kinds)

    @property
    def kinds(self) -> dict[str, str]:
        return {name: column_kind(found) for name, found in self._types.items()}

    def width(self, column: str) -> int:
        table = _parse(self._first, self._schema({column: "vector"}))
        lengths = [] if table is None else pc.list_value_length(table[column]).drop_null().to_pylist()
        return int(next(iter(lengths), 0))

    def _schema(self, kinds: Mapping[str, str]) -> pa.Schema:
        """Return the types of columns; what is wanted as strings may be numbers or booleans, which are read as such."""
        types = {name: KINDS.get(kind, pa.float64()) for name, kind in kinds.items()}
        given = {name: found for name, found in self._types.items() if column_kind(found) in ("number", "boolean")}
        return pa.schema(
            {name: given.get(name, found) if found == pa.string() else found for name, found in types.items()}
        )

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        line = 1
        for block in cut_lines(self.source, self.start, block_bytes):
            yield RecordRun(block.offset, block.length, block.n, line)
            line += block.n

    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return (Range(self.source, run.offset, run.length),)

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        text, schema = data[0], self._schema(kinds)
        table = _parse(text, schema)
        if table is None and self._na_values:
            text = memoryview(self._without_words(bytes(text)))
            table = _parse(text, schema)
        if table is None or len(table) != run.n:
            raise self._error(bytes(text), run, kinds)
        return table.select(list(kinds))

    def _without_words(self, text: bytes) -> bytes:
        """Return lines with null in place of words for missing values, which columns of numbers could not hold."""
        words = {
            json.dumps(word, ensure_ascii=is_ascii).encode() for word in self._na_values for is_ascii in (False, True)
        }
        lines = text.split(b"\n")
        found = [i for i, line in enumerate(lines) if any(word in line for word in words)]
        for i in found:
            with contextlib.suppress(ValueError):
                record = _load_object(lines[i])
                for key, value in record.items():
                    if value in self._na_values and value not in self._listed.get(key, ()):
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
            table = _parse(record, schema)
            if table is None or len(table) != 1:
                return DataError(f"{self.url}, line {line}: {_fault_of(record, schema)}.")
        return DataError(f"{self.url}, lines from {run.line} on: columns with values of several kinds.")

    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        return lambda row: f"{self.url}, line {run.line + row}"


def _types_of(text: bytes) -> dict[str, pa.DataType]:
    """Return the type of each column: of all values, or if they differ, or lines are wrong, of most values."""
    table = _parse(text, None)
    if table is not None:
        types = dict(zip(table.schema.names, table.schema.types, strict=True))
        # integers that are no int64 keep their digits, which may be the name of a category
        floats = [name for name, kind in types.items() if kind == pa.float64()]
        for name in [name for name in floats if 2.0**63 <= (pc.max(table[name]).as_py() or 0) <= 2.0**64]:
            if _parse(text, pa.schema({name: pa.uint64()})) is not None:
                types[name] = pa.uint64()
        return types
    found = defaultdict[str, dict[str, list[Any]]](dict)
    for line in text.split(b"\n"):
        with contextlib.suppress(ValueError):
            for key, value in _load_object(line).items():
                found[key].setdefault(column_kind(_type_of([value])), []).append(value)
    return {
        key: _type_of(max(kinds.values(), key=lambda each: (each[0] is not None, len(each))))
        for key, kinds in found.items()
    }


def _type_of(values: Sequence[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return pa.float64() if isinstance(values[0], int) else pa.struct([])


def _fault_of(line: bytes, schema: pa.Schema) -> str:
    """Return why a line is no record of columns of such types."""
    try:
        found = _load_object(line)
    except ValueError as error:
        return str(error)
    for name, wanted in zip(schema.names, schema.types, strict=True):
        kind, value = column_kind(wanted), found.get(name)
        if isinstance(value, int | float) and abs(value) > sys.float_info.max:
            return f"column {name!r}: {value!r:.40} does not fit in a float of 32 bits"
        if value is not None and column_kind(_type_of([value])) != kind:
            said = f"column {name!r} is {value!r:.40}, expected a {kind}, as in most of the first lines"
            is_word = kind == "number" and isinstance(value, str)
            return f"{said}. Set na_values: [{value:.40}] if it means a missing value" if is_word else said
    return "a key occurs twice, or a text is not Unicode, or a number is no integer as those of the first lines"


# maximum size of a block whose lines are padded to the longest
MAX_PADDED_BYTES = 1 << 28


class LineOptions(StoreOptions):
    """Options of lines of text."""

    block_bytes: Size = BLOCK_BYTES
    """Approximate length of a block."""


@STORES.register("lines")
class LineStore(RangeStore):
    """Records with one field, ``line``: uint8 bytes of a line without its end, padded with zeros to the longest.

    Blanks and empty lines at the end of the file are ignored. Lines of very different lengths are refused if a block
    would need more than 256 MiB.
    """

    block = LineOptions

    # its records are for parsers of a user's own
    is_source = False
    block_options = ("block_bytes",)

    def index(self) -> None:
        source = self.open_source()
        self.blocks = self.manifest_blocks() or tuple(cut_lines(source, 0, self.options["block_bytes"]))
        if not self.count:
            raise DataError(f"{self.url}: no lines.")
        longest = max(max(int(self._lengths(block.id).max()) for block in self.blocks), 1)
        self._check_padding(longest)
        self.schema = {"line": Field(np.dtype(np.uint8), (longest,))}

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        characters, lengths = _split(data[0])
        (longest,) = self.schema["line"].shape
        lines = np.zeros((len(lengths), longest), np.uint8)
        lines[np.arange(longest) < lengths[:, None]] = characters
        return {"line": lines}

    def _lengths(self, block_id: int) -> npt.NDArray[np.int64]:
        return _split(self.fetch(block_id)[0])[1]

    def _check_padding(self, longest: int) -> None:
        """Refuse lines that need too much memory, since each is padded to the longest."""
        most = max(self.blocks, key=lambda block: block.n)
        if most.n * longest <= MAX_PADDED_BYTES:
            return
        block = next(block for block in self.blocks if self._lengths(block.id).max() == longest)
        line = int(self.starts[block.id]) + int(self._lengths(block.id).argmax()) + 1
        typical = float(np.median(self._lengths(most.id))) + 1
        fitting = max(1, int(typical * (MAX_PADDED_BYTES // longest) / 2))
        raise DataError(
            f"{self.url}, line {line}: {longest:,} bytes. Each record is padded to the longest line, and {most.n:,} "
            f"records of a block would need {most.n * longest / 2**30:.1f} GiB, expected at most "
            f"{MAX_PADDED_BYTES >> 20} MiB. Split long lines, or read smaller blocks: block_bytes: {fitting}."
        )


def _split(data: memoryview) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the concatenated lines of a block, and the length of each line."""
    text = bytes(data).replace(b"\r\n", b"\n").removesuffix(b"\n")
    characters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(characters == NEWLINE), len(characters))
    return characters[characters != NEWLINE], np.diff(ends, prepend=-1) - 1
