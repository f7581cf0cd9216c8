"""Choose the features of a table, and add lags (earlier values as features) to a time series."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from singa_dask.data.codecs.labels import labels_among
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES
from singa_dask.data.tables.column_values import whole
from singa_dask.data.tables.lags import LagsConf, is_sorted, twice_among
from singa_dask.errors import DataError
from singa_dask.survey.column_kinds import KEYS, MIN_NUMBERED, TEXTS, has_words, unfit
from singa_dask.survey.columns import MAX_CATEGORIES, ColumnSurvey
from singa_dask.survey.number_faults import refuse_faults
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.outputs import MANY, MAX_NAMED, outputs_of
from singa_dask.survey.read_table import MAX_BYTES
from singa_dask.survey.results import OutputSurvey
from singa_dask.survey.series import series_in_blocks, series_side_by_side
from singa_dask.survey.spellings import MAX_LISTED
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed


@dataclass(frozen=True)
class Choice:
    """The labels or targets and the features of a table, and the reason why each other column is left out.

    For a time series, ``table`` has the ``lags`` as columns, and ``series`` is the table without lags.
    """

    table: TableSurvey
    series: TableSurvey
    lags: LagsConf | None
    outputs: list[OutputSurvey]
    features: list[ColumnSurvey]
    left_out: dict[str, str]

    @property
    def used(self) -> list[ColumnSurvey]:
        """Columns of labels or targets, and then features."""
        return [*(self.table.named[each.name] for each in self.outputs), *self.features]

    @property
    def lagged(self) -> set[str]:
        """Names of the lags."""
        return {*self.lags.names} if self.lags else set()


def chosen(series: TableSurvey, options: SurveyOptions) -> Choice:
    """Choose labels or targets, and features; add lags to a time series."""
    table, lags = _with_lags(series, options) if options.lags else (series, None)
    return Choice(table, series, lags, *choose(table, options, {*lags.names} if lags else ()))


def choose(
    table: TableSurvey, options: SurveyOptions, lagged: Collection[str] = ()
) -> tuple[list[OutputSurvey], list[ColumnSurvey], dict[str, str]]:
    """Return the labels or targets, the features, and the reason why each other column is left out.

    Columns in ``lagged`` are features, except if ``--features`` chooses other columns of ``lagged``, or ``--drop``
    names them.
    """
    if options.label and options.target:
        raise DataError(f"{table.url}: --label and --target. Pass one of them: for classes, or numbers to predict.")
    left_out = _unused(table, options, lagged)
    outputs = outputs_of(table, options, [name for name, reason in left_out.items() if not reason])
    predicted = [table.named[each.name] for each in outputs]
    for column in predicted:
        left_out.pop(column.name, None)
    if options.text:
        return outputs, [_only_text(table, options, outputs)], _all_but_text(left_out, options.text)
    if chosen := {*options.features}:
        chosen |= {*lagged} if chosen.isdisjoint(lagged) else set()
        left_out = {name: why or "not among --features" for name, why in left_out.items() if name not in chosen}
    for name in [name for name, reason in left_out.items() if not reason]:
        twins = (_tells(table.named[name], table.named[each.name]) for each in outputs if each.is_label)
        left_out[name] = next(filter(None, twins), "")
    features = [each for each in table.columns if each not in predicted and not left_out.get(each.name)]
    _check_features(table, options, features, left_out)
    if lagged and not {*lagged}.intersection(each.name for each in features):
        raise DataError(f"{table.url}: --lags {options.lags}, but --drop leaves out all lags. Leave one of them out.")
    targets = [table.named[each.name] for each in outputs if not each.is_label]
    refuse_faults(table, [*targets, *features], options)
    return outputs, features, left_out


def _unused(table: TableSurvey, options: SurveyOptions, lagged: Collection[str]) -> dict[str, str]:
    """Return the reason why each column without ``--label`` or ``--target`` is no feature.

    The reason is empty if the column may be a feature.
    """
    named, is_wide = (*options.label, *options.target), len(table.columns) > MAX_LISTED
    left_out = {each.name: unfit(each, is_wide) for each in table.columns if each.name not in named}
    left_out |= {name: _unfit_names(table, name) for name in options.category if name not in named}
    left_out |= dict.fromkeys(lagged, "") | {name: "dropped" for name in options.drop if name not in named}
    if options.split_by in named:
        raise DataError(f"{table.url}: --split-by {options.split_by}: this column is predicted.")
    return left_out | dict.fromkeys(filter(None, [options.split_by]), "the records are split by it")


def _only_text(table: TableSurvey, options: SurveyOptions, outputs: Sequence[OutputSurvey]) -> ColumnSurvey:
    """Return the column of ``--text``, the only feature; raise a `DataError` if it does not fit."""
    text = table.named[options.text]
    if options.features or len(outputs) > 1 or not outputs[0].is_label or text.kind != "string":
        raise DataError(f"{table.url}: --text {text.name}. Expected a column of strings, one label, and no --features.")
    return text


def _all_but_text(left_out: Mapping[str, str], text: str) -> dict[str, str]:
    return {name: why if why in KEYS else "not the text" for name, why in left_out.items() if name != text}


def _check_features(
    table: TableSurvey, options: SurveyOptions, features: Sequence[ColumnSurvey], left_out: Mapping[str, str]
) -> None:
    """Raise an UnsureError if a feature may be a text, and a DataError if there are no features."""
    texts = features or [table.named[name] for name, why in left_out.items() if why.startswith(TEXTS)]
    for each in texts if not options.features else ():
        if each.name not in options.category and has_words(each):
            raise _unsure_of_text(table, each, options)
    if not features:
        raise DataError(
            f"{table.url}: no columns for features. Left out: {show_reasons(left_out)}. Pass --features{_hint(texts)}."
        )


def names_in(table: TableSurvey, options: SurveyOptions) -> list[str]:
    """Return the label and text columns, whose values are not numbers even if they look like numbers."""
    labels = [*options.label]
    if not (labels or options.target):
        labels = [name for name in labels_among([*table.named]) if len(table.named[name].distinct) <= MANY]
    return [*labels, *options.category, *filter(None, [options.text])]


def date_columns(table: TableSurvey, options: SurveyOptions) -> list[ColumnSurvey]:
    """Return the columns of dates, without dropped columns; times of day and durations are not dates."""
    return [each for each in table.columns if each.name not in options.drop and each.times]


def sorting_column(table: TableSurvey, options: SurveyOptions) -> ColumnSurvey | None:
    """Return the column of dates that determines the order of the records, or None."""
    found = [each for each in date_columns(table, options) if any(map(is_sorted, each.times))]
    return max(found, key=lambda each: len(each.distinct), default=None)


def _with_lags(table: TableSurvey, options: SurveyOptions) -> tuple[TableSurvey, LagsConf]:
    """Return a time series with lags of the predicted columns, and the configuration of these lags.

    The first N records, which lack lags, are left out.

    Raises
    ------
    DataError
        No column is predicted, or the table is not sorted by time, too short, or too large to be read as a whole, or
        already has columns with the names of lags.
    """
    names = [*options.label, *options.target]
    dates, sorted_by = date_columns(table, options), sorting_column(table, options)
    fault, n, drop = "", options.lags, ", or pass --drop {} if their order is right"
    if not names:
        fault = f" {n}: expected --target NAME, or --label NAME"
    elif dates and not sorted_by and (blocks := series_in_blocks(dates[0], table.columns)):
        fault = f": {blocks}"
    elif dates and not sorted_by:
        name = dates[0].name
        fault = f": its records are not in the order of {name}. Sort them by {name}{drop.format(name)}"
    elif sorted_by and (twice := twice_among(sorted_by.values.to_pylist())):
        said = f"several records have one {(name := sorted_by.name)}, such as {twice}"
        each = series_side_by_side(sorted_by, table.columns)
        remedy = f", {each}. Write a table for each series" if each else f". Write a table for each series{drop}"
        fault = f": {said}{remedy.format(name)}"
    elif not table.is_whole:
        fault = f" {n}: expected a table of at most {MAX_BYTES >> 20} MiB"
    elif table.n <= n:
        fault = f" {n}: it has {table.n} records. Expected more"
    if fault:
        raise DataError(f"{table.url}: --lags{fault}.")
    lags = LagsConf(columns=names, n=n, order=sorted_by.name if sorted_by else "")
    if taken := next((name for name in lags.names if name in table.kinds), ""):
        raise DataError(f"{table.url}: --lags {n}: it has a column {taken!r} already.")
    added = lags.add(table.url, pa.table({name: table.named[name].values for name in names}))
    columns = [replace(each, values=each.values[n:]) for each in table.columns]
    kinds = dict(table.kinds) | {f"{name}_lag{k}": table.kinds[name] for name in names for k in range(1, n + 1)}
    for name in lags.names:
        columns.append(ColumnSurvey(name, len(columns) + 1, kinds[name], whole(added.column(name))[n:]))
    return TableSurvey(table.url, "parquet", {}, columns, table.n - n, table.parts, kinds, table.runs), lags


def _unfit_names(table: TableSurvey, name: str) -> str:
    """Return the reason why a column of ``--category`` is no feature; empty if the column is a feature."""
    known = len(table.named[name].distinct)
    if known == table.named[name].n > 1:
        raise DataError(f"{table.url}: --category {name}: all values are different. Expected values that repeat.")
    return "" if known > 1 else "constant" if known else "no values"


def _hint(texts: Sequence[ColumnSurvey]) -> str:
    """Return a hint on how to use a table without features; ``texts`` are text columns that could be used."""
    if not texts:
        return ""
    names = texts[0].present[:MAX_NAMED].to_pylist()
    if all(name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        return (
            f". {texts[0].name!r} names pictures: write them as lines of NAME LABEL, without a header, to a .txt file"
        )
    return f", or --text {shlex.quote(texts[0].name)} to learn from its words or characters"


def _unsure_of_text(table: TableSurvey, column: ColumnSurvey, options: SurveyOptions) -> UnsureError:
    name = column.name
    choices: list[tuple[str, dict[str, Any]]] = [("a text, whose words are read", {"text": name})]
    advice = f"Pass --text {shlex.quote(name)} to learn from its words"
    if len(column.distinct) <= MAX_CATEGORIES:
        choices.append(("categories", {"category": (*options.category, name)}))
        advice += f", or --category {shlex.quote(name)} if its {len(column.distinct)} different values are categories"
    question = f"is {name!r} a column of texts, to learn from their words? It is {column.show()}."
    return UnsureError(table.url, question, choices, f"{advice}.")


def show_reasons(left_out: Mapping[str, str]) -> str:
    """List columns with the reason why each is left out."""
    nameless = "a column without a name"
    shown = [f"{' '.join(name.split()) or nameless} ({reason})" for name, reason in left_out.items() if reason]
    return listed(shown, MAX_NAMED)


def _tells(column: ColumnSurvey, label: ColumnSurvey) -> str:
    """Return the reason to leave out a column whose values stand for the classes, one to one; else empty."""
    is_code = column.kind != "number" or column.is_whole
    if (
        not is_code
        or column.kind == "vector"
        or len(column.distinct) != len(label.distinct)
        or len(label.values) < MIN_NUMBERED
    ):
        return ""
    pairs = set(zip(column.values.to_pylist(), label.values.to_pylist(), strict=True))
    return f"is {label.name} in other words" if len(pairs) == len(label.distinct) else ""
