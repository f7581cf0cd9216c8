"""Lines of CSV files as people have them: headers, quotes, empty fields; right, or refused with line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask import fs
from singa_dask.data.stores import open_store, write_manifest
from singa_dask.data.stores.tables.text_store import TextStore
from singa_dask.errors import ConfigError, DataError
from tests.contracts.records import read_all
from tests.converting import convert
from tests.inputs.test_input import layer_of, read
from tests.selection import few_examples


def csv(tmp_path: Path, text: str | bytes, **options: Any) -> TextStore:
    path = tmp_path / "x.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return TextStore(str(path), **options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("label,x,y\n1,2,3\n0,4,5\n", {}),
        ("label,x,y\n1,2,3\n0,4,5", {}),
        ('"label","x, or not","y"\r\n1,2,3\r\n"0","4"," 5 "\r\n', {}),
        ("\ufeff1,2,3\n0,4,5\n", {}),
        ("\ufefflabel,x,y\n1,2,3\n0,4,5\n", {}),
        ("label,0,1\n1,2,3\n0,4,5\n", {}),
        ("label;x;y\n1;2;3\n0;4;5\n", {"separator": ";"}),
        ("label x y\n1 2 3\n0  4 5\n", {}),
        ("label\tx\ty\n1\t2\t3\n0\t4\t 5\n", {"separator": "\t"}),
        ("label\tx or not\ty\n1\t2\t3\n0\t4\t5\n", {}),
        ("# label,x,y\n1,2,3\n0,4,5\n", {}),
        ("digit,x,y\n1,2,3\n0,4,5\n", {}),
        ("7,7,7\n1,2,3\n0,4,5\n", {"header": True}),
        ("1.0,2e0,+3\n0,.4e1,5.\n", {}),
        ("sep=;\n1;2;3\n0;4;5\n", {}),
        ("sep=;\r\nlabel;x;y\r\n1;2;3\r\n\r\n0;4;5\r\n", {}),
    ],
)
@pytest.mark.parametrize("block_bytes", [1 << 20, 3])
def test_files_that_are_read_right(text: str, options: dict[str, Any], block_bytes: int, tmp_path: Path) -> None:
    with csv(tmp_path, text, block_bytes=block_bytes, **options) as store:
        found = read_all(store)
    assert found["data"].tolist() == [[2, 3], [4, 5]]
    assert found["label"].tolist() == [1, 0]


EMPTY = "it is empty, expected a number"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("label,x,y\n1,,3\n", {}, rf"line 2, column 'x': {EMPTY}"),
        ("label,x,y\n1,2,3\n1,2,\n", {}, rf"line 3, column 'y': {EMPTY}"),
        ("1,2,3\n,4,5\n", {}, f"line 2, column '1': {EMPTY}"),
        ("1,2,3\n1,,2,3\n", {}, "line 2: 4 fields, expected 3: a label and 2 numbers"),
        ("1,2,3\n1,2\n", {}, "line 2: 2 fields, expected 3: a label and 2 numbers"),
        ("1,2,3\n1,2,3,\n", {}, "line 2: 4 fields, expected 3"),
        ("0,1,\n1,,4\n", {}, f"line 1, column 3: {EMPTY}"),
        ("1,2,3\n1,NA,3\n", {}, "line 2, column '2': 'NA' is not a number"),
        ("1,NA,3\n", {}, r"line 1, column 2: 'NA' is not a number\.$"),
        ("1,2,3\n1,nan,3\n", {}, "line 2, column '2': 'nan' is not a number"),
        ("1,2,3\n1,1_0,3\n", {}, "line 2, column '2': '1_0' is not a number"),
        ("1,2,3\n1,0x1,3\n", {}, "line 2, column '2': '0x1' is not a number"),
        ("1,2,3\n1,2 3,4\n", {}, "line 2, column '2': '2 3' is not a number"),
        ("1,2\n1,3x", {}, "line 2, column '2': '3x' is not a number"),
        ("1,2\n1,3-2", {}, "line 2, column '2': '3-2' is not a number"),
        ('1,2\n1,"2,5"', {}, "line 2: 3 fields, expected 2"),
        ('1,2\n1,"2', {}, "line 2, column '2': '\"2' is not a number"),
        ('1,2\n1,""', {}, f"line 2, column '2': {EMPTY}"),
        ("1\t2\t3\n1\t\t3", {"separator": "\t"}, f"line 2, column '2': {EMPTY}"),
        ("1\t2\n1\t3\t\n1\t4", {"separator": "\t"}, "line 2: 3 fields, expected 2"),
        ("1,2\n1,3\r4,5\n1,6\n", {}, "line 2: the record contains a carriage return"),
        (
            "1,2\n" + "1,2\n\ufeff1,2\n" * 2,
            {"block_bytes": 8},
            r"line 3, column '1': .\\ufeff1. is not a number",
        ),
        ("1 2;3\n4;;5 6", {"separator": " ;"}, "line 2: 4 fields, expected 3"),
        ("1 2 3\n1,2,3", {}, "line 2: 1 fields, expected 3"),
        ("1,1\n1,1e39\n", {}, r"line 2, column '2': 1e\+39 does not fit in a float of 32 bits"),
        ("1,1\n4294967299,1\n", {}, "line 2, column '1': the label 4294967299.0 does not fit in 32 bits"),
        ("1,1\n1.5,1\n", {}, "line 2, column '1': the label 1.5 is not an integer"),
        (
            "species,x\nsetosa,5\n",
            {},
            r"line 2, column 'species': 'setosa' is not a number\. A label is the index of",
        ),
        (
            "5.1,3.5,setosa\n",
            {},
            "line 1, column 3: 'setosa' is not a number.*not a header either; set header: true if it is",
        ),
        (
            "x0,x1,y\n1,2,0\n",
            {},
            "line 1, column 3: it is called 'y', but the label .* first number, here 'x0'. Move that",
        ),
        ("x,y,label\n1,2,0\n", {}, "line 1, column 3: it is called 'label', .*has_label: false"),
        (",label,x\n0,1,2\n", {}, "line 1, column 1: it has no name, like the index that pandas writes.*index=False"),
        ("Unnamed: 0,label,x\n0,1,2\n", {}, "line 1, column 1: it has no name, like the index"),
        ("1;2;3\n", {}, "line 1: it contains no ',', but ';'. Set separator: ';'"),
        ("label,x\n", {}, "no records but the header"),
        ("label,x\n1,2,3\n", {"shape": (2,)}, "line 1: the header has 2 columns, expected 3: a label and 2 numbers"),
        (
            "label,x,y\n1,2,3\n",
            {"shape": (2,), "has_label": False},
            "line 1: the header has 3 columns, expected 2: 2 numbers. Remove the column 'label'",
        ),
        ("1,2,3\n", {"shape": (3,)}, "line 1: 3 fields, expected 4"),
        ("label,x\n1,2\n", {"header": False}, "line 1, column '1': 'label' is not a number"),
        ("1,2\r3,4\r", {}, "line 1: lines end with carriage returns only"),
        ("1,2\n".encode("utf-16"), {}, "the text is encoded in UTF-16"),
    ],
)
def test_files_that_are_refused(text: str | bytes, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"x\.csv(, block 0)?(, |: ){message}"):
        with csv(tmp_path, text, **options) as store:
            read_all(store)


@few_examples(25)
@given(
    st.lists(st.lists(st.sampled_from(["", "1", "2.5", "x", " 3 "]), min_size=1, max_size=4), min_size=1, max_size=6),
    st.sampled_from([",", ";", "\t"]),
    st.integers(1, 30),
    st.sampled_from([0, 50]),
)
def test_nothing_is_shifted(rows: list[list[str]], separator: str, block_bytes: int, n_more: int) -> None:
    more = ["6"] * n_more
    text = "\n".join(separator.join(["7", "8", "9", *more]) for _ in range(2))
    text += "".join(f"\n{separator.join([*row, *more])}" for row in rows)
    fs.write_atomic("memory://shift.csv", text.encode())
    # empty lines at the end are none
    while not more and rows and not "".join(rows[-1]) and (len(rows[-1]) == 1 or separator == "\t"):
        rows = rows[:-1]
    right = all(len(row) == 3 and all(field.strip() in ("1", "2.5", "3") for field in row) for row in rows)
    right = right and all(row[0] != "2.5" for row in rows)
    try:
        with TextStore("memory://shift.csv", separator=separator, block_bytes=block_bytes * (1 + n_more)) as store:
            found = read_all(store)["data"].tolist()
    except DataError:
        assert not right
        return
    assert right
    numbers = [[8, 9], [8, 9], *([float(row[1]), float(row[2])] for row in rows)]
    assert found == [[*row, *[6] * n_more] for row in numbers]


def test_a_bad_line_below_a_header_is_passed_over(tmp_path: Path) -> None:
    with csv(tmp_path, "label,x\n1,2\n3,\n4,5\n", truncated=True) as store:
        arrays, bad = store.salvage(0)
    assert bad == {1: f"{store.url}, line 3, column 'x': {EMPTY}"}
    assert arrays["data"].tolist() == [[2], [0], [5]]


def test_a_manifest_of_a_file_with_a_header(tmp_path: Path) -> None:
    with csv(tmp_path, "label,x\n1,2\n3,4\n") as store:
        url, fingerprint = store.url, store.fingerprint
    write_manifest(url)
    with open_store(url) as store:
        assert store.fingerprint == fingerprint
        assert store.blocks[0].crc is not None
        assert read_all(store)["label"].tolist() == [1, 3]
    # the same bytes, but the first line counts as a record
    (tmp_path / "x.csv").write_text("9999999\n1,2\n3,4\n")
    with pytest.raises(DataError, match="line 1: 1 fields, expected 2"):
        open_store(url, shape=(1,))


def test_a_header_in_convert_and_in_a_net(tmp_path: Path) -> None:
    with csv(tmp_path, "label,x,y\n1,2,3\n0,4,5\n") as store:
        url = store.url
    convert("csv", [url], str(tmp_path / "x.arrow"), verify=True)
    with open_store(str(tmp_path / "x.arrow")) as store:
        assert read_all(store)["data"].tolist() == [[2, 3], [4, 5]]
    for kind in ("CSVInput", "RecordInput"):
        layer = layer_of(kind, path=url, batchsize=2, shape=[2])
        layer.check_source()
        np.testing.assert_array_equal(read(layer), [[2, 3], [4, 5]])
        layer.close()
    Path(url).write_text("label,x,y\n1,,3\n")
    with pytest.raises(ConfigError, match=rf"store_conf.path: .*x\.csv, line 2, column 'x': {EMPTY}"):
        layer_of("CSVInput", path=url, batchsize=2, shape=[2]).check_source()
