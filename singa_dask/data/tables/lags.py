"""Lags of a time series: columns with earlier values, for training and for new records."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.tables.column_names import refuse_absent
from singa_dask.data.tables.column_values import missing_of, whole
from singa_dask.data.tables.encoder import FILLED, UNLABELLED
from singa_dask.errors import DataError
from singa_dask.shown import plural

DAYS_OF_WEEK, WEEK = 7, timedelta(weeks=1)
# advice in errors about gaps, with the effect of a gap on later records
GAPS = (
    "Best write one in, such as the value a day before. Without the record, the lags of later records are one step "
    "older. A filled value, such as the mean, becomes a lag of later records."
)
COMPACT_DATES = 19000101, 21001231
DATE = re.compile(r"\d{4}-\d\d?-\d\d?([ T].*)?|\d\d?[./]\d\d?[./]\d{2,4}([ T].*)?")
# groups: hours, minutes, seconds, am or pm, offset from UTC
TIME = re.compile(
    r"(\d\d?)(?::?(\d\d))?(?::?(\d\d(?:[.,]\d+)?))?(?:\s*([ap])\.?m\.?)?\s*(?:Z|UTC|GMT|([+-])(\d\d):?(\d\d)?)?",
    re.IGNORECASE,
)


class LagsConf(Conf):
    """``lags``: each record gets earlier values of a time series as columns NAME_lag1 to NAME_lagN.

    If the table has these columns, they are read. Otherwise they are computed from the preceding records. Records must
    then be sorted by time, the oldest first, and the first N records serve only as history.
    """

    columns: Many[str]
    """Columns whose earlier values are added."""
    n: Size
    """Number of earlier values of each column."""
    order: str = ""
    """Column of distinct dates or numbers by which the records must be sorted, if the table has it."""
    gaps: Literal["warn", "error"] = "warn"
    """What to do about gaps in the dates or numbers of ``order``, in training and in predictions: ``error`` refuses
    such records, because predictions after a gap use older values than the net has learned from."""

    @property
    def names(self) -> list[str]:
        """Names of the columns that are added."""
        return [*self.column_of]

    @property
    def column_of(self) -> dict[str, str]:
        """Source column of each lag in `names`, e.g. ``{"load_lag1": "load"}``."""
        return {f"{name}_lag{k}": name for name in self.columns for k in range(1, self.n + 1)}

    @property
    def sources(self) -> list[str]:
        """Names of the source columns of the lags, and of the column ``order``."""
        return [*self.columns, *([self.order] if self.order else [])]

    def add(self, where: str, table: pa.Table, *, predicted: bool = False) -> pa.Table:
        """Return the table with lags added. The first `n` records have missing lags.

        With ``predicted=True``, only the newest record may lack a value; otherwise the lags of later records would be
        missing.

        Raises a `DataError` if the table lacks a column, has between 1 and `n` records, or has too many records without
        a value.
        """
        refuse_absent(where, table.column_names, self.columns)
        if 0 < len(table) <= self.n:
            raise DataError(
                f"{where}: {len(table)} records. Expected more than {self.n}: each needs the {self.n} before it. Add "
                f"these records with their {' and '.join(self.columns)}, the oldest first."
            )
        for name in self.columns:
            values = whole(table.column(name))
            n_open = _count_missing_at_end(values)
            if predicted and n_open > 1:
                raise DataError(
                    f"{where}: the last {n_open} records have no {name}, but each needs the values of the {self.n} "
                    "before it. Give only one record without a value, the newest. Add its prediction to predict the "
                    "next one."
                )
            for k in range(1, self.n + 1):
                table = table.append_column(f"{name}_lag{k}", lag(values, k))
        return table

    def with_forecasts(self, where: str, table: pa.Table, forecasts: Sequence[Any]) -> tuple[pa.Table, int]:
        """Fill predictions into a table as values, up to the next record without a value.

        Returns
        -------
        table : pyarrow.Table
            The table. If more records have to be forecast, only the records that the next prediction needs.
        n : int
            Number of records after the record that has to be predicted next.

        Raises
        ------
        DataError
            There are fewer than `n` records before the first record without a value.
        """
        [name] = self.columns
        values, predictions = whole(table.column(name)), pa.array(forecasts)
        n_open = _count_missing_at_end(values)
        known = values[: len(values) - n_open]
        if n_open and len(known) < self.n:
            raise DataError(
                f"{where}: {plural(len(known), 'record')} before the {n_open} at the end without a value of {name}. "
                f"Expected at least {self.n}: each prediction needs the {self.n} before it. Give these with their "
                f"{name}, the oldest first."
            )
        if pa.types.is_floating(predictions.type):
            known = known.cast(pa.float64())
        is_open, n_later = n_open > len(forecasts), max(0, n_open - len(forecasts) - 1)
        filled = pa.concat_arrays([known, predictions.cast(known.type), pa.nulls(int(is_open), known.type)])
        table = table.slice(0, len(filled)).set_column(table.column_names.index(name), name, filled)
        return table.slice(max(0, len(table) - self.n - 1) if n_later else 0), n_later

    def refuse_gaps(
        self, table: pa.Table, names: Collection[str], where: Callable[[int], str], true: Collection[str] = ()
    ) -> None:
        """Raise a `DataError` if a column in ``names`` lacks a value that later records need as a lag.

        In the newest records, only the columns ``true`` need values, because training and testing compare predictions
        with these columns.
        """
        for name in (each for each in self.columns if each in names):
            values = whole(table.column(name))
            missing = missing_of(values)
            last = len(values) - _count_missing_at_end(values)
            rows = np.flatnonzero(missing[:last])
            remedy, said = FILLED, f", which later records need. {GAPS}"
            if not len(rows) and name in true:
                rows, remedy = np.flatnonzero(missing), UNLABELLED
                said = ". Training and testing need true values; predict forecasts them."
            if len(rows):
                more = f", the first of {len(rows)} in {len(values)} records" if len(rows) > 1 else ""
                message = f"{where(int(rows[0]))}, column {name!r}: no value{more}{said} {remedy.text}"
                raise DataError(message, remedy=remedy)

    def check_order(self, where: str, table: pa.Table) -> str:
        """Return a description of the gaps in the times of a table; empty if there are none.

        A table without the column `order` is not checked. Raises a `DataError` if records are not sorted by this
        column, or if ``gaps`` is "error" and there are gaps.
        """
        if self.order not in table.column_names:
            return ""
        values = whole(table.column(self.order)).to_pylist()
        read = times_of(values) if any(isinstance(value, str) for value in values) else [values]
        if twice := twice_among(values):
            remedy = f"Give one series at a time, or no column {self.order} if their order is right"
            raise DataError(f"{where}: several records have one {self.order}, such as {twice}. {remedy}.")
        # the order of strings in unknown formats cannot be checked
        times = next(filter(is_sorted, read), None)
        if read and times is None:
            raise DataError(f"{where}: its records are not in the order of {self.order}. Sort them by {self.order}.")
        gaps = gaps_of(times or ())
        if gaps is None:
            return ""
        first, n = gaps.first, plural(gaps.n, "gap")
        found = (
            f"{where}, column {self.order!r}: {n}, the first between {values[first]} and {values[first + 1]}; the "
            f"usual step is {gaps.usual}. Lags count records, not time: predictions after a gap use older values."
        )
        if self.gaps == "error":
            advice = f"frame.set_index({self.order!r}).asfreq(STEP).interpolate().reset_index()"
            raise DataError(f"{found} Add the missing records, for example with pandas: {advice}. Or set gaps: warn.")
        return found


def lag(values: pa.Array, k: int) -> pa.Array:
    """Return for each record the value of the record ``k`` places before it. The first ``k`` are missing."""
    return pa.concat_arrays([pa.nulls(min(k, len(values)), values.type), values[: max(len(values) - k, 0)]])


def _count_missing_at_end(values: pa.Array) -> int:
    """Count the missing values at the end of a column."""
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return len(values) - 1 - int(present[-1]) if len(present) else len(values)


def times_of(values: Sequence[Any]) -> list[list[datetime | None]]:
    """Parse date strings; return one list of times for each way to read them.

    For example, 1/2/2024 can be read in two ways.
    """
    texts = [value if isinstance(value, str) and DATE.fullmatch(value) else None for value in values]
    read = []
    for month_first in (False, True) if any(texts) else ():
        with contextlib.suppress(ValueError):
            read.append([_time_of(text, month_first) if text else None for text in texts])
    return read


def _time_of(text: str, month_first: bool) -> datetime:
    """Parse a date string. The result is in UTC if the string has an offset.

    Raises a `ValueError` for a day that does not exist.
    """
    first, second, third = map(int, re.findall(r"\d+", text)[:3])
    if re.match(r"\d{4}", text):
        day = datetime(first, second, third)
    else:
        year = third + (0 if third > 99 else 1900 if third > 68 else 2000)
        day = datetime(year, *((first, second) if month_first else (second, first)))
    _, *rest = re.split("[ T]", text, maxsplit=1)
    clock = TIME.match(rest[0].strip()) if rest else None
    if not clock:
        return day
    hours, minutes, seconds = int(clock[1]), int(clock[2] or 0), float((clock[3] or "0").replace(",", "."))
    if clock[4]:
        hours = hours % 12 + 12 * (clock[4] in "pP")
    if clock[5]:
        minutes -= int(f"{clock[5]}1") * (60 * int(clock[6]) + int(clock[7] or 0))
    return day + timedelta(hours=hours, minutes=minutes, seconds=seconds)


def twice_among(values: Sequence[Any]) -> str:
    """Return a value that occurs several times; empty if no value does."""
    value, n = Counter(values).most_common(1)[0] if len(values) else (None, 0)
    return "" if n < 2 else f"{value:.17g}" if isinstance(value, float) else f"{value}"


def is_sorted(times: Sequence[Any]) -> bool:
    """Return whether no time is missing, or earlier than the time before it."""
    return None not in times and all(before <= after for before, after in itertools.pairwise(times))


class Gaps(NamedTuple):
    """Gaps between sorted times: number of gaps, index of the first, the longest gap, and the usual step."""

    n: int
    first: int
    longest: Any
    usual: Any


def gaps_of(times: Sequence[Any]) -> Gaps | None:
    """Return the gaps between sorted times, or None if there are none.

    A gap is a step of more than 1.5 times the median step. The step is not a gap if the weeks before and after it lack
    the same times, e.g. a weekend or a night.
    """
    dates = as_dates(times)
    try:
        steps = [after - before for before, after in itertools.pairwise(dates)]
    except TypeError:
        # times of day, and bytes, cannot be subtracted
        return None
    usual: Any = sorted(steps)[(len(steps) - 1) // 2] if steps else None
    late: Sequence[int] = [i for i, step in enumerate(steps) if 2 * step > 3 * usual]
    if late and isinstance(usual, timedelta):
        late = _irregular(dates, late, usual)
    return Gaps(len(late), late[0], max(steps[i] for i in late), usual) if late else None


def _irregular(times: Sequence[Any], late: Sequence[int], usual: timedelta) -> Sequence[int]:
    """Return the late steps that skip a time although the week before or after has this time."""
    n = round(WEEK / usual) if usual else 0
    is_weekly = n >= DAYS_OF_WEEK and abs(n * usual - WEEK) < WEEK / 100
    if not is_weekly or times[-1] - times[0] < 2 * WEEK:
        return late
    at = [round((time - times[0]) / (WEEK / n)) for time in times]
    known = {*at}
    return [i for i in late if any(k - n in known or k + n in known for k in range(at[i] + 1, at[i + 1]))]


def are_compact_dates(numbers: npt.NDArray[Any]) -> bool:
    """Return whether all numbers are dates such as 20240131."""
    low, high = (numbers.min(), numbers.max()) if len(numbers) else (0, 0)
    if low < COMPACT_DATES[0] or high > COMPACT_DATES[1] or (numbers != numbers.round()).any():
        return False
    months, days = numbers // 100 % 100, numbers % 100
    return bool(((months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)).all())


def as_dates(times: Sequence[Any]) -> Sequence[Any]:
    """Convert numbers such as 20240131 to dates; return other times unchanged."""
    if all(isinstance(each, (int, float)) for each in times) and are_compact_dates(np.array(times)):
        # a number may not be a day, e.g. 20240230
        with contextlib.suppress(ValueError):
            return [datetime(int(each) // 10000, int(each) // 100 % 100, int(each) % 100) for each in times]
    return times
