"""Records of CSV files with a header: find where records begin, and parse blocks of records.

A record ends at a line end outside quotes. Fields are quoted by ``"``; a quote within a field is doubled (RFC 4180).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from singa_dask.data.tables.column_names import refuse_twice
from singa_dask.data.tables.column_values import whole
from singa_dask.data.tables.spelling import DECIMAL_COMMA, MISSING, fault_of, is_number
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError, FaultError, Remedy
from singa_dask.lazy import LazyModule
from singa_dask.texts import REWRITE, refuse_wide

pc = LazyModule("pyarrow.compute")

QUOTE, NEWLINE, RETURN = b'"\n\r'
HEAD_BYTES = 1 << 14
# fields of blanks count as missing values
BLANKS = [" " * n for n in range(1, 33)]
BOM = b"\xef\xbb\xbf"
# a line that Excel writes at the start of CSV files
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?\r?\n')
SEPARATORS = (";", "\t", "|", ",", "\x01")
AS_CHARACTERS = "Set quotes: false if quotes are characters here"
UNQUOTED = Remedy("quotes", AS_CHARACTERS, ("false",))
UTF8 = "utf-8"
RECODED = Remedy("charset", "Set charset: latin-1 if that is its encoding", ("latin-1",))
AS_UTF8 = f"{REWRITE}. {RECODED.text}."
# maximum length of a header
MAX_HEADER = 1 << 26
# with at least this many numeric columns, each number is parsed as a separate line, which takes half the time
WIDE = 40

Read = Callable[[int, int], bytes | memoryview]
Listed = Mapping[str, Collection[str]]


class CsvHeader(NamedTuple):
    """The header of a file. ``start`` and ``line`` are offset and line number of the first record."""

    names: tuple[str, ...]
    separator: str
    start: int
    line: int
    charset: str = UTF8
    quotes: bool | None = None


def first_record(
    url: str, read: Read, size: int, separator: str, quotes: bool | None = None
) -> tuple[bytes, str, int, int]:
    """Return the first record of a file, and its separator, offset and line number.

    The line ``sep=;`` of Excel before the record overrides the given separator.

    Raises a `DataError` if the file is in UTF-16 or UTF-32, or the record is too long.
    """
    head = bytes(read(0, min(size, HEAD_BYTES)))
    refuse_wide(url, head)
    start, line = len(BOM) if head.startswith(BOM) else 0, 1
    match = SEPARATOR_LINE.match(head, start)
    if match:
        separator, start, line = match[1].decode(errors="replace"), match.end(), 2
    length = HEAD_BYTES
    while not len(ends := _record_ends(np.frombuffer(head, np.uint8, offset=start), quotes)) and len(head) < size:
        length *= 16
        if length > MAX_HEADER and quotes is not False:
            raise DataError(
                f"{url}, line {line}: the header has more than {len(head)} bytes, or a quote in it is not closed."
            )
        head = bytes(read(0, min(size, length)))
    return head[start : start + int(ends[0]) if len(ends) else size], separator, start, line


def read_header(
    url: str,
    read: Read,
    size: int,
    separator: str,
    charset: str = UTF8,
    has_names: bool | None = None,
    quotes: bool | None = None,
) -> CsvHeader:
    """Read the header of a file of ``size`` bytes. Without a header, columns are called 1, 2, ...

    Raises a `DataError` if the file is empty or has another encoding, a name occurs twice, or the header has another
    separator.
    """
    check_charset(url, charset)
    text, separator, start, line = first_record(url, read, size, separator, quotes)
    if not text.strip():
        is_empty = not bytes(read(0, min(size, HEAD_BYTES))).strip()
        raise DataError(f"{url}: it is empty." if is_empty else f"{url}, line {line}: expected a header.")
    fields = header_fields(f"{url}, line {line}", text, separator, charset, quotes)
    if has_names is False:
        return CsvHeader(tuple(str(i + 1) for i in range(len(fields))), separator, start, line, charset, quotes)
    names = _names(f"{url}, line {line}", fields, has_names is True)
    return CsvHeader(names, separator, start + len(text), line + text.count(b"\n"), charset, quotes)


def check_charset(url: str, charset: str) -> None:
    """Raise a `DataError` if an encoding does not extend ASCII. Line ends are searched for in bytes."""
    try:
        if bytes(range(128)).decode(charset).encode() == bytes(range(128)):
            return
    except (LookupError, UnicodeError):
        pass
    advice = "" if charset[:3].lower() != "utf" else f" {REWRITE}."
    raise DataError(
        f"{url}: the charset is {charset!r}. Expected an encoding that extends ASCII, such as latin-1 or "
        f"cp1252.{advice}"
    )


def split_rows(lines: Iterable[str], separator: str, quotes: bool | None, strict: bool = False) -> list[list[str]]:
    """Return the fields of each record of some lines; raise a `csv.Error` for a wrong record."""
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE if quotes is False else csv.QUOTE_MINIMAL, "strict": strict}
    return list(csv.reader(lines, delimiter=separator, skipinitialspace=separator != " ", **options))


def header_fields(where: str, text: bytes, separator: str, charset: str, quotes: bool | None) -> list[str]:
    """Return the fields of a header, or of a record that may repeat it."""
    try:
        decoded = text.decode(charset).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: the text is not {charset.upper()}: {error}. {AS_UTF8}", remedy=RECODED) from None
    if "\r" in decoded and (quotes is False or '"' not in decoded):
        raise DataError(f"{where}: lines end with carriage returns only. Write the file with line feeds.")
    if len(separator) != 1:
        raise DataError(
            f"{where}: the separator is {separator!r}, expected one character for a table with named columns."
        )
    if separator not in decoded and (other := next((each for each in SEPARATORS if each in decoded), "")):
        remedy = Remedy("separator", f"Set separator: {other!r}", (other,))
        raise DataError(f"{where}: it contains no {separator!r}, but {other!r}. {remedy.text}.", remedy=remedy)
    try:
        return [name.strip() for row in split_rows([decoded], separator, quotes, strict=True) for name in row]
    except csv.Error as error:
        raise DataError(f"{where}: {error}.") from None


def _names(where: str, names: Sequence[str], may_be_numbers: bool) -> tuple[str, ...]:
    if not may_be_numbers and not any(name and not is_number(name) for name in names):
        raise DataError(
            f"{where}: expected a header with the names of the columns, got numbers: {','.join(names)[:60]!r}."
        )
    refuse_twice([name for name in names if name], where)
    return tuple(names)


def cut_records(url: str, chunks: Iterable[bytes | memoryview], header: CsvHeader, size: int) -> Iterator[RecordRun]:
    """Scan a file for ends of records, and yield runs of records of about the size of a chunk.

    Empty lines are ignored.

    Parameters
    ----------
    chunks : iterable of bytes or memoryview
        The bytes of the file, in order, from the first record on.
    size : int
        Length of the file.

    Raises
    ------
    DataError
        A quote is not closed.
    """
    position = start = header.start
    first_line = next_line = line = header.line
    n, inside, blank = 0, False, True
    for chunk in chunks:
        data = np.frombuffer(chunk, np.uint8)
        newlines, quotes = np.flatnonzero(data == NEWLINE), find_quotes(data, header.quotes)
        ends = newlines
        if inside or len(quotes):
            ends = newlines[(np.searchsorted(quotes, newlines) + inside) % 2 == 0]
        inside = bool((inside + len(quotes)) % 2)
        filled, has_rest = _filled(data, ends)
        position += len(data)
        line += len(newlines)
        cut = position
        if len(ends):
            # the first record may have begun in an earlier chunk
            n += int(np.count_nonzero(filled)) + bool(not filled[0] and not blank)
            blank = not has_rest
            last = int(ends[-1]) + 1
            next_line = line - int(len(newlines) - np.searchsorted(newlines, last))
            cut = position - len(data) + last
        else:
            blank = blank and not has_rest
        if position == size:
            if inside:
                fault = "a quote in the record that begins here is not closed"
                raise DataError(f"{url}, line {next_line}: {fault}. {AS_CHARACTERS}.", remedy=UNQUOTED)
            n, cut = n + (not blank), size
        elif not len(ends):
            continue
        if n:
            yield RecordRun(start, cut - start, n, first_line)
        first_line, start, n = next_line, cut, 0


def _filled(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], bool]:
    """Return which lines are not empty, and whether there is text after the last line end.

    Carriage returns count as empty.
    """
    heads = data[np.concatenate([[0], ends + 1])[: len(ends) + (not len(ends) or ends[-1] + 1 < len(data))]]
    if not (heads == RETURN).any() and len(ends):
        filled = heads != NEWLINE
        return filled[: len(ends)], len(heads) > len(ends)
    text = np.flatnonzero((data != NEWLINE) & (data != RETURN))
    before = np.searchsorted(text, ends)
    return np.diff(before, prepend=0) > 0, len(text) > (before[-1] if len(ends) else 0)


def find_quotes(data: npt.NDArray[np.uint8], quotes: bool | None) -> npt.NDArray[np.int64]:
    """Return the offsets of the quotes around fields."""
    return np.empty(0, np.int64) if quotes is False else np.flatnonzero(data == QUOTE)


def _record_ends(data: npt.NDArray[np.uint8], quotes: bool | None) -> npt.NDArray[np.int64]:
    """Return the offset after each line end outside quotes."""
    newlines = np.flatnonzero(data == NEWLINE) + 1
    ends: npt.NDArray[np.int64] = newlines[np.searchsorted(find_quotes(data, quotes), newlines) % 2 == 0]
    return ends


def record_starts(text: bytes, quotes: bool | None = None) -> npt.NDArray[np.int64]:
    """Return the offset of each record in a run."""
    data = np.frombuffer(text, np.uint8)
    starts = np.concatenate([[0], _record_ends(data, quotes), [len(data)]]).astype(np.int64)
    filled = np.searchsorted(np.flatnonzero((data != NEWLINE) & (data != RETURN)), starts)
    return starts[:-1][np.diff(filled) > 0]


def without_blanks(text: bytes, separator: bytes, quotes: bool | None = None) -> bytes:
    """Remove blanks around fields, except within quotes and in fields that contain only blanks."""
    if separator == b" " or len(separator) != 1 or b" " not in text or separator not in text:
        return text
    data = np.frombuffer(b"\n" + text + b"\n\n", np.uint8)
    blanks = np.flatnonzero(data == ord(" "))
    # begin and end of each run of blanks
    firsts = blanks[np.diff(blanks, prepend=-1) > 1]
    ends = blanks[np.diff(blanks, append=len(data)) > 1] + 1
    before, after = data[firsts - 1], data[ends]
    begins_field = (before == ord(separator)) | (before == NEWLINE)
    ends_field = (after == ord(separator)) | (after == NEWLINE) | (after == RETURN) & (data[ends + 1] == NEWLINE)
    # keep the blanks of fields that contain only blanks
    is_left_out = begins_field != ends_field
    if not is_left_out.any():
        return text
    is_left_out &= np.searchsorted(find_quotes(data, quotes), firsts) % 2 == 0
    left_out = np.zeros(len(data) + 1, np.int8)
    left_out[firsts[is_left_out]] = 1
    left_out[ends[is_left_out]] = -1
    kept: npt.NDArray[np.uint8] = data[np.cumsum(left_out, dtype=np.int8)[:-1] == 0]
    return kept[1:-2].tobytes()


def parse_columns(
    text: bytes,
    header: CsvHeader,
    types: Mapping[str, pa.DataType] | None,
    columns: Sequence[str] = (),
    skip_wrong: bool = False,
    listed: Listed = MappingProxyType({}),
    with_blanks: bool = False,
    na_values: Sequence[str] = (),
    missing: Sequence[str] = (*MISSING, *BLANKS),
) -> pa.Table:
    """Parse a run of records.

    Parameters
    ----------
    types : mapping of str to pyarrow.DataType, or None
        Type of each column; None to detect them.
    columns : sequence of str
        Columns to parse; all if empty.
    skip_wrong : bool
        Whether to skip records with too few or too many fields.
    listed : mapping of str to collection of str
        For columns of strings: words for missing values that are values in the column.
    with_blanks : bool
        Whether to keep blanks around unquoted fields.
    na_values : sequence of str
        Additional words for missing values.
    missing : sequence of str
        Texts of fields that are missing values.

    Raises
    ------
    ValueError
        A record is invalid; see `find_wrong`.
    """
    text = text if with_blanks else without_blanks(text, header.separator.encode(header.charset), header.quotes)
    has_quotes = header.quotes is not False and b'"' in text
    # replace empty names, because pyarrow needs distinct names
    names = [name or f"\0{i}" for i, name in enumerate(header.names)]
    null_values = [*missing, *na_values]
    is_of_numbers = types is not None and all(types[name] == pa.float64() for name in columns)
    if is_of_numbers and not has_quotes and WIDE <= len(columns) == len(names):
        numbers = parse_numbers(text, header, null_values)
        if numbers is not None:
            values = numbers.to_numpy(zero_copy_only=False).reshape(-1, len(names))
            # to_numpy turns missing values into NaN, and from_pandas turns NaN into null again
            n, by_column = len(values), pa.array(values.T.ravel(), from_pandas=numbers.null_count > 0)
            return pa.table({name: by_column.slice(i * n, n) for i, name in enumerate(names)}).select(list(columns))
    options = pyarrow.csv.ConvertOptions(
        include_columns=list(columns),
        column_types=types and {name: types[name] for name in columns},
        null_values=null_values,
        strings_can_be_null=False,
    )
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        pyarrow.csv.ReadOptions(
            column_names=names,
            use_threads=False,
            # one block for the whole text; characters can take more bytes in UTF-8 than in the source
            block_size=len(text) * (1 if header.charset == UTF8 else 4) + 1,
            encoding=header.charset,
        ),
        pyarrow.csv.ParseOptions(
            delimiter=header.separator,
            quote_char=has_quotes and '"',
            newlines_in_values=has_quotes,
            invalid_row_handler=(lambda row: "skip") if skip_wrong else None,
        ),
        options,
    )
    parsed: dict[str, Any] = dict(zip(table.column_names, table.columns, strict=True))
    for name in (name for name, column in parsed.items() if pa.types.is_string(column.type)):
        missing = pa.array([word for word in (*MISSING, *na_values) if word not in listed.get(name, ())], pa.string())
        parsed[name] = pc.if_else(pc.is_in(parsed[name], missing), None, parsed[name])
    return pa.table(parsed)


def parse_numbers(text: bytes, header: CsvHeader, null_values: Sequence[str] = ()) -> pa.Array | None:
    """Parse all fields of a run of records as numbers.

    Returns
    -------
    (records * columns,) float64, or None
        The fields, record by record. None if a field is not a number, or a record has more or fewer fields than the
        header.
    """
    separator, characters = header.separator.encode(), np.frombuffer(text, np.uint8)
    if len(separator) != 1 or not text:
        return None
    starts = np.concatenate([[0], np.flatnonzero(characters[:-1] == NEWLINE) + 1])
    separators = np.flatnonzero(characters == ord(separator))
    n_separators = np.diff(np.searchsorted(separators, starts), append=len(separators))
    if (n_separators != len(header.names) - 1).any():
        return None
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text.translate(bytes.maketrans(separator, b"\n"))),
            pyarrow.csv.ReadOptions(column_names=["number"], use_threads=False, block_size=len(text) + 1),
            pyarrow.csv.ParseOptions(delimiter=header.separator, quote_char=False, ignore_empty_lines=False),
            pyarrow.csv.ConvertOptions(column_types={"number": pa.float64()}, null_values=null_values),
        )
    except (pa.ArrowInvalid, ValueError):
        return None
    # with single carriage returns as line ends, the parser finds more rows
    is_whole = len(table) == len(starts) * len(header.names)
    return whole(table.column(0)) if is_whole else None


def has_numbers(texts: Sequence[str]) -> bool:
    """Return whether more than half of the fields are numbers."""
    counts = Counter(texts).items()
    n_numbers = sum(
        n for text, n in counts if text.strip().lower() not in ("true", "false") and not fault_of(text.strip())
    )
    return n_numbers > len(texts) / 2


def decimal_comma(texts: Sequence[str]) -> str:
    """Return the first field with a decimal comma if every field has one or is a whole number; else empty."""
    if all(DECIMAL_COMMA.fullmatch(text) or re.fullmatch(r"[+-]?\d+", text) for text in texts):
        return next((text for text in texts if "," in text), "")
    return ""


def find_wrong(
    text: bytes,
    header: CsvHeader,
    numbers: Sequence[str],
    fault: Callable[[str, str], FaultError | None],
    n_fields: str = ", as in the header",
) -> tuple[int, FaultError] | None:
    """Return index and fault of the first invalid record of a run; None if all records seem valid.

    Parameters
    ----------
    numbers : sequence of str
        Columns that must be numbers.
    fault : callable
        Takes a column and a field. Returns the reason why the field is not a number; None if it is a number.
    n_fields : str
        Text on where the expected number of fields comes from, for the fault.
    """
    starts = [*record_starts(text, header.quotes).tolist(), len(text)]
    wanted = [(name, header.names.index(name)) for name in numbers]
    for i, (start, stop) in enumerate(pairwise(starts)):
        try:
            record = text[start:stop].decode(header.charset).strip("\r\n")
            rows = split_rows([record + "\n"], header.separator, header.quotes)
        except UnicodeDecodeError as error:
            return i, FaultError(f": the text is not {header.charset.upper()}: {error}. {AS_UTF8.rstrip('.')}", RECODED)
        except csv.Error:
            if '"' not in record:
                return i, FaultError(": the record contains a carriage return. Write the file with line feeds")
            advice = f"Quote the field, and double quotes in it. {AS_CHARACTERS}"
            return i, FaultError(f": a field has a quote inside, but does not begin with one. {advice}", UNQUOTED)
        fields = rows[0] if rows else []
        if len(fields) != len(header.names):
            return i, FaultError(f": {len(fields)} fields, expected {len(header.names)}{n_fields}")
        for name, index in wanted:
            if wrong := fault(name, fields[index].strip()):
                return i, FaultError(f", column {name!r}: {wrong}", wrong.remedy)
    return None
