"""FactsLearner: learn in one pass how to read the columns of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs.class_types import BOOLEANS, label_type
from singa_dask.data.codecs.equal_names import in_order
from singa_dask.data.tables.column_values import as_floats, as_texts, missing_of, missing_rows, whole
from singa_dask.data.tables.facts import MAX_CATEGORIES, TableFacts, are_too_many
from singa_dask.data.tables.spec import TableSpec
from singa_dask.errors import DataError
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")


class FactsLearner:
    """Learns the `TableFacts` of a table.

    Parameters
    ----------
    url : str
        URL of the table, for errors.
    spec : TableSpec
    features : tuple of str
        Columns that are features.
    kinds : mapping of str to str
        Kind of each column.
    known : TableFacts, optional
        Facts learned from the training data, if this table is not the training data.
    classes : mapping of str to tuple of str
        Class names that the file contains, by column of labels.
    widths : mapping of str to int
        Number of values of each feature that is a vector.
    floats : collection of str
        Columns of floating-point numbers.

    Attributes
    ----------
    needed : bool
        Whether the data have to be read.
    """

    def __init__(
        self,
        url: str,
        spec: TableSpec,
        features: tuple[str, ...],
        kinds: Mapping[str, str],
        known: TableFacts | None = None,
        classes: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        widths: Mapping[str, int] = MappingProxyType({}),
        floats: Collection[str] = (),
    ) -> None:
        self._url, self._spec, self._features, self._known = url, spec, features, known
        self._classes, self._widths = classes, widths
        self._n = 0
        self._tokens: dict[str, Counter[str]] = {}
        # name -> sums of the values of a number or date, and number of records with a value
        self._sums: dict[str, tuple[npt.NDArray[np.float64], int]] = {}
        self._values_seen: dict[str, set[str]] = {}
        if known is None:
            self._begin(kinds)
            self._label_types = {name: label_type(kinds[name], name in floats) for name in spec.label}
        else:
            known.check_booleans(url, kinds)
        self._required = spec.required(features)
        self.needed = bool(self._values_seen or self._sums or self._tokens or self._required)

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
        self._values_seen = {name: set() for name in learned}
        self._tokens = {name: Counter() for name, text in spec.texts.items() if not text.tokenizer}
        vectors = [name for name in self._widths if name not in spec.texts]
        if vectors and spec.missing == "mean":
            raise DataError(
                f"{self._url}: column {vectors[0]!r} has vectors, which missing: mean cannot fill in. "
                "Set missing: skip, or a number."
            )
        numbers = [name for name in features if name not in {*self._categories, *spec.texts, *spec.spelling.dates}]
        if spec.missing == "mean":
            self._sums = {name: (np.zeros(len(self._means_of(name))), 0) for name in (*spec.spelling.dates, *numbers)}
        self._booleans = tuple(name for name in numbers if kinds[name] == "boolean")

    def _means_of(self, name: str) -> list[str]:
        """Return the names of the means of a number or date; a date has a mean for each of its values."""
        form = self._spec.spelling.dates.get(name)
        return form.names(name) if form else [name]

    def add(self, table: pa.Table) -> int:
        """Add the records of a block; return how many of them are kept.

        Raises a `DataError` if a column has too many categories.
        """
        if self._required:
            table = table.filter(pa.array(~missing_rows(table, self._required)))
        self._n += len(table)
        dates = self._spec.spelling.dates
        for name, (totals, n) in self._sums.items():
            column, form = whole(table.column(name)), dates.get(name)
            values = form.values(column).T if form else as_floats(column)[None]
            values = values[:, ~np.isnan(values[0])]
            self._sums[name] = totals + values.sum(axis=1), n + values.shape[1]
        for name, counts in self._tokens.items():
            self._spec.texts[name].count(as_texts(whole(table.column(name))).drop_null(), counts)
        for name, values_seen in self._values_seen.items():
            column = whole(table.column(name))
            values_seen.update(pc.unique(as_texts(column.filter(pa.array(~missing_of(column))))).to_pylist())
            if len(values_seen) > MAX_CATEGORIES:
                self._refuse(name, f"more than {MAX_CATEGORIES}")
        return len(table)

    def _refuse(self, name: str, count: str) -> None:
        raise DataError(
            f"{self._url}: column {name!r} has {count} different values in {self._n} records. Expected categories, "
            "each in several records. A number that identifies records is neither a category nor a label."
        )

    def finish(self) -> TableFacts:
        """Return the facts.

        Raises a `DataError` if a column has no values, or too many distinct values for a category.
        """
        if self._known is not None:
            return self._checked(self._known)
        for name, values_seen in self._values_seen.items():
            if are_too_many(len(values_seen), self._n):
                self._refuse(name, str(len(values_seen)))
        empty = [name for name, (_, n) in self._sums.items() if not n]
        empty += [name for name, values_seen in (self._values_seen | self._tokens).items() if not values_seen]
        if empty and self._n:
            raise DataError(f"{self._url}: column {empty[0]!r} has no values. Leave it out.")
        learned = {name: in_order(values_seen) for name, values_seen in self._values_seen.items()}
        return TableFacts(
            self._features,
            {
                mean: float(total) / n
                for name, (totals, n) in self._sums.items()
                for mean, total in zip(self._means_of(name), totals if n else (), strict=False)
            },
            {name: names or learned[name] for name, names in self._categories.items()},
            {name: names or learned.get(name, ()) for name, names in self._labels.items()},
            self._spec.encoding,
            self._widths,
            {name: text.learned(self._tokens.get(name, {})) for name, text in self._spec.texts.items()},
            self._spec.spelling,
            self._booleans,
            {name: each for name, each in self._label_types.items() if each},
        )

    def _checked(self, known: TableFacts) -> TableFacts:
        """Check that the facts of the training data contain everything that this table needs; return them."""
        spec = self._spec
        names = [name for name in self._features if (name in spec.categories) != (name in known.categories)]
        spec.check_means(self._url, known)
        if names:
            raise DataError(f"{self._url}: column {names[0]!r} is a category here, or in training, but not in both.")
        for name in spec.texts.keys() | known.texts.keys():
            here, there = spec.texts.get(name), known.texts.get(name)
            if here is None or there is None or not here.reads_like(there):
                raise DataError(f"{self._url}: the options in texts for column {name!r} differ from training.")
        for name in spec.spelling.dates:
            if name not in known.dates or spec.spelling.dates[name].parts != known.dates[name].parts:
                raise DataError(f"{self._url}: the parts in dates for column {name!r} differ from training.")
        labels = [name for name in spec.label if name not in known.labels]
        if labels and known.labels and "" not in known.labels:
            learned = ", ".join(known.labels)
            raise DataError(f"{self._url}: column {labels[0]!r} is no label of the training data. Labels: {learned}.")
        return known
