"""Survey a table step by step, from its columns to the scores of simple models."""

from __future__ import annotations

import logging
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from singa_dask.data.codecs.equal_names import in_order
from singa_dask.data.codecs.tokens import TextMeasure
from singa_dask.data.split import SplitConf
from singa_dask.data.stores import open_store
from singa_dask.data.tables.column_values import as_texts, missing_of
from singa_dask.data.tables.lags import LagsConf, is_sorted
from singa_dask.data.tables.spelling import Spelling, is_number
from singa_dask.errors import DataError
from singa_dask.shown import plural
from singa_dask.survey.baseline import baseline_of
from singa_dask.survey.choice import Choice, choose, chosen, date_columns, names_in, show_reasons, sorting_column
from singa_dask.survey.column_kinds import KEYS, is_like_id
from singa_dask.survey.columns import ColumnSurvey, codes_of
from singa_dask.survey.date_columns import date_doubts, date_notes, with_dates
from singa_dask.survey.leaks import exact_warnings, leak_warnings, shared_id_warnings
from singa_dask.survey.named_columns import with_names
from singa_dask.survey.never_learned import categories_never_learned, classes_never_learned
from singa_dask.survey.notes import code_notes, form_notes, left_out_notes, sentinel_notes, unmet_words, value_notes
from singa_dask.survey.numbers import PLAIN, with_numbers
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.read_table import open_table, read_table
from singa_dask.survey.results import MIN_BYTE_RANGE, Note, OutputSurvey, RecordSurvey, Rows
from singa_dask.survey.series import doubts_of_series, gaps_note, naive_forecasts
from singa_dask.survey.spellings import MAX_LISTED, Spellings, spellings_of
from singa_dask.survey.split import NOT_COPIED, count_test, split_by_rule, split_rows, with_split
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """Usable rows, the training and test rows among them, and how the test rows were chosen."""

    rows: Rows
    train: Rows
    test: Rows
    how: str


def survey_table(url: str, test_url: str, backend: str, options: SurveyOptions, folder: str) -> RecordSurvey:
    """Inspect a table with named columns, or lines of numbers.

    Raises
    ------
    UnsureError
        The table can be read in two ways.
    DataError
        An option does not fit, or there is nothing to learn.
    """
    table, options = _interpreted(url, options)
    choice = chosen(table, options)
    reading = _reading(choice.table, options, choice.features, choice.outputs)
    if choice.lags:
        reading["lags"] = choice.lags.model_dump(exclude={"gaps"})
    width = _width(choice, reading)
    spelled = _spelled(choice, reading)
    trouble = _doubts_of_columns(choice, spelled, options)
    notes = _notes(choice, spelled, reading)
    parts = _parts(choice, reading, options)
    beside = None if options.test or options.split_by else _to_predict(choice, test_url, options)
    if beside:
        absent = listed([each.name for each in choice.outputs if each.name not in beside.named])
        trouble.append(f"{beside.url} has no {absent}: it is not a test set, but records to predict")
    test_url = "" if beside or options.split_by else test_url
    parts = _checked(choice, parts, test_url, options)
    if options.lags and not date_columns(choice.table, options):
        trouble.append("no column of dates: the records are read as one series, the oldest first")
    is_copied, by_rule = bool(parts.how) and options.copy, bool(parts.how) and not options.copy
    n_unlabelled = _skip_unlabelled(choice, parts, reading, is_copied)
    measure = _measured(choice, reading) if options.text else None
    table = choice.table
    suffix = posixpath.splitext(url.lower().removesuffix(".gz"))[1][1:]
    is_packed = url.lower().endswith(".gz") and not is_copied
    records = RecordSurvey(
        source=url,
        url=url,
        backend="table" if table.format == "whole" or is_packed else backend,
        form=suffix if suffix.isalpha() else table.format,
        shape=(measure.length if measure else width,),
        outputs=tuple(choice.outputs),
        n_records=len(parts.rows) if table.is_whole else table.n - n_unlabelled,
        n_seen=table.n_seen,
        group_bytes=table.group_bytes,
        is_counted=table.is_counted,
        seed=options.seed,
        values="small" if measure else "bytes" if _are_pixels(choice.features) else "columns",
        measure=measure,
        test_url=test_url,
        reading=reading,
        features=tuple(each.name for each in choice.features),
        left_out=show_reasons(choice.left_out),
        notes=notes,
        key=_key(choice, beside, options),
        unlabelled_url=beside.url if beside else "",
    )
    if by_rule:
        records, parts = _with_rule(records, choice, parts, options)
    baseline = baseline_of(table, choice.features, choice.outputs, parts.train, parts.test, measure)
    records = replace(records, baseline=baseline)
    # the words of a text need no warnings about columns
    kept = [] if measure else trouble
    records = replace(records, trouble=[*kept, *_doubts_of_records(choice, parts, options, records, by_rule)])
    if choice.lags:
        steps = _steps_of(choice.series, options)
        naive = naive_forecasts(choice.series, choice.outputs, steps, parts.test + choice.lags.n)
        records = replace(records, naive=naive)
    if is_copied:
        records = replace(records, backend=table.suffix[1:])
        return with_split(records, folder, table.suffix, (parts.train, parts.test, parts.how), table.write)
    return _with_test_set(records, choice.outputs) if test_url else records


def _interpreted(url: str, options: SurveyOptions) -> tuple[TableSurvey, SurveyOptions]:
    """Read a table, with numbers and dates written as text; return it and the options with column names."""
    if options.split_by and (options.lags or options.test):
        raise DataError(f"{url}: --split-by, and {'--lags' if options.lags else '--test'}. Pass one of them.")
    opened = open_table(url, options)
    options = with_names(options, url, [*opened.kinds])
    table = read_table(opened, options)
    table = table.with_names(options.category, options.na_values)
    not_numbers = names_in(table, options)
    table = with_numbers(table, options, not_numbers)
    if not options.lags:
        table = with_dates(table, not_numbers)
    if options.run and not table.is_whole:
        _refuse_before_count(table, options)
        table = table.count(options, not_numbers, options.run)
    return table, options


def _width(choice: Choice, reading: Mapping[str, Any]) -> int:
    """Return the number of values of a record."""
    widths = {each.name: choice.table.parts(0).width(each.name) for each in choice.features if each.kind == "vector"}
    widths |= {each.name: len(each.date.names("")) for each in choice.features if each.date}
    categories = reading.get("categories", {})
    return sum(widths.get(each.name, len(categories.get(each.name, "1"))) for each in choice.features)


def _spelled(choice: Choice, reading: dict[str, Any]) -> Spellings:
    """Count how values are written (see `Spellings`), and add the words for missing values to ``reading``."""
    spelled, na_values = spellings_of(choice.table, choice.used, choice.outputs, reading), reading.get("na_values", ())
    # formats without default words for missing values know only the words in na_values
    if found := {word for words in spelled.words.values() for word in words}.difference(na_values):
        reading["na_values"] = [*na_values, *sorted(found)]
    return spelled


def _doubts_of_columns(choice: Choice, spelled: Spellings, options: SurveyOptions) -> list[str]:
    """Return warnings about ids, ambiguous values and dates, unused ``--na-values``, and several series."""
    said = "a different whole number in each record. Pass --drop if it is an id"
    plain = [each for each in choice.features if each.name not in choice.lagged]
    return [
        *(f"{each.name}: {said}" for each in plain if is_like_id(each)),
        *_doubts(choice.used, choice.outputs),
        *unmet_words(choice.table, spelled, options.na_values),
        *(_doubts_of_lags(choice.series, options, choice.lags) if choice.lags else date_doubts(choice.table)),
    ]


def _notes(choice: Choice, spelled: Spellings, reading: Mapping[str, Any]) -> list[Note]:
    """Return the notes on how values are read, and which values are filled or left out."""
    table, used, lagged = choice.table, choice.used, choice.lagged
    as_they_are = lagged | {each.name for each in choice.outputs if each.is_label}
    order = choice.lags.order if choice.lags else ""
    return [
        *form_notes(used),
        *date_notes(used),
        *value_notes(spelled, used, choice.outputs, reading, len(table.parts.files)),
        *left_out_notes(table, choice.left_out),
        *code_notes(each for each in choice.features if each.name not in lagged | {*spelled.zeros}),
        *sentinel_notes(table, [each for each in used if each.name not in as_they_are]),
        *(gaps_note(table.named[order]) if order else ()),
    ]


def _parts(choice: Choice, reading: Mapping[str, Any], options: SurveyOptions) -> Parts:
    """Return the rows that have all required values, split into training and test rows."""
    required = choice.used if reading.get("missing") == "skip" else choice.used[: len(choice.outputs)]
    rows = np.flatnonzero(~np.logical_or.reduce([missing_of(each.values) for each in required]))
    return Parts(rows, *split_rows(choice.table, choice.outputs, rows, options))


def _to_predict(choice: Choice, test_url: str, options: SurveyOptions) -> TableSurvey | None:
    """Return the table named like a test set if it has all features, but no labels or targets; else None."""
    if not test_url:
        return None
    beside = read_table(open_table(test_url, options), options)
    lacks_labels = any(each.name not in beside.named for each in choice.outputs)
    return beside if lacks_labels and all(each.name in beside.named for each in choice.features) else None


def _checked(choice: Choice, parts: Parts, test_url: str, options: SurveyOptions) -> Parts:
    """Return the parts; if there is a test set, all rows are training rows.

    Raises a `DataError` if ``--copy`` or ``--lags`` does not fit the table.
    """
    if options.copy and not choice.table.is_whole:
        raise DataError(f"{choice.table.url}: {NOT_COPIED}")
    if test_url or not len(parts.test):
        parts = Parts(parts.rows, parts.rows, parts.rows[:0], "")
    if options.lags and not parts.how:
        fault = "expected more records, no --test, and a share for --test-split"
        raise DataError(f"{choice.table.url}: --lags: {fault}.")
    if parts.how and options.copy:
        choice.table.check_copy()
    return parts


def _skip_unlabelled(choice: Choice, parts: Parts, reading: dict[str, Any], is_copied: bool) -> int:
    """Return how many records of a counted table have no label; set ``reading`` to skip such records."""
    table, predicted = choice.table, choice.used[: len(choice.outputs)]
    n = max(each.n_missing for each in predicted) if table.is_counted else 0
    if (n or len(parts.rows) < table.n_seen) and not is_copied and reading.get("missing") != "skip":
        reading["unlabelled"] = "skip"
    return n


def _measured(choice: Choice, reading: dict[str, Any]) -> TextMeasure:
    """Measure the texts of the only feature, and add the keys for reading them to ``reading``."""
    measure = TextMeasure.of(as_texts(choice.features[0].present))
    text: dict[str, Any] = {"length": measure.length, "vocab_size": measure.vocab_size, "lowercase": True}
    text |= {"tokens": measure.tokens} if measure.tokens != "words" else {}
    reading["texts"] = {choice.features[0].name: text}
    return measure


def _key(choice: Choice, beside: TableSurvey | None, options: SurveyOptions) -> str:
    """Return the column that identifies records: an id or a time; empty if ``beside`` lacks it."""
    times = sorting_column(choice.table, options)
    ids = [name for name, reason in choice.left_out.items() if reason in KEYS]
    days = [times.name] if times else []
    key = next(filter(None, [*days, *ids] if choice.lags else [*ids, *days]), "")
    return key if beside is None or key in beside.named else ""


def _doubts_of_records(
    choice: Choice, parts: Parts, options: SurveyOptions, records: RecordSurvey, by_rule: bool
) -> list[str]:
    """Return warnings about leaks, ``--split-by``, and classes and categories that only test records have."""
    table, features, outputs, measure = choice.table, choice.features, choice.outputs, records.measure
    leaks = [] if choice.lags or measure else list(leak_warnings(table, features, outputs, parts.rows))
    doubts = [*leaks, *(_doubts_of_key(table, options.split_by) if options.split_by else ())]
    if by_rule:
        doubts += classes_never_learned(table, outputs, parts.train)
    if not options.split_by:
        doubts += shared_id_warnings(table, outputs, parts.train, parts.test)
    if not measure:
        dates = sorting_column(table, options)
        doubts += categories_never_learned(table, features, (parts.train, parts.test), options, dates)
    if not (choice.lags or leaks):
        doubts += exact_warnings(records.baseline, outputs)
    return doubts


def _with_rule(
    records: RecordSurvey, choice: Choice, parts: Parts, options: SurveyOptions
) -> tuple[RecordSurvey, Parts]:
    """Return the survey with a rule that splits the records, and the parts that the rule chooses."""
    table, output, rows, test = choice.table, choice.outputs[0], parts.rows, parts.test
    if options.split_by:
        rule = {"test_share": options.test_split, "seed": abs(options.seed), "key": options.split_by}
        n_test = round(len(test) * table.n / table.n_seen)
        n_records, url = records.n_records - n_test, records.url
        records = replace(records, split=parts.how, rule=rule, n_records=n_records, n_test=n_test, test_url=url)
        return records, parts
    is_last, kept, labels = parts.train.max() < test.min(), None, None
    if table.is_whole:
        kept, values = rows + options.lags, table.named[output.name].values.take(rows)
        labels = codes_of(values) if output.is_label else np.zeros(len(rows), np.int64)
    # start the test set at the same fraction of the table as in the records that were read
    test_from = round(int(test.min()) * table.n / table.n_seen) + options.lags if is_last else 0
    order = parts.how.removeprefix(f"the last {len(test)}")
    records = split_by_rule(records, options, kept, labels, test_from, order)
    if table.is_whole:
        is_train = np.isin(rows, _learned_rows(table, records.rule, options))
        parts = replace(parts, train=rows[is_train], test=rows[~is_train])
    return records, parts


def _with_test_set(records: RecordSurvey, outputs: Sequence[OutputSurvey]) -> RecordSurvey:
    """Return the survey with counts of the test set, which is read in the same way as the training data."""
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
    """Ask open questions before counting a large table, which takes minutes.

    Other errors are raised after counting, if they still occur.
    """
    try:
        choose(table, options)
    except UnsureError:
        raise
    except DataError as error:
        logger.debug("%s: before its records are counted: %s", table.url, error)


def _doubts(used: Sequence[ColumnSurvey], outputs: Sequence[OutputSurvey]) -> Iterator[str]:
    """Yield warnings about ambiguous numbers, and about names that are almost equal.

    Such names differ only in case, spaces or a final full stop.
    """
    for each in used:
        if each.example and not each.forms:
            said = f"its points are read as decimal points, as in {each.example}"
            yield f"{each.name}: {said}. Pass --thousands . if they separate thousands"
    columns = [(each.name, each.names, "classes") for each in outputs]
    for each in used[len(outputs) :]:
        if each.kind == "string" and not (each.date or each.forms):
            columns.append((each.name, in_order(each.distinct.to_pylist()), "categories"))
    for column, texts, what in columns:
        alike = defaultdict[str, list[str]](list)
        for text in texts:
            alike[" ".join(text.removesuffix(".").casefold().split())].append(repr(text))
        if pairs := [" and ".join(each) for each in alike.values() if each[1:]]:
            yield f"{column}: {listed(pairs, 3)} are different {what}"


def _doubts_of_lags(series: TableSurvey, options: SurveyOptions, lags: LagsConf) -> Iterator[str]:
    """Yield warnings about columns that may name several series."""
    others = {lags.order, *options.drop}
    columns = [each for each in series.columns if each.name not in others]
    yield from doubts_of_series(columns, [series.named[name] for name in lags.columns], _steps_of(series, options))


def _steps_of(series: TableSurvey, options: SurveyOptions) -> Sequence[Any] | None:
    """Return the sorted times of a time series, if it has dates."""
    dates = sorting_column(series, options)
    return next(filter(is_sorted, dates.times)) if dates else None


def _are_pixels(features: Sequence[ColumnSurvey]) -> bool:
    if len(features) <= MAX_LISTED or not all(each.is_whole for each in features):
        return False
    high = max(each.numbers.max() for each in features)
    return bool(MIN_BYTE_RANGE <= high <= 255 and min(each.numbers.min() for each in features) >= 0)


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


def _doubts_of_key(table: TableSurvey, name: str) -> Iterator[str]:
    """Yield warnings about the column of ``--split-by``."""
    keys = table.keys(name)
    if keys.null_count:
        yield f"{name}: {plural(keys.null_count, 'record')} without a value, to train on"
    if len(pc.unique(keys.drop_null())) == len(keys):
        yield f"{name}: a different value in each record, so --split-by has no effect"


def _learned_rows(table: TableSurvey, rule: Mapping[str, Any], options: SurveyOptions) -> Rows:
    """Return the training rows of a rule among the rows that were read; all rows without a rule."""
    n = table.n_seen
    return SplitConf.model_validate({"part": "train", **rule}).rows(options.lags, n) if rule else np.arange(n)
