"""Convert frames to records: named columns, and the writer of the Parquet files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from singa_dask.data.blocks import rows_per_block
from singa_dask.data.codecs.plain_arrays import as_array
from singa_dask.data.tables.column_names import show_columns
from singa_dask.data.tables.column_values import as_floats
from singa_dask.data.tables.frames import HINT, as_column, as_table, names_of
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.records import check_count, check_weights, place_of
from singa_dask.lazy import LazyModule
from singa_dask.shown import plural
from singa_dask.wording import listed

pc, pq = LazyModule("pyarrow.compute"), LazyModule("pyarrow.parquet")

# bytes of a row group. A row group is decoded as a whole, and in file order, a batch may need two row groups.
GROUP_BYTES = 4 << 20


def drop_columns(frame: Any, names: Collection[str]) -> Any:
    """Return a frame of pandas, Dask or Arrow without some columns."""
    if isinstance(frame, pa.Table):
        return frame.drop_columns(list(names))
    labels = [label for label in frame.columns if str(label) in names]
    # ignore missing columns: if a partition has other columns, writing it raises an error
    return frame.drop(columns=labels, errors="ignore")


def output_names(y: Any, where: str) -> dict[str, str]:
    """Return whether each column of y, by name, is a ``target`` (floats) or a ``label`` (other types)."""
    if hasattr(y, "columns") and y.ndim == 2:
        return {name: _use_of(y.dtypes.iloc[i]) for i, name in enumerate(names_of(y.columns, where))}
    if isinstance(y, (pa.Array, pa.ChunkedArray)):
        return {"y": "target" if pa.types.is_floating(y.type) else "label"}
    if isinstance(y, pa.Table):
        return {each.name: "target" if pa.types.is_floating(each.type) else "label" for each in y.schema}
    if getattr(y, "ndim", 1) == 1:
        return {column_name(y, "y"): _use_of(y.dtype)}
    if y.ndim != 2 or np.isnan(y.shape[1]):
        raise DataError(f"{where}, y: the shape is {tuple(y.shape)}, expected (records,) or (records, columns).")
    names = ["y"] if y.shape[1] == 1 else [f"y{i}" for i in range(y.shape[1])]
    return dict.fromkeys(names, _use_of(y.dtype))


def column_name(column: Any, otherwise: str) -> str:
    """Return the name of a column, or ``otherwise`` if the column has no name.

    The name of a Dask array does not count as a column name.
    """
    name = getattr(column, "name", None)
    return otherwise if name is None or hasattr(column, "chunks") else str(name)


def _use_of(dtype: Any) -> str:
    return "target" if getattr(dtype, "kind", "O") == "f" else "label"


@dataclass(frozen=True)
class FrameWriter:
    """Writes the partitions of frames as Parquet files.

    Attributes
    ----------
    dataset : str
        Name of the dataset, for errors.
    n_parts : int
        Number of partitions.
    columns : tuple of str
        Names of the columns, without the columns of y.
    outputs : tuple of str
        Names of the columns of y.
    weight : str
        Name of the column with weights; empty if there is none.
    """

    dataset: str
    n_parts: int
    columns: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    weight: str = ""

    def __call__(self, value: Any, path: str, index: int) -> int:
        """Write a partition, which is a frame, (frame, y), or (frame, y, weights), to the file ``path``."""
        where = place_of(self.dataset, index, self.n_parts)
        frame, y, *weights = value if self.outputs else (value, None)
        table = as_table(frame, where)
        if tuple(table.column_names) != self.columns:
            message = f"{show_columns(table.column_names)} Expected: {listed(self.columns)}."
            raise DataError(f"{where}: the columns are not the declared ones. {message}")
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
            raise DataError(f"{where}, weights: the values are of type {column.type}, expected numbers.")
        check_weights(where, "the frame", n, as_floats(column))
        return column


def _write(table: pa.Table, path: str, where: str) -> None:
    # dictionary encoding makes strings smaller; for floats, it only takes time
    texts = [each.name for each in table.schema if not pa.types.is_floating(each.type)]
    try:
        rows = rows_per_block(4 * table.num_columns, GROUP_BYTES)
        options = {"row_group_size": rows, "use_dictionary": texts, "write_statistics": False}
        pq.write_table(table, path, compression="none", **options)
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: the records cannot be written as Parquet: {str(error).rstrip('.')}. {HINT}"
        ) from error
