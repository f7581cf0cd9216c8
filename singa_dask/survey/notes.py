"""Notes on the columns of a table: how their values are read, and what they may mean instead."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from singa_dask.data.tables.lags import LagsConf
from singa_dask.data.tables.spelling import is_number
from singa_dask.survey.column_kinds import KEYS, TEXTS, are_like_names, is_like_code, sentinel_of
from singa_dask.survey.columns import ColumnSurvey
from singa_dask.survey.results import Note, OutputSurvey
from singa_dask.survey.spellings import Spellings
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed

# maximum number of columns that are listed as left out for the same reason
MAX_SHARED = 6
# the default decimal mark; notes mention only other marks
DOT = ("decimal", ".")


def form_notes(used: Sequence[ColumnSurvey]) -> Iterator[Note]:
    """Yield a note on each column of numbers written as text; the note says how the numbers are read."""
    for each in (each for each in used if each.forms):
        keys = [f"{key} {value!r}" for key, value in each.forms[0] if value and (key, value) != DOT]
        number = each.forms[0].parse(pa.array([each.example]))[0].as_py()
        done = f"{number:.10g}{f' ({listed(keys)})' if keys else ''}{f', as {each.proof}' if each.proof else ''}"
        yield Note(each.name, f"numbers written as {each.example!r}", len(each.present), f"read as {done}")


def code_notes(features: Iterable[ColumnSurvey]) -> Iterator[Note]:
    """Yield a note on each column whose numbers may be codes or names, and then should be categories."""
    for each in features:
        done = f"read as numbers; --category {shlex.quote(each.name)} if they are"
        if is_like_code(each):
            yield Note(each.name, "whole numbers like codes", len(each.present), f"{done} codes")
        elif are_like_names(each):
            yield Note(each.name, f"{len(each.distinct)} different whole numbers", len(each.present), f"{done} names")


def sentinel_notes(table: TableSurvey, used: Iterable[ColumnSurvey]) -> Iterator[Note]:
    """Yield a note on each column where a number may mean a missing value."""
    for each in used:
        if found := sentinel_of(each):
            value, n = found
            written = next((text for text in table.texts(each.name) if is_number(text) and float(text) == value), "")
            how = f"--na-values {written}" if table.format == "csv" and written else "replace it by a null"
            done = f"read as a number; {how} if it means a missing value"
            yield Note(each.name, f"{value} far from all other numbers", n, done)


def left_out_notes(table: TableSurvey, left_out: Mapping[str, str]) -> Iterator[Note]:
    """Yield a note on the columns that are left out, with the reasons."""
    for reason in dict.fromkeys(filter(None, left_out.values())):
        names = [name for name, why in left_out.items() if why == reason]
        shown = [" ".join(name.split()) or "a column without a name" for name in names]
        n = sum(len(table.named[name].present) for name in names)
        may_repeat = reason.startswith(TEXTS) and reason != KEYS[0]
        advice = f"; --category {shlex.quote(','.join(names))} if they are categories" if may_repeat else ""
        yield Note(listed(shown, MAX_SHARED), reason, n, f"left out{advice}")


def unmet_words(table: TableSurvey, spelled: Spellings, na_values: Sequence[str]) -> Iterator[str]:
    """Yield each word of ``--na-values`` that does not occur in the records that were read."""
    met = {word for words in spelled.words.values() for word in words}
    for word in na_values if table.format == "csv" else ():
        if word not in met:
            yield f"--na-values: no column has the value {word!r}"


def value_notes(
    spelled: Spellings,
    used: Sequence[ColumnSurvey],
    outputs: Sequence[OutputSurvey],
    reading: Mapping[str, Any],
    n_files: int,
) -> Iterator[Note]:
    """Yield notes on how missing values are handled, and on CSV values that lose blanks or leading zeros."""
    named = {each.name: each for each in outputs}
    lags = LagsConf(**reading["lags"]) if "lags" in reading else None
    steps = {f"{name}_lag{k}": (name, k) for name in lags.columns for k in range(1, lags.n + 1)} if lags else {}
    for each in used:
        if each.name in steps and each.n_missing:
            # report only the first lag, because all lags of a column lack about the same number of values
            if steps[each.name][1] == 1:
                shown = f"{steps[each.name][0]}, 1 to {lags.n if lags else 0} steps before"
                yield Note(shown, "no value", each.n_missing, _filled(each, reading))
        elif missing := each.n_missing:
            said = [f"{word!r} ({count})" for word, count in sorted(spelled.words.get(each.name, {}).items())]
            done = "record left out" if each.name in named else _filled(each, reading)
            if said and each.name in named and named[each.name].is_label:
                done += "; --classes can name it"
            lacking = f"; missing in {each.n_without} of {n_files} files" if each.n_without else ""
            yield Note(each.name, f"no value{f': {listed(said)}' * bool(said)}{lacking}", missing, done)
    for name, count in sorted(spelled.blanks.items()):
        yield Note(name, "blanks around values", count, "no part of them")
    for name, count in sorted(spelled.zeros.items()):
        yield Note(name, "numbers with leading zeros", count, f"lost; --category {shlex.quote(name)} keeps codes")


def _filled(column: ColumnSurvey, reading: Mapping[str, Any]) -> str:
    """Return a text on how missing values of a feature are handled, e.g. ``"record left out"``."""
    missing = reading.get("missing", "error")
    if "" in reading.get("categories", {}).get(column.name, ()):
        return "category ''"
    words = {"mean": "the mean of the training data", "skip": "record left out", "error": "refused by run"}
    return words.get(missing, f"{missing:g}" if isinstance(missing, float) else "")
