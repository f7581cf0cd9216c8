"""Lags of a time series: those of pandas, and what is refused."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from singa_dask.data.codecs.lags import LagsConf
from singa_dask.errors import DataError

DAYS = pd.date_range("2024-01-30", periods=6)
FRAME = pd.DataFrame(
    {"day": DAYS, "load": [0.1, None, -0.0, 3e300, 5.0, None], "kind": ["a", "b", "\u00df", None, "", "a"]}
)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_lags_are_those_of_pandas(n: int) -> None:
    lags = LagsConf(columns=["load", "kind"], n=n, order="day")
    found = lags.add("x", pa.Table.from_pandas(FRAME.astype({"kind": "category"}), preserve_index=False))
    expected = {f"{name}_lag{k}": FRAME[name].shift(k) for name in lags.columns for k in range(1, n + 1)}
    assert found.column_names == [*FRAME, *expected] == [*FRAME, *lags.names]
    for name, values in expected.items():
        assert repr(found.column(name).to_pylist()) == repr([None if pd.isna(each) else each for each in values])


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (FRAME[::-1], r"x: its records are not in the order of day. Sort them by it\."),
        (FRAME.assign(day=[f"{day:%d/%m/%Y}" for day in DAYS][::-1]), "not in the order of day"),
        (FRAME.assign(day=[1, 2, 3, 3, 4, 5]), r"x: several records have one day. Give one series at a time\."),
        (FRAME.drop(columns="load"), r"x: column 'load' is missing\. Columns: day, kind\."),
        (FRAME[:2], r"x: 2 records. Expected more than 2: each needs the 2 before it. Give these with their load"),
        (FRAME[:0], r"x: 0 records. Expected more than 2"),
    ],
)
def test_records_that_are_no_history(frame: pd.DataFrame, said: str) -> None:
    with pytest.raises(DataError, match=said):
        LagsConf(columns=["load"], n=2, order="day").add("x", pa.Table.from_pandas(frame))


@pytest.mark.parametrize(
    "days", [list(range(6)), [f"{day:%d/%m/%Y}" for day in DAYS], [f"{day:%m/%d/%y}" for day in DAYS], [*"fedcba"]]
)
def test_records_in_order(days: list[Any]) -> None:
    lags = LagsConf(columns=["load"], n=2, order="day")
    for frame in (FRAME.assign(day=days), FRAME.drop(columns="day")):
        assert lags.add("x", pa.Table.from_pandas(frame)).column("load_lag2").null_count == 3
