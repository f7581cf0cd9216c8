"""Tables without a header, in other encodings, in JSON and of Excel: the same records as those of plain CSV."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from singa_dask.data.stores import detect
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError
from tests.contracts.records import read_all

ROWS = [(1, 1.5, "grün"), (2, None, "rot"), (3, 2.5, "grün")]
LINES = "".join(f"{number};{'' if size is None else size};{colour}\n" for number, size, colour in ROWS)
WANTED = np.array([[1, 1.5], [2, 2], [3, 2.5]], np.float32)


def opened(path: Path, content: bytes, **options: Any) -> TableStore:
    path.write_bytes(content)
    return TableStore(str(path), separator=";", missing="mean", **options)


def check(store: TableStore) -> None:
    with store:
        found = read_all(store)
        assert store.class_names == ("grün", "rot")
    np.testing.assert_array_equal(found["data"], WANTED)
    np.testing.assert_array_equal(found["label"], [0, 1, 0])


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "cp1252"])
def test_text(tmp_path: Path, charset: str) -> None:
    header = "number;größe;art\n"
    check(opened(tmp_path / "x.csv", (header + LINES).encode(charset), charset=charset, label="art"))
    check(opened(tmp_path / "y.csv", LINES.encode(charset), charset=charset, header=False, label="3"))
    # names that are numbers are names if a job says so
    check(opened(tmp_path / "z.csv", ("0;1;2\n" + LINES).encode(charset), charset=charset, header=True, label="2"))


def test_errors_of_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column 'art': the text is not UTF-8. .* Set charset: latin-1 if that"):
        opened(tmp_path / "x.csv", b"a;b;art\n1;2;gr\xfcn\n", label="art").read_block(0)
    with pytest.raises(
        DataError, match=r"the charset is 'utf-16'. Expected an encoding that extends ASCII, .* Write it as"
    ):
        opened(tmp_path / "x.csv", LINES.encode("utf-16"), charset="utf-16")
    for name in ("x.csv", "x.jsonl"):
        for charset in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
            shown = charset.replace("16-", "16")
            with pytest.raises(
                DataError,
                match=rf"the text is encoded in {shown.upper()}\..* or convert it with iconv -f {shown} -t utf-8\.$",
            ):
                opened(tmp_path / name, LINES.encode(charset), label="art")
    with pytest.raises(DataError, match=r"expected a header with the names of the columns, got numbers: '0,1,2'"):
        opened(tmp_path / "x.csv", b"0;1;2\n3;4;5\n", label="2")
    with pytest.raises(DataError, match=r"line 5: 1 fields, expected 3"):
        opened(tmp_path / "x.csv", LINES.encode() + b"\n4\n", header=False, label="3").read_block(0)


def test_json(tmp_path: Path) -> None:
    rows = [{"number": number, "größe": size, "art": colour} for number, size, colour in ROWS]
    del rows[1]["größe"]
    check(opened(tmp_path / "x.json", json.dumps(rows).encode(), label="art"))
    lines = "\n".join(map(json.dumps, rows)).encode()
    check(opened(tmp_path / "x.jsonl", b"\xef\xbb\xbf" + lines + b"\n\n", label="art", block_bytes=20))
    check(opened(tmp_path / "x.ndjson.gz", gzip.compress(lines.replace(b"\n", b"\r\n")), label="art"))
    assert detect(str(tmp_path / "x.json")) == "table"
    for text, said in (
        ('{"a": [1]}', r"expected an array of objects, as pandas writes it by to_json\(orient='records'\)"),
        ('[{"a": 1}, {"a": "b"}]', r"column 'a': texts among numbers: b. Set na_values: \[b\] if they"),
        (
            f'[{{"a": 1}}, {{"a": 1{400 * "0"}}}]',
            "column 'a': values of type int cannot be a column: .* too large",
        ),
        ("[", "not JSON: "),
    ):
        with pytest.raises(DataError, match=said):
            opened(tmp_path / "x.json", text.encode())


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_numbers_of_json(tmp_path: Path, name: str) -> None:
    """Integers from 2**63 on, NaN as Python writes it, and infinite numbers."""
    rows = ['{"a": 18446744073709551615, "b": 9007199254740993, "c": "NaN"}', '{"a": -1, "b": NaN, "c": "7"}']
    rows += ['{"a": null, "b": 0.5, "c": "7"}']
    text = "\n".join(rows) if name == "x.jsonl" else f"[{', '.join(rows)}]"
    with opened(tmp_path / name, text.encode(), features=["a", "b", "c"], categories={"c": ["NaN", "7"]}) as store:
        wanted = [[2.0**64, 2.0**53, 1, 0], [-1, 2.0**52 + 0.25, 0, 1], [2.0**63, 0.5, 0, 1]]
        np.testing.assert_array_equal(read_all(store)["data"], np.array(wanted, np.float32))
    rows = ['{"a": 1.5}', '{"a": 1e999}']
    text = "\n".join(rows) if name == "x.jsonl" else f"[{', '.join(rows)}]"
    with pytest.raises(DataError, match="column 'a': inf does not fit in a float of 32 bits"):
        opened(tmp_path / name, text.encode(), features=["a"]).read_block(0)


GOOD = b'{"n": 1, "t": "a b", "k": 3}\n{"n": 2, "t": "b", "k": 4}\n{"t": "c", "n": null, "k": 4}\n'
TEXT = {"features": ["n", "t"], "texts": {"t": {"length": 2}}, "label": "k"}


@pytest.mark.parametrize("block_bytes", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_json_lines(block_bytes: int, tmp_path: Path) -> None:
    """A wrong line is in the first of large blocks, and in a later one of small blocks."""
    with opened(tmp_path / "x.jsonl", GOOD, **TEXT, categories={"k": ["4", "3"]}) as store:
        found = read_all(store)
    # equally frequent words are numbered by their text: b comes twice
    np.testing.assert_array_equal(found["data"], [[1, 2, 1], [2, 1, -1], [1.5, 3, -1]])
    np.testing.assert_array_equal(found["label"], [1, 0, 0])
    for line, said in (
        (b'{"n": 1, "k": 3}', r"x\.jsonl, line 4, column 't': no value\. Set missing: skip"),
        (b'{"n": 1, "t": null, "k": 3}', r"line 4, column 't': no value"),
        (b'{"n": 1, "t": 5, "k": 3}', r"line 4: column 't' is 5, expected a string"),
        (b'{"n": "x", "t": "a", "k": 3}', r"line 4: column 'n' is 'x', expected a number"),
        (b'{"n": 1, "t": "a", "t": "b", "k": 3}', r"line 4: a key occurs twice"),
        (b'{"n": 1, "t": "\xff", "k": 3}', r"line 4: not JSON: 'utf-8'"),
        (b'{"n": 1, "t": "a", "\xff": 3}', r"(line 4, column 'k': no value|lines from 1 on: )"),
        (b"[1]", r"line 4: not an object of JSON"),
        (b"\n", r"line 4: empty, expected an object of JSON"),
    ):
        content, last = GOOD + line + b"\n", b'{"n": 3, "t": "c", "k": 4}\n'
        with pytest.raises(DataError, match=said):
            read_all(opened(tmp_path / "x.jsonl", content + last, **TEXT, block_bytes=block_bytes))
        with opened(tmp_path / "x.jsonl", content + last, **TEXT, block_bytes=block_bytes, tolerant=True) as store:
            bad = [row for i in range(len(store.blocks)) for row in store.salvage(i)[1]]
            assert (store.count, len(bad)) == (5 + (line == b"\n"), 1 + (line == b"\n"))


def test_sheets(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("number", "größe", "art"), *ROWS, (None, None, None)]:
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    assert detect(str(tmp_path / "x.xlsx")) == "table"
    check(TableStore(str(tmp_path / "x.xlsx"), missing="mean", label="art"))
    book.create_sheet("more")
    book.save(tmp_path / "x.xlsx")
    with pytest.raises(
        DataError, match=r"the sheets Sheet, more, expected one. Save the sheet to read as a file of its own."
    ):
        TableStore(str(tmp_path / "x.xlsx"))


@pytest.mark.parametrize("kind", ["text", "empty zip", "cut", "no sheet", "not XML", "no number"])
def test_damaged_files_of_excel_are_named(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "x.xlsx"
    pd.DataFrame({"a": [1.5, 2.5]}).to_excel(path, index=False)
    with zipfile.ZipFile(path) as book:
        members = {name: book.read(name) for name in book.namelist()}
    changes = {
        "no sheet": ("xl/workbook.xml", b".*", b"<x/>"),
        "not XML": ("xl/worksheets/sheet1.xml", b".*", b"x"),
        "no number": ("xl/worksheets/sheet1.xml", b"<v>1.5", b"<v>q"),
    }
    if kind == "text":
        path.write_text("a\n1\n")
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        name, old, new = changes.get(kind, ("", b"", b""))
        with zipfile.ZipFile(path, "w") as book:
            for each, content in members.items() if name else ():
                book.writestr(each, re.sub(old, new, content, count=1, flags=re.DOTALL) if each == name else content)
    with pytest.raises(DataError, match=r"x\.xlsx: the file is of another format, or damaged: "):
        TableStore(str(path))


def test_an_object_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    for name, text in (("x.json", '[{"a": 1, "a": 2}, {"a": 3}]'), ("x.jsonl", '{"a": 1, "a": 2}\n{"a": 3}\n')):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match="a key occurs twice"):
            TableStore(str(tmp_path / name))


def test_json_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"x\.json: the file is of another format, or damaged: maximum recursion"):
        TableStore(str(tmp_path / "x.json"))


def test_cells_of_sheets_that_have_no_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in [("x", "y"), (1, "a"), (2, "#N/A"), ("#DIV/0!", "b"), (4, "a"), (5, None)]:
        book.active.append(row)
    book.save(tmp_path / "errors.xlsx")
    with TableStore(str(tmp_path / "errors.xlsx"), features="x", label="y", missing="skip") as store:
        assert store.class_names == ("a",)
        np.testing.assert_array_equal(read_all(store)["data"][:, 0], [1, 4])
    errors = "2 cells with errors read as missing. The first is #N/A in B3."
    assert [each for each in caplog.messages if "cells" in each] == [f"{tmp_path}/errors.xlsx, sheet Sheet: {errors}"]
    # as Excel stores a formula whose value is an empty text, and as programs store formulas that do not compute
    for value, kind in (("<v></v>", ' t="str"'), ("<v>a</v>", ' t="str"'), ("<v></v>", ""), ("", "")):
        file = tmp_path / "formulas.xlsx"
        with zipfile.ZipFile(tmp_path / "errors.xlsx") as old, zipfile.ZipFile(file, "w") as new:
            for name in old.namelist():
                text = old.read(name)
                cell = f'<c r="B3"{kind}><f>"a"&amp;""</f>{value}</c>'.encode()
                new.writestr(name, re.sub(rb'<c r="B3".*?</c>', cell.replace(b"\\", b"\\\\"), text))
        if kind:
            with TableStore(str(file), features="x", label="y", missing="skip") as store:
                assert store.count == 2 + ("a" in value)
        else:
            with pytest.raises(
                DataError,
                match=r"formulas.xlsx, sheet Sheet: the file lacks the values of 1 formula, "
                r"the first in B3. Open the file in",
            ):
                TableStore(str(file), features="x", label="y", missing="skip")
