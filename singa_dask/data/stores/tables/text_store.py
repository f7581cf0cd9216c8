"""TextStore: records as lines of numbers with separators; the first number can be the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv

from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.blocks import BLOCK_BYTES, rows_per_block
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.stores.tables.part_store import PartStore
from singa_dask.data.tables.block_index import TableIndex
from singa_dask.data.tables.files.folder_keys import TableFile
from singa_dask.data.tables.files.number_lines import LinesPart
from singa_dask.data.tables.files.open_parts import OpenParts
from singa_dask.data.tables.spec import TableSpec
from singa_dask.data.tables.table_reader import TableReader
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError


class TextOptions(StoreOptions):
    """Options of lines of numbers."""

    separator: str = KeyField(default=",", min_length=1)
    """Characters that each separate two numbers; see `LinesPart`."""
    has_label: bool = True
    """Whether the first number of a line is its label, an integer."""
    shape: Many[Size] = KeyField(default=[])
    """Shape of one record; by default flat, with as many numbers as the first line."""
    header: bool | None = None
    """Whether the first line has the names of the columns. Detected if not given: a header has no numbers, or a name
    and numbers that count the columns (``label,0,1,2``)."""
    block_bytes: Size = BLOCK_BYTES
    """Approximate length of a block."""
    truncated: bool = False
    """Open a file that ends within a line, without that line. A line whose last number is truncated looks complete."""


@STORES.register("csv", "textfile")
class TextStore(PartStore):
    """Records of a text file: a table whose columns are identified by position.

    If the first line is a header, ``table_facts`` has its names, so that files with other columns are refused.

    Raises
    ------
    DataError
        The file is missing or empty, or its first lines are invalid. `read_block` names URL, line and column of an
        invalid record.
    """

    options_class = TextOptions
    write_options = ("separator",)
    holds = "text"
    table_format = "csv"
    suffixes = (".csv", ".csv.gz", ".txt", ".tsv", ".tsv.gz")
    block_options = ("block_bytes",)

    def index(self) -> None:
        options = self.options
        shape, n_labels = tuple(options["shape"]), int(options["has_label"])
        parts = OpenParts([TableFile(self.url)], self._open_part)
        names = parts(0).names
        spec = TableSpec(names[n_labels:], names[:n_labels])
        self._table = TableReader(
            self.url, self.storage_options, parts, format="csv", block_bytes=options["block_bytes"], spec=spec
        )
        part = self._lines
        index = self._table.learn(self._known_runs(part.first_line))
        self._use(self._without_torn_line(index) if options["truncated"] else index)
        self.schema["data"] = Field(np.dtype(np.float32), shape or (len(part.names) - n_labels,))
        if part.titles:  # without titles, files cannot be compared, and columns are only positions
            self._name_columns()
        if not options["truncated"]:
            run = self._pieces[0].run
            data = [part.source.scan(run.offset, run.length)]
            self._encoder.encode(part.rows(run, self._columns, data)(0, 1), part.place(run, data))

    @property
    def _lines(self) -> LinesPart:
        return cast(LinesPart, self._parts(0))

    def _open_part(self, file: TableFile) -> LinesPart:
        options = {name: self.options[name] for name in ("separator", "header", "block_bytes", "has_label", "shape")}
        return LinesPart(file.url, self.storage_options, **options)

    def _without_torn_line(self, index: TableIndex) -> TableIndex:
        """Return the index, without the last line of the file if this line is incomplete."""
        part, run = self._lines, index.pieces[-1].run
        text = bytes(part.source.read(run.offset, part.source.size - run.offset))
        before, end, line = text[: run.length].rpartition(b"\n")
        wrong = part.find_wrong(line, part.names)
        if not wrong or text.endswith(b"\n"):
            return index
        if not end and len(index.pieces) == 1:
            raise DataError(f"{self.url}: there is no complete line.")
        self.truncation = f"truncated in line {run.line + (before + end).count(end)}{wrong[1]}"
        rest = run._replace(n=run.n - 1, length=run.length - len(line))
        last = index.pieces[-1]._replace(run=rest, n=rest.n, kept=rest.n)
        return replace(index, pieces=(*index.pieces[:-1], last))

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        field, rows = self.schema["data"], self._lines.numbers(self._pieces[block_id].run, data[0])
        if rows is None:
            return super().decode(block_id, data)
        labels: Arrays = {"label": rows[:, 0].astype(np.int32)} if "label" in self.schema else {}
        values = rows[:, int(self.options["has_label"]) :].astype(field.dtype)
        return {"data": values.reshape(len(rows), *field.shape), **labels}

    @classmethod
    def write_rows(cls, file: BinaryIO, rows: Rechunker, separator: str = ",") -> None:
        """Write one line per record, with enough digits to restore the numbers exactly.

        Parameters
        ----------
        separator : str
            One character.
        """
        options: Any = pyarrow.csv.WriteOptions(include_header=False, delimiter=separator, quoting_style="none")
        for block in rows.chunks(rows_per_block(rows.record_bytes)):
            pyarrow.csv.write_csv(_table(block), file, options)


def _table(records: Arrays) -> pa.Table:
    values = records["data"] if "data" in records else records["pixel"]
    columns = list(values.reshape(len(values), -1).T)
    if "label" in records:
        columns.insert(0, records["label"])
    return pa.table({str(i): np.ascontiguousarray(column) for i, column in enumerate(columns)})
