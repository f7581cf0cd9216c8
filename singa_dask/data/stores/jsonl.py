"""Records in JSON lines, an object per line, such as ``{"x": [0.5, 1.5], "label": 3}``.

pyarrow parses whole blocks; only a block that it refuses is parsed line by line, to name the wrong one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.codecs.category_names import NameNumbers, distinct_names
from singa_dask.data.codecs.labels import find_wrong_label, label_field
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.values import flat_lists
from singa_dask.data.stores.blocks import BLOCK_BYTES, cut_lines
from singa_dask.data.stores.json_text import after_mark, load_object, parse_lines
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES, LabelOptions
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError, listed

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
        columns = parse_lines(text, self._arrow_schema())
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
        columns = parse_lines(text, pa.schema([pa.field(self.label, pa.string())]))
        if columns is not None and len(columns) == n and not columns[self.label].null_count:
            return set(columns[self.label].combine_chunks().unique().to_pylist())
        labels = set[Any]()
        for line in bytes(text).split(b"\n"):
            with contextlib.suppress(ValueError):
                labels.add(load_object(line).get(self.label))
        return {label for label in labels if isinstance(label, str)}

    def decode_line(self, line: bytes) -> Arrays:
        """Return the arrays of one line.

        Raises
        ------
        ValueError
            It is not such a record.
        """
        found = load_object(line)
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
    found = load_object(line)
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
        start = after_mark(source)
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
