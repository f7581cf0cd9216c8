"""TableSpec: which columns of a table become records, as a job says it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from singa_dask.data.codecs.labels import is_point, labels_among
from singa_dask.data.codecs.table_facts import MAX_SHOWN
from singa_dask.errors import DataError
from singa_dask.registry import suggest

# beginnings of Arrow's names of types
ARRAYS = ("list", "large_list", "fixed_size_list", "fixed_size_binary", "extension")


@dataclass(frozen=True)
class TableSpec:
    """What a job says about the columns of a table.

    Attributes
    ----------
    features : tuple of str
        Names or patterns (``pixel*``); empty for all columns of numbers other than label, target and weight.
    label : tuple of str
        Columns of integers, or of strings that name the classes; each is a label of its own.
    target : tuple of str
        Columns of numbers to predict.
    missing : {"error", "skip", "mean"} or float
        What to do with features that have no value.
    categories : mapping of str to tuple of str
        Features whose values are names, with the names in order; learned from the training data if empty.
    encoding : {"one_hot", "index"}
        Whether a category is one value for each name, or the index of the name.
    weight : str
        Column with the weight of each record; may be empty.
    """

    features: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    missing: str | float = "error"
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encoding: str = "one_hot"
    weight: str = ""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TableSpec:
        """Return what the options of a `TableStore` say, without what is not a feature if ``has_label`` is false."""
        label = options["label"]
        labels = (label,) if label and isinstance(label, str) else tuple(label)
        spec = cls(
            tuple(options["features"]),
            labels,
            tuple(options["target"]),
            options["missing"],
            {name: tuple(names) for name, names in options["categories"].items()},
            options["encoding"],
            options.get("weight", ""),
        )
        if options["has_label"]:
            return spec
        features_only = {name: known for name, known in spec.categories.items() if name not in labels}
        return replace(spec, label=(), target=(), weight="", categories=features_only)

    def with_label(self, url: str, names: Sequence[str]) -> TableSpec:
        """Return it with the column that is called like a label, if it names no columns to be read.

        Raises
        ------
        DataError
            It is not clear which column is the label.
        """
        if self.features or self.label or self.target:
            return self
        found = labels_among(names)
        if is_point(names) or len(found) > 1:
            could = "could be the label, or a coordinate" if is_point(names) else "could each be the label"
            raise DataError(f"{url}: {' and '.join(found)} {could}. Set label: NAME, or has_label: false.")
        return replace(self, label=tuple(found))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Columns of targets, labels and weights."""
        return (*self.target, *self.label, *([self.weight] if self.weight else ()))

    def select(self, url: str, kinds: Mapping[str, str], index: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the columns that are features, given the kind of each column of the table.

        ``index`` are columns that number the rows, which only count if they are named.

        Raises
        ------
        DataError
            A name is unknown or given twice, or a column cannot be a feature.
        """
        others = self.outputs
        if not self.features:
            numeric = ("number", "boolean")
            found = [name for name, kind in kinds.items() if kind in numeric or name in self.categories]
            chosen = [name for name in found if name and name not in (*others, *index)]
            arrays = [name for name, kind in kinds.items() if kind.startswith(ARRAYS) and name not in others]
            if arrays:
                raise DataError(
                    f"{url}: column {arrays[0]!r} has an array in each record, which tables do not read. Set features "
                    "without it; or read it, and no column of numbers, by user_conf: {features: ..., label: ...}."
                )
        else:
            chosen = [name for pattern in self.features for name in _matching(url, pattern, kinds, others)]
        if not chosen:
            raise DataError(f"{url}: no columns of numbers for features. {show_columns(kinds)}")
        twice = next((name for name in chosen if chosen.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{url}: column {twice!r} is selected twice by features.")
        for name in self.categories:
            if name not in (*chosen, *self.label):
                raise DataError(f"{url}: categories has {name!r}, which is neither a feature nor a label.")
        return tuple(chosen)

    def check(self, url: str, kinds: Mapping[str, str], names: Sequence[str]) -> None:
        """Check that the columns exist, are used once, and have values of the right kind.

        Raises
        ------
        DataError
            One of them does not.
        """
        uses = [
            *((name, "features") for name in names),
            *((name, "target") for name in self.target),
            *((name, "label") for name in self.label),
            *([(self.weight, "weight")] if self.weight else ()),
        ]
        found: dict[str, str] = {}
        for name, use in uses:
            if name in found:
                where = f"twice in {use}" if found[name] == use else f"in {found[name]} and in {use}"
                raise DataError(f"{url}: column {name!r} is {where}. Expected each column once.")
            found[name] = use
            if name not in kinds:
                raise DataError(f"{url}: unknown column {name!r}. {_hint(name, kinds)}{show_columns(kinds)}")
            is_named = name in self.label or name in self.categories
            _check_kind(f"{url}: column {name!r}", kinds[name], is_named, is_feature=name in names)


def _matching(url: str, pattern: str, kinds: Mapping[str, str], others: Sequence[str]) -> list[str]:
    if pattern in kinds:
        return [pattern]
    if not any(character in pattern for character in "*?["):
        raise DataError(f"{url}: unknown column {pattern!r}. {_hint(pattern, kinds)}{show_columns(kinds)}")
    found = [name for name in kinds if fnmatch.fnmatchcase(name, pattern) and name not in others]
    if not found:
        raise DataError(f"{url}: no column matches {pattern!r}. {show_columns(kinds)}")
    return found


def _hint(name: str, kinds: Mapping[str, str]) -> str:
    text = suggest(name, kinds)
    return text.partition("Known:")[0] if "Did you mean" in text else ""


def _check_kind(where: str, kind: str, is_named: bool, is_feature: bool) -> None:
    if kind in ("number", "boolean") or (kind == "string" and is_named):
        return
    if kind == "empty":
        raise DataError(f"{where} has no values. Leave it out of features.")
    if kind == "string" and is_feature:
        name = where.rpartition("column ")[2]
        raise DataError(f"{where} holds strings, expected numbers. If they are names, set categories: {{{name}: []}}.")
    if kind == "string":
        raise DataError(f"{where} holds strings, expected numbers.")
    hint = "Store days or seconds as numbers." if kind in ("date", "timestamp", "time", "duration") else ""
    raise DataError(f"{where} holds values of type {kind}, expected numbers{' or strings' * is_named}. {hint}".rstrip())


def show_columns(names: Mapping[str, str] | Sequence[str]) -> str:
    """Format the names of columns for a message."""
    names = [name for name in names if name]
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f"Columns: {', '.join(names[:MAX_SHOWN])}{more}."
