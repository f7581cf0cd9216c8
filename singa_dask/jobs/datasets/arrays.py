"""Arrays as records: the fields that they become, and the files that they are written to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask.arrays import Array
from singa_dask.data import Arrays, Field
from singa_dask.data.codecs.labels import find_wrong_label, find_wrong_weight
from singa_dask.data.stores.arrow import ArrowStore
from singa_dask.data.stores.block_sizes import rows_per_block
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.dataset import PartFacts, place_of

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

    def __call__(self, value: Any, path: str, index: int) -> PartFacts:
        """Write a partition: X, or X, y, and weights if there are any."""
        where = place_of(self.dataset, index, self.n_parts)
        x, y, *more = value if self.output else (value, None)
        x = self._checked(x, f"{where}, X", *self.feature)
        if self.output:
            y = self._outputs(_array_of(y, f"{where}, y"), len(x), where)
        weights = self._weights(more[0], len(x), where) if self.has_weights else None
        if not len(x):
            return PartFacts(0, 0)
        ArrowStore.write_file(Path(path), path, self._chunks(x, y, weights, where), class_names=self.classes)
        return PartFacts(len(x), os.path.getsize(path))

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
