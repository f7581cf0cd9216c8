"""TableEncoder: makes arrays from the columns of a block. TableStatistics: learns what that takes from training data.

A `TableSpec` is what a job says; `TableFacts` is what was learned from the training data (means, categories, names of
classes), so that other data are read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.codecs.labels import find_wrong_label, find_wrong_weight
from singa_dask.data.codecs.table_columns import as_floats, as_texts, missing_of, missing_rows, whole
from singa_dask.data.codecs.table_facts import MAX_SHOWN, TableFacts
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError

LARGEST = float(np.finfo(np.float32).max)
Where = Callable[[int], str]
Values = npt.NDArray[Any]
# maximum number of categories that are learned from a column
MAX_CATEGORIES = 10_000
# more categories than this in fewer than twice as many records are no categories
MANY = 100
BOOLEANS = ("false", "true")


class TableStatistics:
    """Learns what a `TableSpec` needs to know of the training data.

    Parameters
    ----------
    url : str
        URL of the table, for errors.
    spec : TableSpec
    features : tuple of str
        The columns of the table that are features.
    kinds : mapping of str to str
        Kind of each column.
    known : TableFacts, optional
        What was learned from the training data, if these are other data.
    classes : mapping of str to tuple of str
        Names of the classes of labels that the file has.

    Attributes
    ----------
    needed : bool
        Whether a pass over the data is necessary.
    """

    def __init__(
        self,
        url: str,
        spec: TableSpec,
        features: tuple[str, ...],
        kinds: Mapping[str, str],
        known: TableFacts | None = None,
        classes: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        self._url, self._spec, self._features, self._known = url, spec, features, known
        self._classes = classes
        self._n = 0
        self._sums: dict[str, tuple[float, int]] = {}
        self._found: dict[str, set[str]] = {}
        if known is None:
            self._begin(kinds)
        self.needed = bool(self._found or self._sums) or spec.missing == "skip"

    def _begin(self, kinds: Mapping[str, str]) -> None:
        spec, features = self._spec, self._features
        self._categories = {name: spec.categories[name] for name in features if name in spec.categories}
        self._labels = {name: spec.categories.get(name) or self._classes.get(name, ()) for name in spec.label}
        learned = [name for name, names in self._categories.items() if not names]
        for name, names in self._labels.items():
            if kinds[name] == "boolean":
                self._labels[name] = names or BOOLEANS
            elif not names and (kinds[name] == "string" or name in spec.categories):
                learned.append(name)
        self._found = {name: set() for name in learned}
        is_number = [name for name in features if name not in self._categories and spec.missing == "mean"]
        self._sums = {name: (0.0, 0) for name in is_number}

    def add(self, table: pa.Table) -> int:
        """Take the records of a block into account; return how many of them are kept.

        Raises
        ------
        DataError
            A column has too many categories.
        """
        if self._spec.missing == "skip":
            kept = ~missing_rows(table, [*self._features, *self._spec.outputs])
            table = table.filter(pa.array(kept))
        self._n += len(table)
        for name, (total, n) in self._sums.items():
            values = as_floats(whole(table.column(name)))
            values = values[~np.isnan(values)]
            self._sums[name] = total + float(values.sum()), n + len(values)
        for name, found in self._found.items():
            texts = as_texts(whole(table.column(name)))
            present = pc.unique(texts.filter(pa.array(~missing_of(texts))))
            found.update(present.to_pylist())
            if len(found) > MAX_CATEGORIES:
                self._refuse(name, f"more than {MAX_CATEGORIES}")
        return len(table)

    def _refuse(self, name: str, count: str) -> None:
        raise DataError(
            f"{self._url}: column {name!r} has {count} different values in {self._n} records. Expected categories, "
            "whose names repeat. A number that identifies records is neither a category nor a label."
        )

    def finish(self) -> TableFacts:
        """Return what has been learned.

        Raises
        ------
        DataError
            A column has no values, or is not one of categories.
        """
        if self._known is not None:
            return self._checked(self._known)
        for name, found in self._found.items():
            if len(found) > MANY and 2 * len(found) > self._n:
                self._refuse(name, str(len(found)))
        empty = [name for name, (_, n) in self._sums.items() if not n]
        empty += [name for name, found in self._found.items() if not found]
        if empty and self._n:
            raise DataError(f"{self._url}: column {empty[0]!r} has no values. Leave it out.")
        learned = {name: _sorted(found) for name, found in self._found.items()}
        return TableFacts(
            self._features,
            {name: total / n for name, (total, n) in self._sums.items() if n},
            {name: names or learned[name] for name, names in self._categories.items()},
            {name: names or learned.get(name, ()) for name, names in self._labels.items()},
            self._spec.encoding,
        )

    def _checked(self, known: TableFacts) -> TableFacts:
        """Return facts of the training data, if they have all that these data need."""
        spec = self._spec
        means = [name for name in self._features if name not in known.categories and name not in known.means]
        names = [name for name in self._features if (name in spec.categories) != (name in known.categories)]
        if means and spec.missing == "mean":
            message = f"no mean of column {means[0]!r} is known of the training data. Set missing: mean for it too."
            raise DataError(f"{self._url}: {message}")
        if names:
            raise DataError(f"{self._url}: column {names[0]!r} is a category here, or in training, but not in both.")
        labels = [name for name in spec.label if name not in known.labels]
        if labels and known.labels and "" not in known.labels:
            learned = ", ".join(known.labels)
            raise DataError(f"{self._url}: column {labels[0]!r} is no label of the training data. Labels: {learned}.")
        return known


def _sorted(found: set[str]) -> tuple[str, ...]:
    """Return names sorted by their value if all are numbers, else as text."""
    try:
        return tuple(sorted(found, key=float))
    except ValueError:
        return tuple(sorted(found))


class TableEncoder:
    """Makes the arrays of records from the columns of a block.

    Parameters
    ----------
    spec : TableSpec
    facts : TableFacts

    Attributes
    ----------
    schema : dict of str to Field
        ``data`` (values,) float32, or float64 once its field says so; ``target`` (targets,) float32, ``label`` int32
        and ``weight`` (1,) float32 if there are any. ``label`` is a number, or (labels,) if there are several.
    """

    def __init__(self, spec: TableSpec, facts: TableFacts) -> None:
        self._spec, self._facts = spec, facts
        self.schema = {"data": Field(np.dtype(np.float32), (len(facts.names),))}
        self._places = _places(facts)
        if spec.target:
            self.schema["target"] = Field(np.dtype(np.float32), (len(spec.target),))
        if spec.label:
            several = (len(spec.label),) if len(spec.label) > 1 else ()
            self.schema["label"] = Field(np.dtype(np.int32), several)
        if spec.weight:
            self.schema["weight"] = Field(np.dtype(np.float32), (1,))

    def encode(self, table: pa.Table, where: Where) -> Arrays:
        """Return the records of some rows.

        Parameters
        ----------
        table : pyarrow.Table
            Columns of numbers and strings, null where there is no value.
        where : callable
            Row -> its place, for an error.

        Raises
        ------
        DataError
            A value is missing, not finite, or not among the categories.
        """
        spec = self._spec
        if spec.missing == "skip":
            kept = np.flatnonzero(~missing_rows(table, (*self._facts.features, *spec.outputs)))
            if len(kept) < len(table):
                table, everywhere = table.take(pa.array(kept)), where
                where = lambda row: everywhere(int(kept[row]))  # noqa: E731
        data = np.empty((len(table), *self.schema["data"].shape), self.schema["data"].dtype)
        for name, values in self._places:
            data[:, values] = self._feature(whole(table.column(name)), where, name)
        arrays: Arrays = {"data": data}
        if spec.target:
            targets = [_numbers(whole(table.column(name)), where, name, None) for name in spec.target]
            arrays["target"] = np.stack(targets, axis=1).astype(np.float32)
        if spec.label:
            labels = [self._labels(whole(table.column(name)), where, name) for name in spec.label]
            arrays["label"] = np.stack(labels, axis=1) if len(labels) > 1 else labels[0]
        if spec.weight:
            weights = _numbers(whole(table.column(spec.weight)), where, spec.weight, None)
            wrong = find_wrong_weight(weights)
            if wrong is not None:
                raise DataError(f"{where(wrong[0])}, column {spec.weight!r}: {wrong[1]}.")
            arrays["weight"] = weights[:, None].astype(np.float32)
        return arrays

    def _feature(self, column: pa.Array, where: Where, name: str) -> Values:
        """Return the values of a feature, (n,) or one-hot."""
        if name in self._facts.categories:
            categories = self._facts.categories[name]
            index = _index_of(column, categories, where, name)
            return index[:, None] == np.arange(len(categories)) if self._facts.encoding == "one_hot" else index
        fill = self._spec.missing
        if fill == "mean":
            return _numbers(column, where, name, self._facts.means[name])
        return _numbers(column, where, name, float(fill) if not isinstance(fill, str) else None)

    def _labels(self, column: pa.Array, where: Where, name: str) -> npt.NDArray[np.int32]:
        classes = self._facts.classes_of(name)
        if classes:
            return _index_of(column, classes, where, name).astype(np.int32)
        _refuse_missing(column, missing_of(column), where, name)
        values = np.asarray(column.to_numpy(zero_copy_only=False))
        wrong = find_wrong_label(values)
        if wrong is not None:
            raise DataError(f"{where(wrong[0])}, column {name!r}: {wrong[1]}.")
        return values.astype(np.int32)


def _places(facts: TableFacts) -> list[tuple[str, int | slice]]:
    """Return each feature with the index of its value, or those of its one-hot values, in ``data``."""
    found, at = list[tuple[str, int | slice]](), 0
    for name in facts.features:
        width = len(facts.values_of(name))
        is_one_hot = name in facts.categories and facts.encoding == "one_hot"
        found.append((name, slice(at, at + width) if is_one_hot else at))
        at += width
    return found


def _refuse_missing(column: pa.Array, missing: npt.NDArray[np.bool_], where: Where, name: str, hint: str = "") -> None:
    if missing.any():
        row = int(missing.argmax())
        hint = hint or " Set missing: skip to leave such records out."
        raise DataError(f"{where(row)}, column {name!r}: no value.{hint}")


def _numbers(column: pa.Array, where: Where, name: str, fill: float | None) -> npt.NDArray[np.floating[Any]]:
    if pa.types.is_floating(column.type) and column.type != pa.float16() and not column.null_count:
        # without a copy, and with less to do than by a cast
        plain: Values = np.from_dlpack(column)
        if _is_in_range(plain):
            return plain
    values = as_floats(column)
    if _is_in_range(values):
        return values
    if fill is None:
        hint = " Set missing: to mean, to skip, or to a number for features without a value."
        _refuse_missing(column, np.isnan(values), where, name, hint)
    else:
        values = np.where(np.isnan(values), fill, values)
    wrong = ~(np.abs(values) <= LARGEST)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{where(row)}, column {name!r}: {values[row]:g} does not fit in a float of 32 bits.")
    return values


def _is_in_range(values: npt.NDArray[np.floating[Any]]) -> bool:
    """Return whether all are within the range of float32, as nearly always; NaN is not."""
    return not len(values) or bool(-LARGEST <= values.min() and values.max() <= LARGEST)


def _index_of(column: pa.Array, names: Sequence[str], where: Where, name: str) -> npt.NDArray[np.int64]:
    """Return the index of each string in a vocabulary."""
    texts = as_texts(column)
    if "" in names:
        texts = pc.fill_null(texts, "")
    else:
        hint = " Set missing: skip, or name the empty value among its categories: ''."
        _refuse_missing(texts, missing_of(texts), where, name, hint)
    found = pc.index_in(texts, pa.array(names, texts.type))
    if found.null_count:
        row = int(np.asarray(found.is_null().to_numpy(zero_copy_only=False)).argmax())
        shown = ", ".join(name or "'' (no value)" for name in names[:MAX_SHOWN])
        more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
        raise DataError(
            f"{where(row)}, column {name!r}: unknown category {texts[row].as_py()!r}. "
            f"Expected one of the training data: {shown}{more}."
        )
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
