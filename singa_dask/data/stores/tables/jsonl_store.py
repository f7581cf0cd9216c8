"""Records in JSON lines, an object per line, such as ``{"x": [0.5, 1.5], "label": 3}``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from singa_dask import fs
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.blocks import BLOCK_BYTES
from singa_dask.data.codecs.labels import label_field
from singa_dask.data.stores.store import STORES, LabelOptions
from singa_dask.data.stores.tables.part_store import PartStore
from singa_dask.data.tables.column_values import whole
from singa_dask.data.tables.encoder import TableEncoder, Where
from singa_dask.data.tables.files.folder_keys import TableFile
from singa_dask.data.tables.files.json_part import JsonPart
from singa_dask.data.tables.files.json_text import load_object
from singa_dask.data.tables.files.open_parts import OpenParts
from singa_dask.data.tables.list_columns import flat_lists
from singa_dask.data.tables.spec import TableSpec
from singa_dask.data.tables.table_reader import TableReader
from singa_dask.data.types import Arrays, Field, RecordRun
from singa_dask.errors import DataError, FaultError, Remedy, data_error
from singa_dask.wording import listed, question_of

PIXEL_KEYS = ("pixel", "pixels", "image", "images")
VALUE_KEYS = ("features", "data", "x", *PIXEL_KEYS)


class ArraysPart(JsonPart):
    """A file of JSON lines. Each line has an array, or several numbers, as the values of a record.

    The first line determines these keys, and the shape of the values.

    Attributes
    ----------
    keys : tuple of str
        The key of the array (a nested list), or the keys of the numbers.
    shape : tuple of int
        Shape of the values of a record.
    is_row : bool
        Whether the values are numbers from several keys, not an array.
    is_pixel : bool
        Whether the values are integers from 0 to 255.
    label : str
        Key of the label; empty if there is none.

    Raises
    ------
    DataError
        The file is empty, or its first line is not such a record.
    """

    def __init__(self, url: str, storage_options: fs.Options, options: Mapping[str, Any]) -> None:
        super().__init__(url, storage_options, options["block_bytes"], tolerant=True)
        if not self._first:
            raise DataError(f"{url}: no lines. The file is empty.")
        try:
            self._choose(load_object(self._first.split(b"\n", 1)[0]), options)
        except ValueError as error:
            raise data_error(f"{url}, line 1", error) from None

    def _choose(self, record: dict[str, Any], options: Mapping[str, Any]) -> None:
        features, dtype = options["features"], options["dtype"]
        self.label = options["label"] or label_field([key for key in record if key not in features])
        self.keys = keys = tuple(features) or _value_keys(record, self.label)
        if self.label in keys:
            raise ValueError(f"{self.label} is both a feature and the label")
        if self.label:
            _value(record, self.label)
        values = [_value(record, key) for key in keys]
        self.is_row = len(keys) > 1 or not isinstance(values[0], list)
        for key, value in zip(keys, values, strict=True) if self.is_row else ():
            if not isinstance(value, int | float):
                raise ValueError(f"{key} is {value!r:.40}, expected a number")
        try:
            array = np.array(values if self.is_row else values[0])
        except (OverflowError, ValueError):
            raise ValueError(f"the lists of {keys[0]} have different lengths") from None
        if array.dtype.kind not in "biuf" or not array.size:
            raise ValueError(f"{keys[0]} is not a list of numbers")
        is_whole = array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= 255
        is_pixel = not dtype and not self.is_row and keys[0] in PIXEL_KEYS and bool(is_whole)
        self.shape, self.is_pixel = array.shape, dtype == "uint8" or is_pixel

    @property
    def kinds(self) -> dict[str, str]:
        return {**super().kinds, **({} if self.is_row else {self.keys[0]: "vector"})}

    def width(self, column: str) -> int:
        return math.prod(self.shape)

    def _schema(self, kinds: Mapping[str, str]) -> pa.Schema:
        schema, [key, *_] = super()._schema(kinds), self.keys
        if key in kinds and not self.is_row:
            nested: pa.DataType = pa.float64()
            for _ in self.shape:
                nested = pa.list_(nested)
            schema = schema.set(schema.get_field_index(key), pa.field(key, nested))
        return schema

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        table, [key, *_] = super().decode(run, kinds, data), self.keys
        if key in kinds and len(self.shape) > 1:
            flat = flat_lists(whole(table.column(key)), self.shape, f"{self.url}, {key}")
            arrays = pa.FixedSizeListArray.from_arrays(flat, math.prod(self.shape))
            table = table.set_column(table.column_names.index(key), key, arrays)
        return table


class PixelEncoder(TableEncoder):
    """Converts a column of arrays to records of pixels."""

    def encode(self, table: pa.Table, where: Where) -> Arrays:
        arrays = super().encode(table, where)
        values = arrays.pop("data")
        pixels = values.astype(np.uint8)
        if (wrong := pixels != values).any():
            row, name = int(wrong.reshape(len(wrong), -1).any(axis=1).argmax()), self._spec.features[0]
            raise DataError(
                f"{where(row)}: {name} has other values than integers from 0 to 255, unlike the first line. Set dtype: "
                "float32."
            )
        return {"pixel": pixels, **arrays}


def _value_keys(record: dict[str, Any], label: str) -> tuple[str, ...]:
    chosen = tuple(key for key in VALUE_KEYS if key != label and isinstance(record.get(key), list))
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} could each be the values of a record. Set features")
    if chosen:
        return chosen
    numbers = tuple(key for key, value in record.items() if key != label and isinstance(value, int | float))
    others = [key for key in record if key != label and key not in numbers]
    if others or not numbers:
        known = listed([*numbers, *others])
        message = (
            f"the record has no list of numbers called {' or '.join(VALUE_KEYS)}. Set features to keys of it: {known}"
        )
        raise FaultError(message, Remedy("features"))
    return numbers


def _value(record: dict[str, Any], key: str) -> Any:
    value = record.get(key)
    if value is None:
        if key in record:
            raise ValueError(f"{key} is null, expected a value")
        raise ValueError(f"column {key!r} is missing. {question_of(key, record)}Columns: {listed(list(record))}")
    return value


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
class JsonLinesStore(PartStore):
    """Records of a file of JSON lines, gzipped or not.

    All lines must have the same keys as the first line. Values become ``data`` (float32) or ``pixel`` (uint8). Labels
    are integers or text. If they are text, the class names are the sorted labels of the file.

    Raises
    ------
    DataError
        The file is missing or empty, or its first line is not such a record. `read_block` names the line of a wrong
        record.
    """

    options_class = JsonLinesOptions
    table_format = "jsonl"
    column_options = ("features", "label")
    suffixes = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
    block_options = ("block_bytes",)

    def index(self) -> None:
        parts, block_bytes = OpenParts([TableFile(self.url)], self._open_part), self.options["block_bytes"]
        part = cast(ArraysPart, parts(0))
        spec = TableSpec(part.keys, (part.label,) if part.label else ())
        self._table = TableReader(
            self.url, self.storage_options, parts, format="jsonl", block_bytes=block_bytes, spec=spec, tolerant=True
        )
        classes = self.options["classes"] or (self.manifest.class_names if self.manifest else ())
        if classes and part.kinds.get(part.label) == "string":
            self._table.spec = replace(spec, categories={part.label: tuple(classes)})
        self._use(self._table.learn(self._known_runs(1)))
        self.label_name = part.label
        if part.is_row:
            self._name_columns()
        if part.is_pixel:
            self._encoder = PixelEncoder(self._table.spec, self._index.facts)
            labels = {name: field for name, field in self.schema.items() if name != "data"}
            self.schema = {"pixel": Field(np.dtype(np.uint8), part.shape), **labels}
        self._encoder.schema["data"] = Field(np.dtype(np.float32), part.shape)

    def _open_part(self, file: TableFile) -> ArraysPart:
        return ArraysPart(file.url, self.storage_options, self.options)
