"""Records of tables as arrays: `TableEncoder` makes them, and `TableStatistics` learns what that takes.

A `TableSpec` is what a job says; `TableFacts` are what was learned from the training data (means, categories, names of
classes), so that other data are read in the same way.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs.columns import as_floats, as_texts, missing_of, missing_rows, show_columns, whole
from singa_dask.data.codecs.numbers import NO_SPELLING, Spelling
from singa_dask.data.codecs.record import (
    find_wrong_label,
    find_wrong_weight,
    is_list,
    is_point,
    labels_among,
)
from singa_dask.data.codecs.tokens import TextCodec
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError, listed
from singa_dask.lazy import LazyModule
from singa_dask.registry import suggest
from singa_dask.texts import NameNumbers, in_order

pc = LazyModule("pyarrow.compute")

LARGEST = float(np.finfo(np.float32).max)
Where = Callable[[int], str]
Values = npt.NDArray[Any]
# maximum number of categories that are learned from a column
MAX_CATEGORIES = 10_000
# more categories than this in fewer than twice as many records are no categories
MANY = 100
BOOLEANS = ("false", "true")
# what to set if a value is missing
SKIPPED = "missing: skip to leave such records out"
FILLED = "missing: to mean, to skip, or to a number for features without a value"
NAMED = "missing: skip, or name the empty value among its categories: ''"
UNLABELLED = "unlabelled: skip to leave such records out"


def are_too_many(n_values: int, n: int) -> bool:
    """Return whether a column has too many different values in ``n`` records to be one of categories."""
    return n_values > MAX_CATEGORIES or (n_values > MANY and 2 * n_values > n)


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
    widths : mapping of str to int
        Number of values of each feature that is a vector or a text.
    texts : mapping of str to TextCodec
        What numbers the tokens of each feature that is a text.
    spelling : Spelling
        How numbers and missing values are written as text.
    """

    features: tuple[str, ...]
    means: Mapping[str, float] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encoding: str = "one_hot"
    widths: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, TextCodec] = field(default_factory=dict)
    spelling: Spelling = NO_SPELLING

    def values_of(self, name: str) -> list[str]:
        """Return the names of the values that a feature has in a record: itself, ``name=category`` or ``name[0]``."""
        if name in self.widths:
            return [f"{name}[{i}]" for i in range(self.widths[name])]
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
        """Return them as JSON has them."""
        return {
            "features": list(self.features),
            "means": dict(self.means),
            "categories": {name: list(names) for name, names in self.categories.items()},
            "classes": list(self.classes),
            # in the order of the labels of a record, which JSON with sorted keys would lose
            "labels": [[name, list(names)] for name, names in self.labels.items()],
            "encoding": self.encoding,
            **({"widths": dict(self.widths)} if self.widths else {}),
            **({"texts": {name: asdict(text) for name, text in self.texts.items()}} if self.texts else {}),
            **self.spelling.to_dict(),
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
            {name: int(width) for name, width in found.get("widths", {}).items()},
            {name: TextCodec.from_dict(text) for name, text in found.get("texts", {}).items()},
            Spelling.from_dict(found),
        )


# TableSpec: which columns of a table become records, as a job says it.


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
    texts : mapping of str to TextCodec
        Features whose values are texts, with what numbers their tokens; vocabularies are learned from the training
        data.
    spelling : Spelling
        How numbers and missing values are written as text.
    unlabelled : {"error", "skip"}
        What to do with records without a label or target.
    blank_texts : bool
        Whether a text that is missing or blank is read as an empty one, as for predictions; else it has no value.
    """

    features: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    missing: str | float = "error"
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encoding: str = "one_hot"
    weight: str = ""
    texts: Mapping[str, TextCodec] = field(default_factory=dict)
    spelling: Spelling = NO_SPELLING
    unlabelled: str = "error"
    blank_texts: bool = False

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
            {name: TextCodec.from_dict(text) for name, text in options.get("texts", {}).items()},
            Spelling.from_dict(options),
            options.get("unlabelled", "error"),
            options.get("blank_texts", False),
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

    def required(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the columns without whose values a record is left out."""
        if self.missing == "skip":
            filled = self.texts if self.blank_texts else ()
            return (*(name for name in features if name not in filled), *self.outputs)
        return (*self.target, *self.label) if self.unlabelled == "skip" else ()

    def select(self, url: str, kinds: Mapping[str, str], index: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the columns that are features, given the kind of each column of the table.

        ``index`` are columns that number the rows, which only count if they are named.

        Raises
        ------
        DataError
            A name is unknown, or a column cannot be a feature.
        """
        others = self.outputs
        if not self.features:
            numeric = ("number", "boolean")
            named = {*self.categories, *self.texts, *self.spelling.numbers}
            found = [name for name, kind in kinds.items() if kind in numeric or name in named]
            chosen = [name for name in found if name and name not in (*others, *index)]
            vectors = [name for name, kind in kinds.items() if kind == "vector" and name not in others]
            arrays = [name for name, kind in kinds.items() if kind.startswith(ARRAYS) and name not in others]
            if arrays or (vectors and chosen):
                how = (
                    ", which tables do not read. Set features without it"
                    if arrays
                    else ". Set features, with it or not"
                )
                raise DataError(
                    f"{url}: column {[*arrays, *vectors][0]!r} has an array in each record{how}; or read it, and no "
                    "column of numbers, by user_conf: {features: ..., label: ...}."
                )
            chosen = chosen or vectors
        else:
            chosen = [name for pattern in self.features for name in _matching(url, pattern, kinds, others)]
        if not chosen:
            raise DataError(f"{url}: no columns of numbers for features. {show_columns(kinds)}")
        for name in self.categories:
            if name not in (*chosen, *self.label):
                raise DataError(f"{url}: categories has {name!r}, which is neither a feature nor a label.")
        for name in self.texts:
            if name not in chosen or name in self.categories:
                what = "is among categories, too" if name in chosen else "is no feature"
                raise DataError(f"{url}: texts has {name!r}, which {what}.")
        return tuple(chosen)

    def read_kinds(self, kinds: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
        """Return the kind in which each column is read."""
        named = dict.fromkeys([*self.categories, *self.texts, *self.spelling.numbers], "string")
        return {name: named.get(name, kinds[name]) for name in (*features, *self.outputs)}

    def check(self, url: str, kinds: Mapping[str, str], names: Sequence[str], is_trained: bool = False) -> None:
        """Check that the columns exist, are used once, and have values of the right kind, such as a net is trained on.

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
            is_named = name in (*self.label, *self.categories, *self.texts, *self.spelling.numbers)
            _check_kind(f"{url}: column {name!r}", kinds[name], is_named, name in names, is_trained)


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


def _check_kind(where: str, kind: str, is_named: bool, is_feature: bool, is_trained: bool) -> None:
    if kind in ("number", "boolean") or (kind == "string" and is_named) or (kind == "vector" and is_feature):
        return
    if kind == "empty":
        raise DataError(f"{where} has no values. Leave it out of features.")
    if kind == "string" and is_trained:
        raise DataError(f"{where} holds strings, expected numbers as in training, and null where there is no value.")
    if kind == "string" and is_feature:
        name = where.rpartition("column ")[2]
        raise DataError(
            f"{where} holds strings, expected numbers. If they are names, set categories: {{{name}: []}}; if they are "
            f"texts, texts: {{{name}: {{length: ...}}}}; if they are numbers, numbers: {{{name}: {{}}}}."
        )
    if kind == "string":
        raise DataError(f"{where} holds strings, expected numbers. Set numbers if these are written as text.")
    hint = "Store days or seconds as numbers." if kind in ("date", "timestamp", "time", "duration") else ""
    hint = "If they are texts in UTF-8, name the column in categories or texts." if kind.endswith("binary") else hint
    raise DataError(f"{where} holds values of type {kind}, expected numbers{' or strings' * is_named}. {hint}".rstrip())


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
    widths : mapping of str to int
        Number of values of each feature that is a vector.

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
        widths: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._url, self._spec, self._features, self._known = url, spec, features, known
        self._classes, self._widths = classes, widths
        self._n = 0
        self._tokens: dict[str, Counter[str]] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._found: dict[str, set[str]] = {}
        if known is None:
            self._begin(kinds)
        self._required = spec.required(features)
        self.needed = bool(self._found or self._sums or self._tokens or self._required)

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
        self._tokens = {name: Counter() for name, text in spec.texts.items() if not text.tokenizer}
        vectors = [name for name in self._widths if name not in spec.texts]
        if vectors and spec.missing == "mean":
            raise DataError(
                f"{self._url}: column {vectors[0]!r} has vectors, for which missing: mean is not. "
                "Set missing: skip, or a number."
            )
        others = {*self._categories, *spec.texts}
        is_number = [name for name in features if name not in others and spec.missing == "mean"]
        self._sums = {name: (0.0, 0) for name in is_number}

    def add(self, table: pa.Table) -> int:
        """Take the records of a block into account; return how many of them are kept.

        Raises
        ------
        DataError
            A column has too many categories.
        """
        if self._required:
            table = table.filter(pa.array(~missing_rows(table, self._required)))
        self._n += len(table)
        for name, (total, n) in self._sums.items():
            values = as_floats(whole(table.column(name)))
            values = values[~np.isnan(values)]
            self._sums[name] = total + float(values.sum()), n + len(values)
        for name, counts in self._tokens.items():
            self._spec.texts[name].count(as_texts(whole(table.column(name))).drop_null(), counts)
        for name, found in self._found.items():
            column = whole(table.column(name))
            found.update(pc.unique(as_texts(column.filter(pa.array(~missing_of(column))))).to_pylist())
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
            if are_too_many(len(found), self._n):
                self._refuse(name, str(len(found)))
        empty = [name for name, (_, n) in self._sums.items() if not n]
        empty += [name for name, found in (self._found | self._tokens).items() if not found]
        if empty and self._n:
            raise DataError(f"{self._url}: column {empty[0]!r} has no values. Leave it out.")
        learned = {name: in_order(found) for name, found in self._found.items()}
        return TableFacts(
            self._features,
            {name: total / n for name, (total, n) in self._sums.items() if n},
            {name: names or learned[name] for name, names in self._categories.items()},
            {name: names or learned.get(name, ()) for name, names in self._labels.items()},
            self._spec.encoding,
            self._widths,
            {name: text.learned(self._tokens.get(name, {})) for name, text in self._spec.texts.items()},
            self._spec.spelling,
        )

    def _checked(self, known: TableFacts) -> TableFacts:
        """Return facts of the training data, if they have all that these data need."""
        spec = self._spec
        others = known.means.keys() | known.categories.keys() | known.texts.keys()
        means = [name for name in self._features if name not in others]
        names = [name for name in self._features if (name in spec.categories) != (name in known.categories)]
        if means and spec.missing == "mean":
            message = f"no mean of column {means[0]!r} is known of the training data. Set missing: mean for it too."
            raise DataError(f"{self._url}: {message}")
        if names:
            raise DataError(f"{self._url}: column {names[0]!r} is a category here, or in training, but not in both.")
        for name in spec.texts.keys() | known.texts.keys():
            here, there = spec.texts.get(name), known.texts.get(name)
            if here is None or there is None or not here.reads_like(there):
                raise DataError(f"{self._url}: texts says something else of column {name!r} than in training.")
        labels = [name for name in spec.label if name not in known.labels]
        if labels and known.labels and "" not in known.labels:
            learned = ", ".join(known.labels)
            raise DataError(f"{self._url}: column {labels[0]!r} is no label of the training data. Labels: {learned}.")
        return known


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
        if required := spec.required(self._facts.features):
            kept = np.flatnonzero(~missing_rows(table, required))
            if len(kept) < len(table):
                table, everywhere = table.take(pa.array(kept)), where
                where = lambda row: everywhere(int(kept[row]))  # noqa: E731
        arrays: Arrays = {"data": self._features(table, where)}
        if spec.target:
            targets = [_numbers(whole(table.column(name)), where, name, None, UNLABELLED) for name in spec.target]
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

    def _features(self, table: pa.Table, where: Where) -> Values:
        """Return the values of all features, (n, values)."""
        data = np.empty((len(table), *self.schema["data"].shape), self.schema["data"].dtype)
        plain = []
        for name, values in self._places:
            column = whole(table.column(name))
            # texts, vectors and one-hot categories have several values
            if isinstance(values, int) and name not in self._facts.categories and _is_plain(column):
                plain.append((name, values, column))
                with np.errstate(over="ignore"):
                    data[:, values] = np.from_dlpack(column)
            else:
                data[:, values] = self._feature(column, where, name)
        # all columns at once: this takes half of the time of one after the other
        if not _is_in_range(data):
            for name, values, column in plain:
                data[:, values] = self._feature(column, where, name)
        return data

    def _feature(self, column: pa.Array, where: Where, name: str) -> Values:
        """Return the values of a feature, (n,), one-hot, vectors, or numbers of tokens."""
        if name in self._facts.texts:
            texts = as_texts(column)
            missing = missing_of(texts)
            if not self._spec.blank_texts:
                _refuse_missing(texts, missing, where, name)
            return self._facts.texts[name].encode(pc.if_else(pa.array(missing), "", texts))
        width = self._facts.widths.get(name, 0)
        if is_list(column.type) != (width > 0):
            expected = f"vectors of {width}" if width else "one number in each record"
            raise DataError(f"{where(0)}, column {name!r}: values of type {column.type}, expected {expected}.")
        if name in self._facts.categories:
            categories = self._facts.categories[name]
            index = _index_of(column, categories, where, name)
            return index[:, None] == np.arange(len(categories)) if self._facts.encoding == "one_hot" else index
        fill = self._spec.missing
        if fill == "mean":
            return _numbers(column, where, name, self._facts.means[name])
        number = float(fill) if not isinstance(fill, str) else None
        return _vectors(column, width, where, name, number) if width else _numbers(column, where, name, number)

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
    """Return each feature with the index of its value, or those of its one-hot values, in ``data``."""
    found, at = list[tuple[str, int | slice]](), 0
    for name in facts.features:
        width = len(facts.values_of(name))
        is_one_hot = name in facts.categories and facts.encoding == "one_hot"
        found.append((name, slice(at, at + width) if is_one_hot or name in facts.widths else at))
        at += width
    return found


def _refuse_missing(
    column: pa.Array, missing: npt.NDArray[np.bool_], where: Where, name: str, hint: str = SKIPPED
) -> None:
    if missing.any():
        row = int(missing.argmax())
        n = int(missing.sum())
        more = f", the first of {n} in {len(missing)} records" if n > 1 else ""
        raise DataError(f"{where(row)}, column {name!r}: no value{more}. Set {hint}.")


def _numbers(
    column: pa.Array, where: Where, name: str, fill: float | None, hint: str = FILLED
) -> npt.NDArray[np.floating[Any]]:
    # without a copy, where that is possible
    values: Values = np.from_dlpack(column) if _is_plain(column) else as_floats(column)
    if _is_in_range(values):
        return values
    if fill is None:
        _refuse_missing(column, np.isnan(values), where, name, hint)
    else:
        values = np.where(np.isnan(values), fill, values)
    wrong = ~(np.abs(values) <= LARGEST)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{where(row)}, column {name!r}: {values[row]:g} does not fit in a float of 32 bits.")
    return values


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
    """Return whether NumPy reads the numbers of a column as they are in memory, and none is missing."""
    return pa.types.is_floating(column.type) and column.type != pa.float16() and not column.null_count


def _is_in_range(values: npt.NDArray[np.floating[Any]]) -> bool:
    """Return whether all are within the range of float32, as nearly always; NaN is not."""
    return not len(values) or bool(-LARGEST <= values.min() and values.max() <= LARGEST)


def _index_of(
    column: pa.Array, names: Sequence[str], where: Where, name: str, hint: str = NAMED
) -> npt.NDArray[np.int64]:
    """Return the index of each string in a vocabulary."""
    numbers, strings = NameNumbers(names), pc.fill_null(as_texts(column), "")
    if "" in numbers:
        strings = pc.if_else(pa.array(missing_of(column)), "", strings)
    encoded = strings.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    found: npt.NDArray[np.int64] = np.array([numbers[text] for text in texts], np.int64)[encoded.indices.to_numpy()]
    wrong = found < 0
    if wrong.any():
        _refuse_missing(column, wrong & missing_of(column), where, name, hint)
        row = int(wrong.argmax())
        shown = listed([name or "'' (no value)" for name in names])
        raise DataError(
            f"{where(row)}, column {name!r}: unknown category {texts[encoded.indices[row].as_py()]!r}. "
            f"Expected one of the training data: {shown}."
        )
    return found
