"""Facts learned from the columns of a training table, to read other tables in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs.tokens import TextCodec
from singa_dask.data.tables.dates import DateConf
from singa_dask.data.tables.spelling import NO_SPELLING, Spelling
from singa_dask.errors import DataError
from singa_dask.wording import listed

# maximum number of categories that are learned from a column
MAX_CATEGORIES = 10_000
# a column with more distinct values than this is categorical only if it has at least twice as many records
MANY = 100


def are_too_many(n_values: int, n: int) -> bool:
    """Return whether a column has too many distinct values in ``n`` records to be categorical."""
    return n_values > MAX_CATEGORIES or (n_values > MANY and 2 * n_values > n)


@dataclass(frozen=True)
class TableFacts:
    """Facts learned from the training data, to read other tables in the same way.

    Attributes
    ----------
    features : tuple of str
        Names of the columns.
    means : mapping of str to float
        Mean of each feature whose missing values are replaced by the mean. For a date, the mean of each of its parts.
    categories : mapping of str to tuple of str
        Names of the categories of each categorical feature.
    labels : mapping of str to tuple of str
        Class names of each column of labels, in the order of a record's labels; empty if labels are integers.
    encoding : {"one_hot", "index"}
    widths : mapping of str to int
        Number of values of each feature that is a vector or text.
    texts : mapping of str to TextCodec
        For each feature that is text, the codec that numbers its tokens.
    spelling : Spelling
        How numbers, dates and missing values are written.
    booleans : tuple of str or None
        Features that are booleans in the training data, and are read as numbers; None if unknown.
    label_types : mapping of str to str
        Type of the labels in each column of labels; see `label_type`.
    """

    features: tuple[str, ...]
    means: Mapping[str, float] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encoding: str = "one_hot"
    widths: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, TextCodec] = field(default_factory=dict)
    spelling: Spelling = NO_SPELLING
    booleans: tuple[str, ...] | None = None
    label_types: Mapping[str, str] = field(default_factory=dict)

    def values_of(self, name: str) -> list[str]:
        """Return the names of the values that a feature has in a record.

        A number is ``name``; categories are ``name=category``; a vector is ``name[0]``, ``name[1]``, ...; and the parts
        of a date are e.g. ``name.year``.
        """
        if name in self.dates:
            return self.dates[name].names(name)
        if name in self.widths:
            return [f"{name}[{i}]" for i in range(self.widths[name])]
        if name in self.categories and self.encoding == "one_hot":
            return [f"{name}={category}" for category in self.categories[name]]
        return [name]

    @property
    def dates(self) -> Mapping[str, DateConf]:
        """Parts and format of each feature that is a date."""
        return self.spelling.dates

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each value of a record."""
        return tuple(value for name in self.features for value in self.values_of(name))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes if there is one label; empty if the label is an integer."""
        return next(iter(self.labels.values())) if len(self.labels) == 1 else ()

    def classes_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the classes of a column of labels."""
        # older checkpoints, with a single label, do not name its column
        return self.labels.get(name, self.labels.get("", ()))

    def is_number(self, name: str) -> bool:
        """Return whether a column is a feature with one number in each record."""
        others = (self.categories, self.widths, self.dates)
        return name in self.features and not any(name in each for each in others)

    def check_booleans(self, where: str, kinds: Mapping[str, str]) -> None:
        """Raise a `DataError` if a column has booleans here and had numbers in training."""
        if self.booleans is None:
            return
        for name in filter(self.is_number, self.features):
            if kinds.get(name) == "boolean" and name not in self.booleans:
                raise DataError(f"{where}: column {name!r} holds booleans, expected numbers as in training.")

    def kind_of(self, name: str) -> str:
        """Return the kind of a column; see `column_kind`.

        A column that is not a feature has the kind ``number``.
        """
        if name in self.texts or name in self.categories or name in self.dates:
            return "string"
        return "vector" if name in self.widths else "number"

    def with_means(self, means: npt.NDArray[np.float64]) -> TableFacts:
        """Return a copy with the mean of each feature that is a number.

        ``means`` has a mean for each value in `names`.
        """
        if len(means) != len(self.names):
            return self
        of_values = dict(zip(self.names, map(float, means), strict=True))
        of_dates = [value for name, form in self.dates.items() for value in form.names(name)]
        numbers = {name: of_values[name] for name in (*filter(self.is_number, self.features), *of_dates)}
        return replace(self, means={**numbers, **self.means})

    def compare(self, other: TableFacts) -> str:
        """Return a text on how the meaning of records differs from ``other``; empty if it is the same."""
        if self.names != other.names:
            here, there = (listed(facts.names) for facts in (self, other))
            return f"values of {here}, but {there}"
        for name in self.features:
            if self.categories.get(name) != other.categories.get(name):
                return f"other categories of column {name!r} than"
            if self.texts.get(name) != other.texts.get(name):
                return f"another vocabulary of column {name!r} than"
        for name in self.means.keys() & other.means.keys():
            if self.means[name] != other.means[name]:
                return f"missing values of column {name!r} are {self.means[name]:g}, but {other.means[name]:g}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as a dictionary for JSON."""
        return {
            "features": list(self.features),
            "means": dict(self.means),
            "categories": {name: list(names) for name, names in self.categories.items()},
            "classes": list(self.classes),
            # a list, because JSON with sorted keys would lose the order of the labels
            "labels": [[name, list(names)] for name, names in self.labels.items()],
            "encoding": self.encoding,
            **({"widths": dict(self.widths)} if self.widths else {}),
            **({"texts": {name: asdict(text) for name, text in self.texts.items()}} if self.texts else {}),
            **({} if self.booleans is None else {"booleans": list(self.booleans)}),
            **self.spelling.to_dict(),
            **({"label_types": dict(self.label_types)} if self.label_types else {}),
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> TableFacts:
        """Return the facts in the result of `to_dict`."""
        labels = described.get("labels", [["", described["classes"]]] if described["classes"] else [])
        return cls(
            tuple(described["features"]),
            {name: float(mean) for name, mean in described["means"].items()},
            {name: tuple(names) for name, names in described["categories"].items()},
            {name: tuple(names) for name, names in labels},
            str(described["encoding"]),
            {name: int(width) for name, width in described.get("widths", {}).items()},
            {name: TextCodec.from_dict(text) for name, text in described.get("texts", {}).items()},
            Spelling.from_dict(described),
            tuple(described["booleans"]) if "booleans" in described else None,
            dict(described.get("label_types", {})),
        )
