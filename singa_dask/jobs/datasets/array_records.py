"""Convert arrays to records: names and types of fields, and the writer of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from singa_dask.arrays import Array
from singa_dask.data.blocks import rows_per_block
from singa_dask.data.codecs.plain_arrays import TEXTS, as_stored, check_numbers, class_numbers, plain_array
from singa_dask.data.codecs.record_values import value_name
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.records import check_count, check_weight_type, check_weights, place_of


def feature_field(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> tuple[str, Field]:
    """Return the name and the field for the features X of records.

    Parameters
    ----------
    where : str
        Name of the dataset, for errors.
    dtype : dtype
    shape : sequence of number
        Shape of X. An unknown number of records is NaN.

    Returns
    -------
    str
        ``pixel`` for uint8, ``data`` for other numbers.
    Field

    Raises
    ------
    DataError
        X cannot be converted to records.
    """
    if len(shape) < 2:
        hint = " For records of one value pass X[:, None]." if len(shape) == 1 else ""
        raise DataError(
            f"{where}, X: the array has {len(shape)} axes, expected an axis of records and at least one more.{hint}"
        )
    check_numbers(dtype, f"{where}, X")
    if any(np.isnan(n) for n in shape[1:]):
        message = "the length of an axis other than the first is unknown. Call X.compute_chunk_sizes() first."
        raise DataError(f"{where}, X: {message}")
    if not all(shape[1:]):
        raise DataError(f"{where}, X: the shape is {tuple(shape)}, expected records of at least one value.")
    name = value_name(dtype)
    return name, Field(np.dtype(np.uint8 if name == "pixel" else np.float32), tuple(int(n) for n in shape[1:]))


def output_field(where: str, dtype: np.dtype[Any], shape: Sequence[float]) -> tuple[str, Field]:
    """Return the name and the field for the outputs y of records: ``label``, or ``target`` for floats.

    Raises
    ------
    DataError
        The values of y can be neither labels nor targets.
    """
    check_numbers(dtype, f"{where}, y", or_texts=True)
    width = shape[1] if len(shape) == 2 else 1
    if len(shape) not in (1, 2) or (dtype.kind != "f" and width != 1) or not width >= 1:
        expected = "(records,) or (records, targets)" if dtype.kind == "f" else "(records,)"
        hint = " Several labels are columns of a frame." if dtype.kind != "f" and len(shape) == 2 else ""
        raise DataError(f"{where}, y: the shape is {tuple(shape)} of {dtype}, expected {expected}.{hint}")
    if dtype.kind == "f":
        return "target", Field(np.dtype(np.float32), (int(width),))
    return "label", Field(np.dtype(np.int32))


@dataclass(frozen=True)
class ArrayWriter:
    """Writes the partitions of arrays as Arrow files.

    Attributes
    ----------
    dataset : str
        Name of the dataset, for errors.
    n_parts : int
        Number of partitions.
    feature, output : tuple of str and Field
        Name and field of X, and of y. ``output`` is None if there is no y.
    classes : tuple of str
        Names of the classes, if labels are strings or booleans.
    class_type : str
        Type of the labels; see `label_type`.
    has_weights : bool
        Whether weights follow y.
    rounds : bool
        Whether X is rounded, because its values have more digits than the field can represent.
    is_numbered : bool
        Whether labels are already indices into ``classes``.
    """

    dataset: str
    n_parts: int
    feature: tuple[str, Field]
    output: tuple[str, Field] | None = None
    classes: tuple[str, ...] = ()
    has_weights: bool = False
    rounds: bool = False
    class_type: str = ""
    is_numbered: bool = False

    def widened(self) -> ArrayWriter:
        """Return a writer that keeps all digits of X."""
        field = Field(np.dtype(np.float64), self.feature[1].shape)
        return replace(self, feature=(self.feature[0], field)) if self.rounds else self

    def __call__(self, value: Any, path: str, index: int) -> int:
        """Write a partition, which is X, (X, y), or (X, y, weights), to the file ``path``."""
        where = place_of(self.dataset, index, self.n_parts)
        x, y, *more = value if self.output else (value, None)
        x = self._checked(x, f"{where}, X", *self.feature)
        if self.output:
            y = self._outputs(plain_array(y, f"{where}, y"), len(x), where)
        weights = self._weights(more[0], len(x), where) if self.has_weights else None
        if len(x):
            chunks = self._chunks(x, y, weights, where)
            with open(path, "wb") as file:
                rows = Rechunker(path, chunks)
                ArrowStore.write_rows(file, rows, class_names=self.classes, class_type=self.class_type)
        return len(x)

    def _checked(self, value: Any, where: str, name: str, field: Field) -> Array:
        """Check the type and the shape of an array, and return it."""
        array = plain_array(value, where)
        check_numbers(array.dtype, where)
        if name == "pixel" and array.dtype != np.uint8:
            raise DataError(f"{where}: the values are of type {array.dtype}, expected uint8.")
        if array.shape[1:] != field.shape:
            raise DataError(f"{where}: the records have shape {array.shape[1:]}, expected {field.shape}.")
        return array

    def _outputs(self, y: Array, n: int, where: str) -> Array:
        """Check the type and the shape of y, and return it as labels or targets."""
        assert self.output is not None
        name, field = self.output
        check_count(where, "X", n, "y", len(y))
        if name == "target":
            return self._checked(y.reshape(n, *(y.shape[1:] or (1,))), f"{where}, y", name, field)
        if y.shape not in ((n,), (n, 1)):
            raise DataError(f"{where}, y: the shape is {y.shape}, expected ({n},).")
        names = () if self.is_numbered else self.classes
        if names and y.dtype.kind not in TEXTS + "b":
            raise DataError(f"{where}, y: the values are of type {y.dtype}, expected names of classes.")
        return class_numbers(y.reshape(n), names, f"{where}, y, record")

    @staticmethod
    def _weights(value: Any, n: int, where: str) -> Array:
        weights = plain_array(value, f"{where}, weights")
        check_weight_type(where, weights.dtype, weights.shape)
        check_weights(where, "X", n, weights)
        return weights.astype(np.float32)[:, None]

    def _chunks(self, x: Array, y: Array | None, weights: Array | None, where: str) -> Iterator[Arrays]:
        """Yield the records block by block. Only one block is converted at a time."""
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
