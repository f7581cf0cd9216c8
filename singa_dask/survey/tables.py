"""Choose label or targets, features and test set of a table."""

from __future__ import annotations

import fnmatch
import logging
import posixpath
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.codecs.category_names import in_order, name_key
from singa_dask.data.codecs.columns import as_texts, is_number, missing_of, whole
from singa_dask.data.codecs.labels import is_point, labels_among
from singa_dask.data.codecs.lags import LagsConf, is_sorted, twice_among
from singa_dask.data.codecs.numbers import Spelling
from singa_dask.data.codecs.tokens import TextMeasure
from singa_dask.data.stores import open_store
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES
from singa_dask.data.stores.split import SplitConf
from singa_dask.errors import ConfigError, DataError
from singa_dask.shown import plural
from singa_dask.survey.baseline import baseline_of
from singa_dask.survey.column_kinds import (
    KEYS,
    MIN_NUMBERED,
    TEXTS,
    has_words,
    is_like_id,
    unfit,
)
from singa_dask.survey.columns import (
    DATES,
    MAX_BYTES,
    MAX_CATEGORIES,
    ColumnSurvey,
    TableSurvey,
    read_table,
    show_value,
)
from singa_dask.survey.date_columns import date_doubts, date_notes, with_dates
from singa_dask.survey.leaks import exact_warnings, leak_warnings, shared_id_warnings
from singa_dask.survey.never_learned import categories_never_learned, classes_never_learned
from singa_dask.survey.notes import (
    code_notes,
    form_notes,
    left_out_notes,
    sentinel_notes,
    unmet_words,
    value_notes,
)
from singa_dask.survey.numbers import (
    MAX_LISTED,
    PLAIN,
    are_mostly_numbers,
    refuse_faults,
    spellings_of,
    with_numbers,
)
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.results import MIN_BYTE_RANGE, Note, OutputSurvey, RecordSurvey
from singa_dask.survey.series import (
    doubts_of_series,
    gaps_note,
    naive_forecasts,
    series_in_blocks,
    series_side_by_side,
)
from singa_dask.survey.split import MIN_SPLIT, NOT_COPIED, Rows, count_test, split_by_rule, stratify, with_split
from singa_dask.wording import listed, suggest

logger = logging.getLogger(__name__)

# integers with at most FEW distinct values are classes; integers with more than MANY values that seldom repeat are
# numbers
FEW, MANY = 10, 100
MAX_NAMED = 20


def survey_table(url: str, test_url: str, backend: str, options: SurveyOptions, folder: str) -> RecordSurvey:
    """Inspect a table with named columns, or lines of numbers.

    Raises
    ------
    UnsureError
        The table can be read in two ways.
    DataError
        An option does not fit, or there is nothing to learn.
    """
    table = read_table(url, options)
    options = replace(options, category=tuple(_resolved(table, options.category, "--category")))
    table = table.with_names(options.category, options.na_values)
    not_numbers = _names_in(table, options)
    table = with_numbers(table, options, not_numbers)
    if not options.lags:
        table = with_dates(table, not_numbers)
    if options.run and not table.is_whole:
        _refuse_before_count(table, options)
        table = table.count(options, not_numbers, options.run)
    if options.split_by:
        if options.lags or options.test:
            raise DataError(f"{url}: --split-by, and {'--lags' if options.lags else '--test'}. Pass one of them.")
        options = replace(options, split_by=_resolved(table, (options.split_by,), "--split-by")[0])
        test_url = ""
    lags, series = None, table
    if options.lags:
        table, lags = _with_lags(table, options)
    lagged = {*lags.names} if lags else set[str]()
    outputs, features, left_out = _choose(table, options, lagged)
    reading = _reading(table, options, features, outputs)
    if lags:
        reading["lags"] = lags.model_dump(exclude={"gaps"})
    widths = {each.name: table.parts(0).width(each.name) for each in features if each.kind == "vector"}
    widths |= {each.name: len(each.date.names("")) for each in features if each.date}
    width = sum(widths.get(each.name, len(reading.get("categories", {}).get(each.name, "1"))) for each in features)
    said = "another whole number in each record. Pass --drop if it is an id"
    trouble = [f"{each.name}: {said}" for each in features if each.name not in lagged and is_like_id(each)]
    used = [*(table.named[each.name] for each in outputs), *features]
    trouble += _doubts(used, outputs)
    spelled, na_values = spellings_of(table, used, outputs, reading), reading.get("na_values", ())
    # formats without default words for missing values know only the words in na_values
    if found := {word for words in spelled.words.values() for word in words}.difference(na_values):
        reading["na_values"] = [*na_values, *sorted(found)]
    trouble += unmet_words(table, spelled, options.na_values)
    trouble += _doubts_of_lags(series, options, lags) if lags else date_doubts(table)
    notes = [
        *form_notes(used),
        *date_notes(used),
        *value_notes(spelled, used, outputs, reading, len(table.parts.files)),
        *left_out_notes(table, left_out),
    ]
    notes += code_notes(each for each in features if each.name not in lagged | {*spelled.zeros})
    labels = {each.name for each in outputs if each.is_label}
    notes += sentinel_notes(table, [each for each in used if each.name not in lagged | labels])
    notes += gaps_note(table.named[lags.order]) if lags and lags.order else ()
    required = used if reading.get("missing") == "skip" else used[: len(outputs)]
    rows = np.flatnonzero(~np.logical_or.reduce([missing_of(each.values) for each in required]))
    train, test, split = _split_rows(table, outputs, rows, options)
    keys = [name for name, reason in left_out.items() if reason in KEYS]
    times = _sorted_by(table, options)
    keys.insert(0 if lags else len(keys), times.name if times else "")
    key = next(filter(None, keys), "")
    unlabelled_url, there = "", set[str]()
    if test_url and not options.test:
        there = {each.name for each in read_table(test_url, options).columns}
        absent = [each.name for each in outputs if each.name not in there]
        if absent and there.issuperset(each.name for each in features):
            unlabelled_url, test_url = test_url, ""
            trouble.append(f"{unlabelled_url} has no {listed(absent)}: it is not a test set, but records to predict")
    if options.copy and not table.is_whole:
        raise DataError(f"{url}: {NOT_COPIED}")
    by_rule = bool(split) and not (test_url or options.copy)
    if test_url or not len(test):
        split = ""
    if options.lags and not _dates(table, options):
        trouble.append("no column of dates: the records are read as one series, the oldest first")
    if options.lags and not split:
        raise DataError(f"{url}: --lags: expected more records, no --test, and a share for --test-split.")
    is_copied = bool(split) and options.copy
    if is_copied:
        table.check_copy()
    unlabelled = max(each.n_missing for each in used[: len(outputs)]) if table.is_counted else 0
    if (unlabelled or len(rows) < table.n_seen) and not is_copied and reading.get("missing") != "skip":
        reading["unlabelled"] = "skip"
    is_packed = url.lower().endswith(".gz") and not is_copied
    read_as = "table" if table.format == "whole" or is_packed else backend
    suffix = posixpath.splitext(url.lower().removesuffix(".gz"))[1][1:]
    measure = None
    if options.text:
        measure = TextMeasure.of(as_texts(features[0].present))
        width, trouble = measure.length, []
        text: dict[str, Any] = {"length": width, "vocab_size": measure.vocab_size, "lowercase": True}
        text |= {"tokens": measure.tokens} if measure.tokens != "words" else {}
        reading |= {"texts": {features[0].name: text}}
    leaks = list[str]()
    if not (lags or measure):
        trouble += (leaks := list(leak_warnings(table, features, outputs, rows)))
    trouble += _doubts_of_key(table, options.split_by) if options.split_by else ()
    records = RecordSurvey(
        source=url,
        url=url,
        backend=read_as,
        form=suffix if suffix.isalpha() else table.format,
        shape=(width,),
        outputs=tuple(outputs),
        n_records=len(rows) if table.is_whole else table.n - unlabelled,
        n_seen=table.n_seen,
        group_bytes=table.group_bytes,
        is_counted=table.is_counted,
        seed=options.seed,
        values="small" if measure else "bytes" if _are_pixels(features) else "columns",
        measure=measure,
        test_url=test_url,
        reading=reading,
        trouble=trouble,
        features=tuple(each.name for each in features),
        left_out=_show_reasons(left_out),
        notes=notes,
        key=key if not unlabelled_url or key in there else "",
        unlabelled_url=unlabelled_url,
    )
    if by_rule:
        records = _with_rule(records, table, options, outputs[0], (rows, train, test), split)
        if table.is_whole and not options.split_by:
            is_train = np.isin(rows, _learned_rows(table, records.rule, options))
            train, test = rows[is_train], rows[~is_train]
        records = replace(records, trouble=[*trouble, *classes_never_learned(table, outputs, train)])
    if test_url:
        train, test = rows, rows[:0]
    if not options.split_by:
        records = replace(records, trouble=[*records.trouble, *shared_id_warnings(table, outputs, train, test)])
    if not measure:
        of_tests = categories_never_learned(table, features, (train, test), options, _sorted_by(table, options))
        records = replace(records, trouble=[*records.trouble, *of_tests])
    baseline = baseline_of(table, features, outputs, train, test, measure)
    together = [] if lags or leaks else exact_warnings(baseline, outputs)
    records = replace(records, baseline=baseline, trouble=[*records.trouble, *together])
    if lags:
        steps = _steps_of(series, options)
        records = replace(records, naive=naive_forecasts(series, outputs, steps, test + lags.n))
    if is_copied:
        records = replace(records, backend=table.suffix[1:])
        return with_split(records, folder, table.suffix, (train, test, split), table.write)
    return _with_test_set(records, outputs) if test_url else records


def _with_rule(
    records: RecordSurvey,
    table: TableSurvey,
    options: SurveyOptions,
    output: OutputSurvey,
    numbers: tuple[Rows, Rows, Rows],
    split: str,
) -> RecordSurvey:
    """Return records with a rule that splits them; ``numbers``: rows that are usable, to train, to test."""
    rows, train, test = numbers
    if options.split_by:
        rule = {"test_share": options.test_split, "seed": abs(options.seed), "key": options.split_by}
        n_test = round(len(test) * table.n / table.n_seen)
        n_records, url = records.n_records - n_test, records.url
        return replace(records, split=split, rule=rule, n_records=n_records, n_test=n_test, test_url=url)
    is_last, kept, labels = bool(split) and train.max() < test.min(), None, None
    if table.is_whole:
        kept, values = rows + options.lags, table.named[output.name].values.take(pa.array(rows))
        labels = _codes_of(values) if output.is_label else np.zeros(len(rows), np.int64)
    # start the test set at the same share of the table as in the records that were read
    test_from = round(int(test.min()) * table.n / table.n_seen) + options.lags if is_last else 0
    order = split.removeprefix(f"the last {len(test)}")
    return split_by_rule(records, options, kept, labels, test_from, order)


def _with_test_set(records: RecordSurvey, outputs: Sequence[OutputSurvey]) -> RecordSurvey:
    """Return records after counting the test set, which is read as the training data is."""
    url, test_url, reading = records.url, records.test_url, records.reading
    with open_store(url, "table", **reading) as store:
        facts = store.table_facts
    more = {"facts": facts.to_dict()} if facts is not None else {}
    skips = reading.get("missing") == "skip"
    opened = {**reading, **more, **({} if skips else {"unlabelled": "skip"})}
    n_test, n_left_out, largest = count_test(test_url, "table", opened, facts, url, outputs[0])
    if n_left_out and not skips:
        names = listed([each.name for each in outputs])
        notes = [*records.notes, Note(names, f"no value in {test_url}", n_left_out, "record left out")]
        records = replace(records, notes=notes, reading={**reading, "unlabelled": "skip"})
    return replace(records, n_test=n_test, largest=largest if len(outputs) == 1 else 0.0)


def _refuse_before_count(table: TableSurvey, options: SurveyOptions) -> None:
    """Check column names and ask open questions before counting a large table, which takes minutes.

    Other errors are raised after counting, if they remain.
    """
    for option in ("label", "target", "drop", "features"):
        _resolved(table, getattr(options, option), f"--{option}")
    for option in ("text", "split_by"):
        _resolved(table, [*filter(None, [getattr(options, option)])], f"--{option.replace('_', '-')}")
    try:
        _choose(table, options)
    except UnsureError:
        raise
    except DataError as error:
        logger.debug("%s: before its records are counted: %s", table.url, error)


def _names_in(table: TableSurvey, options: SurveyOptions) -> list[str]:
    """Return the label and text columns, whose values are not numbers even if they look like numbers."""
    labels = _resolved(table, options.label, "--label")
    if not (labels or options.target):
        labels = [name for name in labels_among([*table.named]) if len(table.named[name].distinct) <= MANY]
    return [*labels, *options.category, *(_resolved(table, (options.text,), "--text") if options.text else ())]


def _doubts(used: Sequence[ColumnSurvey], outputs: Sequence[OutputSurvey]) -> Iterator[str]:
    """Yield warnings about ambiguous numbers, and names that differ only in case or a final full stop."""
    for each in used:
        if each.example and not each.forms:
            yield f"{each.name}: its points are decimal ones, as in {each.example}. Pass --thousands . if they are not"
    columns = [(each.name, each.names, "classes") for each in outputs]
    for each in used[len(outputs) :]:
        if each.kind == "string" and not (each.date or each.forms):
            columns.append((each.name, in_order(each.distinct.to_pylist()), "categories"))
    for column, texts, what in columns:
        alike = defaultdict[str, list[str]](list)
        for text in texts:
            alike[text.removesuffix(".").casefold()].append(repr(text))
        if pairs := [" and ".join(each) for each in alike.values() if each[1:]]:
            yield f"{column}: {listed(pairs, 3)} are different {what}"


def _with_lags(table: TableSurvey, options: SurveyOptions) -> tuple[TableSurvey, LagsConf]:
    """Add the lags of the predicted columns to a time series; return it and the lags' configuration.

    The first N records, which lack lags, are left out.

    Raises
    ------
    DataError
        No column is predicted, or the table is not sorted by time, too short, or too large to be read as a whole, or
        already has columns with the names of lags.
    """
    names = [*_resolved(table, options.label, "--label"), *_resolved(table, options.target, "--target")]
    dates, sorted_by = _dates(table, options), _sorted_by(table, options)
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


def _doubts_of_lags(series: TableSurvey, options: SurveyOptions, lags: LagsConf) -> Iterator[str]:
    """Yield warnings about columns that may name several series."""
    others = {lags.order, *_resolved(series, options.drop, "--drop")}
    columns = [each for each in series.columns if each.name not in others]
    yield from doubts_of_series(columns, [series.named[name] for name in lags.columns], _steps_of(series, options))


def _steps_of(series: TableSurvey, options: SurveyOptions) -> Sequence[Any] | None:
    """Return the sorted times of a time series, if it has dates."""
    dates = _sorted_by(series, options)
    return next(filter(is_sorted, dates.times)) if dates else None


def _choose(
    table: TableSurvey, options: SurveyOptions, lagged: Collection[str] = ()
) -> tuple[list[OutputSurvey], list[ColumnSurvey], dict[str, str]]:
    """Return the labels or targets, the features, and for each other column why it is left out.

    Columns in ``lagged`` are features, unless ``--features`` chooses some of them, or ``--drop`` names them.
    """
    labels, targets = _resolved(table, options.label, "--label"), _resolved(table, options.target, "--target")
    if labels and targets:
        raise DataError(f"{table.url}: --label and --target. Pass one of them: for classes, or numbers to predict.")
    named = [*labels, *targets]
    dropped = {name for name in _resolved(table, options.drop, "--drop") if name not in named}
    chosen = _resolved(table, options.features, "--features")
    text = _resolved(table, (options.text,), "--text") if options.text else []
    is_wide = len(table.columns) > MAX_LISTED
    left_out = {each.name: unfit(each, is_wide) for each in table.columns if each.name not in named}
    left_out |= {name: _unfit_names(table, name) for name in options.category if name not in named}
    left_out |= dict.fromkeys(lagged, "") | dict.fromkeys(dropped, "dropped")
    if chosen and not {*lagged}.intersection(chosen):
        chosen += lagged
    if options.split_by in named:
        raise DataError(f"{table.url}: --split-by {options.split_by}: this column is predicted.")
    left_out |= dict.fromkeys(filter(None, [options.split_by]), "the records are split by it")
    outputs = [_output(table, table.named[name], "given", "label" if labels else "target", options) for name in named]
    if not named:
        column, why = _telling(table, [name for name, reason in left_out.items() if not reason])
        outputs = [_output(table, column, why, "", options)]
    if len({each.is_label for each in outputs}) > 1:
        raise DataError(
            f"{table.url}: {outputs[0].name} and {outputs[1].name}: classes and numbers. Expected one kind."
        )
    names = ["", *(each.name for each in outputs)]
    left_out = {name: reason for name, reason in left_out.items() if name not in names[1:]}
    if text:
        if chosen or len(outputs) > 1 or not outputs[0].is_label or table.named[text[0]].kind != "string":
            raise DataError(
                f"{table.url}: --text {options.text}. Expected a column of strings, one label, and no --features."
            )
        others = {name: reason for name, reason in left_out.items() if name not in text}
        return outputs, [table.named[text[0]]], {n: why if why in KEYS else "not the text" for n, why in others.items()}
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
            f"{table.url}: no columns for features. Left out: {_show_reasons(left_out)}. Pass --features{_hint(texts)}."
        )
    if lagged and not {*lagged}.intersection(each.name for each in features):
        raise DataError(f"{table.url}: --lags {options.lags}, but --drop leaves out all lags. Leave one of them out.")
    refuse_faults(table, [*(table.named[each.name] for each in outputs if not each.is_label), *features], options)
    return outputs, features, left_out


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


def _show_reasons(left_out: dict[str, str]) -> str:
    """List columns with the reason why each is left out."""
    nameless = "a column without a name"
    shown = [f"{' '.join(name.split()) or nameless} ({reason})" for name, reason in left_out.items() if reason]
    return listed(shown, MAX_NAMED)


def _resolved(table: TableSurvey, wanted: Sequence[str], option: str) -> list[str]:
    """Return the names of the columns that an option lists.

    The option may give a name, a pattern, a position from 1 on, ``first`` or ``last``.
    """
    names, columns = list(table.named), list[str]()
    for each in wanted:
        at = {"first": 0, "last": len(names) - 1}.get(each, int(each) - 1 if each.isdecimal() else -1)
        chosen = [name for name in names if name == each] or fnmatch.filter(filter(None, names), each)
        if not chosen and not 0 <= at < len(names):
            raise ConfigError(f"{table.url}: no column {each!r} for {option}. {suggest(each, filter(None, names))}")
        columns += chosen or [names[at]]
    return columns


def _are_pixels(features: Sequence[ColumnSurvey]) -> bool:
    if len(features) <= MAX_LISTED or not all(each.is_whole for each in features):
        return False
    high = max(each.numbers.max() for each in features)
    return bool(MIN_BYTE_RANGE <= high <= 255 and min(each.numbers.min() for each in features) >= 0)


# -- features -------------------------------------------------------------------------------------------


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


def _reading(
    table: TableSurvey, options: SurveyOptions, features: Sequence[ColumnSurvey], outputs: Sequence[OutputSurvey]
) -> dict[str, Any]:
    reading: dict[str, Any] = dict(table.text)
    texts = [each for each in features if each.kind == "string" and each.name != options.text and not each.date]
    others = [name for name, each in table.named.items() if each.kind in ("number", "boolean") and not each.is_index]
    default = [name for name in others if name and name not in [each.name for each in outputs]]
    if len(features) <= MAX_LISTED or [each.name for each in features] != default:
        reading["features"] = [each.name for each in features]
    for key, is_label in (("label", True), ("target", False)):
        if chosen := [each.name for each in outputs if each.is_label == is_label]:
            reading[key] = chosen[0] if is_label and len(chosen) == 1 else chosen
    columns = [table.named[each.name] for each in outputs]
    gaps = [each for each in features if each.n_missing]
    usual = "skip" if options.text or any(each.kind == "vector" for each in features) else "mean"
    missing = options.missing or (usual if any(each not in texts for each in gaps) else "")
    filled = gaps if missing != "skip" else []
    categories = {each.name: [*[""] * (each in filled), *in_order(each.distinct.to_pylist())] for each in texts}
    # the training set may lack a class if there are several labels, or if the table is large
    kinds = ("number", "string") if len(outputs) > 1 or not table.is_whole else ("number",)
    by_value = [each for each in outputs if each.names and table.named[each.name].kind in kinds]
    categories |= {each.name: list(each.names) for each in by_value}
    forms = {each.name: form for each in (*columns, *features) for form in each.forms}
    if options.na_values:
        # data frames and JSON have strings in columns where CSV has numbers
        forms = {each.name: PLAIN for each in gaps if each.kind == "number" and table.format == "csv"} | forms
    spelling = Spelling(forms, options.na_values)
    reading |= spelling.to_dict()
    if dates := {each.name: each.date.to_dict() for each in features if each.date}:
        reading["dates"] = {name: form["parts"] if len(form) == 1 else form for name, form in dates.items()}
    if options.classes:
        categories[outputs[0].name] = list(options.classes)
    if categories:
        reading["categories"] = categories
    if is_number(missing):
        reading["missing"] = float(missing)
    elif missing in ("error", "skip", "mean"):
        reading["missing"] = missing
    elif missing:
        raise DataError(f"--missing {missing}: expected error, skip, mean or a number.")
    return reading


# -- labels and targets ---------------------------------------------------------------------------------


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


# -- the test set ---------------------------------------------------------------------------------------


def _split_rows(
    table: TableSurvey, outputs: Sequence[OutputSurvey], rows: Rows, options: SurveyOptions
) -> tuple[Rows, Rows, str]:
    """Return the training rows, the test rows, and a text that says how they were chosen.

    If the rows are sorted by a date, the last ones are the test set. If nothing is copied, a rule of the job chooses
    other rows later.
    """
    n_test = round(options.test_split * len(rows))
    if not 0 < n_test < len(rows) or len(rows) < MIN_SPLIT:
        return rows, rows[:0], ""
    if options.split_by:
        return _split_by_key(table, rows, options)
    dates = _sorted_by(table, options)
    if dates and 2 * len(dates.distinct) < table.n_seen:
        dates = None
    labels = [table.named[each.name] for each in outputs if each.is_label]
    # the training set needs records of all classes
    if options.lags:
        return rows[:-n_test], rows[-n_test:], f"the last {n_test}{f' by {dates.name}' if dates else ''}"
    if dates and all(len(pc.unique(each.values.take(rows[:-n_test]))) == len(each.distinct) for each in labels):
        return rows[:-n_test], rows[-n_test:], f"the last {n_test} by {dates.name}"
    if not (options.copy and labels):
        order = np.random.default_rng(options.seed).permutation(rows)
        return order[n_test:], order[:n_test], f"{n_test} at random, seed {options.seed}"
    train, test, how = stratify(_codes_of(labels[0].values.take(rows)), options)
    return rows[train], rows[test], how


def _codes_of(values: pa.Array) -> Rows:
    """Return the rank of each value among the distinct values as text; missing values are empty texts."""
    encoded = as_texts(values).fill_null("").dictionary_encode()
    ranks = np.argsort(np.argsort(np.array(encoded.dictionary.to_pylist(), object)))
    return np.asarray(ranks[encoded.indices.to_numpy()], np.int64)


def _split_by_key(table: TableSurvey, rows: Rows, options: SurveyOptions) -> tuple[Rows, Rows, str]:
    """Split rows so that rows with equal values in a column are in the same part.

    Returns the training rows, the test rows, and a text that describes the split.
    """
    name, seed = options.split_by, abs(options.seed)
    keys = table.keys(name)
    is_test = np.isin(rows, SplitConf(part="test", test_share=options.test_split, seed=seed, key=name).of_keys(keys))
    train, test = rows[~is_test], rows[is_test]
    n_train, n_test = (len(pc.unique(keys.take(pa.array(part)).drop_null())) for part in (train, test))
    if not (len(train) and len(test)):
        said = f"its {plural(n_train + n_test, 'different value')} would be in one part"
        raise DataError(f"{table.url}: --split-by {name}: {said}. Choose another column, --seed or --test-split.")
    of_all = "" if table.is_whole else f"of the {len(keys)} records that were read "
    how = f"{of_all}{len(test)} with {n_test} values of {name}; {len(train)} with {n_train} to train on, seed {seed}"
    return train, test, how


def _doubts_of_key(table: TableSurvey, name: str) -> Iterator[str]:
    """Yield warnings about the column of ``--split-by``."""
    keys = table.keys(name)
    if keys.null_count:
        yield f"{name}: {plural(keys.null_count, 'record')} without a value, to train on"
    if len(pc.unique(keys.drop_null())) == len(keys):
        yield f"{name}: another value in each record, so --split-by has no effect"


def _learned_rows(table: TableSurvey, rule: Mapping[str, Any], options: SurveyOptions) -> Rows:
    """Return which of the rows that were read are training rows by a rule; without a rule, all."""
    n = table.n_seen
    return SplitConf.model_validate({"part": "train", **rule}).rows(options.lags, n) if rule else np.arange(n)


def _dates(table: TableSurvey, options: SurveyOptions) -> list[ColumnSurvey]:
    """Return the columns of dates, except dropped ones; times of day and durations are none."""
    dropped = _resolved(table, options.drop, "--drop")
    return [each for each in table.columns if each.name not in dropped and each.times]


def _sorted_by(table: TableSurvey, options: SurveyOptions) -> ColumnSurvey | None:
    """Return a column of dates in whose order the records are sorted, or None."""
    found = [each for each in _dates(table, options) if any(map(is_sorted, each.times))]
    return max(found, key=lambda each: len(each.distinct), default=None)
