"""LinesPart: a file of lines of numbers as a table, with columns by position and the label first."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask import fs
from singa_dask.data.blocks import text_bytes
from singa_dask.data.codecs.labels import LABEL_NAMES, labels_among
from singa_dask.data.tables.files.csv_part import CsvPart
from singa_dask.data.tables.files.csv_text import (
    BOM,
    SEPARATORS,
    UTF8,
    WIDE,
    CsvHeader,
    cut_records,
    find_wrong,
    first_record,
    parse_columns,
    parse_numbers,
    split_rows,
)
from singa_dask.data.tables.spelling import MISSING, not_a_number
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError, FaultError
from singa_dask.fs.sources import scan_ahead

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
LARGEST = float(np.finfo(np.float32).max)
LABELS = np.iinfo(np.int32)
ID_NAME = re.compile(r"(?i:id|index)|.*(_id|[a-z]I[dD]|_ID)")


class LinesPart(CsvPart):
    """A file of lines of numbers with separators between them. Blanks around separators are ignored.

    If the first line has no separator, blanks separate the numbers. If ``separator`` contains a blank, blanks and other
    separators can occur in one line. Two separators in a row, or a separator at the end of a line, mean an empty field,
    which is an error. Empty lines are ignored.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    has_label : bool
        Whether the first number of a line is a label.
    shape : sequence of int
        Shape of the numbers of a line, without the label. If empty, a flat record with as many numbers as the first
        line.
    **options
        See `TextOptions`: ``separator``, ``header``, ``block_bytes``.

    Attributes
    ----------
    titles : tuple of str
        Names of the columns in the first line; empty if the first line is a record.
    first_line : int
        Line of the first record.

    Raises
    ------
    DataError
        There are no lines, the first line could be a header as well as a record, or the header does not fit the
        records.
    """

    def __init__(
        self, url: str, storage_options: fs.Options, has_label: bool, shape: Sequence[int], **options: Any
    ) -> None:
        self._has_label, self._shape = has_label, shape
        super().__init__(url, storage_options, **options)

    def _read_header(self, separator: str, charset: str, header: bool | None, quotes: bool | None) -> CsvHeader:
        self._size = text_bytes(self.source)
        if not self._size:
            raise DataError(f"{self.url}: no lines.")
        line, separator, start, number = first_record(self.url, self.source.scan, self.source.size, separator, False)
        self._set_separators(separator, line)
        where = f"{self.url}, line {number}"
        fields = self._first_fields(where, line, separator)
        self.titles = tuple(fields) if (_is_header(where, fields) if header is None else header) else ()
        n = math.prod(self._shape) + self._has_label if self._shape else len(fields)
        self._expected = f": {'a label and ' * self._has_label}{n - self._has_label} numbers"
        if self.titles:
            self._check_titles(where, n)
            start, number = start + len(line), number + 1
        self.first_line = number
        places = tuple(str(i + 1) for i in range(n))
        names = self.titles if "" not in self.titles and len({*self.titles}) == n else places
        return CsvHeader(names, (self._hard[:1] if self._exact else b" ").decode(), start, number, UTF8, False)

    def _set_separators(self, separator: str, line: bytes) -> None:
        hard = separator.replace(" ", "").encode()
        used = bytes(byte for byte in hard if byte in line)
        # whether each field is exactly one number
        self._exact = bool(used) and " " not in separator
        self._hard = hard if used or " " in separator else b""
        edge = rb"\s" + re.escape(self._hard)
        begin, end = rb"(?:(?<=[" + edge + rb"])|(?<![\s\S]))", rb"(?=[" + edge + rb"]|\Z)"
        self._quoted = re.compile(begin + rb'"[ \t]*([^"' + edge + rb']*)[ \t]*"' + end)

    def _first_fields(self, where: str, line: bytes, separator: str) -> list[str]:
        # remove the prefix that numpy.savetxt adds to headers
        text = line.decode(errors="replace").strip("\r\n").removeprefix("# ")
        if "\r" in text:
            raise DataError(f"{where}: lines end with carriage returns only. Write the file with line feeds.")
        if self._exact and len(self._hard) == 1 and text:
            try:
                return [field.strip() for row in split_rows([text], self._hard.decode(), None) for field in row]
            except csv.Error as error:
                raise DataError(f"{where}: {error}.") from None
        if not self._hard and "\t" in text:
            # tabs separate the names in this header, but blanks separate the numbers
            return [field.strip().strip('"') for field in text.split("\t")]
        between = self._hard[:1].decode() if self._exact else " "
        fields = [field.strip().strip('"') for field in self._plain(text.encode()).decode().split(between)]
        other = next((each for each in SEPARATORS if each not in separator and each in text), "")
        if not self._hard and len(fields) == 1 and other:
            raise DataError(f"{where}: it contains no {separator!r}, but {other!r}. Set separator: {other!r}.")
        return fields

    def _check_titles(self, where: str, n: int) -> None:
        first = self.titles[0]
        if not first or first.startswith("Unnamed: "):
            raise DataError(
                f"{where}, column 1: it has no name, like the index that pandas writes. Write the file with "
                "index=False."
            )
        if self._has_label and ID_NAME.fullmatch(first):
            raise DataError(
                f"{where}, column 1: it is called {first!r}, but the label of a record is its first number. Name the "
                "columns by label and features in store_conf, or set has_label: false."
            )
        # next to x0, x1, ..., a column y is a label; next to x, it is a coordinate
        is_point = "x" in map(str.lower, self.titles)
        labels = [name for name in labels_among(self.titles) if not (is_point and name.lower() == "y")]
        if self._has_label and labels and first.lower() not in LABEL_NAMES:
            raise DataError(
                f"{where}, column {self.titles.index(labels[0]) + 1}: it is called {labels[0]!r}, but the label of a "
                f"record is its first number, here {first!r}. Move that column to the front, or set has_label: false."
            )
        if len(self.titles) != n:
            is_label = not self._has_label and len(self.titles) == n + 1 and first.lower() in LABEL_NAMES
            hint = f" Remove the column {first!r}." if is_label else ""
            raise DataError(f"{where}: the header has {len(self.titles)} columns, expected {n}{self._expected}.{hint}")

    @property
    def kinds(self) -> dict[str, str]:
        return dict.fromkeys(self.names if self.start < self._size else (), "number")

    def runs(self, block_bytes: int, row_bytes: int = 0) -> Iterator[RecordRun]:
        chunks = scan_ahead(self.source, self.start, self._size, block_bytes)
        return cut_records(self.url, chunks, self._header, self._size)

    def numbers(self, run: RecordRun, data: memoryview) -> npt.NDArray[np.float64] | None:
        """Return the numbers of a run, (n, columns); None if a record may be invalid."""
        text, n = self._plain(bytes(data)), len(self.names)
        if text.startswith(BOM):
            return None
        if n >= WIDE:
            numbers = parse_numbers(text, self._header)
            if numbers is None or len(numbers) != run.n * n:
                return None
            rows = numbers.to_numpy().reshape(run.n, n)
        else:
            try:
                table = self._floats(text)
            except (pa.ArrowInvalid, ValueError):
                return None
            # if carriage returns also end lines, the table has more rows than the run
            if len(table) != run.n:
                return None
            rows = np.stack([column.to_numpy() for column in table.columns], axis=1)
        # false if there is a NaN, because all comparisons with NaN are false
        is_right = max(-rows.min(), rows.max()) <= LARGEST and (not self._has_label or _are_labels(rows[:, 0]))
        return rows if is_right else None

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        text = bytes(data[0])
        # check the text first, because the parser would accept "nan"
        if wrong := self.find_wrong(text, self.names):
            raise self._wrong_record(text, run, *wrong)
        return super().decode(run, kinds, data)

    def find_wrong(self, text: bytes, numbers: Sequence[str]) -> tuple[int, FaultError] | None:
        return find_wrong(self._plain(text), self._header, numbers, self._fault_of_field, self._expected)

    def _fault_of_field(self, name: str, field: str) -> FaultError | None:
        if not field:
            return FaultError("it is empty, expected a number")
        is_label = self._has_label and name == self.names[0]
        hint = ". A label is the index of a class, from 0 on" if is_label else ""
        return None if NUMBER.fullmatch(field) else not_a_number(field, hint)

    def _parse(self, text: bytes, kinds: Mapping[str, str]) -> pa.Table:
        return self._floats(self._plain(text)).select(list(kinds))

    def _floats(self, text: bytes) -> pa.Table:
        types = dict.fromkeys(self.names, pa.float64())
        return parse_columns(text, self._header, types, self.names, with_blanks=True, missing=())

    def _plain(self, text: bytes) -> bytes:
        """Return lines with exactly one separator between fields, and without quotes around numbers."""
        if b'"' in text:
            text = self._quoted.sub(rb" \1 ", text)
        if len(self._hard) > 1:
            text = text.translate(bytes.maketrans(self._hard, self._hard[:1] * len(self._hard)))
        # keep blank lines, so that line numbers stay correct
        return text if self._exact else b"\n".join(self._spaced(line) or line for line in text.split(b"\n"))

    def _spaced(self, line: bytes) -> bytes:
        if not self._hard:
            return b" ".join(line.split())
        return b" ".join(part for field in line.split(self._hard[:1]) for part in field.split() or [b""])


def _are_labels(values: npt.NDArray[np.float64]) -> bool:
    return bool(values.min() >= LABELS.min and values.max() <= LABELS.max and (values == values.astype(np.int32)).all())


def _is_header(where: str, fields: Sequence[str]) -> bool:
    """Return whether the first line has column names: no numbers, or numbers that count the columns.

    Raises a `DataError` if the line could be a header, or a record with invalid fields.
    """
    names = [field for field in fields if not NUMBER.fullmatch(field)]
    numbers = [field for field in fields if NUMBER.fullmatch(field)]
    missing = [name for name in names if name in MISSING]
    if not names:
        return False
    if not numbers and len(missing) < len(names):
        return True
    counted = [[str(i) for i in range(first, first + len(numbers))] for first in (0, 1)]
    if not missing and len(numbers) > 1 and numbers in counted:
        return True
    name = (missing or names)[0]
    wrong = f"{name!r} is not a number" if name else "it is empty, expected a number"
    hint = (
        "" if missing else ". Other columns are numbers, so this is not a header either; set header: true if it is one"
    )
    raise DataError(f"{where}, column {fields.index(name) + 1}: {wrong}{hint}.")
