"""Kept columns of texts become what the job knows them as."""

from __future__ import annotations

import pyarrow as pa
import pytest

from singa_dask.data.tables.kept_columns import ColumnReading
from singa_dask.data.tables.spelling import NumberConf, Spelling

TEXTS = pa.table(
    {
        "i": ["1", " 2.0", "NA"],
        "f": ["1", "2.5", ""],
        "b": ["true", "False", "none"],
        "cost": ["1,000.50", "?", "7"],
        "plan": ["a", "NA", "1"],
        "id": ["01", "2", None],
    }
)
READING = ColumnReading(
    {"i": "i", "f": "f", "b": "b", "plan": "U"}, Spelling({"cost": NumberConf(thousands=",")}, na_values=("none",))
)


def test_columns_have_the_types_that_the_job_knows() -> None:
    [read] = READING.types([TEXTS])
    expected = {"i": [1, 2, None], "f": [1.0, 2.5, None], "b": [True, False, None], "cost": [1000.5, None, 7.0]}
    assert read.to_pydict() == {**expected, "plan": ["a", "NA", "1"], "id": ["01", "2", None]}
    assert [str(kind) for kind in read.schema.types] == ["int64", "double", "bool", "double", "string", "string"]
    assert READING.unknown(read) == ["id"]
    assert READING.numbers([TEXTS])[0].to_pydict() == {**TEXTS.to_pydict(), "cost": [1000.5, None, 7.0]}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("b", "x"), ("f", "x"), ("i", "x"), ("f", "01067"), ("f", "-05"), ("f", " 00.5"), ("i", "010"), ("i", "0x10"),
        ("f", "1152921504606846984"), ("i", "9223372036854775808"),
    ],
)  # fmt: skip
def test_a_column_with_other_texts_stays_in_all_tables_and_is_named(kind: str, text: str) -> None:
    reading, texts = ColumnReading({"x": kind}), [pa.table({"x": ["1", "0"]}), pa.table({"x": ["1", text]})]
    assert reading.types(texts) == texts
    assert reading.unknown(texts[0]) == ["x"]


@pytest.mark.parametrize(
    ("kind", "texts", "values"),
    [
        ("f", ["0", "-0.5", "1e3", "999999999999999", "1234567890123456.0", "000", "9" * 16],
         [0.0, -0.5, 1000.0, 999999999999999.0, 1234567890123456.0, None, None]),
        ("i", ["0", "-7", "1152921504606846984", "000"], [0, -7, 1152921504606846984, None]),
    ],
)  # fmt: skip
def test_numbers_that_lose_nothing(kind: str, texts: list[str], values: list[float | None]) -> None:
    reading = ColumnReading({"x": kind}, Spelling(na_values=("000", "9" * 16)))
    assert reading.types([pa.table({"x": texts})])[0].to_pydict() == {"x": values}
