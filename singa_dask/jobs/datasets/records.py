"""Dataset: data of Python objects in partitions, each of which is written as one file of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from singa_dask.arrays import Array
from singa_dask.data.codecs.record import find_wrong_label, find_wrong_weight
from singa_dask.data.codecs.table import as_floats, show_columns
from singa_dask.data.stores.arrow import ArrowStore
from singa_dask.data.stores.store import rows_per_block
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError


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


NUMBERS = "biuf"
TEXTS = "UTSO"
HINTS = {
    "c": "Give real and imaginary parts, or absolute values, as features.",
    "O": "Lists of different lengths and mixed types make such arrays. Expected an array of numbers.",
    "M": "Give dates as numbers, e.g. days since a date.",
    "m": "Give durations as numbers, e.g. seconds.",
    "U": "Encode texts as numbers, or give a frame and name the column in categories.",
    "V": "Give a frame for columns of different types.",
}


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
    if dtype.kind not in NUMBERS:
        hint = HINTS.get("U" if dtype.kind in "TS" else dtype.kind, "")
        raise DataError(f"{where}, X: values of type {dtype}, expected numbers. {hint}".rstrip())
    if any(np.isnan(n) for n in shape[1:]):
        message = "the length of an axis other than the first is unknown. Say X.compute_chunk_sizes() before."
        raise DataError(f"{where}, X: {message}")
    if not all(shape[1:]):
        raise DataError(f"{where}, X: shape {tuple(shape)}, expected records of at least one value.")
    extents = tuple(int(n) for n in shape[1:])
    return ("pixel", Field(np.dtype(np.uint8), extents)) if dtype == np.uint8 else ("data", _floats(extents))


def output_field(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> tuple[str, Field]:
    """Return name and field of the records that an array y becomes: ``label``, or ``target`` for floats.

    Raises
    ------
    DataError
        It can be neither.
    """
    if dtype.kind not in NUMBERS + TEXTS:
        hint = HINTS.get(dtype.kind, "")
        raise DataError(f"{where}, y: values of type {dtype}, expected numbers or texts. {hint}".rstrip())
    width = shape[1] if len(shape) == 2 else 1
    if len(shape) not in (1, 2) or (dtype.kind != "f" and width != 1) or not width >= 1:
        expected = "(records,) or (records, targets)" if dtype.kind == "f" else "(records,)"
        hint = " Several labels are columns of a frame." if dtype.kind != "f" and len(shape) == 2 else ""
        raise DataError(f"{where}, y: shape {tuple(shape)} of {dtype}, expected {expected}.{hint}")
    return ("target", _floats((int(width),))) if dtype.kind == "f" else ("label", Field(np.dtype(np.int32)))


def check_weight_type(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> None:
    """Check that an array can be the weights of records.

    Raises
    ------
    DataError
        It cannot.
    """
    if dtype.kind not in NUMBERS:
        raise DataError(f"{where}, weights: values of type {dtype}, expected numbers.")
    if len(shape) != 1:
        raise DataError(f"{where}, weights: shape {tuple(shape)}, expected (records,).")


def _floats(shape: tuple[int, ...]) -> Field:
    return Field(np.dtype(np.float32), shape)


def texts_of(values: Array, where: str) -> Array:
    """Return names of classes as an array of objects, (n,) str.

    Raises
    ------
    DataError
        A value is no text, or empty.
    """
    values = values.reshape(-1)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    texts = values.astype(object)
    # as floats and integers among texts do, None and NaN have other types
    wrong = next((i for i, value in enumerate(texts) if not (isinstance(value, str) and value)), None)
    if wrong is not None:
        raise DataError(f"{where}, record {wrong}, y: {texts[wrong]!r}, expected the name of a class.")
    return texts


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
            y = self._outputs(_array_of(y, f"{where}, y"), len(x), where)
        weights = self._weights(more[0], len(x), where) if self.has_weights else None
        if len(x):
            ArrowStore.write_file(Path(path), path, self._chunks(x, y, weights, where), class_names=self.classes)
        return len(x)

    def _checked(self, value: Any, where: str, name: str, field: Field) -> Array:
        """Return an array of the declared type and shape."""
        array = _array_of(value, where)
        if array.dtype.kind not in NUMBERS or (name == "pixel" and array.dtype != np.uint8):
            raise DataError(
                f"{where}: values of type {array.dtype}, expected {'uint8' * (name == 'pixel') or 'numbers'}."
            )
        if array.shape[1:] != field.shape:
            raise DataError(f"{where}: records of shape {array.shape[1:]}, expected {field.shape}.")
        return array

    def _outputs(self, y: Array, n: int, where: str) -> Array:
        """Return the values of y as they are stored, but for the type of floats."""
        assert self.output is not None
        name, field = self.output
        if len(y) != n:
            raise DataError(f"{where}: y has {len(y)} records, but X has {n}.")
        if name == "target":
            return self._checked(y.reshape(n, *(y.shape[1:] or (1,))), f"{where}, y", name, field)
        if y.shape not in ((n,), (n, 1)):
            raise DataError(f"{where}, y: shape {y.shape}, expected ({n},).")
        y = y.reshape(n)
        return self._classes_of(y, where) if self.classes else _labels_of(y, where)

    def _classes_of(self, y: Array, where: str) -> Array:
        if y.dtype.kind == "b":
            return y.astype(np.int32)
        numbers = {name: i for i, name in enumerate(self.classes)}
        texts = texts_of(y, where)
        labels = np.fromiter((numbers.get(text, -1) for text in texts), np.int32, len(y))
        if (labels < 0).any():
            row = int(labels.argmin())
            raise DataError(
                f"{where}, record {row}, y: unknown class {texts[row]!r}. Known: {', '.join(self.classes)}."
            )
        return labels

    @staticmethod
    def _weights(value: Any, n: int, where: str) -> Array:
        weights = _array_of(value, f"{where}, weights")
        check_weight_type(where, weights.dtype, weights.shape)
        if len(weights) != n:
            raise DataError(f"{where}: weights have {len(weights)} records, but X has {n}.")
        wrong = find_wrong_weight(weights)
        if wrong is not None:
            raise DataError(f"{where}, record {wrong[0]}, weights: {wrong[1]}.")
        return weights.astype(np.float32)[:, None]

    def _chunks(self, x: Array, y: Array | None, weights: Array | None, where: str) -> Iterator[Arrays]:
        """Yield the records of a block at a time, so that only a block is converted at a time."""
        fields = [self.feature, *([self.output] if self.output else ())]
        rows = rows_per_block(sum(field.size_bytes or 4 for _, field in fields))
        for first in range(0, len(x), rows):
            chunk = {self.feature[0]: _stored(x[first : first + rows], self.feature[1], f"{where}, X", first)}
            if self.output and y is not None:
                chunk[self.output[0]] = _stored(y[first : first + rows], self.output[1], f"{where}, y", first)
            if weights is not None:
                chunk["weight"] = weights[first : first + rows]
            yield chunk


def _array_of(value: Any, where: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise DataError(f"{where}: masked values, expected a value everywhere. Fill them, e.g. by filled(0).")
        return np.asarray(value.data)
    if not isinstance(value, np.ndarray):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        hint = " Say toarray(), for records are dense." if hasattr(value, "toarray") else ""
        raise DataError(f"{where}: an object of type {kind}, expected a NumPy array.{hint}")
    if not value.ndim:
        raise DataError(f"{where}: a single value, expected an array.")
    return np.asarray(value)


def _labels_of(y: Array, where: str) -> Array:
    wrong = find_wrong_label(y)
    if wrong is not None:
        raise DataError(f"{where}, record {wrong[0]}, y: {wrong[1]}.")
    if len(y) and y.min() < 0:
        row = int(y.argmin())
        raise DataError(f"{where}, record {row}, y: the label {y[row]} is negative. Labels are indices of classes.")
    return y.astype(np.int32, copy=False)


def _stored(values: Array, field: Field, where: str, first: int) -> Array:
    """Return values in the type of the records, the nearest 32-bit floats among them."""
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, field.dtype)
    if field.dtype.kind != "f" or np.isfinite(stored).all():
        return stored
    place = np.unravel_index(int(np.argmin(np.isfinite(stored))), stored.shape)
    value, row = values[place], first + int(place[0])
    inside = f"[{', '.join(map(str, place[1:]))}]"
    hint = "Replace missing values, or give a frame and say missing: mean in store_conf." if np.isnan(value) else ""
    raise DataError(f"{where}, record {row}{inside}: {value}, expected a 32-bit float. {hint}".rstrip())


# Frames as records: tables of named columns, and the Parquet files that they are written to.


# of the records of a row group, which is decoded as a whole; in file order a batch may take two
GROUP_BYTES = 4 << 20
HINT = "Convert it to numbers or strings, or leave it out."


def as_table(value: Any, where: str) -> pa.Table:
    """Return a frame as an Arrow table: of pandas without its index, NaN as null.

    Raises
    ------
    DataError
        A column cannot be converted, or has no name of its own.
    """
    if isinstance(value, pa.Table):
        return _checked(value, where)
    if not hasattr(value, "dtypes") or not hasattr(value, "iloc"):
        if not hasattr(value, "__arrow_c_stream__"):
            kind = f"{type(value).__module__}.{type(value).__name__}"
            raise DataError(f"{where}: an object of type {kind}, expected a frame.")
        return _checked(pa.table(value), where)
    names = names_of(value.columns, where)
    return pa.table({name: _column(value.iloc[:, i], f"{where}, column {name!r}") for i, name in enumerate(names)})


def names_of(columns: Any, where: str) -> list[str]:
    """Return the names of columns of pandas as texts.

    Raises
    ------
    DataError
        A name has several levels, or occurs twice.
    """
    if getattr(columns, "nlevels", 1) > 1:
        raise DataError(f"{where}: columns with names of {columns.nlevels} levels, expected one. Join the levels.")
    names = [str(name) for name in columns]
    _refuse_twice(names, where)
    return names


def drop_columns(frame: Any, names: Collection[str]) -> Any:
    """Return a frame of pandas, Dask or Arrow without some columns; of pandas without a copy of the others."""
    if isinstance(frame, pa.Table):
        return frame.drop_columns(list(names))
    labels = [label for label in frame.columns if str(label) in names]
    # that a partition has other columns than declared is found when it is written
    return frame.drop(columns=labels, errors="ignore")


def _refuse_twice(names: Sequence[str], where: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise DataError(f"{where}: column {twice!r} occurs twice. Rename one.")


def _checked(table: pa.Table, where: str) -> pa.Table:
    _refuse_twice(table.column_names, where)
    return table


def _column(values: Any, where: str) -> pa.Array | pa.ChunkedArray:
    """Return values of pandas, NumPy or Arrow as a column."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        column = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        kind = getattr(values, "dtype", type(values).__name__)
        raise DataError(
            f"{where}: values of type {kind} cannot be a column: {str(error).rstrip('.')}. {HINT}"
        ) from error
    # objects that are all missing; those of other partitions are texts
    is_missing = pa.types.is_null(column.type) and getattr(getattr(values, "dtype", None), "kind", "") == "O"
    return column.cast(pa.string()) if is_missing else column


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
            message = f"{show_columns(table.column_names)} Expected: {', '.join(self.columns)}."
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
        if len(y) != n:
            raise DataError(f"{where}: y has {len(y)} records, but the frame has {n}.")
        if hasattr(y, "columns"):
            table = as_table(y, f"{where}, y")
            columns = table.columns
        elif getattr(y, "ndim", 1) == 2:
            columns = [_column(np.ascontiguousarray(each), f"{where}, y") for each in np.asarray(y).T]
        else:
            columns = [_column(y, f"{where}, y")]
        if len(columns) != len(self.outputs):
            raise DataError(f"{where}: y has {len(columns)} columns, expected {len(self.outputs)}.")
        for name, column in zip(self.outputs, columns, strict=True):
            if pa.types.is_integer(column.type) and len(column) and pc.any(pc.less(column, 0)).as_py():
                row = pc.index(pc.less(column, 0), True).as_py()
                message = f"the label {column[row]} is negative. Labels are indices of classes."
                raise DataError(f"{where}, record {row}, column {name!r}: {message}")
        return dict(zip(self.outputs, columns, strict=True))

    def _weights(self, weights: Any, n: int, where: str) -> Any:
        if len(weights) != n:
            raise DataError(f"{where}: weights have {len(weights)} records, but the frame has {n}.")
        column = _column(weights, f"{where}, weights")
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise DataError(f"{where}, weights: values of type {column.type}, expected numbers.")
        wrong = find_wrong_weight(as_floats(column))
        if wrong is not None:
            raise DataError(f"{where}, record {wrong[0]}, weights: {wrong[1]}.")
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
