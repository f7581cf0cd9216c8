"""Records for a trained net from arrays, tables and pictures in memory, encoded as in training, batch by batch."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data import Arrays, Field
from singa_dask.data.codecs.image import decode_image, image_pixels
from singa_dask.data.codecs.table_columns import column_kind, missing_rows
from singa_dask.data.codecs.table_encoder import TableEncoder
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.errors import DataError
from singa_dask.layers.records import StoreConf, check_shape

# rows of a frame that are looked through at a time
CHUNK_ROWS = 1 << 16


class Given(ABC):
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


def is_pandas(x: Any) -> bool:
    """Return whether data is a DataFrame of pandas, which is not imported for it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame)


def as_records(
    x: Any, conf: StoreConf, facts: TableFacts | None, *, outputs: bool = False, skips: bool = False, name: str = "x"
) -> Given:
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
    is_rows = isinstance(x, (list, tuple)) and len(x) > 0 and isinstance(x[0], Mapping)
    if not is_rows and not isinstance(x, Mapping):
        return x
    try:
        if not is_rows:
            return pa.table({str(column): pa.array(values) for column, values in x.items()})
        # a name that is wrong must not become a missing value
        row = next((i for i, each in enumerate(x) if each.keys() != x[0].keys()), None)
        if row is not None:
            raise DataError(f"{name}, row {row}: columns {', '.join(x[row])}, but {', '.join(x[0])} in the first one.")
        return pa.Table.from_pylist(list(x))
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{name}: expected a list of values for each column: {error}.") from None


# -- arrays --------------------------------------------------------------------------------------------------


class _Rows(Given):
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


def _one(values: npt.NDArray[Any], shape: tuple[int, ...]) -> str:
    """Return a hint about an array that is one record."""
    return " This is the shape of one record: give x[None]." if values.shape == shape else ""


def _numbers_of(x: Any, name: str) -> npt.NDArray[Any]:
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


class _Frame(Given):
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
        found = [
            first + np.flatnonzero(~missing_rows(self._slice(first, min(first + CHUNK_ROWS, self.n)), self._columns))
            for first in range(0, self.n, CHUNK_ROWS)
        ]
        return np.concatenate([np.empty(0, np.int64), *found])

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


class _Pictures(Given):
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
