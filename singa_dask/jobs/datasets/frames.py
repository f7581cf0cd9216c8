"""Frames as records: tables of named columns, and the Parquet files that they are written to."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from singa_dask.data.codecs.labels import find_wrong_weight
from singa_dask.data.codecs.table_columns import as_floats
from singa_dask.data.codecs.table_spec import show_columns
from singa_dask.data.stores.block_sizes import rows_per_block
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.dataset import PartFacts, place_of

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
        name = getattr(y, "name", None)
        # arrays of Dask have names, too, which are of tasks
        return {"y" if name is None or hasattr(y, "chunks") else str(name): _use_of(y.dtype)}
    if y.ndim != 2 or np.isnan(y.shape[1]):
        raise DataError(f"{where}, y: shape {tuple(y.shape)}, expected (records,) or (records, columns).")
    names = ["y"] if y.shape[1] == 1 else [f"y{i}" for i in range(y.shape[1])]
    return dict.fromkeys(names, _use_of(y.dtype))


def weight_name(weights: Any, where: str) -> str:
    """Return the name of a column of weights, ``weight`` if it has none.

    Raises
    ------
    DataError
        They are no column.
    """
    if getattr(weights, "ndim", 1) != 1:
        raise DataError(f"{where}, weights: shape {tuple(weights.shape)}, expected one for each record.")
    name = getattr(weights, "name", None)
    # arrays of Dask have names, too, which are of tasks
    return "weight" if name is None or hasattr(weights, "chunks") else str(name)


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

    def __call__(self, value: Any, path: str, index: int) -> PartFacts:
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
        if not len(table):
            return PartFacts(0, 0)
        _write(table, path, where)
        return PartFacts(len(table), os.path.getsize(path))

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
