"""TableSurvey: the columns of a table, how it is read, and copies of its records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from singa_dask import fs
from singa_dask.data.codecs.equal_names import in_order
from singa_dask.data.tables.column_values import as_texts, key_texts, missing_of, whole
from singa_dask.data.tables.files.csv_text import record_starts
from singa_dask.data.tables.files.open_parts import OpenParts
from singa_dask.data.tables.files.table_part import LINES
from singa_dask.data.tables.spelling import Spelling
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError
from singa_dask.survey.columns import ColumnSurvey
from singa_dask.survey.counts import BLOCK_BYTES, COUNTED, PART_BYTES, CountFile, Run, count
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.results import Rows


@dataclass(frozen=True, eq=False)
class TableSurvey:
    """A table of about ``n`` records: how it is read, its columns, and the ``runs`` of records read."""

    url: str
    format: str
    text: Mapping[str, Any]
    columns: Sequence[ColumnSurvey]
    n: int
    parts: OpenParts
    kinds: Mapping[str, str]
    runs: Sequence[tuple[int, RecordRun]] = field(repr=False)
    group_bytes: int = 0

    @cached_property
    def named(self) -> dict[str, ColumnSurvey]:
        """Columns by name."""
        return {each.name: each for each in self.columns}

    @property
    def _keys(self) -> set[str]:
        """Names of the columns whose values come from names of directories, such as ``year=2024``."""
        return {name for name, _ in self.parts.files[0].keys}

    @property
    def n_seen(self) -> int:
        """Number of records that were read."""
        return len(self.columns[0].values)

    @property
    def is_whole(self) -> bool:
        """Whether all records were read."""
        return self.n_seen == self.n

    @property
    def is_counted(self) -> bool:
        """Whether Dask workers have counted all records."""
        return any(each.counted for each in self.columns)

    def count(self, options: SurveyOptions, labels: Collection[str], run: Run) -> TableSurvey:
        """Count all records by tasks that ``run`` executes; return the table with these counts."""
        columns = [each for each in self.columns if each.name in self.kinds and each.kind in COUNTED]
        written = {each.name for each in columns if each.forms or (each.name in labels and self.format == "csv")}
        kinds = {each.name: "string" if each.name in written else self.kinds[each.name] for each in columns}
        numbers = {each.name for each in columns if each.kind == "number"}
        spelling = Spelling({each.name: each.forms[0] for each in self.columns if each.forms}, options.na_values)
        reading = {**self.text, "spelling": Spelling(na_values=options.na_values), "block_bytes": BLOCK_BYTES}
        if self.format == "csv" and options.classes:
            # a class may be a word for missing values, such as NA
            reading["listed"] = dict.fromkeys(options.label, options.classes)
        how = (self.format, reading, kinds, numbers, spelling, options.text, BLOCK_BYTES)
        try:
            found = count([CountFile(self.parts.files, file, i, n, *how) for file, i, n in self._parts()], run, self.n)
        except DataError as error:
            if error.remedy is None or not error.wants("na_values") or error.remedy.text:
                raise
            raise DataError(f"{error} If it means a missing value, add it to --na-values.") from None
        columns = [replace(each, counted=found.get(each.name)) for each in self.columns]
        return replace(self, columns=columns, n=max((each.n for each in found.values()), default=self.n))

    def _parts(self) -> Iterator[tuple[int, int, int]]:
        """Yield each part of a file that a task counts: index of the file, index of the part, number of parts.

        A text file is one part.
        """
        for file in range(len(self.parts.files)):
            n = 1 if self.format in LINES else -(-self.parts(file).source.size // PART_BYTES)
            yield from ((file, index, n) for index in range(n))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the distinct values of a column as they are written, sorted; numbers are sorted by value."""
        if self.named[name].kind == "string":
            return in_order(self.named[name].distinct.to_pylist())
        counted = self.named[name].counted
        if counted and counted.values is not None:
            return in_order(as_texts(pa.array(counted.values)).to_pylist())
        different = set[str]()
        for file, run in self.runs:
            texts = as_texts(whole(decoded(self.parts, file, run, {name: "string"}).column(name)))
            different.update(pc.unique(texts.filter(pa.array(~missing_of(texts)))).to_pylist())
        return in_order(different)

    def with_names(self, names: Collection[str], na_values: Sequence[str]) -> TableSurvey:
        """Return the table with some columns read as names, even if values look like numbers, such as 01234."""
        columns = []
        for each in self.columns:
            if each.name in names and each.kind != "string" and each.name not in self._keys:
                runs = [decoded(self.parts, file, run, {each.name: "string"}) for file, run in self.runs]
                column = whole(pa.concat_tables(runs, promote_options="permissive").column(each.name))
                texts = as_texts(column)
                is_word = np.asarray(pc.is_in(texts, pa.array([*na_values], pa.string())))
                values = pc.if_else(pa.array(missing_of(column) | is_word), None, texts)
                each = replace(each, kind="string", values=values, fault="")
            columns.append(each)
        return replace(self, columns=columns)

    def keys(self, name: str) -> pa.Array:
        """Return the values of a column, of the records that were read, for `SplitConf.of_keys`."""
        if name in self._keys:
            return key_texts(self.named[name].values)
        # read values as strings, because 007 is not a number
        found, at, kinds = list[pa.Array](), 0, {name: "string"}
        for file, run in self.runs:
            if at < self.n_seen:
                found.append(key_texts(whole(decoded(self.parts, file, run, kinds).column(name))))
            at += run.n
        return pa.concat_arrays(found)

    def check_copy(self) -> None:
        """Raise a `DataError` if `write` cannot write records of all files to one file."""
        first = self.parts(0)
        for file in range(1, len(self.parts.files) if self.format == "csv" else 0):
            if (other := self.parts(file)).names != first.names:
                raise DataError(
                    f"{other.url}: its header differs from that of {first.url}, so its records cannot be copied after "
                    f"the same header. Leave out --copy, or write the files with the same header."
                )

    def write(self, url: str, rows: Rows) -> None:
        """Write rows to a file: CSV records unchanged, other tables as Parquet."""
        fs.write_atomic(url, self._rows(rows))

    @property
    def suffix(self) -> str:
        """Suffix of the files that `write` writes."""
        return ".csv" if self.format == "csv" else ".parquet"

    def _rows(self, rows: Rows) -> bytes:
        if self.format == "csv":
            return b"".join(self._lines(np.sort(rows)))
        sink = pa.BufferOutputStream()
        read = pa.table({each.name: each.values for each in self.columns if each.name in self.kinds})
        pq.write_table(read.take(np.sort(rows)), sink)
        return bytes(sink.getvalue())

    def _lines(self, rows: Rows) -> Iterator[bytes]:
        first = self.parts(0)
        yield bytes(first.source.read(0, first.start))
        at = 0
        for file, run in self.runs:
            text = bytes(self.parts(file).source.read(run.offset, run.length))
            starts = [*record_starts(text, self.text.get("quotes")).tolist(), len(text)]
            for row in rows[(rows >= at) & (rows < at + run.n)] - at:
                record = text[starts[row] : starts[row + 1]]
                yield record if record.endswith(b"\n") else record + b"\n"
            at += run.n


def decoded(parts: OpenParts, file: int, run: RecordRun, kinds: Mapping[str, str]) -> pa.Table:
    """Read columns of a run of records."""
    return parts.decode(file, run, kinds, parts(file).fetch(run, parts.in_file(file, kinds)))
