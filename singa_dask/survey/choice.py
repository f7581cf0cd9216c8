"""Choose labels or targets, and features of a table."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from singa_dask.data.codecs.category_names import name_key
from singa_dask.data.codecs.columns import whole
from singa_dask.data.codecs.labels import is_point, labels_among
from singa_dask.data.codecs.lags import LagsConf, is_sorted, twice_among
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES
from singa_dask.errors import DataError
from singa_dask.survey.column_kinds import KEYS, MIN_NUMBERED, TEXTS, has_words, unfit
from singa_dask.survey.columns import DATES, MAX_CATEGORIES, ColumnSurvey, show_value
from singa_dask.survey.numbers import MAX_LISTED, are_mostly_numbers, refuse_faults
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.read_table import MAX_BYTES
from singa_dask.survey.results import OutputSurvey
from singa_dask.survey.series import series_in_blocks, series_side_by_side
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed

# integers with at most FEW distinct values are classes; integers with more than MANY values that seldom repeat are
# numbers
FEW, MANY = 10, 100
MAX_NAMED = 20


@dataclass(frozen=True)
class Choice:
    """Labels or targets and features of a table, and why each other column is left out.

    For a time series, ``table`` has the ``lags``, and ``series`` is the table without them.
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
    """Return the labels or targets, the features, and for each other column why it is left out.

    Columns in ``lagged`` are features, unless ``--features`` chooses some of them, or ``--drop`` names them.
    """
    if options.label and options.target:
        raise DataError(f"{table.url}: --label and --target. Pass one of them: for classes, or numbers to predict.")
    named = [*options.label, *options.target]
    dropped = {*options.drop}.difference(named)
    chosen = [*options.features]
    is_wide = len(table.columns) > MAX_LISTED
    left_out = {each.name: unfit(each, is_wide) for each in table.columns if each.name not in named}
    left_out |= {name: _unfit_names(table, name) for name in options.category if name not in named}
    left_out |= dict.fromkeys(lagged, "") | dict.fromkeys(dropped, "dropped")
    if chosen and not {*lagged}.intersection(chosen):
        chosen += lagged
    if options.split_by in named:
        raise DataError(f"{table.url}: --split-by {options.split_by}: this column is predicted.")
    left_out |= dict.fromkeys(filter(None, [options.split_by]), "the records are split by it")
    said = "label" if options.label else "target"
    outputs = [_output(table, table.named[name], "given", said, options) for name in named]
    if not named:
        column, why = _telling(table, [name for name, reason in left_out.items() if not reason])
        outputs = [_output(table, column, why, "", options)]
    if len({each.is_label for each in outputs}) > 1:
        raise DataError(
            f"{table.url}: {outputs[0].name} and {outputs[1].name}: classes and numbers. Expected one kind."
        )
    names = ["", *(each.name for each in outputs)]
    left_out = {name: reason for name, reason in left_out.items() if name not in names[1:]}
    if options.text:
        if chosen or len(outputs) > 1 or not outputs[0].is_label or table.named[options.text].kind != "string":
            raise DataError(
                f"{table.url}: --text {options.text}. Expected a column of strings, one label, and no --features."
            )
        others = {name: reason for name, reason in left_out.items() if name != options.text}
        text = table.named[options.text]
        return outputs, [text], {n: why if why in KEYS else "not the text" for n, why in others.items()}
    if chosen:
        left_out = {name: left_out[name] or "not among --features" for name in left_out if name not in chosen}
    known = [table.named[each.name] for each in outputs if each.is_label]
    for name in [name for name, reason in left_out.items() if not reason]:
        left_out[name] = next((twin for label in known if (twin := _tells(table.named[name], label))), "")
    features = [each for name, each in table.named.items() if name not in names and not left_out.get(name)]
    texts = [table.named[n] for n, why in left_out.items() if why.startswith(TEXTS)] if not features else features
    like_texts = next(
        (each for each in texts if not chosen and each.name not in options.category and has_words(each)), None
    )
    if like_texts is not None:
        raise _unsure_of_text(table, like_texts, options)
    if not features:
        raise DataError(
            f"{table.url}: no columns for features. Left out: {show_reasons(left_out)}. Pass --features{_hint(texts)}."
        )
    if lagged and not {*lagged}.intersection(each.name for each in features):
        raise DataError(f"{table.url}: --lags {options.lags}, but --drop leaves out all lags. Leave one of them out.")
    refuse_faults(table, [*(table.named[each.name] for each in outputs if not each.is_label), *features], options)
    return outputs, features, left_out


def names_in(table: TableSurvey, options: SurveyOptions) -> list[str]:
    """Return the label and text columns, whose values are not numbers even if they look like numbers."""
    labels = [*options.label]
    if not (labels or options.target):
        labels = [name for name in labels_among([*table.named]) if len(table.named[name].distinct) <= MANY]
    return [*labels, *options.category, *filter(None, [options.text])]


def date_columns(table: TableSurvey, options: SurveyOptions) -> list[ColumnSurvey]:
    """Return the columns of dates, except dropped ones; times of day and durations are none."""
    return [each for each in table.columns if each.name not in options.drop and each.times]


def sorting_column(table: TableSurvey, options: SurveyOptions) -> ColumnSurvey | None:
    """Return a column of dates in whose order the records are sorted, or None."""
    found = [each for each in date_columns(table, options) if any(map(is_sorted, each.times))]
    return max(found, key=lambda each: len(each.distinct), default=None)


def _with_lags(table: TableSurvey, options: SurveyOptions) -> tuple[TableSurvey, LagsConf]:
    """Add the lags of the predicted columns to a time series; return it and the lags' configuration.

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
        fault = f": its records are not in the order of {(name := dates[0].name)}. Sort them by it{drop.format(name)}"
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
    """Return the reason why a column of ``--category`` is no feature; empty if it is one."""
    known = len(table.named[name].distinct)
    if known == table.named[name].n > 1:
        raise DataError(f"{table.url}: --category {name}: another value in each record. Expected values that repeat.")
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


def show_reasons(left_out: dict[str, str]) -> str:
    """List columns with the reason why each is left out."""
    nameless = "a column without a name"
    shown = [f"{' '.join(name.split()) or nameless} ({reason})" for name, reason in left_out.items() if reason]
    return listed(shown, MAX_NAMED)


def _tells(column: ColumnSurvey, label: ColumnSurvey) -> str:
    """Return the reason to leave out a column that has a single value for each class; else empty."""
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


def _telling(table: TableSurvey, usable: Sequence[str]) -> tuple[ColumnSurvey, str]:
    """Return the column that is the label according to its name, and the reason."""
    names = [name for name in table.named if name]
    labels = labels_among(names) if table.text.get("header", True) else []
    ends = [usable[0], usable[-1]] if usable else []
    # a column "class" may be a feature, such as the class of a passenger
    sure = len(labels) == 1 and (labels[0].lower() not in ("y", "class") or labels[0] in ends)
    if sure and not is_point(names):
        return table.named[labels[0]], "by its name"
    candidates = labels if len(labels) > 1 else usable or names
    raise _unknown(table, [table.named[name] for name in candidates])


def _unknown(table: TableSurvey, candidates: Sequence[ColumnSurvey]) -> UnsureError:
    shown = candidates if len(candidates) <= MAX_NAMED else [*candidates[:3], *candidates[-3:]]
    described = [f"{each.name} ({each.show()})" for each in shown]
    choices = [(text, {"label": (each.name,)}) for text, each in zip(described, shown, strict=True)]
    advice = "Pass --label NAME for classes, or --target NAME for numbers to predict. It may be one of:"
    if not table.text.get("header", True):
        described = [each.show() for each in shown]
        advice = "Its columns have no names. Pass --label first, --label last or the position of another one:"
    return UnsureError(table.url, "which column is the label?", choices, "\n  ".join([advice, *described]))


def _output(table: TableSurvey, column: ColumnSurvey, why: str, said: str, options: SurveyOptions) -> OutputSurvey:
    name, place = column.name, f"{table.url}: column {column.name!r}"
    known = len(column.distinct)
    if column.kind not in ("number", "boolean", "string", "empty"):
        hint = ", in a column that you make of it, such as the month or hour" if column.kind in DATES else ""
        raise DataError(f"{place} has values of kind {column.kind}. Expected classes, or numbers{hint}.")
    if known < 2:
        found = f"only one value, {show_value(column.distinct[0].as_py())!r}" if known else "no values"
        raise DataError(f"{place} has {found}. Expected at least two.")
    if said == "target" or (column.kind == "number" and not _has_classes(table, column, said)):
        if column.kind == "string":
            refuse_faults(table, [column], options)
            raise DataError(f"{place} has text. Expected numbers for --target; --label takes classes.")
        mean, std = (
            (column.counted.mean, column.counted.std)
            if column.counted
            else (float(column.numbers.mean()), float(column.numbers.std()))
        )
        if said != "target":
            why = f"{why}; {known} different numbers are predicted as such{', --label takes classes' * (not said)}"
        return OutputSurvey(name, why, mean=mean, std=std or 1.0)
    if known > MANY and 2 * known > column.n_present:
        said = f"{known} different values in {column.n} records"
        are_numbers = column.kind == "number" or are_mostly_numbers(column.present)
        hint = f" Pass --target {shlex.quote(name)} to predict them as numbers." if are_numbers else ""
        raise DataError(f"{place} has {said}. Expected classes, which repeat.{hint}")
    if not said and column.kind == "number" and known > 2:
        why = f"{why}; {known} different numbers are classes, --target predicts them as numbers"
    texts = ("false", "true") if column.kind == "boolean" else table.texts(name)
    if column.kind == "number":
        # pandas writes integers as 1.0 if the column has missing values
        texts = tuple(map(name_key, texts))
    if column.kind == "number" and len(texts) != known and table.is_whole:
        raise DataError(f"{place}: {listed(texts, 6)}, which are {known} different numbers. Write each in one way.")
    is_counted = column.kind == "number" and [float(text) for text in texts] == list(range(len(texts)))
    if options.classes:
        if sorted(options.classes) != sorted(texts):
            raise DataError(f"{place} has {listed(texts, MAX_NAMED)}. Pass --classes with exactly these.")
        texts = options.classes
    read: Callable[[str], float | str] = float if column.kind == "number" else name_key
    counted = Counter[float | str]()
    for value, n in column.value_counts():
        counted[read(value if column.kind != "boolean" else str(value).lower())] += n
    counts = tuple(counted[read(text)] for text in texts)
    return OutputSurvey(name, why, counts, () if is_counted and not options.classes else texts)


def _has_classes(table: TableSurvey, column: ColumnSurvey, said: str) -> bool:
    """Return whether numbers are classes.

    Raises an UnsureError if that is not clear, and a DataError for classes that seldom repeat.
    """
    known, n = len(column.distinct), column.n_present
    repeat = known == 2 or 3 * known <= n
    named = column.name.lower() in ("label", "labels", "class") and known <= MANY
    if not column.is_whole:
        if said or known > FEW or not repeat:
            return bool(said) and known <= FEW and repeat
    elif said and known > MANY and n / 20 < known <= n / 2:
        name = shlex.quote(column.name)
        raise DataError(
            f"{table.url}: column {column.name!r} has {known} different numbers in {n} records. Expected classes, "
            f"which repeat. Pass --target {name} to predict numbers, or --label {name} --category {name} for classes."
        )
    elif known > MANY and known > n / 10:
        return bool(said) and 2 * known <= n
    elif said or ((known <= FEW or named) and repeat):
        return True
    raise UnsureError(
        table.url,
        f"are the {known} different numbers of {column.name!r} classes, or numbers to predict?",
        [("classes", {"label": (column.name,)}), ("numbers to predict", {"target": (column.name,)})],
        f"Pass --label {column.name} for classes, or --target {column.name} for numbers.",
    )
