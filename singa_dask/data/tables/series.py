"""Tables of a time series, which are read as a whole."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Mapping

import pyarrow as pa

from singa_dask.data.tables.table_reader import TableLearner
from singa_dask.data.types import RecordRun


def read_series(
    learner: TableLearner, wanted: Mapping[str, str], run_bytes: int
) -> tuple[pa.Table, Callable[[int], str]]:
    """Return the records of all files of a table, and a function that returns the place of a record.

    ``wanted`` is the kind in which each column is read. ``run_bytes`` is the approximate size of a run.
    """
    tables, starts, runs, parts = list[pa.Table](), [0], list[tuple[int, RecordRun]](), learner.parts
    for file in range(len(parts.files)):
        part = parts(file)
        parts.check(file, learner.format, wanted, *wanted)
        for run in part.runs(run_bytes, 4 * len(wanted)):
            data = parts.fetch(file, run, wanted)
            tables.append(learner.read(parts.decode(file, run, wanted, data), part.place(run, data)))
            starts.append(starts[-1] + len(tables[-1]))
            runs.append((file, run))
    # close the files; they are opened again only for an error that names a line
    parts.close()

    @functools.lru_cache(1)
    def places(at: int) -> Callable[[int], str]:
        file, run = runs[at]
        return parts(file).place(run, parts.fetch(file, run, wanted))

    def place_of(record: int) -> str:
        at = bisect_right(starts, record) - 1
        return places(at)(record - starts[at])

    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({}), place_of
