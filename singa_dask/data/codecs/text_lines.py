"""LineParser: parses lines of numbers, whole blocks at once; finds the column of an error, and reads headers."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs.labels import LABEL_NAMES, labels_among

# kinds of characters; 0 for those of numbers and all others
BLANK, SEPARATOR, NEWLINE = 1, 2, 3
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
IN_NUMBERS = b"0123456789+-.eE"
LARGEST = float(np.finfo(np.float32).max)
LABELS = np.iinfo(np.int32)
ID_NAME = re.compile(r"(?i:id|index)|.*(_id|[a-z]I[dD]|_ID)")
MISSING = ("", "?", "-", "na", "n/a", "nan", "nil", "none", "null")
# maximum length of a number
MAX_DIGITS = 512
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
        kinds = bytearray(BLANK if byte <= ord(" ") else 0 for byte in range(256))
        for byte in self._hard:
            kinds[byte] = SEPARATOR
        kinds[ord("\n")] = NEWLINE
        self._kinds = bytes(kinds)
        self._blanks = bytes.maketrans(self._hard, b" " * len(self._hard))
        self._known = bytes(byte for byte in range(256) if kinds[byte]) + IN_NUMBERS
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
        if b'"' in text:
            text = self._quoted.sub(rb" \1 ", text)
        # rejects nan, inf and hexadecimals; what passes may still not be a number
        if text.translate(None, self._known) or not self._fits(text, n):
            return None
        text = text.translate(self._blanks)
        try:
            values = np.fromstring(text, np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            # numpy only warns about invalid numbers, but raises where warnings are errors
            return None
        # fromstring stops at an invalid number, and returns its valid beginning
        if values.size != n * self.n_columns or not NUMBER.fullmatch(text[-MAX_DIGITS:].split()[-1]):
            return None
        if max(-values.min(), values.max()) > LARGEST:
            return None
        rows = values.reshape(n, self.n_columns)
        if self.has_label and not _are_labels(rows[:, 0]):
            return None
        return rows

    def _fits(self, text: bytes, n: int) -> bool:
        """Return whether each line has the right number of fields, none of them empty."""
        kinds = np.frombuffer(text.translate(self._kinds), np.uint8)
        inside = kinds == 0
        begins = np.flatnonzero(inside & np.concatenate([[True], ~inside[:-1]]))
        ends = np.flatnonzero(kinds >= SEPARATOR)
        if text.endswith(b"\n") and np.count_nonzero(kinds == NEWLINE) == n:
            ends = ends[:-1]
        if len(begins) != n * self.n_columns:
            return False
        of_lines = kinds[ends] == NEWLINE
        if self._exact:
            newlines = np.flatnonzero(of_lines)
            expected = np.arange(1, n) * self.n_columns - 1
            return (
                len(ends) == len(begins) - 1
                and np.array_equal(newlines, expected)
                and bool((begins[:-1] < ends).all() and (ends < begins[1:]).all())
            )
        before = np.concatenate([[0], np.searchsorted(begins, ends), [len(begins)]])
        if (np.diff(before) < 1).any():
            return False
        lines = np.concatenate([[0], before[1:-1][of_lines], [len(begins)]])
        return bool((np.diff(lines) == self.n_columns).all())

    # -- single lines ------------------------------------------------------------------------------------

    def split(self, line: bytes) -> list[bytes]:
        """Return the fields of a line without surrounding blanks and quotes; empty for an empty line."""
        line = self._quoted.sub(rb" \1 ", line).strip()
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
