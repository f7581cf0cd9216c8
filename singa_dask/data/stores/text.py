"""Records as text: one record per line, numbers separated by separators, the label first.

A block is a range of bytes that ends at a line end, and is parsed at once. Lines are only parsed one by one to find
out which of them is invalid.
"""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from singa_dask import fs
from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.codecs.labels import LABEL_NAMES, labels_among
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.stores.blocks import BLOCK_BYTES, cut_lines, rows_per_block
from singa_dask.data.stores.csv_records import BOM, HEAD_BYTES, WIDE_BOMS
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays, Field, Records, TableColumn
from singa_dask.errors import DataError

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
LARGEST = float(np.finfo(np.float32).max)
LABELS = np.iinfo(np.int32)
ID_NAME = re.compile(r"(?i:id|index)|.*(_id|[a-z]I[dD]|_ID)")
MISSING = ("", "?", "-", "na", "n/a", "nan", "nil", "none", "null")
# columns from which on each number is parsed as a line of its own, which takes less time
WIDE = 40
# separators that are suggested if the given one is missing
OTHERS = (";", "|", "\t", ",")


class LineParser:
    """Parses lines of numbers with separators between them; blanks around separators are ignored.

    If the first line has no separator, blanks separate numbers. A separator that contains a blank allows both in one
    line. Two separators in a row, or one at the end of a line, make an empty field, which is an error.

    Parameters
    ----------
    separator : str
        Any of these characters separates two numbers.
    has_label : bool
        The first number of a line is an integer.
    first_line : bytes
        First line of the file.
    header : bool, optional
        Whether the first line has the names of the columns; detected by default.

    Attributes
    ----------
    names : tuple of str
        Names of the columns, empty without a header.
    n_columns : int
        Numbers per line, including the label; set by the caller.

    Raises
    ------
    ValueError
        It is ambiguous whether the first line is a header, or the header does not fit such records.
    """

    def __init__(self, separator: str, has_label: bool, first_line: bytes, header: bool | None = None) -> None:
        self.n_columns, self.has_label = 0, has_label
        hard = separator.replace(" ", "").encode()
        used = bytes(byte for byte in hard if byte in first_line)
        # whether each field holds exactly one number
        self._exact = bool(used) and " " not in separator
        self._hard = hard if used or " " in separator else b""
        self._blanks = bytes(byte for byte in b" \t\n\r\v\f" if byte not in self._hard)
        edge = rb"\s" + re.escape(self._hard)
        begin, end = rb"(?:(?<=[" + edge + rb"])|(?<![\s\S]))", rb"(?=[" + edge + rb"]|\Z)"
        self._quoted = re.compile(begin + rb'"[ \t]*([^"' + edge + rb']*)[ \t]*"' + end)
        fields = self._header_fields(first_line)
        self._check_separator(separator, first_line, fields)
        self.names = tuple(fields) if (_is_header(fields) if header is None else header) else ()
        if self.names:
            self._check_names()

    def _header_fields(self, line: bytes) -> list[str]:
        text = line.decode(errors="replace").strip("\r\n")
        if "\r" in text:
            raise ValueError(": lines end with carriage returns only. Write the file with line feeds")
        # prefix of headers by numpy.savetxt
        text, line = text.removeprefix("# "), line.removeprefix(b"# ")
        if self._exact and len(self._hard) == 1 and text:
            (fields,) = csv.reader([text], delimiter=self._hard.decode(), skipinitialspace=True)
            return [field.strip() for field in fields]
        if not self._hard and "\t" in text:
            # blanks separate the numbers, tabs the names
            return [field.strip().strip('"') for field in text.split("\t")]
        return [field.decode(errors="replace").strip('"') for field in self.split(line)]

    def _check_separator(self, separator: str, line: bytes, fields: Sequence[str]) -> None:
        if self._hard or len(fields) != 1:
            return
        other = next((each for each in OTHERS if each not in separator and each.encode() in line), "")
        if other:
            raise ValueError(f": it contains no {separator!r}, but {other!r}. Set separator: {other!r}")

    def _check_names(self) -> None:
        first = self.names[0]
        if not first or first.startswith("Unnamed: "):
            raise ValueError(
                ", column 1: it has no name, like the index that pandas writes. Write the file with index=False"
            )
        if self.has_label and ID_NAME.fullmatch(first):
            raise ValueError(
                f", column 1: it is called {first!r}, but the label of a record is its first number. Name the columns "
                "by label and features in store_conf, or set has_label: false"
            )
        if self.has_label and first.lower() not in LABEL_NAMES:
            # y is the label of x0, x1, ..., but not in a point (x, y)
            is_point = "x" in map(str.lower, self.names)
            name = next((name for name in labels_among(self.names) if not (is_point and name.lower() == "y")), "")
            if name:
                raise ValueError(
                    f", column {self.names.index(name) + 1}: it is called {name!r}, but the label of a record is its "
                    f"first number, here {first!r}. Move that column to the front, or set has_label: false"
                )

    # -- whole blocks ------------------------------------------------------------------------------------

    def parse(self, text: bytes, n: int) -> npt.NDArray[np.float64] | None:
        """Return the values of ``n`` lines, (n, n_columns); None if a line is invalid."""
        rows = self._parse_fast(text, n) if n > 1 else None
        if rows is None:
            lines = text.removesuffix(b"\n").split(b"\n")
            if len(lines) != n or any(map(self.why, lines)):
                return None
            return np.array([list(map(float, self.split(line))) for line in lines])
        # nan is no number, either
        if not max(-rows.min(), rows.max()) <= LARGEST or (self.has_label and not _are_labels(rows[:, 0])):
            return None
        return rows

    def _parse_fast(self, text: bytes, n: int) -> npt.NDArray[np.float64] | None:
        """Return the values of lines that pyarrow parses as we do; None for other lines, and most invalid ones."""
        separator, width = self._hard[:1] if self._exact else b" ", self.n_columns
        if not self._exact:
            text = b"\n".join(b" ".join(self.split(line)) for line in text.split(b"\n"))
        elif b'"' in text:
            text = self._quoted.sub(rb" \1 ", text)
        if self._exact and len(self._hard) > 1:
            text = text.translate(bytes.maketrans(self._hard, separator * len(self._hard)))
        if text.startswith(BOM):
            return None
        if width >= WIDE:
            data = np.frombuffer(text, np.uint8)
            starts = np.concatenate([[0], np.flatnonzero(data[:-1] == ord("\n")) + 1])
            if (np.add.reduceat(data == ord(separator), starts, dtype=np.int64) != width - 1).any():
                return None
            text, width = text.translate(bytes.maketrans(separator, b"\n")), 1
        names = [str(i) for i in range(width)]
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(text),
                pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
                pyarrow.csv.ParseOptions(delimiter=separator, quote_char=False, ignore_empty_lines=False),
                pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float64()), null_values=[]),
            )
        except (pa.ArrowInvalid, ValueError):
            return None
        # carriage returns may end lines, too
        if len(table) * width != n * self.n_columns:
            return None
        return np.stack([column.to_numpy() for column in table.columns], axis=1).reshape(n, self.n_columns)

    # -- single lines ------------------------------------------------------------------------------------

    def split(self, line: bytes) -> list[bytes]:
        """Return the fields of a line without surrounding blanks and quotes; empty for an empty line."""
        line = (self._quoted.sub(rb" \1 ", line) if b'"' in line else line).strip(self._blanks)
        if not line:
            return []
        if not self._hard:
            return line.split()
        fields = line.translate(bytes.maketrans(self._hard, self._hard[:1] * len(self._hard))).split(self._hard[:1])
        if self._exact:
            return [field.strip() for field in fields]
        return [part for field in fields for part in field.split() or [b""]]

    def why(self, line: bytes) -> str:
        """Return what is wrong with a line, to be appended to its number; empty if it is valid."""
        fields = self.split(line)
        if len(fields) != self.n_columns:
            return f": {len(fields)} columns, expected {self.expected}"
        if not fields:
            return ": it is empty, expected numbers"
        for i, field in enumerate(fields):
            shown = field.decode(errors="replace")
            where = f", column {i + 1}{f' ({self.names[i]})' if self.names else ''}"
            if not field:
                return f"{where}: it is empty, expected a number"
            if not NUMBER.fullmatch(field):
                hint = ". A label is the index of a class, from 0 on" if not i and self.has_label else ""
                return f"{where}: {shown!r} is not a number{hint}"
            if abs(float(field)) > LARGEST:
                return f"{where}: {shown} does not fit in a float of 32 bits"
        if self.has_label and not float(fields[0]).is_integer():
            return f": the label {fields[0].decode()} is not an integer"
        if self.has_label and not LABELS.min <= float(fields[0]) <= LABELS.max:
            return f": the label {fields[0].decode()} does not fit in 32 bits"
        return ""

    def superfluous_label(self, n_names: int) -> str:
        """Return a hint for a first column of labels that is not read as labels; empty if there is none."""
        extra = not self.has_label and n_names == self.n_columns + 1 and self.names[0].lower() in LABEL_NAMES
        return f" Remove the column {self.names[0]!r}." if extra else ""

    @property
    def expected(self) -> str:
        """Description of a valid line, for an error."""
        label = "a label and " if self.has_label else ""
        return f"{self.n_columns}: {label}{self.n_columns - self.has_label} numbers"


def _are_labels(values: npt.NDArray[np.float64]) -> bool:
    return bool(values.min() >= LABELS.min and values.max() <= LABELS.max and (values == values.astype(np.int32)).all())


def _is_header(fields: Sequence[str]) -> bool:
    """Return whether a first line has the names of columns: no numbers, or numbers that count the columns.

    Raises
    ------
    ValueError
        It could be a header, or a record with invalid fields.
    """
    names = [field for field in fields if not NUMBER.fullmatch(field.encode())]
    numbers = [field for field in fields if NUMBER.fullmatch(field.encode())]
    missing = [name for name in names if name.lower() in MISSING]
    if not names:
        return False
    if not numbers and len(missing) < len(names):
        return True
    if not missing and len(numbers) > 1 and numbers in (_counted(0, len(numbers)), _counted(1, len(numbers))):
        return True
    name = (missing or names)[0]
    wrong = f"{name!r} is not a number" if name else "it is empty, expected a number"
    hint = (
        "" if missing else ". Other columns are numbers, so this is not a header either; set header: true if it is one"
    )
    raise ValueError(f", column {fields.index(name) + 1}: {wrong}{hint}")


def _counted(first: int, n: int) -> list[str]:
    return [str(i) for i in range(first, first + n)]


class TextOptions(StoreOptions):
    """Options of lines of numbers."""

    separator: str = KeyField(default=",", min_length=1)
    """Characters that separate two numbers, each of them; see `LineParser`."""
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
    gzipped = True
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz", ".txt", ".tsv", ".tsv.gz")
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
        self.blocks = known if is_known else tuple(cut_lines(self._source, self._start, options["block_bytes"]))
        if not self.count:
            raise DataError(f"{self.url}: no lines{' but the header' if self._lines.names else ''}.")
        first = self._line_at(self._start)
        self._set_schema(tuple(options["shape"]) or (len(self._lines.split(first)) - self._has_label,))
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
