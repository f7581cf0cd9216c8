"""CsvPart: a CSV file of a table."""

from __future__ import annotations

import csv
import functools
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

from singa_dask import fs
from singa_dask.data.codecs.columns import column_kind, is_number, refuse_twice, whole
from singa_dask.data.codecs.numbers import MISSING
from singa_dask.data.stores.blocks import BLOCK_BYTES
from singa_dask.data.stores.table_part import TablePart
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import Range, scan_ahead
from singa_dask.lazy import LazyModule

# Records of CSV files with a header: where they begin, and the columns of a block of them.
#
# A record ends at a line end outside quotes. Fields are quoted by ``"``, doubled within quotes (RFC 4180).


pc = LazyModule("pyarrow.compute")

QUOTE, NEWLINE, RETURN = b'"\n\r'
HEAD_BYTES = 1 << 14
# fields of blanks, which are no numbers
BLANKS = [" " * n for n in range(1, 33)]
BOM, WIDE_BOMS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
# the first line of Excel's files
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?\r?\n')
SEPARATORS = (";", "\t", "|", ",", "\x01")
AS_CHARACTERS = "Set quotes: false if quotes are characters here"
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
UTF8 = "utf-8"
AS_UTF8 = 'Write it as UTF-8, in Excel as "CSV UTF-8", or set charset, such as latin-1.'
# the longest header
MAX_HEADER = 1 << 26

Read = Callable[[int, int], bytes | memoryview]
Listed = Mapping[str, Collection[str]]


class CsvHeader(NamedTuple):
    """The header of a file: names of the columns, separator, offset and line of the first record, encoding, quotes."""

    names: tuple[str, ...]
    separator: str
    start: int
    line: int
    charset: str = UTF8
    quotes: bool | None = None


def read_header(
    url: str,
    read: Read,
    size: int,
    separator: str,
    charset: str = UTF8,
    has_names: bool | None = None,
    quotes: bool | None = None,
) -> CsvHeader:
    """Read the header of a file of ``size`` bytes; columns without names are called by their positions from 1 on.

    Raises
    ------
    DataError
        The file is empty or in another encoding, the header has no such separator, or a name occurs twice.
    """
    check_charset(url, charset)
    head = bytes(read(0, min(size, HEAD_BYTES)))
    if head.startswith(WIDE_BOMS):
        raise DataError(f"{url}: text in UTF-16, as Excel's Unicode Text is. {AS_UTF8}")
    start, line = len(BOM) if head.startswith(BOM) else 0, 1
    said = SEPARATOR_LINE.match(head, start)
    if said:
        separator, start, line = said[1].decode(errors="replace"), said.end(), 2
    length = HEAD_BYTES
    while not len(ends := _record_ends(np.frombuffer(head, np.uint8, offset=start), quotes)) and len(head) < size:
        length *= 16
        if length > MAX_HEADER:
            raise DataError(f"{url}, line {line}: a header of more than {len(head)} bytes, or an unclosed quote.")
        head = bytes(read(0, min(size, length)))
    text = head[start : start + int(ends[0]) if len(ends) else size]
    if not text.strip():
        raise DataError(f"{url}: it is empty." if not head.strip() else f"{url}, line {line}: expected a header.")
    fields = _fields(f"{url}, line {line}", text, separator, charset, quotes)
    if has_names is False:
        return CsvHeader(tuple(str(i + 1) for i in range(len(fields))), separator, start, line, charset, quotes)
    names = _names(f"{url}, line {line}", fields, has_names is True)
    return CsvHeader(names, separator, start + len(text), line + text.count(b"\n"), charset, quotes)


def check_charset(url: str, charset: str) -> None:
    """Check that ASCII is the same in an encoding: line ends, separators and quotes are found in bytes."""
    try:
        if bytes(range(128)).decode(charset).encode() == bytes(range(128)):
            return
    except (LookupError, UnicodeError):
        pass
    raise DataError(f"{url}: charset {charset!r}. Expected an encoding that extends ASCII, such as latin-1 or cp1252.")


def split_rows(lines: Iterable[str], separator: str, quotes: bool | None, strict: bool = False) -> list[list[str]]:
    """Return the fields of each record of some lines; `csv.Error` says that one is wrong, if it is found."""
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE if quotes is False else csv.QUOTE_MINIMAL, "strict": strict}
    return list(csv.reader(lines, delimiter=separator, skipinitialspace=separator != " ", **options))


def _fields(where: str, text: bytes, separator: str, charset: str, quotes: bool | None) -> list[str]:
    try:
        decoded = text.decode(charset).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not {charset.upper()}: {error}. {AS_UTF8}") from None
    if "\r" in decoded and (quotes is False or '"' not in decoded):
        raise DataError(f"{where}: lines end with carriage returns only. Write the file with line feeds.")
    if len(separator) != 1:
        raise DataError(f"{where}: separator {separator!r}, expected one character for a table with named columns.")
    if separator not in decoded and (other := next((each for each in SEPARATORS if each in decoded), "")):
        raise DataError(f"{where}: it contains no {separator!r}, but {other!r}. Set separator: {other!r}.")
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
    """Scan a file for the ends of records, and yield runs of about the size of a chunk. Empty lines do not count.

    Parameters
    ----------
    chunks : iterable of bytes or memoryview
        The bytes of the file, in order, from the first record on.
    size : int
        Bytes of the file.

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
        newlines, quotes = np.flatnonzero(data == NEWLINE), _quotes(data, header.quotes)
        ends = newlines
        if inside or len(quotes):
            ends = newlines[(np.searchsorted(quotes, newlines) + inside) % 2 == 0]
        inside = bool((inside + len(quotes)) % 2)
        filled, has_rest = _filled(data, ends)
        position += len(data)
        line += len(newlines)
        cut = position
        if len(ends):
            # the first record may have begun before
            n += int(np.count_nonzero(filled)) + bool(not filled[0] and not blank)
            blank = not has_rest
            last = int(ends[-1]) + 1
            next_line = line - int(len(newlines) - np.searchsorted(newlines, last))
            cut = position - len(data) + last
        else:
            blank = blank and not has_rest
        if position == size:
            if inside:
                raise DataError(
                    f"{url}, line {next_line}: a quote in the record that begins here is not closed. {AS_CHARACTERS}."
                )
            n, cut = n + (not blank), size
        elif not len(ends):
            continue
        if n:
            yield RecordRun(start, cut - start, n, first_line)
        first_line, start, n = next_line, cut, 0


def _filled(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], bool]:
    """Return whether the text up to each of some line ends is more than an empty line, and whether that after them is.

    An empty line may have carriage returns.
    """
    heads = data[np.concatenate([[0], ends + 1])[: len(ends) + (not len(ends) or ends[-1] + 1 < len(data))]]
    if not (heads == RETURN).any() and len(ends):
        filled = heads != NEWLINE
        return filled[: len(ends)], len(heads) > len(ends)
    text = np.flatnonzero((data != NEWLINE) & (data != RETURN))
    before = np.searchsorted(text, ends)
    return np.diff(before, prepend=0) > 0, len(text) > (before[-1] if len(ends) else 0)


def _quotes(data: npt.NDArray[np.uint8], quotes: bool | None) -> npt.NDArray[np.int64]:
    """Return where quotes are that begin or end a field."""
    return np.empty(0, np.int64) if quotes is False else np.flatnonzero(data == QUOTE)


def _record_ends(data: npt.NDArray[np.uint8], quotes: bool | None) -> npt.NDArray[np.int64]:
    """Return where lines end that no quotes are around."""
    newlines = np.flatnonzero(data == NEWLINE) + 1
    found: npt.NDArray[np.int64] = newlines[np.searchsorted(_quotes(data, quotes), newlines) % 2 == 0]
    return found


def record_starts(text: bytes, quotes: bool | None = None) -> npt.NDArray[np.int64]:
    """Return the offset of each record in a run of them."""
    data = np.frombuffer(text, np.uint8)
    starts = np.concatenate([[0], _record_ends(data, quotes), [len(data)]]).astype(np.int64)
    filled = np.searchsorted(np.flatnonzero((data != NEWLINE) & (data != RETURN)), starts)
    return starts[:-1][np.diff(filled) > 0]


def without_blanks(text: bytes, separator: bytes, quotes: bool | None = None) -> bytes:
    """Return records of several fields without blanks around these, but for quoted ones and fields of blanks."""
    if separator == b" " or len(separator) != 1 or b" " not in text or separator not in text:
        return text
    data = np.frombuffer(b"\n" + text + b"\n\n", np.uint8)
    blanks = np.flatnonzero(data == ord(" "))
    # runs of blanks: the first one, and the one after the last
    firsts = blanks[np.diff(blanks, prepend=-1) > 1]
    ends = blanks[np.diff(blanks, append=len(data)) > 1] + 1
    before, after = data[firsts - 1], data[ends]
    begins_field = (before == ord(separator)) | (before == NEWLINE)
    ends_field = (after == ord(separator)) | (after == NEWLINE) | (after == RETURN) & (data[ends + 1] == NEWLINE)
    # a field of blanks may be meant
    is_left_out = begins_field != ends_field
    if not is_left_out.any():
        return text
    is_left_out &= np.searchsorted(_quotes(data, quotes), firsts) % 2 == 0
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
) -> pa.Table:
    """Parse a run of records.

    Parameters
    ----------
    types : mapping of str to pyarrow.DataType, or None
        Type of each column; None to find out.
    columns : sequence of str
        Columns to parse; all if empty.
    skip_wrong : bool
        Leave out records with too few or too many fields.
    listed : mapping of str to collection of str
        By column of strings: values that are not missing, although they are called like that.
    with_blanks : bool
        Whether to keep blanks around fields that are not quoted.
    na_values : sequence of str
        Further words for missing values.

    Raises
    ------
    ValueError
        A record is invalid; see `find_wrong`.
    """
    text = text if with_blanks else without_blanks(text, header.separator.encode(header.charset), header.quotes)
    has_quotes = header.quotes is not False and b'"' in text
    # pyarrow needs distinct names
    names = [name or f"\0{i}" for i, name in enumerate(header.names)]
    options = pyarrow.csv.ConvertOptions(
        include_columns=list(columns),
        column_types=types and {name: types[name] for name in columns},
        null_values=[*MISSING, *BLANKS, *na_values],
        strings_can_be_null=False,
    )
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        pyarrow.csv.ReadOptions(
            column_names=names,
            use_threads=False,
            # all of it, also where characters take more bytes in UTF-8
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
    found: dict[str, Any] = dict(zip(table.column_names, table.columns, strict=True))
    for name in (name for name, column in found.items() if pa.types.is_string(column.type)):
        missing = pa.array([word for word in (*MISSING, *na_values) if word not in listed.get(name, ())], pa.string())
        found[name] = pc.if_else(pc.is_in(found[name], missing), None, found[name])
    return pa.table(found)


def has_numbers(texts: Sequence[str]) -> bool:
    """Return whether more than half of some fields are numbers."""
    counts = Counter(texts).items()
    found = sum(n for text, n in counts if text.strip().lower() not in ("true", "false") and not fault_of(text.strip()))
    return found > len(texts) / 2


def decimal_comma(texts: Sequence[str]) -> str:
    """Return the first field with a decimal comma if all fields are whole numbers or such; else an empty string."""
    if all(DECIMAL_COMMA.fullmatch(text) or re.fullmatch(r"[+-]?\d+", text) for text in texts):
        return next((text for text in texts if "," in text), "")
    return ""


def find_wrong(
    text: bytes, header: CsvHeader, numbers: Sequence[str], na_values: Sequence[str] = ()
) -> tuple[int, str] | None:
    """Return index and fault of the first invalid record of a run; None if all seem valid.

    Parameters
    ----------
    numbers : sequence of str
        Columns that must be numbers.
    """
    starts = [*record_starts(text, header.quotes).tolist(), len(text)]
    wanted = [(name, header.names.index(name)) for name in numbers]
    for i, (start, stop) in enumerate(pairwise(starts)):
        try:
            record = text[start:stop].decode(header.charset).strip("\r\n")
            rows = split_rows([record + "\n"], header.separator, header.quotes)
        except UnicodeDecodeError as error:
            return i, f": not {header.charset.upper()}: {error}. {AS_UTF8.rstrip('.')}"
        except csv.Error:
            advice = f"Quote the field, and double quotes in it. {AS_CHARACTERS}"
            return i, f": a quote in a field that does not begin with one. {advice}"
        fields = rows[0] if rows else []
        if len(fields) != len(header.names):
            return i, f": {len(fields)} fields, expected {len(header.names)}, as in the header"
        for name, index in wanted:
            field = fields[index].strip()
            if field not in na_values and (fault := fault_of(field)):
                return i, f", column {name!r}: {fault}"
    return None


def fault_of(field: str) -> str:
    """Return why a field is no number; empty if it is one, or has no value."""
    if field in MISSING or field.lower() in ("true", "false"):
        return ""
    if DECIMAL_COMMA.fullmatch(field):
        return f"{field!r} has a decimal comma. Write numbers with a decimal point"
    try:
        float(field)
    except ValueError:
        return f"{field!r} is not a number"
    return f"{field!r} is not a number" if "_" in field else ""


# records that are looked at for decimal commas
SHOWN_ROWS = 1000
# words among numbers that are named
MAX_WORDS = 8
TYPES = {"number": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "empty": pa.float64()}


class CsvPart(TablePart):
    """A CSV file with a header, as it is or gzipped; of a gzipped one all is held in memory.

    Kinds are those of the first ``block_bytes``; a column without a value there is taken for one of numbers. If wrong
    records are to be skipped, so is a column most of whose values are numbers.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        separator: str = ",",
        block_bytes: int = BLOCK_BYTES,
        tolerant: bool = False,
        charset: str = UTF8,
        header: bool | None = None,
        listed: Listed = MappingProxyType({}),
        quotes: bool | None = None,
        na_values: Sequence[str] = (),
    ) -> None:
        self.url, self._listed, self._na_values = url, listed, na_values
        self.source = open_bytes(url, storage_options)
        self._header = read_header(url, self.source.scan, self.source.size, separator, charset, header, quotes)
        self._block_bytes, self._tolerant = block_bytes, tolerant
        self.names, self.start = self._header.names, self._header.start
        self.index = tuple(name for name in self._header.names if not name or name.startswith("Unnamed: "))

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column, from the first records."""
        first = next(cut_records(self.url, self._chunks(), self._header, self.source.size), None)
        if first is None:
            return {}
        text = bytes(self.source.read(first.offset, first.length))
        try:
            table = parse_columns(text, self._header, None, skip_wrong=self._tolerant, na_values=self._na_values)
        except (pa.ArrowException, ValueError) as error:
            raise self._error(text, first, (), error) from None
        columns = dict(zip(self._header.names, table.columns, strict=True))
        self.faults = {name: fault for name, column in columns.items() if (fault := self._fault_of(column))}
        kinds = {name: "string" if name in self._listed else self._kind(column) for name, column in columns.items()}
        is_all = first.offset + first.length >= self.source.size
        return {name: "number" if kind == "empty" and not is_all else kind for name, kind in kinds.items()}

    def _chunks(self) -> Iterator[memoryview]:
        """Read the file in chunks, when they are needed."""
        size = self.source.size
        for offset in range(self._header.start, size, self._block_bytes):
            yield self.source.scan(offset, min(self._block_bytes, size - offset))

    def _kind(self, column: pa.ChunkedArray) -> str:
        kind = column_kind(column.type)
        is_number = kind == "string" and self._tolerant and has_numbers(column.drop_null().to_pylist())
        return "number" if is_number else kind

    def _fault_of(self, column: pa.ChunkedArray) -> str:
        if pa.types.is_binary(column.type):
            return f"not UTF-8. {AS_UTF8}"
        if not pa.types.is_string(column.type):
            return ""
        texts = column.drop_null().to_pylist()
        if text := decimal_comma(texts[:SHOWN_ROWS]):
            advice = "Set numbers, with decimal: ',' for this column, or features without it."
            return f"{text!r} has a decimal comma. {advice}"
        if self._tolerant or not has_numbers(texts):
            return ""
        faults = {text.strip(): fault for text in dict.fromkeys(texts) if (fault := fault_of(text.strip()))}
        advice = "Set features without this column."
        if faults and len(faults) <= MAX_WORDS and not re.search(r"\d", "".join(faults)):
            advice = f"Set na_values: [{', '.join(faults)}] for missing values, or features without this column."
        return f"{next(iter(faults.values()), 'values of several kinds')}. {advice}"

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        chunks = scan_ahead(self.source, self._header.start, self.source.size, block_bytes)
        return cut_records(self.url, chunks, self._header, self.source.size)

    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return (Range(self.source, run.offset, run.length),)

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        text = _whole_bytes(data[0])
        if self._header.quotes is not False and b'"' in text:
            self._refuse_escapes(text, run)
            self._refuse_joined(text, run)
        numbers = [name for name, kind in kinds.items() if kind in ("number", "empty")]
        try:
            table = self._parse(text, kinds)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise self._error(text, run, numbers, error) from None
        if len(table) != run.n:
            fault = ValueError(f"{len(table)} records, expected {run.n}")
            raise self._error(text, run, numbers, fault)
        # a number or a boolean is not a name, and without a header the names are 1, 2, ...
        if {*kinds.values()} <= {"string"} and self._header.names[0] != "1":
            self._refuse_header(table, text, run)
        return table

    def _parse(self, text: bytes, kinds: Mapping[str, str]) -> pa.Table:
        types = {name: TYPES[kind] for name, kind in kinds.items()}
        return parse_columns(text, self._header, types, list(kinds), listed=self._listed, na_values=self._na_values)

    def _refuse_escapes(self, text: bytes, run: RecordRun) -> None:
        """Refuse quotes within quotes that are escaped by a backslash: their records would be cut elsewhere."""
        separator = re.escape(self._header.separator.encode())
        if b'\\"' in text and (found := re.search(rb'\\"(?![\r\n"]|%b|\Z)' % separator, text)):
            raise DataError(
                f"{self._place(text, run, found.start())}: a quote that is escaped by a backslash, as Spark, Hive and "
                'MySQL write it. Write it doubled, "", in Spark by the option escape=\'"\', or write Parquet.'
            )

    def _refuse_joined(self, text: bytes, run: RecordRun) -> None:
        """Refuse quotes that join records: what they quote ends within a field, or each line could be a record."""
        data, separator = np.frombuffer(text, np.uint8), self._header.separator.encode()
        newlines, quotes = np.flatnonzero(data == NEWLINE), _quotes(data, self._header.quotes)
        pairs = quotes[: len(quotes) // 2 * 2].reshape(-1, 2)
        first, last = np.searchsorted(newlines, pairs).T
        ends = [b"", b"\r", b"\n", b'"', b" ", separator[:1]]
        # blanks may be before a quote that begins a field
        heads = ((at, end, text[max(at - 9, 0) : at].rstrip(b" ")[-1:]) for at, end in pairs[first < last].tolist())
        several = [(at, end) for at, end, before in heads if before in ends]
        for at, end in several:
            if text[end + 1 : end + 2] not in ends:
                fault = "what its quote begins ends further on, within a field"
                raise DataError(f"{self._place(text, run, at)}: {fault}. {AS_CHARACTERS}.")
        lines = (line for line in text.split(b"\n") if line.strip(b"\r"))
        n = len(self._header.names) - 1
        if several and self._header.quotes is None and run.n > 1 and all(line.count(separator) == n for line in lines):
            fault = "its quote ends further on, and each line between could be a record"
            advice = f"{AS_CHARACTERS}, true if they quote texts of several lines"
            raise DataError(f"{self._place(text, run, several[0][0])}: {fault}. {advice}.")

    def _refuse_header(self, table: pa.Table, text: bytes, run: RecordRun) -> None:
        """Refuse a record that is the header: files were joined."""
        form = self._header.separator, self._header.charset, self._header.quotes
        same = [pc.fill_null(pc.equal(table.column(name), name), False) for name in table.column_names]
        for row in np.flatnonzero(functools.reduce(np.logical_and, same, True)):
            starts = [*record_starts(text, self._header.quotes).tolist(), len(text)]
            record = text[starts[row] : starts[row + 1]]
            if tuple(_fields(self.url, record, *form)) == self._header.names:
                raise DataError(
                    f"{self._line(text, run, int(row))}: the header again. Delete it, if files were joined."
                )

    def written(self, run: RecordRun, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns of a run as strings as they are written, with blanks and words for missing values.

        None are returned if fields begin with blanks before quotes, which only are quotes without these.
        """
        text, types = bytes(self.source.read(run.offset, run.length)), dict.fromkeys(names, pa.string())
        listed = dict.fromkeys(names, MISSING)
        try:
            table = parse_columns(text, self._header, types, names, listed=listed, with_blanks=True)
        except (pa.ArrowException, ValueError):
            return {}
        return {name: whole(table.column(name)) for name in names}

    def rows(
        self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        text = bytes(data[0])
        starts = [*record_starts(text, self._header.quotes).tolist(), len(text)]

        def decode(first: int, stop: int) -> pa.Table:
            part = text[starts[first] : starts[stop]]
            if stop - first == 1:
                line = run.line + text.count(b"\n", 0, starts[first])
                return self.decode(RecordRun(run.offset + starts[first], len(part), 1, line), kinds, [memoryview(part)])
            table = self._parse(part, kinds)
            if len(table) != stop - first:
                raise ValueError(f"{len(table)} records, expected {stop - first}")
            return table

        return decode

    def _error(self, text: bytes, run: RecordRun, numbers: Sequence[str], error: Exception) -> DataError:
        wrong = find_wrong(text, self._header, numbers, self._na_values)
        if wrong is None:
            return DataError(f"{self.url}, lines from {run.line} on: {str(error).rstrip('.')}.")
        return DataError(f"{self._line(text, run, wrong[0])}{wrong[1]}.")

    def _line(self, text: bytes, run: RecordRun, row: int) -> str:
        return self._place(text, run, int(record_starts(text, self._header.quotes)[row]))

    def _place(self, text: bytes, run: RecordRun, at: int) -> str:
        line = run.line + text.count(b"\n", 0, at)
        return f"{self.url}, line {line}"

    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        return lambda row: self._line(bytes(data[0]), run, row)


def _whole_bytes(data: memoryview) -> bytes:
    """Return bytes, without a copy of those that were read from a remote file."""
    return data.obj if isinstance(data.obj, bytes) and len(data.obj) == len(data) else bytes(data)
