"""Records as text: one record per line, numbers separated by separators, the label first.

A block is a range of bytes that ends at a line end, and is parsed at once. Lines are only parsed one by one to find
out which of them is invalid.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from singa_dask.conf.model import Field as KeyField
from singa_dask.conf.model import Many, Size
from singa_dask.data import fs
from singa_dask.data.codecs.record import salvage_rows
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.text_lines import LineParser
from singa_dask.data.stores.block_sizes import BLOCK_BYTES, Rechunker, cut_lines, rows_per_block
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays, Field, Records, TableColumn
from singa_dask.errors import DataError

HEAD_BYTES = 1 << 14
BOM, WIDE_BOMS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


class TextOptions(StoreOptions):
    """Options of lines of numbers."""

    separator: str = KeyField(default=",", min_length=1)
    """Characters that separate two numbers, each of them; see `text_lines.LineParser`."""
    has_label: bool = True
    """Whether the first number of a line is its label, an integer."""
    shape: Many[Size] = KeyField(default=[])
    """Shape of one record; flat by default, with as many numbers as the first line."""
    header: bool | None = None
    """Whether the first line has the names of the columns. Detected if not given: a header has no numbers, or numbers
    that count the columns next to a name (``label,0,1,2``)."""
    block_bytes: Size = BLOCK_BYTES
    """Approximate length of a block."""
    truncated: bool = False
    """Open a file that ends within a line, without that line. A line in which only the last number is truncated looks
    complete."""


@STORES.register("csv", "textfile")
class TextStore(RangeStore):
    """Records of a text file, whose ``names`` are those of the columns, empty without a header.

    ``table_facts`` has the names, so that files with other columns, or in another order, are not taken for the same.

    Raises
    ------
    DataError
        The file is missing or empty, or its first lines are invalid. `read_block` names URL, line and column of an
        invalid record.
    """

    block = TextOptions
    write_options = ("separator",)
    holds = "text"
    table_format = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".txt", ".tsv")
    accepts_truncated = True
    rounds_data = True
    block_options = ("block_bytes",)
    # offset of the first record
    _start = 0

    def index(self) -> None:
        options = self.options
        self._has_label: bool = options["has_label"]
        self._source = self.open_source()
        self._start, self._lines = self._open_lines(options["separator"], options["header"])
        self.names = self._lines.names
        known = self.manifest_blocks()
        is_known = known and known[0].offset == self._start
        self.blocks = known if is_known else cut_lines(self._source, self._start, options["block_bytes"])
        if not self.count:
            raise DataError(f"{self.url}: no lines{' but the header' if self._lines.names else ''}.")
        shape = tuple(options["shape"])
        # without a shape the first block is read, so that a cache keeps it
        first = self._line_at(self._start) if shape else self._first_line()
        self._set_schema(shape or (len(self._lines.split(first)) - self._has_label,))
        self._check_first_lines(first, options["truncated"])
        if self.names:
            labels = dict.fromkeys(self.names[: self._has_label], ())
            self.set_table_facts(TableFacts(self.names[self._has_label :], labels=labels).to_dict())
            label = (TableColumn(self.names[0], "number", "label", 0),) if self._has_label else ()
            self.table_columns = (*label, *self.table_columns)
        if options["truncated"]:
            self._drop_truncated()

    def _set_schema(self, shape: tuple[int, ...]) -> None:
        self.schema = {"data": Field(np.dtype(np.float32), shape)}
        if self._has_label:
            self.schema["label"] = Field(np.dtype(np.int32))
        self._lines.n_columns = int(np.prod(shape, dtype=np.int64)) + self._has_label

    def _open_lines(self, separator: str, header: bool | None) -> tuple[int, LineParser]:
        """Return the offset of the first record, and the parser."""
        line = self._line_at(0)
        if line.startswith(WIDE_BOMS):
            raise DataError(f"{self.url}: text in UTF-16. Write it as UTF-8.")
        start = len(BOM) if line.startswith(BOM) else 0
        try:
            lines = LineParser(separator, self._has_label, line[start:], header)
        except (csv.Error, ValueError) as error:
            raise DataError(f"{self.url}, line 1{error}.") from None
        return (len(line) if lines.names else start), lines

    def _line_at(self, start: int) -> bytes:
        """Return the line at an offset, including its end."""
        length, line = HEAD_BYTES, b""
        while not line.endswith(b"\n") and start + len(line) < self._source.size:
            line = bytes(self._source.scan(start, min(length, self._source.size - start)))
            line = line[: line.find(b"\n") + 1] or line
            length *= 16
        return line

    def _first_line(self) -> bytes:
        first = self.blocks[0]
        return bytes(self._source.read(first.offset, first.length)).split(b"\n", 1)[0]

    def _check_first_lines(self, line: bytes, truncated: bool) -> None:
        """Check the header, and the first record unless bad records are tolerated."""
        n_names, lines = len(self._lines.names), self._lines
        if n_names and n_names != lines.n_columns:
            hint = lines.superfluous_label(n_names)
            raise DataError(f"{self.url}, line 1: a header of {n_names} columns, expected {lines.expected}.{hint}")
        reason = "" if truncated else lines.why(line.removesuffix(b"\n"))
        if reason:
            raise DataError(f"{self.url}, line {self._line_number(0)}{reason}.")

    def _line_number(self, record: int) -> int:
        """Return the line number of a record, from 1."""
        return record + 1 + bool(self._lines.names)

    def _drop_truncated(self) -> None:
        last = self.blocks[-1]
        text = bytes(self._source.read(last.offset, self._source.size - last.offset))
        line = text[: last.length].rpartition(b"\n")[2]
        reason = self._lines.why(line)
        if not reason or text.endswith(b"\n"):
            return
        if self.count == 1:
            raise DataError(f"{self.url}: no complete line.")
        self.truncation = f"truncated in line {self._line_number(self.count - 1)}{reason}"
        rest = dataclasses.replace(last, n=last.n - 1, length=last.length - len(line), crc=None)
        self.blocks = (*self.blocks[:-1], *([rest] if rest.n else []))
        del self.starts

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        lines = bytes(self.fetch(block_id)[0]).split(b"\n")

        def read_row(row: int) -> Arrays:
            rows = self._lines.parse(lines[row], 1)
            if rows is None:
                reason = self._lines.why(lines[row]) or ": cannot be parsed"
                raise ValueError(f"line {self._line_number(first + row)}{reason}")
            return {name: array[0] for name, array in self._arrays(rows).items()}

        return salvage_rows(n, self.schema, read_row)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        text = bytes(data[0])
        rows = self._lines.parse(text, self.blocks[block_id].n)
        if rows is None:
            raise self._line_error(text, int(self.starts[block_id]))
        return self._arrays(rows)

    def _arrays(self, rows: npt.NDArray[np.float64]) -> Arrays:
        if not self._has_label:
            return {"data": self._shaped(rows)}
        return {"data": self._shaped(rows[:, 1:]), "label": rows[:, 0].astype(np.int32)}

    def _shaped(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        field = self.schema["data"]
        return rows.astype(field.dtype).reshape(len(rows), *field.shape)

    def _line_error(self, text: bytes, first: int) -> DataError:
        """Return the error for the first invalid line."""
        for i, line in enumerate(text.split(b"\n")):
            reason = self._lines.why(line)
            if reason:
                return DataError(f"{self.url}, line {self._line_number(first + i)}{reason}.")
        return DataError(f"{self.url}: lines from {self._line_number(first)} on cannot be parsed.")

    @classmethod
    def write(
        cls,
        url: str,
        records: Records,
        storage_options: fs.Options = None,
        separator: str = ",",
    ) -> None:
        """Write one line per record, with enough digits to restore the numbers exactly.

        Parameters
        ----------
        separator : str
            One character.
        """
        rows = Rechunker(url, records)
        options: Any = pyarrow.csv.WriteOptions(include_header=False, delimiter=separator, quoting_style="none")
        with fs.staged(url, storage_options) as path, path.open("wb") as file:
            for block in rows.chunks(rows_per_block(rows.record_bytes)):
                pyarrow.csv.write_csv(_table(block), file, options)


def _table(records: Arrays) -> pa.Table:
    values = records["data"] if "data" in records else records["pixel"]
    columns = list(values.reshape(len(values), -1).T)
    if "label" in records:
        columns.insert(0, records["label"])
    return pa.table({str(i): np.ascontiguousarray(column) for i, column in enumerate(columns)})
