"""Count the columns of a large table by tasks on Dask workers, one for each file or part of a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from singa_dask import runtime
from singa_dask.data.codecs.equal_names import plain_name
from singa_dask.data.tables.column_values import as_floats, as_texts, column_kind, missing_of, whole
from singa_dask.data.tables.files.folder_keys import TableFile
from singa_dask.data.tables.files.open_parts import OpenParts, open_part
from singa_dask.data.tables.spelling import Spelling

MAX_DISTINCT = 10_000
BLOCK_BYTES = 1 << 24
# maximum number of bytes of a columnar file that one task counts
PART_BYTES = 1 << 28
COUNTED = ("number", "boolean", "string")


@dataclass
class ColumnCounts:
    """Counts of all, missing and distinct values of a column, and the mean and variance of numbers.

    ``values`` is None if there are more than `MAX_DISTINCT` distinct values. Its keys are plain names for text, and
    also for the numbers of a CSV label. ``squares`` is the sum of squared differences from ``mean``.
    """

    n: int = 0
    n_missing: int = 0
    values: Counter[Any] | None = field(default_factory=Counter)
    mean: float = 0.0
    squares: float = 0.0

    @property
    def std(self) -> float:
        """Standard deviation of numbers."""
        return math.sqrt(self.squares / max(self.n - self.n_missing, 1))

    @classmethod
    def of(cls, column: pa.Array, is_number: bool, is_counted: bool) -> ColumnCounts:
        """Count the values of a column; count each distinct value only if ``is_counted``. Numbers may be text."""
        missing, kind = missing_of(column), column_kind(column.type)
        present, values = column.filter(pa.array(~missing)), Counter[Any]()
        found = pc.value_counts((as_texts(present) if kind == "string" else present)[: None if is_counted else 0])
        is_counted &= len(found) <= MAX_DISTINCT
        for each in found.to_pylist() if is_counted else ():
            value = each["values"]
            values[plain_name(value) if kind == "string" else value] += each["counts"]
        plain = (pc.utf8_trim_whitespace(present) if kind == "string" else present) if is_number else pa.array([])
        numbers = as_floats(plain)
        mean = float(numbers.mean()) if len(numbers) else 0.0
        squares = float(((numbers - mean) ** 2).sum())
        return cls(len(column), int(missing.sum()), values if is_counted else None, mean, squares)

    def add(self, other: ColumnCounts) -> None:
        """Add the counts of further records."""
        n, n_more = self.n - self.n_missing, other.n - other.n_missing
        step, share = other.mean - self.mean, n_more / max(n + n_more, 1)
        self.mean, self.squares = self.mean + step * share, self.squares + other.squares + step**2 * n * share
        self.n, self.n_missing = self.n + other.n, self.n_missing + other.n_missing
        both = None if self.values is None or other.values is None else self.values + other.values
        self.values = both if both is None or len(both) <= MAX_DISTINCT else None


@dataclass(frozen=True)
class CountFile:
    """A task that counts the columns in part ``index`` of ``n`` parts of a file."""

    files: Sequence[TableFile]
    file: int
    index: int
    n: int
    form: str
    reading: Mapping[str, Any]
    kinds: Mapping[str, str]
    numbers: Collection[str]
    spelling: Spelling
    text: str
    block_bytes: int

    def __call__(self) -> tuple[tuple[int, int], dict[str, ColumnCounts]]:
        """Return the indices of file and part, and the counts of each column."""
        parts = OpenParts(self.files, lambda file: open_part(file.url, self.form, **self.reading))
        counts, part = {name: ColumnCounts() for name in self.kinds}, parts(self.file)
        for run in part.runs(self.block_bytes, 4 * len(self.kinds)):
            if run.offset * self.n // part.source.size != self.index:
                continue
            runtime.check_wanted()
            data = part.fetch(run, parts.in_file(self.file, self.kinds))
            table = parts.decode(self.file, run, self.kinds, data)
            table = self.spelling.read(table, {}, part.place(run, data), (self.text,))
            for name, found in counts.items():
                found.add(ColumnCounts.of(whole(table.column(name)), name in self.numbers, found.values is not None))
        return (self.file, self.index), counts


Run = Callable[[Sequence[CountFile], int], Iterable[tuple[tuple[int, int], dict[str, ColumnCounts]]]]
"""Called with tasks and the approximate number of records of their table; yields the results of the tasks."""


def count(tasks: Sequence[CountFile], run: Run, about: int) -> dict[str, ColumnCounts]:
    """Return the counts of each column of a table that has approximately ``about`` records.

    Counts are merged in file order, so they do not depend on the number of workers.
    """
    parts = dict(run(tasks, about))
    merged, *others = (parts[place] for place in sorted(parts))
    for other in others:
        for name, found in other.items():
            merged[name].add(found)
    return merged
