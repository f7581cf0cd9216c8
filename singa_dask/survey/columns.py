"""ColumnSurvey: a column of a table, its kind, and the values that were read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.codecs.equal_names import plain_name
from singa_dask.data.tables.column_values import as_floats, as_texts, missing_of
from singa_dask.data.tables.dates import DateConf
from singa_dask.data.tables.lags import DATE, are_compact_dates, times_of
from singa_dask.data.tables.spelling import NumberConf
from singa_dask.survey.counts import ColumnCounts

DATES = ("date", "timestamp", "time", "duration")
# integers from MIN_EPOCH (1973) on are Unix times if the name of their column matches EPOCH
EPOCH, MIN_EPOCH = re.compile(r"(?i)time|date|epoch|unix|(^|_)ts$"), 1e8
MAX_SHOWN = 5
# a column of categories has at most MAX_CATEGORIES values with MIN_RECORDS records each on average, or at most
# MANY_CATEGORIES values with RECORDS_OF_MANY records each
MAX_CATEGORIES, MIN_RECORDS = 50, 4
MANY_CATEGORIES, RECORDS_OF_MANY = 250, 50


@dataclass(frozen=True, eq=False)
class ColumnSurvey:
    """A column of a table: its position (counted from 1), its kind, and the values that were read.

    If numbers are written as text, ``forms`` are the possible formats, and ``example`` is one of the texts. ``words``
    are texts among the numbers, such as ``n/a``, that may mean missing values. ``unlike`` is a number that contradicts
    ``--thousands`` or ``--decimal``; ``is_said`` tells whether these options decided how the column is read. ``proof``
    is a number of another column that decided how this column is read. ``counted`` has counts of the whole table, if
    Dask workers have counted it. ``date`` has the parts of a column of dates that is a feature. ``n_without`` is the
    number of files that lack the column.
    """

    name: str
    position: int
    kind: str
    values: pa.Array
    is_index: bool = False
    fault: str = ""
    forms: tuple[NumberConf, ...] = ()
    example: str = ""
    words: tuple[str, ...] = ()
    unlike: str = ""
    is_said: bool = False
    proof: str = ""
    counted: ColumnCounts | None = None
    date: DateConf | None = None
    n_without: int = 0

    @property
    def n_missing(self) -> int:
        """Number of missing values."""
        return self.counted.n_missing if self.counted else len(self.values) - len(self.present)

    @cached_property
    def _counts(self) -> Mapping[Any, int] | None:
        """Counts of the distinct values in the whole table; None if the table was not counted."""
        counts = self.counted.values if self.counted else None
        if counts is None or self.kind != "number":
            return counts
        by_number = Counter[Any]()
        for value, n in counts.items():
            by_number[float(value) if isinstance(value, str) else value] += n
        return by_number

    @property
    def n(self) -> int:
        """Number of values from which `distinct` was computed."""
        return self.counted.n if self.counted and self._counts is not None else len(self.values)

    @property
    def n_present(self) -> int:
        """Number of values among `n` that are not missing."""
        return self.n - self.n_missing if self._counts is not None else len(self.present)

    @cached_property
    def present(self) -> pa.Array:
        """Values that are not missing; texts are normalised by `plain_name`."""
        present = self.values.filter(pa.array(~missing_of(self.values)))
        if self.kind != "string":
            return present
        texts = as_texts(present).dictionary_encode()
        return pa.array(list(map(plain_name, texts.dictionary.to_pylist())), pa.string()).take(texts.indices)

    @cached_property
    def distinct(self) -> pa.Array:
        """Distinct values, sorted."""
        if self._counts is not None:
            return pa.array(sorted(self._counts)).cast(self.present.type)
        values = pc.unique(self.present)
        sortable = values.cast(pa.float32()) if pa.types.is_float16(values.type) else values
        return values.take(pc.sort_indices(sortable))

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """The numbers of a numeric column, without missing values."""
        return as_floats(self.present)

    def value_counts(self) -> Iterator[tuple[Any, int]]:
        """Yield each distinct value and its count."""
        if self._counts is not None:
            yield from self._counts.items()
            return
        values = self.numbers if self.kind == "number" else as_texts(self.present)
        yield from ((each["values"], each["counts"]) for each in pc.value_counts(values).to_pylist())

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers."""
        return self.kind == "number" and bool((self.numbers == self.numbers.round()).all())

    @property
    def is_date(self) -> bool:
        """Whether the values are dates, or texts of dates."""
        if self.kind in DATES:
            return True
        if self.kind == "number":
            return self._has_compact_dates
        return self.kind == "string" and all(DATE.fullmatch(text) for text in self.present[:100].to_pylist())

    @property
    def _has_compact_dates(self) -> bool:
        """Whether all values are dates such as 20240131."""
        return are_compact_dates(self.numbers)

    @cached_property
    def times(self) -> list[list[Any]]:
        """Dates as sortable values; empty if the values are not dates.

        The result has one list for each way to read the dates, because e.g. 1/2/2024 can be read in two ways.
        """
        values = self.values.to_pylist() if self.is_date else []
        if self.kind in ("date", "timestamp") and not any(isinstance(value, str) for value in values):
            return [values]
        is_time = EPOCH.search(self.name) and self.is_whole and len(self.present) and self.numbers.min() >= MIN_EPOCH
        if is_time or (self.kind == "number" and self.is_date):
            return [[*self.numbers, *[None] * (len(self.values) - len(self.present))]]
        return times_of(values)

    def are_categories(self, n: int) -> bool:
        """Return whether there are few enough distinct values for categories in ``n`` records."""
        known = len(self.distinct)
        few, many = min(MAX_CATEGORIES, max(n / MIN_RECORDS, 2)), min(MANY_CATEGORIES, n / RECORDS_OF_MANY)
        return known < n and known <= max(few, many)

    def show(self) -> str:
        """Describe the position, the number of distinct values, and some of the values."""
        shown = ", ".join(show_value(each) for each in self.distinct[:MAX_SHOWN].to_pylist())
        more = ", ..." if len(self.distinct) > MAX_SHOWN else ""
        return f"column {self.position}, {len(self.distinct)} different: {shown}{more}"


def codes_of(values: pa.Array, nulls: Literal["mask", "encode"] = "mask") -> npt.NDArray[np.int64]:
    """Return a code for each value, numbered by first occurrence: b, a, b becomes 0, 1, 0.

    The code of nulls is -1; with ``nulls="encode"``, nulls count as a further distinct value.
    """
    indices = as_texts(values).dictionary_encode(nulls).indices.fill_null(-1)
    return np.asarray(indices.to_numpy(), np.int64)


def show_value(value: Any) -> str:
    """Format a value as short text without line ends."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return f"{text[:30]}..." if len(text) > 33 else text
