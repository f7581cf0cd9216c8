"""TableEncoder: convert the columns of a table to the arrays of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs.equal_names import NameNumbers
from singa_dask.data.codecs.labels import find_wrong_label
from singa_dask.data.codecs.record_values import find_wrong_weight
from singa_dask.data.tables.column_values import as_floats, as_texts, column_kind, missing_of, missing_rows, whole
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.list_columns import is_list
from singa_dask.data.tables.spec import TableSpec
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError, Remedy
from singa_dask.lazy import LazyModule
from singa_dask.wording import listed

pc = LazyModule("pyarrow.compute")

LARGEST = float(np.finfo(np.float32).max)
Where = Callable[[int], str]
Values = npt.NDArray[Any]
# remedies for missing values; a missing number can be filled in, a missing category cannot
SKIPPED = Remedy("missing", "Set missing: skip to leave such records out.", ("skip",))
FILLED = Remedy(
    "missing", "Set missing: to mean, to skip, or to a number for features without a value.", ("mean", "skip")
)
NAMED = Remedy("missing", "Set missing: skip, or name the empty value among its categories: ''.", ("skip",))
ZEROS = Remedy(
    "unknown",
    "Set missing: skip, unknown: ignore, or name the empty value among its categories: ''.",
    ("ignore",),
)
BOTH = Remedy(
    "missing",
    "Set missing: to mean, to skip, or to a number for features without a value, and unknown: ignore for categories.",
    ("mean", "skip", "ignore"),
)
UNKNOWN = Remedy("unknown", "Or set unknown: ignore.", ("ignore",))
UNLABELLED = Remedy("unlabelled", "Set unlabelled: skip to leave such records out.", ("skip",))


class TableEncoder:
    """Converts the columns of a block to the arrays of records.

    Parameters
    ----------
    spec : TableSpec
    facts : TableFacts

    Attributes
    ----------
    schema : dict of str to Field
        Dtype and shape of each field: ``data`` (values,) float32 and, if the table has them, ``target`` (targets,)
        float32, ``label`` int32 and ``weight`` (1,) float32. ``label`` is a number, or (labels,) if there are several.
        A store may set another shape for ``data``, or float64.
    places : list of (str, int or slice)
        Each feature, with the index of its value in ``data``, or the slice of its values.
    """

    def __init__(self, spec: TableSpec, facts: TableFacts) -> None:
        self._spec, self._facts, self._width = spec, facts, len(facts.names)
        self.schema = {"data": Field(np.dtype(np.float32), (self._width,))}
        self.places, self._booleans = _places(facts), frozenset(facts.booleans or ())
        if spec.target:
            self.schema["target"] = Field(np.dtype(np.float32), (len(spec.target),))
        if spec.label:
            several = (len(spec.label),) if len(spec.label) > 1 else ()
            self.schema["label"] = Field(np.dtype(np.int32), several)
        if spec.weight:
            self.schema["weight"] = Field(np.dtype(np.float32), (1,))

    def encode(self, table: pa.Table, where: Where) -> Arrays:
        """Convert the rows of a table to records.

        Parameters
        ----------
        table : pyarrow.Table
            Columns of numbers and strings; null means a missing value.
        where : callable
            Takes a row, and returns its place for errors.

        Raises
        ------
        DataError
            A value is missing, not finite, or not among the categories.
        """
        spec = self._spec
        if required := spec.required(self._facts.features):
            kept = np.flatnonzero(~missing_rows(table, required))
            if len(kept) < len(table):
                table, everywhere = table.take(pa.array(kept)), where
                where = lambda row: everywhere(int(kept[row]))  # noqa: E731
        try:
            arrays: Arrays = {"data": self._features(table, where)}
        except DataError as error:
            if error.remedy in (FILLED, ZEROS):
                self._refuse_gaps(table, where)
            raise
        if spec.target:
            targets = [_numbers(whole(table.column(name)), where, name, None, UNLABELLED) for name in spec.target]
            arrays["target"] = np.stack(targets, axis=1).astype(np.float32)
        if spec.label:
            labels = [self._labels(whole(table.column(name)), where, name) for name in spec.label]
            arrays["label"] = np.stack(labels, axis=1) if len(labels) > 1 else labels[0]
        if spec.weight:
            weights = _numbers(whole(table.column(spec.weight)), where, spec.weight, None, SKIPPED)
            wrong = find_wrong_weight(weights)
            if wrong is not None:
                raise DataError(f"{where(wrong[0])}, column {spec.weight!r}: {wrong[1]}.")
            arrays["weight"] = weights[:, None].astype(np.float32)
        return arrays

    def _features(self, table: pa.Table, where: Where) -> Values:
        """Return the values of all features, (n, *shape)."""
        data = np.empty((len(table), self._width), self.schema["data"].dtype)
        plain = []
        # enter errstate once, because entering errstate for each column would take as long as copying the column
        with np.errstate(over="ignore"):
            for name, values in self.places:
                column = whole(table.column(name))
                # other columns need a conversion, or fill several values of a record
                is_plain = name not in self._facts.categories and name not in self._booleans and _is_plain(column)
                if isinstance(values, int) and is_plain:
                    plain.append((name, values, column))
                    data[:, values] = np.from_dlpack(column)
                else:
                    data[:, values] = self._feature(column, where, name)
        # check all columns at once, which takes half the time; check single columns only to name the wrong one
        if not is_in_range(data):
            for name, values, column in plain:
                data[:, values] = self._feature(column, where, name)
        return data.reshape(len(table), *self.schema["data"].shape)

    def _refuse_gaps(self, table: pa.Table, where: Where) -> None:
        """Raise a DataError that names the columns if the first record with gaps lacks several values."""
        facts, fills = self._facts, self._spec.unknown == "ignore"
        empty = {name for name, known in facts.categories.items() if fills or "" in known}
        filled = set() if self._spec.missing == "error" else {*facts.features}.difference(facts.categories)
        names = [name for name in facts.features if name not in {*facts.texts, *facts.widths, *empty, *filled}]
        if len(names) < 2:
            return
        gaps = np.stack([missing_of(whole(table.column(name))) for name in names])
        row = int(gaps.any(axis=0).argmax())
        wrong = [name for name, is_missing in zip(names, gaps[:, row], strict=True) if is_missing]
        if len(wrong) > 1:
            n = int(gaps.any(axis=0).sum())
            more = f", the first of {n} such records in {gaps.shape[1]}" if n > 1 else ""
            n_categories = len(facts.categories.keys() & {*wrong})
            remedy = BOTH if 0 < n_categories < len(wrong) else ZEROS if n_categories else FILLED
            said = f"columns {listed(list(map(repr, wrong)))}: no value{more}. {remedy.text}"
            raise DataError(f"{where(row)}, {said}", remedy=remedy) from None

    def count_filled(self, table: pa.Table, data: Values) -> FillCounts:
        """Return how many values of each feature `encode` has filled in.

        ``data`` is the field that `encode` returned for ``table``.
        """
        rows, counts = data.reshape(len(data), -1), FillCounts()
        if required := self._spec.required(self._facts.features):
            table = table.filter(pa.array(~missing_rows(table, required)))
        for name, values in self.places:
            if name in self._facts.texts:
                counts.filled[name] = int(missing_of(whole(table.column(name))).sum())
            elif name not in self._facts.categories:
                if self._spec.missing not in ("error", "skip"):
                    counts.filled[name] = int(missing_of(whole(table.column(name))).sum())
            elif self._spec.unknown == "ignore" and self._facts.encoding == "one_hot":
                are_zeros = ~rows[:, values].any(axis=1)
                counts.filled[name] = n = int((are_zeros & missing_of(whole(table.column(name)))).sum())
                counts.unknown[name] = int(are_zeros.sum()) - n
        return FillCounts(+counts.filled, +counts.unknown)

    def _feature(self, column: pa.Array, where: Where, name: str) -> Values:
        """Return the values of a feature: (n,), or (n, values) for one-hot categories, vectors and tokens."""
        if name in self._facts.texts:
            texts, missing = as_texts(column), missing_of(column)
            if column_kind(column.type) in ("number", "boolean") and not missing.all():
                row = int(missing.argmin())
                message = f"{texts[row]} has the type {column.type}, expected a text, which keeps all characters"
                raise DataError(f"{where(row)}, column {name!r}: {message}. Store the column as text.")
            if not self._spec.blank_texts:
                _refuse_missing(texts, missing, where, name)
            return self._facts.texts[name].encode(pc.if_else(pa.array(missing), "", texts))
        if name in self._facts.dates:
            return self._date_parts(column, where, name)
        width = self._facts.widths.get(name, 0)
        if is_list(column.type) != (width > 0):
            expected = f"vectors of {width}" if width else "one number in each record"
            raise DataError(f"{where(0)}, column {name!r}: values of type {column.type}, expected {expected}.")
        if name in self._facts.categories:
            categories = self._facts.categories[name]
            if self._facts.encoding != "one_hot":
                return _index_of(column, categories, where, name)
            index = _index_of(column, categories, where, name, ZEROS, self._spec.unknown)
            one_hot: Values = index[:, None] == np.arange(len(categories))
            return one_hot
        if name in self._booleans:
            _refuse_numbers(column, where, name)
        fill = self._spec.missing
        if fill == "mean":
            return _numbers(column, where, name, self._facts.means[name])
        number = float(fill) if not isinstance(fill, str) else None
        return _vectors(column, width, where, name, number) if width else _numbers(column, where, name, number)

    def _date_parts(self, column: pa.Array, where: Where, name: str) -> Values:
        """Return the parts of dates, (n, values)."""
        form, fill = self._facts.dates[name], self._spec.missing
        if isinstance(fill, str) and fill != "mean":
            _refuse_missing(column, missing_of(column), where, name, FILLED)
        parts = form.values(column)
        if fill == "mean":
            filling = np.array([self._facts.means[value] for value in form.names(name)])
        else:
            filling = np.where(form.are_flags, 0.0, 0.0 if isinstance(fill, str) else float(fill))
        return np.where(np.isnan(parts), filling, parts)

    def _labels(self, column: pa.Array, where: Where, name: str) -> npt.NDArray[np.int32]:
        classes = self._facts.classes_of(name)
        if classes:
            return _index_of(column, classes, where, name, UNLABELLED).astype(np.int32)
        _refuse_missing(column, missing_of(column), where, name, UNLABELLED)
        values = np.asarray(column.to_numpy(zero_copy_only=False))
        wrong = find_wrong_label(values)
        if wrong is not None:
            raise DataError(f"{where(wrong[0])}, column {name!r}: {wrong[1]}.")
        return values.astype(np.int32)


def _places(facts: TableFacts) -> list[tuple[str, int | slice]]:
    """Return each feature with the index of its value in ``data``, or the slice of its values."""
    places, at = list[tuple[str, int | slice]](), 0
    for name in facts.features:
        width = len(facts.values_of(name))
        has_several = name in facts.widths or name in facts.dates
        has_several |= name in facts.categories and facts.encoding == "one_hot"
        places.append((name, slice(at, at + width) if has_several else at))
        at += width
    return places


def _refuse_missing(
    column: pa.Array, missing: npt.NDArray[np.bool_], where: Where, name: str, remedy: Remedy = SKIPPED
) -> None:
    if missing.any():
        row = int(missing.argmax())
        n = int(missing.sum())
        more = f", the first of {n} in {len(missing)} records" if n > 1 else ""
        raise DataError(f"{where(row)}, column {name!r}: no value{more}. {remedy.text}", remedy=remedy)


def _numbers(
    column: pa.Array, where: Where, name: str, fill: float | None, remedy: Remedy = FILLED
) -> npt.NDArray[np.floating[Any]]:
    # plain columns need no copy
    values: Values = np.from_dlpack(column) if _is_plain(column) else as_floats(column)
    if is_in_range(values):
        return values
    if fill is None:
        _refuse_missing(column, np.isnan(values), where, name, remedy)
    else:
        values = np.where(np.isnan(values), fill, values)
    wrong = ~(np.abs(values) <= LARGEST)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{where(row)}, column {name!r}: {values[row]:g} does not fit in a float of 32 bits.")
    return values


def _refuse_numbers(column: pa.Array, where: Where, name: str) -> None:
    """Raise a `DataError` if a column of booleans has a number other than 0 and 1."""
    values = as_floats(column)
    wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
    if wrong.any():
        row = int(wrong.argmax())
        expected = "Expected true, false, 1 or 0: the training data has booleans"
        raise DataError(f"{where(row)}, column {name!r}: {values[row]:g} is not a boolean. {expected}.")


def _vectors(column: pa.Array, width: int, where: Where, name: str, fill: float | None) -> Values:
    """Return the values of vectors, (n, width)."""
    present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if fill is None:
        _refuse_missing(column, ~present, where, name)
    rows = np.flatnonzero(present)
    lengths = pc.list_value_length(column).drop_null().to_numpy()
    wrong = lengths != width
    if wrong.any():
        at = int(wrong.argmax())
        raise DataError(f"{where(int(rows[at]))}, column {name!r}: {lengths[at]} values, expected {width}.")
    values = _numbers(column.flatten(), lambda at: where(int(rows[at // width])), name, fill).reshape(-1, width)
    if len(rows) == len(column):
        return values
    filled = np.full((len(column), width), fill, np.float64)
    filled[rows] = values
    return filled


def _is_plain(column: pa.Array) -> bool:
    """Return whether NumPy can view the numbers of a column without missing values."""
    return pa.types.is_floating(column.type) and column.type != pa.float16() and not column.null_count


def is_in_range(values: npt.NDArray[np.floating[Any]]) -> bool:
    """Return whether all values are within the range of float32; False if there is a NaN."""
    return not len(values) or bool(-LARGEST <= values.min() and values.max() <= LARGEST)


def _index_of(
    column: pa.Array, names: Sequence[str], where: Where, name: str, remedy: Remedy = NAMED, unknown: str = ""
) -> npt.NDArray[np.int64]:
    """Return the index of each name.

    With ``unknown="ignore"``, the index of unknown and missing names is -1.
    """
    numbers, strings = NameNumbers(names), pc.fill_null(as_texts(column), "")
    if "" in numbers:
        strings = pc.if_else(pa.array(missing_of(column)), "", strings)
    encoded = strings.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    indices: npt.NDArray[np.int64] = np.array([numbers[text] for text in texts], np.int64)[encoded.indices.to_numpy()]
    wrong = indices < 0
    if wrong.any():
        if unknown == "ignore":
            return indices
        _refuse_missing(column, wrong & missing_of(column), where, name, remedy)
        row = int(wrong.argmax())
        expected = listed([name or "'' (no value)" for name in names])
        message = f"unknown category {texts[encoded.indices[row].as_py()]!r}. Expected a known one: {expected}."
        message, helps = (f"{message} {UNKNOWN.text}", UNKNOWN) if unknown else (message, None)
        raise DataError(f"{where(row)}, column {name!r}: {message}", remedy=helps)
    return indices
