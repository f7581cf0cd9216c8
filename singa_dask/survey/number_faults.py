"""Errors for numbers that cannot be read, or can be read in two ways."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pyarrow as pa

from singa_dask.errors import ConfigError, DataError
from singa_dask.survey.columns import ColumnSurvey
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed


def refuse_faults(table: TableSurvey, columns: Sequence[ColumnSurvey], options: SurveyOptions) -> None:
    """Raise an error if columns have unreadable or ambiguous numbers.

    Raises
    ------
    DataError
        A column has values that cannot be read. The message names the columns, some values and their
        records, and the option with which they can be read.
    UnsureError
        The numbers of a column can be read in two ways.
    """
    refuse_other_marks(table.url, columns, options)
    unsure = [each for each in columns if len(each.forms) > 1]
    asked = _question(table.url, unsure) if unsure else None
    if faulty := [each for each in columns if each.fault]:
        faults = [f"column {each.name!r}: {each.fault}" for each in faulty]
        names = shlex.quote(",".join(each.name for each in faulty))
        words = [word for each in faulty for word in each.words]
        given = shlex.quote(",".join(dict.fromkeys([*options.na_values, *words])))
        answer = f"--na-values {given}"
        advice = f"Add {answer} for missing values, or --drop {names}."
        if not all(each.words for each in faulty):
            answer = f"--drop {names}"
            advice = f"Write all values of a column in one way, or add {answer}."
        if asked:
            mark = next(f"--{name} {mark}" for name, mark in asked.choices[0][1].items())
            question = str(asked).removeprefix(f"{table.url}: ")
            advice += f" Also, {question} To answer all at once:\n  {answer} {mark}"
        raise DataError(f"{table.url}: {' '.join(faults)} {advice}")
    if asked:
        raise asked


def _question(url: str, columns: Sequence[ColumnSurvey]) -> UnsureError:
    """Return an error that asks in which of two ways the numbers of the columns are meant."""
    column, *others = columns
    choices = list[tuple[str, dict[str, str]]]()
    for form in column.forms:
        said: dict[str, str] = {"thousands": form.thousands} if form.thousands else {"decimal": form.decimal}
        choices.append((f"{form.parse(pa.array([column.example]))[0].as_py():.10g}", said))
    how = [f"--{name} {mark} for {shown}" for shown, said in choices for name, mark in said.items()]
    also = f" The same holds for {listed([each.name for each in others])}." if others else ""
    question = f"is {column.example!r} of column {column.name!r} {' or '.join(shown for shown, _ in choices)}?"
    return UnsureError(url, question, choices, f"Pass {', or '.join(how)}; it applies to all such columns.{also}")


def refuse_other_marks(url: str, columns: Sequence[ColumnSurvey], options: SurveyOptions) -> None:
    """Raise a ConfigError if the numbers of a column contradict ``--thousands`` or ``--decimal``.

    No error is raised if these options decide how another column is read, because they may be meant for that column.
    """
    is_used = any(each.is_said for each in columns)
    for each in columns:
        if each.unlike and not is_used:
            marks = (("thousands", options.thousands), ("decimal", options.decimal))
            said = " ".join(f"--{key} {shlex.quote(mark)}" for key, mark in marks if mark)
            raise ConfigError(
                f"{url}: column {each.name!r} has numbers such as {each.unlike!r}, which {said} does not fit. Leave "
                "the option out, or pass the marks of these numbers."
            )
