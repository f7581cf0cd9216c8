"""Predictions as lines of CSV and JSON, read back by Python's csv and json."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pyarrow as pa

from singa_dask.inference.value_files import csv_lines, json_lines

BITS = np.random.default_rng(0).integers(0, 1 << 32, 70_000, np.uint32).view(np.float32)
FLOATS = np.concatenate([np.array([0, -0.0, 3e10, 2**62, 1e-7, 1 / 3], np.float32), BITS[np.isfinite(BITS)]])


def test_floats_are_read_with_the_same_bits() -> None:
    doubles = FLOATS.astype(np.float64) / 3
    table = pa.table({"a": FLOATS, "b": doubles})
    _, *rows = csv.reader(io.StringIO("".join(csv_lines(table))))
    records = [json.loads(line) for line in "".join(json_lines(table)).splitlines()]
    for name, expected in (("a", FLOATS), ("b", doubles)):
        texts = [row["ab".index(name)] for row in rows]
        numbers = [record[name] for record in records]
        for found in (np.array(texts, np.float64), np.array(numbers, np.float64)):
            assert found.astype(expected.dtype).tobytes() == expected.tobytes()
    # the fewest digits: as many as NumPy needs
    text = np.format_float_positional(FLOATS[5], unique=True)
    assert rows[5][0] == text == "0.33333334"


def test_texts_of_all_kinds_are_read_back() -> None:
    names = ["a,b", 'say "x"', "é. ", "tab\t", "lines\nof text", "back\\slash", "\x01", ""]
    table = pa.table({'the "name", é': [*names, None]})
    table = table.append_column("list", pa.array([[1, 2], [], None, *[[3]] * 6]))
    table = table.append_column("x", pa.array([1.5, math.nan, math.inf, None, *[2.0] * 5]))
    for delimiter in (",", "\t"):
        header, *rows = csv.reader(io.StringIO("".join(csv_lines(table, delimiter)), newline=""), delimiter=delimiter)
        assert header == table.column_names
        assert [row[0] for row in rows] == [*names, ""]
        assert [row[1] for row in rows[:4]] == ["[1, 2]", "[]", "", "[3]"]
        assert [row[2] for row in rows[:5]] == ["1.5", "nan", "inf", "", "2"]
    found = [json.loads(line) for line in "".join(json_lines(table)).split("\n")[:-1]]
    expected = table.to_pylist()
    expected[1]["x"] = expected[2]["x"] = None
    assert found == expected


def test_plain_fields_have_no_quotes() -> None:
    assert "".join(csv_lines(pa.table({"a": ["a, b.png"], "b": ['say "x"'], "c": [0.5]}))) == (
        'a,b,c\n"a, b.png","say ""x""",0.5\n'
    )
    assert "".join(csv_lines(pa.table({"a": ["a, b"], "b": ["x\ty"]}), "\t")) == 'a\tb\na, b\t"x\ty"\n'
