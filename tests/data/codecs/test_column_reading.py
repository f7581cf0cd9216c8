"""Kept columns of texts become what the job knows them as."""

from __future__ import annotations

import pyarrow as pa
import pytest

from singa_dask.data.codecs.column_reading import ColumnReading
from singa_dask.data.codecs.numbers import NumberForm, Spelling

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
    {"i": "i", "f": "f", "b": "b", "plan": "U"}, Spelling({"cost": NumberForm(",")}, na_values=("none",))
)


def test_columns_have_the_types_that_the_job_knows() -> None:
    read = READING.types(TEXTS)
    expected = {"i": [1, 2, None], "f": [1.0, 2.5, None], "b": [True, False, None], "cost": [1000.5, None, 7.0]}
    assert read.to_pydict() == {**expected, "plan": ["a", "NA", "1"], "id": ["01", "2", None]}
    assert [str(kind) for kind in read.schema.types] == ["int64", "double", "bool", "double", "string", "string"]
    assert READING.unknown(read) == ["id"]
    assert READING.numbers(TEXTS).to_pydict() == {**TEXTS.to_pydict(), "cost": [1000.5, None, 7.0]}


@pytest.mark.parametrize("kind", ["b", "f", "i"])
def test_a_column_with_other_texts_stays_and_is_named(kind: str) -> None:
    reading, texts = ColumnReading({"x": kind}), pa.table({"x": ["1", "x"]})
    assert reading.types(texts).equals(texts)
    assert reading.unknown(texts) == ["x"]
