"""Time series: naive forecasts to beat, gaps in their times, and tables of several series."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from operator import attrgetter
from typing import Any

import numpy as np

from singa_dask.data.tables.column_values import as_floats, missing_of
from singa_dask.data.tables.lags import as_dates, gaps_of, is_sorted
from singa_dask.shown import plural
from singa_dask.survey.columns import MIN_EPOCH, ColumnSurvey, show_value
from singa_dask.survey.results import Note, OutputSurvey, Rows
from singa_dask.survey.table_survey import TableSurvey

DAY, WEEK = timedelta(days=1), timedelta(weeks=1)
MONTH, QUARTER = timedelta(days=28), timedelta(days=92)
# Unix times below these bounds are seconds, milliseconds, microseconds and nanoseconds
EPOCHS = {1e11: 1.0, 1e14: 1e3, 1e17: 1e6, np.inf: 1e9}
# parts of times; a column with the values of such a part does not name series
CALENDAR = (datetime.weekday, attrgetter("hour"), attrgetter("month"), attrgetter("day"))
# minimum mean number of records of a series, and how many times closer values of a series must be to each other than to
# values of other series
MIN_OF_SERIES, CLOSER = 4, 2


def naive_forecasts(
    table: TableSurvey, outputs: Sequence[OutputSurvey], times: Sequence[Any] | None, tested: Rows
) -> list[str]:
    """Return a text for each predicted column with the errors of naive forecasts on the test records.

    The forecasts are the last value, and the value one season before, such as a day or a week. The seasons depend on
    the usual step of the series.

    Parameters
    ----------
    table : TableSurvey
        The series without lags.
    outputs : sequence of OutputSurvey
        Predicted columns.
    times : sequence, optional
        Sorted times of the records.
    tested : array of int
        Rows of the test records.
    """
    forecasts = {"the last value": tested - 1, **dict(_seasonal(_moments(times or ()), tested))}
    texts = []
    for output in outputs:
        column = table.named[output.name].values
        values = np.array(column.to_pylist(), object) if output.is_label else as_floats(column)
        present, scores = ~missing_of(column), []
        for name, rows in forecasts.items():
            known = (rows >= 0) & present[rows] & present[tested]
            guesses, true = values[rows[known]], values[tested[known]]
            # scores on fewer records could not be compared
            if 2 * len(true) < len(tested):
                continue
            rmse = 0.0 if output.is_label else float(np.sqrt(np.mean((guesses - true) ** 2)))
            score = f"right in {np.mean(guesses == true):.1%}" if output.is_label else f"off by {rmse:.6g}"
            scores.append(f"{name} is {score}")
        if scores:
            texts.append(f"naive forecasts of {output.name}: {', '.join(scores)}; on {plural(len(tested), 'record')}")
    return texts


def _moments(times: Sequence[Any]) -> list[datetime]:
    """Return times as datetimes without a UTC offset; empty if they are not dates."""
    known = as_dates(times)
    if not known or not hasattr(known[0], "year"):
        if not known or known[0] < MIN_EPOCH:
            return []
        divisor = next(divisor for bound, divisor in EPOCHS.items() if known[-1] < bound)
        return [datetime.fromtimestamp(float(each) / divisor, UTC).replace(tzinfo=None) for each in known]
    days = [each if isinstance(each, datetime) else datetime.combine(each, time()) for each in known]
    return [each.astimezone(UTC).replace(tzinfo=None) if each.tzinfo else each for each in days]


def _seasonal(times: Sequence[datetime], tested: Rows) -> Iterator[tuple[str, Rows]]:
    """Yield the name of each seasonal forecast and the rows of its values; -1 stands for a missing record."""
    places = {moment: row for row, moment in enumerate(times)}
    if not places:
        return
    step = sorted(after - before for before, after in itertools.pairwise(times))[len(times) // 2 - 1]
    seasons: dict[str, timedelta | None] = {}
    if step < DAY:
        seasons = {"a day": DAY, "a week": WEEK}
    elif step == DAY:
        seasons = {"a week": WEEK}
    elif step == WEEK:
        # 52 weeks, not a year, to reach the same day of the week
        seasons = {"52 weeks": 52 * WEEK}
    elif MONTH <= step <= QUARTER:
        seasons = {"a year": None}
    for name, season in seasons.items():
        before = [times[row] - season if season else _year_before(times[row]) for row in tested]
        yield f"the value {name} before", np.array([places.get(moment, -1) for moment in before], np.int64)


def _year_before(moment: datetime) -> datetime:
    is_leap_day = (moment.month, moment.day) == (2, 29)
    return moment.replace(year=moment.year - 1, day=28 if is_leap_day else moment.day)


def gaps_note(dates: ColumnSurvey) -> Iterator[Note]:
    """Yield a note on the gaps of a time series, if it has gaps."""
    if gaps := gaps_of(next(filter(is_sorted, dates.times))):
        shown = f" of up to {gaps.longest}; most steps are {gaps.usual}" if isinstance(gaps.usual, timedelta) else ""
        yield Note(dates.name, f"gaps{shown}", gaps.n, "lags count records, not time")


def series_in_blocks(dates: ColumnSurvey, columns: Sequence[ColumnSurvey]) -> str:
    """Describe a table of series below one another, whose times start again; empty for a single series."""
    for times in dates.times:
        if None in times or len({*times}) == len(times):
            continue
        starts = np.array([0, *(i for i in range(1, len(times)) if times[i] < times[i - 1])])
        blocks = [{*times[a:b]} for a, b in itertools.pairwise([*starts, len(times)])]
        # a few records out of order make blocks that do not repeat the times of the first one
        if sum(map(len, blocks)) < len(times) or 2 * len(blocks[0] & blocks[1]) < min(map(len, blocks[:2])):
            continue
        said = f"the dates of {dates.name} start again at record {starts[1] + 1}"
        one_each = next((each for each in columns if each is not dates and _is_of_block(each, starts)), None)
        if one_each is not None:
            old, new = (show_value(each) for each in one_each.values.take(starts[:2]).to_pylist())
            said += f", where {one_each.name} changes from {old} to {new}"
        return f"{said}. The table seems to hold several series, but one job reads one. Write a table for each series"
    return ""


def series_side_by_side(dates: ColumnSurvey, columns: Sequence[ColumnSurvey]) -> str:
    """Describe a table of several series that share their times; empty if no column names the series."""
    times = dates.values.to_pylist()
    n_series = max(Counter(times).values())
    for each in columns:
        if each is not dates and len(each.distinct) == n_series:
            if len({*zip(times, each.values.to_pylist(), strict=True)}) == len(times):
                return f"one for each value of {each.name}"
    return ""


def doubts_of_series(
    columns: Sequence[ColumnSurvey], predicted: Sequence[ColumnSurvey], times: Sequence[Any] | None
) -> Iterator[str]:
    """Yield a warning for each column that probably names several series with times of their own.

    In such a table, predicted values are much closer to the last value of the same series than to the record before.
    Parts of the times, such as the weekday, do not name series.
    """
    moments = _moments(times or ())
    parts = [[getter(each) for each in moments] for getter in CALENDAR] if moments else []
    for column in columns:
        names = column.values.to_pylist()
        n_names = len({*names})
        is_calendar = any(len({*zip(part, names, strict=True)}) == len({*part}) for part in parts)
        is_name = column.kind in ("string", "boolean") or column.is_whole
        if column in predicted or is_calendar or not is_name or not 2 <= n_names <= len(names) // MIN_OF_SERIES:
            continue
        before, last = np.full(len(names), -1), dict[Any, int]()
        for row, name in enumerate(names):
            before[row], last[name] = last.get(name, -1), row
        rows = np.flatnonzero(before >= 0)
        for each in predicted:
            values = as_floats(each.values) if each.kind == "number" else np.array(each.values.to_pylist(), object)
            own, other = (_error(values[rows], values[earlier]) for earlier in (before[rows], rows - 1))
            if CLOSER * own < other:
                yield (
                    f"{column.name}: {each.name} is closer to the last record with the same {column.name} than to the "
                    f"record before. If {column.name} names several series, their lags are mixed: write a table for "
                    "each series"
                )


def _error(values: Any, guesses: Any) -> float:
    """Return the root mean squared error of guesses, or for classes the share of wrong guesses."""
    if values.dtype == object:
        return float(np.mean(values != guesses))
    return float(np.sqrt(np.nanmean((values - guesses) ** 2)))


def _is_of_block(column: ColumnSurvey, starts: Rows) -> bool:
    """Return whether a column is constant in each block of records, and changes between blocks."""
    values = column.values.to_pylist()
    return [i for i in range(1, len(values)) if values[i] != values[i - 1]] == [*starts[1:]]
