"""Records of CSV: their ends, with quotes, embedded newlines and blocks of any size; headers."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.tables.files import csv_text
from singa_dask.data.tables.files.csv_text import (
    CsvHeader,
    cut_records,
    parse_columns,
    read_header,
    record_starts,
)
from singa_dask.errors import DataError
from tests.selection import few_examples


def runs_of(content: bytes, block_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    """Return number of records and bytes of each run."""
    read = lambda offset, length: content[offset : offset + length]  # noqa: E731
    header = read_header("t.csv", read, len(content), ",")
    chunks = (read(at, block_bytes) for at in range(header.start, len(content), block_bytes))
    runs = list(cut_records("t.csv", chunks, header, len(content)))
    for run in runs:
        assert run.line == 1 + content[: run.offset].count(b"\n")
    return [(run.n, content[run.offset : run.offset + run.length]) for run in runs]


FIELDS = st.text(st.sampled_from('ab,"\n é'), max_size=5).filter(lambda text: text.strip("\n") != "")


@few_examples(25)
@given(
    st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=20),
    st.integers(1, 30),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_runs_of_any_size_have_the_records_of_the_csv_module(
    rows: list[tuple[str, str]], block_bytes: int, end: str, ends: bool
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *rows])
    content = (text.getvalue() if ends else text.getvalue().removesuffix(end)).encode()
    runs = runs_of(content, block_bytes)
    assert sum(n for n, _ in runs) == len(rows)
    found = [record for _, part in runs for record in csv.reader(io.StringIO(part.decode(), newline=""))]
    assert found == [list(row) for row in rows]
    assert [len(record_starts(part)) for _, part in runs] == [n for n, _ in runs]


@pytest.mark.parametrize("block_bytes", [1, 3, 100])
def test_empty_lines_do_not_count(block_bytes: int) -> None:
    runs = runs_of(b"a,b\n\n1,2\n\r\n\n3,4\n\n\n", block_bytes)
    assert sum(n for n, _ in runs) == 2
    assert sum(len(record_starts(part)) for _, part in runs) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.csv: it is empty"),
        (b"\n\n", "t.csv: it is empty"),
        ("a,b".encode("utf-16"), "t.csv: the text is encoded in UTF-16"),
        (b"a;b\n1;2\n", "t.csv, line 1: it contains no ',', but ';'. Set separator: ';'"),
        (b"a,b,a\n1,2,3\n", "t.csv, line 1: column 'a' occurs twice"),
        (b"1,2,3\n1,2,3\n", "t.csv, line 1: expected a header with the names of the columns, got numbers: '1,2,3'"),
        (b"a,b\xff\n1,2\n", "t.csv, line 1: the text is not UTF-8"),
        (b"a,b\r1,2\r", "t.csv, line 1: lines end with carriage returns only"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "t.csv, line 3: a quote in the record that begins here is not closed"),
    ],
)
def test_what_is_wrong_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        runs_of(content)
    assert message in str(caught.value)


def test_excels_separator_line_and_mark() -> None:
    content = b"\xef\xbb\xbfsep=;\r\na;b\r\n1;2\r\n"
    header = read_header("t.csv", lambda offset, length: content[offset : offset + length], len(content), ",")
    assert header == (("a", "b"), ";", 15, 3, "utf-8", None)


@few_examples(25)
@given(
    st.lists(
        st.lists(st.sampled_from(["1", "-2.5e3", "", "NA", " 7", " ", "nan", "x", "1;2"]), min_size=3, max_size=4)
    ),
    st.sampled_from([",", ";"]),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_numbers_of_wide_tables_are_those_of_narrow_ones(rows: list[list[str]], separator: str, end: str) -> None:
    text = "".join(separator.join(row) + end for row in rows).encode()
    names = tuple("abc")

    def parse(wide: int) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_text, "WIDE", wide)
            try:
                table = parse_columns(
                    text, CsvHeader(names, separator, 0, 1), dict.fromkeys(names, pa.float64()), names
                )
            except (pa.ArrowException, ValueError):
                return "wrong"
            return repr(table.to_pydict())

    assert parse(3) == parse(4)
