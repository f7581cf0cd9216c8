"""Records for a trained net from arrays, tables and pictures in memory, encoded as in training, and their labels."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.arrays import Array
from singa_dask.data.codecs.record import find_wrong_label
from singa_dask.data.codecs.table import TableEncoder, TableFacts, TableSpec, column_kind, missing_rows
from singa_dask.data.stores.image import decode_image, image_pixels
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError
from singa_dask.inference.net import TrainedNet
from singa_dask.layers import StoreInput
from singa_dask.layers.input import LabelInput, TargetInput, WeightInput
from singa_dask.layers.records import StoreConf, check_shape

# rows of a frame that are looked through at a time
CHUNK_ROWS = 1 << 16


class MemoryRecords(ABC):
    """Records in memory.

    Attributes
    ----------
    n : int
    """

    n: int

    @abstractmethod
    def read(self, first: int, stop: int) -> Arrays:
        """Return the fields of some records as an input layer takes them.

        Raises
        ------
        DataError
            A record is wrong; names its row.
        """


def is_of(data: Any, package: str, *names: str) -> bool:
    """Return whether data is of a class of a package, which is not imported for it."""
    module = sys.modules.get(package)
    return module is not None and isinstance(data, tuple(getattr(module, name) for name in names))


def is_pandas(x: Any) -> bool:
    """Return whether data is a DataFrame of pandas."""
    return is_of(x, "pandas", "DataFrame")


def as_records(
    x: Any, conf: StoreConf, facts: TableFacts | None, *, outputs: bool = False, skips: bool = False, name: str = "x"
) -> MemoryRecords:
    """Return the records that data consists of.

    Parameters
    ----------
    x : ndarray, DataFrame, Table, dict of columns, list of dicts, or sequence of pictures
    conf : StoreConf
        Of the input layer.
    facts : TableFacts or None
        What the columns mean, if the net was trained on named columns.
    outputs : bool
        Whether labels and targets are read from the columns too.
    skips : bool
        Whether records with missing values are left out where the job says so; otherwise they are errors.
    name : str
        What the user calls the data, for errors.

    Raises
    ------
    DataError
        They do not fit.
    """
    x = _as_table(x, name)
    if isinstance(x, (pa.Table, pa.RecordBatch)) or is_pandas(x):
        if facts is not None:
            return _Frame(x, _spec(conf, facts, outputs), facts, name, skips, conf.standardise)
        x = _numbers_of(x, name)
    elif _is_pictures(x):
        return _Pictures(x, conf, name)
    return _Rows(x, conf, facts, name)


def _as_table(x: Any, name: str) -> Any:
    """Return a dict of columns, or dicts of values by column, as a table; other data as they are."""
    if isinstance(x, (list, tuple)) and len(x) and isinstance(x[0], Mapping):
        x = _columns_of_rows(x, name)
    elif not isinstance(x, Mapping):
        return x
    columns = {}
    for column, values in x.items():
        try:
            columns[str(column)] = pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise DataError(f"{name}, column {str(column)!r}: expected values of one type: {error}.") from None
    try:
        return pa.table(columns)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{name}: expected as many values in each column: {error}.") from None


def _columns_of_rows(rows: Sequence[Any], name: str) -> dict[str, list[Any]]:
    """Return the columns of records with a value for each column; a wrong name must not become a missing value."""
    first = rows[0].keys()
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"{name}, row {number}: not an object, as the first one is.")
        if row.keys() != first:
            column = min(row.keys() ^ first, key=str)
            what = "a key that the first object lacks" if column in row else "lacks this key of the first object"
            where = f"{name}, row {number}, {str(column)[:40]!r}"
            raise DataError(f"{where}: {what}. Say null, or None, for a missing value.")
    return {column: [row[column] for row in rows] for column in first}


# -- arrays --------------------------------------------------------------------------------------------------


class _Rows(MemoryRecords):
    """The rows of an array."""

    def __init__(self, x: Any, conf: StoreConf, facts: TableFacts | None, name: str) -> None:
        try:
            values = np.asarray(x)
        except ValueError as error:
            raise DataError(f"{name}: records of several shapes, expected one: {error}") from None
        if values.dtype.kind not in "biuf":
            for (row, *column), value in np.ndenumerate(values):
                if value is None:
                    place = f", column {', '.join(map(str, column))}" if column else ""
                    raise DataError(f"{name}, row {row}{place}: no value (null), expected a number.")
            raise DataError(f"{name}: an array of {values.dtype}, expected numbers.")
        shape = tuple(conf.shape)
        if values.ndim == 0 or (values.ndim == 1 and shape != (1,)):
            raise DataError(
                f"{name}: shape {values.shape}, expected (n, {', '.join(map(str, shape))}).{_one(values, shape)}"
            )
        if facts is not None and values.shape[1:] == (len(facts.features),) != (len(facts.names),):
            raise DataError(
                f"{name}: {len(facts.features)} columns, which become {len(facts.names)} values of a record. Give a "
                "DataFrame, so that they are encoded as in training."
            )
        try:
            check_shape(name, values.shape[1:] or (1,), conf)
        except DataError as error:
            raise DataError(f"{error}{_one(values, shape)}") from None
        self.n, self._values, self._name = len(values), values, name
        self._dtype = np.dtype(np.float64 if conf.standardise else np.float32)

    def read(self, first: int, stop: int) -> Arrays:
        rows = self._values[first:stop]
        if rows.dtype == np.uint8:
            return {"pixel": np.ascontiguousarray(rows)}
        with np.errstate(over="ignore"):
            data = np.ascontiguousarray(rows, self._dtype)
            fits = np.isfinite(data.astype(np.float32, copy=False)).reshape(len(data), -1)
        if not fits.all():
            row = int((~fits.all(axis=1)).argmax())
            raise DataError(f"{self._name}, row {first + row}: a value is not finite, or does not fit in 32 bits.")
        return {"data": data}


def _one(values: Array, shape: tuple[int, ...]) -> str:
    """Return a hint about an array that is one record."""
    return " This is the shape of one record: give x[None]." if values.shape == shape else ""


def _numbers_of(x: Any, name: str) -> Array:
    """Return a frame of numbers as an array, for a net that was trained on records without names."""
    table = _table(x, name)
    for column in table.schema:
        if column_kind(column.type) not in ("number", "boolean"):
            raise DataError(
                f"{name}, column {column.name!r}: values of type {column.type}, expected numbers: this net was not "
                "trained on named columns."
            )
    columns = [column.to_numpy().astype(np.float64) for column in table.columns]
    return np.stack(columns, axis=1) if columns else np.empty((len(table), 0))


# -- frames --------------------------------------------------------------------------------------------------


def _spec(conf: StoreConf, facts: TableFacts, outputs: bool) -> TableSpec:
    """Return how the columns are read: as the job says, or as the table was that its records were converted from."""
    if conf.is_table:
        labels, target, missing = tuple(conf.label_columns), tuple(conf.target), conf.missing
    else:
        labels, target, missing = tuple(facts.labels), (), "mean" if facts.means else "error"
    known = {**facts.categories, **{name: names for name, names in facts.labels.items() if names}}
    labels, target = (labels, target) if outputs else ((), ())
    weight = conf.weight if outputs else ""
    return TableSpec(facts.features, labels, target, missing, known, facts.encoding, weight)


class _Frame(MemoryRecords):
    """The rows of a frame, with the columns encoded."""

    def __init__(self, x: Any, spec: TableSpec, facts: TableFacts, name: str, skips: bool, is_wide: bool) -> None:
        self._frame, self._spec, self._facts, self._name = x, spec, facts, name
        self._columns = [*facts.features, *spec.outputs]
        self._rows: npt.NDArray[np.int64] | None = None
        columns = [str(column) for column in x.columns] if is_pandas(x) else x.schema.names
        twice = next((column for column in self._columns if columns.count(column) > 1), None)
        if twice is not None:
            raise DataError(f"{name}: column {twice!r} occurs twice. Rename one.")
        self._check_kinds({column: "number" for column in columns})
        self._encoder = TableEncoder(replace(spec, missing="error") if spec.missing == "skip" else spec, facts)
        if is_wide:
            self._encoder.schema["data"] = Field(np.dtype(np.float64), self._encoder.schema["data"].shape)
        self.n = len(x) if is_pandas(x) else x.num_rows
        if spec.missing == "skip" and skips:
            self._rows = self._present()
            self.n = len(self._rows)

    def _check_kinds(self, kinds: dict[str, str]) -> None:
        """Check that all columns are there, with values of the right kind."""
        known = {name: "number" if kind == "empty" else kind for name, kind in kinds.items()}
        self._spec.check(self._name, known, self._facts.features)

    def _slice(self, first: int, stop: int) -> pa.Table:
        """Return some rows of the columns that are read."""
        if self._rows is not None:
            rows = self._rows[first:stop]
            part = self._frame.iloc[rows] if is_pandas(self._frame) else self._frame.take(pa.array(rows))
        else:
            part = self._frame.iloc[first:stop] if is_pandas(self._frame) else self._frame.slice(first, stop - first)
        table = _table(part, self._name, self._columns)
        self._check_kinds({column.name: column_kind(column.type) for column in table.schema})
        return table

    def _present(self) -> npt.NDArray[np.int64]:
        """Return the rows without missing values."""
        rows = [
            first + np.flatnonzero(~missing_rows(self._slice(first, min(first + CHUNK_ROWS, self.n)), self._columns))
            for first in range(0, self.n, CHUNK_ROWS)
        ]
        return np.concatenate([np.empty(0, np.int64), *rows])

    def read(self, first: int, stop: int) -> Arrays:
        table = self._slice(first, stop)
        if self._spec.missing == "skip" and self._rows is None:
            missing = missing_rows(table, self._columns)
            if missing.any():
                row = first + int(missing.argmax())
                raise DataError(
                    f"{self._name}, row {row}: a value is missing. The job skips such records: leave it out."
                )
        return self._encoder.encode(table, lambda row: f"{self._name}, row {self._row(first + row)}")

    def _row(self, index: int) -> int:
        return index if self._rows is None else int(self._rows[index])


def _table(x: Any, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a frame as a table."""
    try:
        if not is_pandas(x):
            table = pa.table(x)
            return table if columns is None else table.select(list(columns))
        names = {str(column): column for column in x.columns}
        part = x if columns is None else x[[names[column] for column in columns]]
        return pa.Table.from_pandas(
            part.set_axis([str(column) for column in part.columns], axis=1), preserve_index=False
        )
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name}: a column has values of several types: {error}.") from None


# -- pictures ------------------------------------------------------------------------------------------------


def _is_pictures(x: Any) -> bool:
    if not isinstance(x, (list, tuple)) and getattr(getattr(x, "dtype", None), "kind", "") != "O":
        return False
    return len(x) > 0 and (isinstance(x[0], (bytes, bytearray, memoryview)) or hasattr(x[0], "convert"))


class _Pictures(MemoryRecords):
    """Pictures: encoded, e.g. as PNG, or of Pillow."""

    def __init__(self, pictures: Sequence[Any], conf: StoreConf, name: str) -> None:
        channels, *size = conf.shape if len(conf.shape) == 3 else [1, *conf.shape]
        if len(size) != 2 or channels not in (1, 3):
            raise DataError(f"{name}: pictures, but records are of shape {tuple(conf.shape)}. Expected arrays.")
        self.n, self._pictures, self._name = len(pictures), pictures, name
        self._resize, self._channels = (conf.resize, conf.channels) if conf.resize else (size, channels)
        self._is_last = conf.layout == "NHWC"

    def read(self, first: int, stop: int) -> Arrays:
        pixels = np.stack([self._decoded(row) for row in range(first, stop)])
        return {"pixel": np.ascontiguousarray(np.moveaxis(pixels, 1, -1)) if self._is_last else pixels}

    def _decoded(self, row: int) -> npt.NDArray[np.uint8]:
        picture, where = self._pictures[row], f"{self._name}, picture {row}"
        if isinstance(picture, (bytes, bytearray, memoryview)):
            return decode_image(bytes(picture), where, self._resize, self._channels)
        return image_pixels(picture, where, self._resize, self._channels)


MAX_SHOWN = 20


class LabelReader:
    """Gives each input layer of a net its part of the records.

    Parameters
    ----------
    net : TrainedNet
    features : sequence of StoreInput
        Read the features; one of them labels too, if no other layer does.
    n : int
        Number of records.
    y : array-like, mapping of str to array-like, or None
        Labels or targets; None if the records have them. With it all records have weight 1.

    Raises
    ------
    DataError
        They do not fit the net.
    """

    def __init__(self, net: TrainedNet, features: Sequence[StoreInput], n: int, y: Any) -> None:
        self._net, self._n = net, n
        labelled = [layer for layer in features if any("labels" in each.consumed_as for each in layer.features)]
        labels, targets, self._weights = (
            [layer for layer in net.inputs.values() if isinstance(layer, kind)]
            for kind in (LabelInput, TargetInput, WeightInput)
        )
        self._features = (labelled or features)[0]
        own = [self._features] if labelled and not labels else []
        self._fields = dict.fromkeys([*own, *labels], "label") | dict.fromkeys(targets, "target")
        self._given = {layer: self._read(y, layer) for layer in self._fields} if y is not None else None

    def arrays(self, features: Mapping[str, Arrays], first: int, stop: int) -> dict[str, Arrays]:
        """Return the records of each input layer, given those of ``x`` by layer.

        Raises
        ------
        DataError
            The net needs labels or targets, and there are none.
        """
        records: dict[str, Arrays] = {name: {} for name in self._net.inputs}
        for name, arrays in features.items():
            records[name] = {key: arrays[key] for key in ("data", "pixel") if key in arrays}
        arrays = features[self._features.conf_name]
        for layer, field in self._fields.items():
            values = arrays.get(field) if self._given is None else self._given[layer][first:stop]
            if values is None:
                what = "targets" if "target" in self._fields.values() else "labels"
                raise DataError(f"y: the net needs {what}, for layer {layer.conf_name!r}. Give y.")
            if self._given is None and isinstance(layer, LabelInput) and values.ndim > 1:
                values = values[:, layer.store_conf.label_columns.index(layer.label_column)]
            records[layer.conf_name][field] = values
        for layer in self._weights:
            weights = arrays.get("weight") if self._given is None else None
            records[layer.conf_name]["weight"] = np.ones(stop - first, np.float32) if weights is None else weights
        return records

    # -- y ---------------------------------------------------------------------------------------------------

    def _read(self, y: Any, layer: StoreInput) -> Array:
        """Return what a layer reads of ``y``."""
        columns = _columns(y)
        if self._fields[layer] == "target":
            names = layer.store_conf.target
            return self._numbers(self._pick(columns, y, names), len(names))
        names = [layer.label_column] if isinstance(layer, LabelInput) else layer.store_conf.label_columns[:1]
        return self._numbered(self._pick(columns, y, names), layer)

    def _pick(self, columns: Mapping[str, Any] | None, y: Any, names: list[str]) -> Array:
        """Return the columns of these names, or ``y`` itself if that is all."""
        if columns is None or (len(columns) == 1 and len(self._fields) == 1):
            if len(self._fields) > 1:
                wanted = ", ".join(layer.conf_name for layer in self._fields)
                raise DataError(f"y: the net needs several, for {wanted}. Give a dict by column.")
            values = np.asarray(y if columns is None else next(iter(columns.values())))
        else:
            unknown = [name for name in names if name not in columns]
            if unknown or not names:
                known = ", ".join(columns)
                raise DataError(f"y: no column {unknown[0] if unknown else ''!r}. Columns: {known}.")
            values = np.stack([np.asarray(columns[name]) for name in names], axis=-1)
        if values.ndim == 0 or len(values) != self._n:
            n = "one" if values.ndim == 0 else len(values)
            raise DataError(f"y: {n} for {self._n} records. Expected one for each.")
        return values

    def _numbers(self, values: Array, n_targets: int) -> npt.NDArray[np.float32]:
        if values.dtype.kind not in "biuf" or values.size != self._n * n_targets:
            raise DataError(f"y: {values.dtype} {values.shape}, expected numbers {(self._n, n_targets)}.")
        targets = values.reshape(self._n, n_targets).astype(np.float32)
        if not np.isfinite(targets).all():
            raise DataError(f"y, row {int((~np.isfinite(targets)).any(axis=1).argmax())}: a target is not finite.")
        return targets

    def _numbered(self, values: Array, layer: StoreInput) -> npt.NDArray[np.int32]:
        """Return the numbers of classes."""
        if values.size != self._n:
            raise DataError(f"y: shape {values.shape}, expected {(self._n,)}: a label for each record.")
        values = values.reshape(-1)
        names = self._net.shapes.context.class_names.known_for(layer.conf_name)
        if values.dtype.kind in "OUST" and names:
            index = {name: i for i, name in enumerate(names)}
            numbers = np.array([index.get(str(value), -1) for value in values], np.int64)
            if (numbers < 0).any():
                row = int((numbers < 0).argmax())
                raise DataError(
                    f"y, row {row}: unknown class {str(values[row])!r}. Classes: {', '.join(names[:MAX_SHOWN])}."
                )
            return numbers.astype(np.int32)
        wrong = find_wrong_label(values)
        if wrong is not None:
            hint = " The classes of this net have no names." if values.dtype.kind in "OUST" else ""
            raise DataError(f"y, row {wrong[0]}: {wrong[1]}.{hint}")
        return values.astype(np.int32)


def _columns(y: Any) -> Mapping[str, Any] | None:
    """Return columns by name; None for an array."""
    if isinstance(y, Mapping):
        return y
    if isinstance(y, (pa.Table, pa.RecordBatch)):
        return {name: y.column(name).to_numpy(zero_copy_only=False) for name in y.schema.names}
    if is_pandas(y):
        return {str(name): y[name].to_numpy() for name in y.columns}
    return None
