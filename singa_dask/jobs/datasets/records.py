"""Dataset: data of Python objects in partitions, each of which is written as one file of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from singa_dask.arrays import Array
from singa_dask.data.codecs.columns import as_floats, show_columns
from singa_dask.data.codecs.memory import (
    HINT,
    TEXTS,
    as_array,
    as_column,
    as_stored,
    as_table,
    check_numbers,
    class_numbers,
    names_of,
    plain_array,
)
from singa_dask.data.codecs.record import find_wrong_weight, is_numeric, value_name
from singa_dask.data.stores.arrow import ArrowStore
from singa_dask.data.stores.store import rows_per_block
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError, listed
from singa_dask.lazy import LazyModule
from singa_dask.shown import plural

pc, pq = LazyModule("pyarrow.compute"), LazyModule("pyarrow.parquet")


def place_of(dataset: str, index: int, n_parts: int) -> str:
    """Return where errors are: the dataset, and the partition if there are several."""
    return f"dataset {dataset!r}" + (f", partition {index}" if n_parts > 1 else "")


WritePart = Callable[[Any, str, int], int]
"""Writes a partition as a file, and returns the number of its records; of an empty partition no file is written.

It takes what the part is, computed; the local path of the file, in an existing directory; and the index of the
partition. If there is an error, the caller deletes the file. A `DataError` names dataset, column and partition.
It is picklable, without the data.
"""


@dataclass(frozen=True)
class Dataset:
    """Data of Python objects for the input layers with ``path: dask://NAME``.

    Attributes
    ----------
    name : str
    parts : tuple
        One for each partition: a `dask.delayed.Delayed` to be computed, or the value itself.
    write_part : callable
        See `WritePart`.
    suffix : str
        Of the files: ``.arrow`` for arrays, ``.parquet`` for frames.
    defaults : mapping
        Keys of ``store_conf`` that hold where a layer says nothing else, e.g. the column ``label``.
    shape : tuple of int or None
        Of a record, where it is known before the partitions are there.
    columns : tuple of str
        Of a frame, without those of y.
    drop : callable or None
        Returns the dataset of a frame without some of its columns.
    meta : frame or None
        A frame of pandas or pyarrow without records, of its columns and their types.
    has_weights : bool
        Whether there is a weight for each record beside X and y.
    """

    name: str
    parts: tuple[Any, ...]
    write_part: WritePart
    suffix: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    columns: tuple[str, ...] = ()
    drop: Callable[[Collection[str]], Dataset] | None = None
    meta: Any = None
    has_weights: bool = False

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns of y and of weights that are given beside a frame."""
        names = (*self.defaults.get("label", ()), *self.defaults.get("target", ()))
        return (*names, self.defaults["weight"]) if "weight" in self.defaults else names

    def file_name(self, index: int) -> str:
        """Return the name of the file of a partition; names sort in the order of partitions."""
        width = max(5, len(str(len(self.parts) - 1)))
        return f"part-{index:0{width}d}{self.suffix}"

    @property
    def pattern(self) -> str:
        """Pattern of the names of all files."""
        return f"part-*{self.suffix}"


# Arrays as records: the fields that they become, and the files that they are written to.


def feature_field(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> tuple[str, Field]:
    """Return name and field of the records that an array X becomes.

    Parameters
    ----------
    where : str
        Dataset, for errors.
    dtype : dtype
    shape : sequence of number
        All axes; that of records may be NaN for unknown.

    Returns
    -------
    str
        ``pixel`` for uint8, ``data`` for other numbers.
    Field

    Raises
    ------
    DataError
        It cannot be records.
    """
    if len(shape) < 2:
        hint = " For records of one value say X[:, None]." if len(shape) == 1 else ""
        raise DataError(f"{where}, X: an array of {len(shape)} axes, expected one of records and others.{hint}")
    check_numbers(dtype, f"{where}, X")
    if any(np.isnan(n) for n in shape[1:]):
        message = "the length of an axis other than the first is unknown. Say X.compute_chunk_sizes() before."
        raise DataError(f"{where}, X: {message}")
    if not all(shape[1:]):
        raise DataError(f"{where}, X: shape {tuple(shape)}, expected records of at least one value.")
    name = value_name(dtype)
    return name, Field(np.dtype(np.uint8 if name == "pixel" else np.float32), tuple(int(n) for n in shape[1:]))


def output_field(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> tuple[str, Field]:
    """Return name and field of the records that an array y becomes: ``label``, or ``target`` for floats.

    Raises
    ------
    DataError
        It can be neither.
    """
    check_numbers(dtype, f"{where}, y", or_texts=True)
    width = shape[1] if len(shape) == 2 else 1
    if len(shape) not in (1, 2) or (dtype.kind != "f" and width != 1) or not width >= 1:
        expected = "(records,) or (records, targets)" if dtype.kind == "f" else "(records,)"
        hint = " Several labels are columns of a frame." if dtype.kind != "f" and len(shape) == 2 else ""
        raise DataError(f"{where}, y: shape {tuple(shape)} of {dtype}, expected {expected}.{hint}")
    if dtype.kind == "f":
        return "target", Field(np.dtype(np.float32), (int(width),))
    return "label", Field(np.dtype(np.int32))


def check_weight_type(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> None:
    """Check that an array can be the weights of records.

    Raises
    ------
    DataError
        It cannot.
    """
    if not is_numeric(dtype):
        raise DataError(f"{where}, weights: values of type {dtype}, expected numbers.")
    if len(shape) != 1:
        raise DataError(f"{where}, weights: shape {tuple(shape)}, expected (records,).")


def check_count(where: str, whose: str, n: float, name: str, other: float, what: str = "records") -> None:
    """Check that y or weights are as many as X or the frame has; NaN is a number that is not known.

    Raises
    ------
    DataError
        They are not.
    """
    if n != other and not np.isnan([n, other]).any():
        verb = "have" if name == "weights" else "has"
        raise DataError(f"{where}: {whose} has {n} {what}, but {name} {verb} {other}.")


def _check_weights(where: str, whose: str, n: int, weights: Array) -> None:
    check_count(where, whose, n, "weights", len(weights))
    wrong = find_wrong_weight(weights)
    if wrong is not None:
        raise DataError(f"{where}, record {wrong[0]}, weights: {wrong[1]}.")


@dataclass(frozen=True)
class ArrayWriter:
    """Writes partitions of arrays as Arrow files.

    Attributes
    ----------
    dataset : str
        Name, for errors.
    n_parts : int
        Number of partitions.
    feature, output : tuple of str and Field
        Names and fields of X and y; of y the name is empty if there is none.
    classes : tuple of str
        Names of the classes, if labels are texts.
    has_weights : bool
        Whether weights follow y.
    rounds : bool
        Whether X has more digits than its field.
    """

    dataset: str
    n_parts: int
    feature: tuple[str, Field]
    output: tuple[str, Field] | None = None
    classes: tuple[str, ...] = ()
    has_weights: bool = False
    rounds: bool = False

    def widened(self) -> ArrayWriter:
        """Return a writer that keeps the digits of X."""
        field = Field(np.dtype(np.float64), self.feature[1].shape)
        return replace(self, feature=(self.feature[0], field)) if self.rounds else self

    def __call__(self, value: Any, path: str, index: int) -> int:
        """Write a partition: X, or X, y, and weights if there are any."""
        where = place_of(self.dataset, index, self.n_parts)
        x, y, *more = value if self.output else (value, None)
        x = self._checked(x, f"{where}, X", *self.feature)
        if self.output:
            y = self._outputs(plain_array(y, f"{where}, y"), len(x), where)
        weights = self._weights(more[0], len(x), where) if self.has_weights else None
        if len(x):
            ArrowStore.write_file(Path(path), path, self._chunks(x, y, weights, where), class_names=self.classes)
        return len(x)

    def _checked(self, value: Any, where: str, name: str, field: Field) -> Array:
        """Return an array of the declared type and shape."""
        array = plain_array(value, where)
        check_numbers(array.dtype, where)
        if name == "pixel" and array.dtype != np.uint8:
            raise DataError(f"{where}: values of type {array.dtype}, expected uint8.")
        if array.shape[1:] != field.shape:
            raise DataError(f"{where}: records of shape {array.shape[1:]}, expected {field.shape}.")
        return array

    def _outputs(self, y: Array, n: int, where: str) -> Array:
        """Return the values of y as they are stored, but for the type of floats."""
        assert self.output is not None
        name, field = self.output
        check_count(where, "X", n, "y", len(y))
        if name == "target":
            return self._checked(y.reshape(n, *(y.shape[1:] or (1,))), f"{where}, y", name, field)
        if y.shape not in ((n,), (n, 1)):
            raise DataError(f"{where}, y: shape {y.shape}, expected ({n},).")
        if self.classes and y.dtype.kind not in TEXTS + "b":
            raise DataError(f"{where}, y: values of type {y.dtype}, expected names of classes.")
        return class_numbers(y.reshape(n), self.classes, f"{where}, y, record")

    @staticmethod
    def _weights(value: Any, n: int, where: str) -> Array:
        weights = plain_array(value, f"{where}, weights")
        check_weight_type(where, weights.dtype, weights.shape)
        _check_weights(where, "X", n, weights)
        return weights.astype(np.float32)[:, None]

    def _chunks(self, x: Array, y: Array | None, weights: Array | None, where: str) -> Iterator[Arrays]:
        """Yield the records of a block at a time, so that only a block is converted at a time."""
        columns = [(*self.feature, x, f"{where}, X, record")]
        if self.output and y is not None:
            columns.append((*self.output, y, f"{where}, y, record"))
        rows = rows_per_block(sum(field.size_bytes or 4 for _, field, _, _ in columns))
        for first in range(0, len(x), rows):
            part = slice(first, first + rows)
            chunk = {name: as_stored(values[part], field.dtype, place, first) for name, field, values, place in columns}
            if weights is not None:
                chunk["weight"] = weights[part]
            yield chunk


# Frames as records: tables of named columns, and the Parquet files that they are written to.


# of the records of a row group, which is decoded as a whole; in file order a batch may take two
GROUP_BYTES = 4 << 20


def drop_columns(frame: Any, names: Collection[str]) -> Any:
    """Return a frame of pandas, Dask or Arrow without some columns; of pandas without a copy of the others."""
    if isinstance(frame, pa.Table):
        return frame.drop_columns(list(names))
    labels = [label for label in frame.columns if str(label) in names]
    # that a partition has other columns than declared is found when it is written
    return frame.drop(columns=labels, errors="ignore")


def output_names(y: Any, where: str) -> dict[str, str]:
    """Return by name of each column of y what it is by default: ``label``, or ``target`` for floats.

    Parameters
    ----------
    y
        A column or frame of pandas or Dask, or an array.
    """
    if hasattr(y, "columns") and y.ndim == 2:
        return {name: _use_of(y.dtypes.iloc[i]) for i, name in enumerate(names_of(y.columns, where))}
    if isinstance(y, (pa.Array, pa.ChunkedArray)):
        return {"y": "target" if pa.types.is_floating(y.type) else "label"}
    if isinstance(y, pa.Table):
        return {each.name: "target" if pa.types.is_floating(each.type) else "label" for each in y.schema}
    if getattr(y, "ndim", 1) == 1:
        return {column_name(y, "y"): _use_of(y.dtype)}
    if y.ndim != 2 or np.isnan(y.shape[1]):
        raise DataError(f"{where}, y: shape {tuple(y.shape)}, expected (records,) or (records, columns).")
    names = ["y"] if y.shape[1] == 1 else [f"y{i}" for i in range(y.shape[1])]
    return dict.fromkeys(names, _use_of(y.dtype))


def column_name(column: Any, otherwise: str) -> str:
    """Return the name of a column if it has one. Arrays of Dask have names, too, which are of tasks."""
    name = getattr(column, "name", None)
    return otherwise if name is None or hasattr(column, "chunks") else str(name)


def _use_of(dtype: Any) -> str:
    return "target" if getattr(dtype, "kind", "O") == "f" else "label"


@dataclass(frozen=True)
class FrameWriter:
    """Writes partitions of frames as Parquet files.

    Attributes
    ----------
    dataset : str
        Name, for errors.
    n_parts : int
        Number of partitions.
    columns : tuple of str
        Names of the columns, without those of y.
    outputs : tuple of str
        Names of the columns of y, if there is one.
    weight : str
        Name of the column of weights; empty if there is none.
    """

    dataset: str
    n_parts: int
    columns: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    weight: str = ""

    def __call__(self, value: Any, path: str, index: int) -> int:
        """Write a partition: a frame, or a frame, y, and weights if there are any."""
        where = place_of(self.dataset, index, self.n_parts)
        frame, y, *weights = value if self.outputs else (value, None)
        table = as_table(frame, where)
        if tuple(table.column_names) != self.columns:
            message = f"{show_columns(table.column_names)} Expected: {listed(self.columns)}."
            raise DataError(f"{where}: other columns than declared. {message}")
        for name, column in self._outputs(y, len(table), where).items():
            table = table.append_column(name, column)
        for each in weights:
            table = table.append_column(self.weight, self._weights(each, len(table), where))
        if len(table):
            _write(table, path, where)
        return len(table)

    def _outputs(self, y: Any, n: int, where: str) -> Mapping[str, Any]:
        if not self.outputs:
            return {}
        check_count(where, "the frame", n, "y", len(y))
        if hasattr(y, "columns"):
            columns = as_table(y, f"{where}, y").columns
        elif getattr(y, "ndim", 1) == 2:
            columns = [as_column(np.ascontiguousarray(each), f"{where}, y") for each in as_array(y, f"{where}, y").T]
        else:
            columns = [as_column(y, f"{where}, y")]
        if len(columns) != len(self.outputs):
            raise DataError(f"{where}: y has {plural(len(columns), 'column')}, expected {len(self.outputs)}.")
        for name, column in zip(self.outputs, columns, strict=True):
            if pa.types.is_integer(column.type) and len(column) and pc.any(pc.less(column, 0)).as_py():
                row = pc.index(pc.less(column, 0), True).as_py()
                message = f"the label {column[row]} is negative. Labels are indices of classes."
                raise DataError(f"{where}, record {row}, column {name!r}: {message}")
        return dict(zip(self.outputs, columns, strict=True))

    def _weights(self, weights: Any, n: int, where: str) -> Any:
        column = as_column(weights, f"{where}, weights")
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise DataError(f"{where}, weights: values of type {column.type}, expected numbers.")
        _check_weights(where, "the frame", n, as_floats(column))
        return column


def _write(table: pa.Table, path: str, where: str) -> None:
    # dictionaries save bytes of texts; of numbers they cost time
    texts = [each.name for each in table.schema if not pa.types.is_floating(each.type)]
    try:
        rows = rows_per_block(4 * table.num_columns, GROUP_BYTES)
        options = {"row_group_size": rows, "use_dictionary": texts, "write_statistics": False}
        pq.write_table(table, path, compression="none", **options)
    except pa.ArrowException as error:
        raise DataError(f"{where}: cannot be written as Parquet: {str(error).rstrip('.')}. {HINT}") from error
