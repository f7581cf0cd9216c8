"""TableFacts: what is learned from the columns of a table, and stored in checkpoints and converted records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_SHOWN = 20


@dataclass(frozen=True)
class TableFacts:
    """What is learned from the training data, and needed to read other data in the same way.

    Attributes
    ----------
    features : tuple of str
        Names of the columns.
    means : mapping of str to float
        Mean of each feature, if missing values are replaced by it.
    categories : mapping of str to tuple of str
        Names of each feature that is a category.
    labels : mapping of str to tuple of str
        By column of labels, in the order of the labels of a record: the names of its classes; none if they are
        integers.
    encoding : {"one_hot", "index"}
    """

    features: tuple[str, ...]
    means: Mapping[str, float] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encoding: str = "one_hot"

    def values_of(self, name: str) -> list[str]:
        """Return the names of the values that a feature has in a record: itself, or ``name=category``."""
        if name in self.categories and self.encoding == "one_hot":
            return [f"{name}={category}" for category in self.categories[name]]
        return [name]

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each value of a record."""
        return tuple(value for name in self.features for value in self.values_of(name))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes if there is one label; empty if its values are integers."""
        return next(iter(self.labels.values())) if len(self.labels) == 1 else ()

    def classes_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the classes of a column of labels."""
        # facts that were stored before there could be several labels do not name the column
        return self.labels.get(name, self.labels.get("", ()))

    def compare(self, other: TableFacts) -> str:
        """Return how records differ from those that other facts describe; empty if they have the same meaning."""
        if self.names != other.names:
            here, there = (", ".join(facts.names[:MAX_SHOWN]) for facts in (self, other))
            return f"values of {here}, but {there}"
        for name in self.features:
            if self.categories.get(name) != other.categories.get(name):
                return f"other categories of column {name!r} than"
        for name in self.means.keys() & other.means.keys():
            if self.means[name] != other.means[name]:
                return f"missing values of column {name!r} are {self.means[name]:g}, but {other.means[name]:g}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return {
            "features": list(self.features),
            "means": dict(self.means),
            "categories": {name: list(names) for name, names in self.categories.items()},
            "classes": list(self.classes),
            # in the order of the labels of a record, which JSON with sorted keys would lose
            "labels": [[name, list(names)] for name, names in self.labels.items()],
            "encoding": self.encoding,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> TableFacts:
        """Return the facts in the result of `to_dict`."""
        labels = found.get("labels", [["", found["classes"]]] if found["classes"] else [])
        return cls(
            tuple(found["features"]),
            {name: float(mean) for name, mean in found["means"].items()},
            {name: tuple(names) for name, names in found["categories"].items()},
            {name: tuple(names) for name, names in labels},
            str(found["encoding"]),
        )
