"""Lags of a time series: columns with earlier values of others, made alike for training and for new records."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from singa_dask.conf.model import Conf, Many, Size
from singa_dask.data.codecs.columns import refuse_absent, whole
from singa_dask.errors import DataError

DATE = re.compile(r"\d{4}-\d\d?-\d\d?([ T].*)?|\d\d?[./]\d\d?[./]\d{2,4}([ T].*)?")


class LagsConf(Conf):
    """``lags``: earlier values of a time series that each record has as columns NAME_lag1 to NAME_lagN.

    A table that has these columns is read as it is. For others they are made of the records before each, the oldest
    first; the first N records then are only history.
    """

    columns: Many[str]
    """Columns whose earlier values are added."""
    n: Size
    """How many of each."""
    order: str = ""
    """Column of dates or numbers by which the records must be in order, each another one, where the table has it."""

    @property
    def names(self) -> list[str]:
        """Names of the columns that are made."""
        return [f"{name}_lag{k}" for name in self.columns for k in range(1, self.n + 1)]

    @property
    def sources(self) -> list[str]:
        """Names of the columns that they are made of, and of ``order``."""
        return [*self.columns, *([self.order] if self.order else [])]

    def add(self, where: str, table: pa.Table) -> pa.Table:
        """Return a table with the lags: of its first `n` records they are missing.

        Raises
        ------
        DataError
            It lacks a column, is not in order, or has no more records than those.
        """
        refuse_absent(where, table.column_names, self.columns)
        if self.order in table.column_names:
            self._check_order(where, whole(table.column(self.order)).to_pylist())
        if len(table) <= self.n:
            raise DataError(
                f"{where}: {len(table)} records. Expected more than {self.n}: each needs the {self.n} before it. Give "
                f"these with their {' and '.join(self.columns)}, the oldest first."
            )
        for name in self.columns:
            values = whole(table.column(name))
            for k in range(1, self.n + 1):
                table = table.append_column(f"{name}_lag{k}", lag(values, k))
        return table

    def _check_order(self, where: str, values: Sequence[Any]) -> None:
        read = times_of(values) if any(isinstance(value, str) for value in values) else [values]
        if len(set(values)) < len(values):
            raise DataError(f"{where}: several records have one {self.order}. Give one series at a time.")
        # texts of another form say nothing of the order
        if read and not any(map(is_sorted, read)):
            raise DataError(f"{where}: its records are not in the order of {self.order}. Sort them by it.")


def lag(values: pa.Array, k: int) -> pa.Array:
    """Return the values of the records ``k`` before; the first ``k`` are missing."""
    return pa.concat_arrays([pa.nulls(min(k, len(values)), values.type), values[: max(len(values) - k, 0)]])


def times_of(values: Sequence[Any]) -> list[list[Any]]:
    """Return texts of dates as values that can be sorted, for each way to read them: 1/2/2024 has two."""
    texts = [value if isinstance(value, str) and DATE.fullmatch(value) else None for value in values]
    forms = (False, True) if any(texts) else ()
    read = [[_time_of(text, month_first) if text else None for text in texts] for month_first in forms]
    return [times for times in read if all(time is None or time[1] <= 12 for time in times)]


def _time_of(text: str, month_first: bool) -> list[int]:
    """Return year, month, day and what follows of a date."""
    first, second, third, *rest = map(int, re.findall(r"\d+", text))
    if rest and (half := re.search(r"\d\s*([ap])\.?m", text, re.IGNORECASE)):
        rest[0] = rest[0] % 12 + 12 * (half[1] in "pP")
    if re.match(r"\d{4}", text):
        return [first, second, third, *rest]
    return [third, *((first, second) if month_first else (second, first)), *rest]


def is_sorted(times: Sequence[Any]) -> bool:
    """Return whether no time is missing, or before the one that precedes it."""
    return None not in times and all(before <= after for before, after in itertools.pairwise(times))
