"""TableSpec: the settings of a job for the columns of a table."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from singa_dask.data.codecs.labels import is_point, labels_among
from singa_dask.data.codecs.tokens import TextCodec
from singa_dask.data.tables.column_names import refuse_absent, show_columns
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.spelling import NO_SPELLING, Spelling
from singa_dask.errors import DataError, Remedy
from singa_dask.wording import question_of

# prefixes of the names of Arrow types with several values
ARRAYS = ("list", "large_list", "fixed_size_list", "fixed_size_binary", "extension")


@dataclass(frozen=True)
class TableSpec:
    """Settings of a job for the columns of a table.

    Attributes
    ----------
    features : tuple of str
        Names or patterns (``pixel*``) of columns. If empty, all numeric columns except label, target and weight are
        features.
    label : tuple of str
        Columns of labels: integers, or strings that name the classes. With several columns, a record has several
        labels.
    target : tuple of str
        Columns of numbers to predict.
    missing : {"error", "skip", "mean"} or float
        What to do with missing values of features.
    categories : mapping of str to tuple of str
        Categorical features, and the names of the categories of each feature, in order. Empty names are learned from
        the training data.
    encoding : {"one_hot", "index"}
        Whether a category becomes a value for each name (one-hot), or the index of its name.
    weight : str
        Column with the weight of each record; may be empty.
    texts : mapping of str to TextCodec
        Features that are text. Their vocabularies are learned from the training data.
    spelling : Spelling
        How numbers and missing values are written as text.
    unlabelled : {"error", "skip"}
        What to do with records without a label or target.
    blank_texts : bool
        Whether missing or blank text is read as empty text, as in predictions. If False, such a text is a missing
        value.
    unknown : {"error", "ignore"}
        What to do with categories that the training data lack; ``ignore`` encodes them as zeros.
    column_of : mapping of str to str
        Source column of each lag of a time series.
    fill_absent : bool
        Whether features of the training data that a table lacks are read as missing values.
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
    unknown: str = "error"
    column_of: Mapping[str, str] = field(default_factory=dict)
    fill_absent: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TableSpec:
        """Return the specification in the options of a `TableStore`.

        If ``has_label`` is False, the specification has only features.
        """
        names, label = {each.name for each in fields(cls)}, options["label"]
        labels = (label,) if label and isinstance(label, str) else tuple(label)
        spec = cls(**{name: value for name, value in options.items() if name in names})
        spec = replace(
            spec,
            features=tuple(spec.features),
            label=labels,
            target=tuple(spec.target),
            categories={name: tuple(known) for name, known in spec.categories.items()},
            texts={name: TextCodec.from_dict(text) for name, text in options.get("texts", {}).items()},
            spelling=Spelling.from_dict(options),
        )
        if options["has_label"]:
            return spec
        features_only = {name: known for name, known in spec.categories.items() if name not in labels}
        return replace(spec, label=(), target=(), weight="", categories=features_only)

    def with_label(self, url: str, names: Sequence[str]) -> TableSpec:
        """Return the specification, with a label if the job names no columns.

        The label is the column with a usual name of labels. Raises a `DataError` if several columns could be the label.
        """
        if self.features or self.label or self.target:
            return self
        candidates = labels_among(names)
        if is_point(names) or len(candidates) > 1:
            could = "could be the label, or a coordinate" if is_point(names) else "could each be the label"
            raise DataError(f"{url}: {' and '.join(candidates)} {could}. Set label: NAME, or has_label: false.")
        return replace(self, label=tuple(candidates))

    def with_plain(self, kinds: Mapping[str, str], known: TableFacts | None) -> TableSpec:
        """Return a specification that parses strings in columns of numbers in the same way as in CSV."""
        texts = [name for name, kind in kinds.items() if kind == "string" and known and self.has_numbers(name, known)]
        booleans = known.booleans or () if known else ()
        return replace(self, spelling=self.spelling.with_plain(texts, booleans)) if texts else self

    def has_numbers(self, name: str, known: TableFacts) -> bool:
        """Return whether a column had numbers in training: as a feature, a target or a source of lags."""
        lags = (lag for lag, column in self.column_of.items() if column == name)
        return name in self.target or known.is_number(name) or any(map(known.is_number, lags))

    @property
    def read_as_text(self) -> tuple[str, ...]:
        """Columns whose texts are not plain numbers: categories, texts, formatted numbers and dates."""
        return (*self.categories, *self.texts, *self.spelling.numbers, *self.spelling.dates)

    @property
    def true_columns(self) -> tuple[str, ...]:
        """Columns of targets and labels, whose values each record needs."""
        return () if self.unlabelled == "skip" else (*self.target, *self.label)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Columns of targets, labels and weights."""
        return (*self.target, *self.label, *([self.weight] if self.weight else ()))

    def required(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the columns in which a missing value excludes a record."""
        if self.missing == "skip":
            filled = self.texts if self.blank_texts else ()
            return (*(name for name in features if name not in filled), *self.outputs)
        return (*self.target, *self.label) if self.unlabelled == "skip" else ()

    def select(self, url: str, kinds: Mapping[str, str], index: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the columns that are features, given the kind of each column of the table.

        Columns in ``index`` number the rows. They are features only if the job names them.

        Raises a `DataError` if a name is unknown, or a column cannot be a feature.
        """
        others = self.outputs
        if not self.features:
            numeric = ("number", "boolean")
            named = {*self.read_as_text}
            usable = [name for name, kind in kinds.items() if kind in numeric or name in named]
            chosen = [name for name in usable if name and name not in (*others, *index)]
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
            message = f"{url}: no columns of numbers for features. {show_columns(kinds)}"
            raise DataError(message, remedy=Remedy("features"))
        for name in self.categories:
            if name not in (*chosen, *self.label):
                raise DataError(f"{url}: categories has {name!r}, which is neither a feature nor a label.")
        for name in self.texts:
            if name not in chosen or name in self.categories:
                what = "is among categories, too" if name in chosen else "is no feature"
                raise DataError(f"{url}: texts has {name!r}, which {what}.")
        for name, form in self.spelling.dates.items():
            if name not in chosen or name in {*self.categories, *self.texts, *self.spelling.numbers}:
                what = "is among categories, texts or numbers, too" if name in chosen else "is not a feature"
                raise DataError(f"{url}: dates has {name!r}, which {what}.")
            if same := {*form.names(name)}.intersection(chosen):
                raise DataError(f"{url}: column {same.pop()!r} has the name of a part of {name!r}. Rename it.")
        return tuple(chosen)

    def absent(self, url: str, columns: Collection[str], known: TableFacts, names: Sequence[str] = ()) -> list[str]:
        """Return the features of the training data that a table lacks and that are filled in.

        ``names`` are the features to search for, by default all. Raises a `DataError` if the caller has not asked to
        fill them in, or if a column cannot be filled in: a vector, or all columns.
        """
        names = names or known.features
        absent = [name for name in names if name not in columns]
        if len(absent) == len(names) or "vector" in map(known.kind_of, absent):
            refuse_absent(url, columns, names)
        elif absent and not self.fill_absent:
            named = any("" not in known.categories.get(name, [""]) for name in absent)
            needs_zeros = named and self.unknown == "error" and known.encoding == "one_hot"
            refuse_absent(url, columns, names, ("mean", "ignore") if needs_zeros else ("mean",))
        return absent

    def read_kinds(self, kinds: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
        """Return the kind in which each column is read."""
        named = dict.fromkeys(self.read_as_text, "string")
        return {name: named.get(name, kinds[name]) for name in (*features, *self.outputs)}

    def check(self, url: str, kinds: Mapping[str, str], names: Sequence[str], is_trained: bool = False) -> None:
        """Raise a `DataError` if a column does not exist, is used twice, or has values of the wrong kind.

        Pass ``is_trained=True`` if a net was trained on columns with these names.
        """
        uses = [
            *((name, "features") for name in names),
            *((name, "target") for name in self.target),
            *((name, "label") for name in self.label),
            *([(self.weight, "weight")] if self.weight else ()),
        ]
        if is_trained:
            refuse_absent(url, kinds, [name for name, _ in uses])
        use_of: dict[str, str] = {}
        for name, use in uses:
            if name in use_of:
                where = f"twice in {use}" if use_of[name] == use else f"in {use_of[name]} and in {use}"
                raise DataError(f"{url}: column {name!r} is {where}. Expected each column once.")
            use_of[name] = use
            if name not in kinds:
                raise DataError(f"{url}: unknown column {name!r}. {question_of(name, kinds)}{show_columns(kinds)}")
            if name in self.spelling.dates:
                if kinds[name] not in ("string", "number", "date", "timestamp"):
                    raise DataError(f"{url}: column {name!r} holds values of type {kinds[name]}, expected dates.")
                continue
            is_named = name in (*self.label, *self.categories, *self.texts, *self.spelling.numbers)
            _check_kind(f"{url}: column {name!r}", kinds[name], is_named, name in names, is_trained)

    def check_means(self, url: str, known: TableFacts) -> None:
        """Raise a `DataError` if missing values are replaced by the mean and a feature has no known mean."""
        others = known.means.keys() | known.categories.keys() | known.texts.keys()
        others |= {name for name, form in known.spelling.dates.items() if {*form.names(name)} <= known.means.keys()}
        if self.missing == "mean" and (means := [name for name in known.features if name not in others]):
            remedy = Remedy("missing", "Set missing: mean for it too.")
            message = f"no mean of column {means[0]!r} is known of the training data. {remedy.text}"
            raise DataError(f"{url}: {message}", remedy=remedy)


def _matching(url: str, pattern: str, kinds: Mapping[str, str], others: Sequence[str]) -> list[str]:
    if pattern in kinds:
        return [pattern]
    if not any(character in pattern for character in "*?["):
        raise DataError(f"{url}: unknown column {pattern!r}. {question_of(pattern, kinds)}{show_columns(kinds)}")
    matches = [name for name in kinds if fnmatch.fnmatchcase(name, pattern) and name not in others]
    if not matches:
        raise DataError(f"{url}: no column matches {pattern!r}. {show_columns(kinds)}")
    return matches


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
            f"texts, texts: {{{name}: {{length: ...}}}}; if they are numbers, numbers: {{{name}: {{}}}}; if they are "
            f"dates, dates: {{{name}: [year, month, weekday]}}."
        )
    if kind == "string":
        raise DataError(f"{where} holds strings, expected numbers. Set numbers if these are written as text.")
    hint = "Store days or seconds as numbers." if kind in ("date", "timestamp", "time", "duration") else ""
    if is_feature and kind in ("date", "timestamp"):
        hint = "Name the column and the parts to learn from in dates."
    hint = "If they are texts in UTF-8, name the column in categories or texts." if kind.endswith("binary") else hint
    raise DataError(f"{where} holds values of type {kind}, expected numbers{' or strings' * is_named}. {hint}".rstrip())
