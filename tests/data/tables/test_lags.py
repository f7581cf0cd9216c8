"""Lags of a time series: those of pandas, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from singa_dask.data.tables.lags import LagsConf, gaps_of, times_of
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
        (FRAME[::-1], r"x: its records are not in the order of day. Sort them by day\."),
        (FRAME.assign(day=[f"{day:%d/%m/%Y}" for day in DAYS][::-1]), "not in the order of day"),
        (
            FRAME.assign(day=[1, 2, 3, 3, 4, 5]),
            "several records have one day, such as 3. Give one series at a time, or no column day if",
        ),
        (FRAME.drop(columns="load"), r"x: column 'load' is missing\. Columns: day, kind\."),
        (
            FRAME[:2],
            r"x: 2 records. Expected more than 2: each needs the 2 before it. Add these records with their load",
        ),
    ],
)
def test_records_that_are_no_history(frame: pd.DataFrame, said: str) -> None:
    lags, table = LagsConf(columns=["load"], n=2, order="day"), pa.Table.from_pandas(frame)
    with pytest.raises(DataError, match=said):
        lags.check_order("x", table)
        lags.add("x", table)


def test_only_the_newest_of_those_to_predict_lacks_its_value() -> None:
    """Else a lag would be missing, and the mean of the training data would stand for it."""
    lags, texts = LagsConf(columns=["load", "kind"], n=2), ["a", "b", "c", None, None, None]
    table = pa.table({"load": [1.0, None, 3.0, 4.0, 5.0, None], "kind": texts})
    assert lags.add("x", table).column("kind_lag1").null_count == 3
    with pytest.raises(
        DataError, match=r"x: the last 3 records have no kind, but each needs the values of the 2 before it"
    ):
        lags.add("x", table, predicted=True)
    assert lags.add("x", table[:4], predicted=True).column("load_lag1").to_pylist() == [None, 1.0, None, 3.0]
    with pytest.raises(DataError, match="the last 3 records have no load"):
        LagsConf(columns=["load"], n=2).add("x", pa.table({"load": pa.nulls(3, pa.float64())}), predicted=True)


def test_a_gap_in_the_history_is_named_by_its_own_column_and_record() -> None:
    lags = LagsConf(columns=["load", "kind"], n=2)
    table = pa.table({"load": [1.0, None, 3.0, None, 5.0, None], "kind": ["a", None, "b", "c", "d", "e"]})
    said = r"^record 1, column 'load': no value, the first of 2 in 6 records, which later records need\. Best write"
    with pytest.raises(DataError, match=said):
        lags.refuse_gaps(table, ["load"], "record {}".format)
    # a target needs the newest value, too
    with pytest.raises(DataError, match=r"^record 1, column 'load': no value\. Training and testing need true values"):
        lags.refuse_gaps(table[4:], ["load", "kind"], "record {}".format, ["load"])
    lags.refuse_gaps(table[4:], ["load", "kind"], "record {}".format)


@pytest.mark.parametrize("form", ["", "%d/%m/%Y", "%Y-%m-%d", "%Y%m%d", "unix"])
def test_gaps_are_counted(form: str) -> None:
    """The months of compact dates have no gaps between them."""
    days, lags = pd.Series(pd.date_range("2024-01-20", periods=60)), LagsConf(columns=["load"], n=2, order="day")
    times = days.astype("datetime64[s]").astype(int) if form == "unix" else days.dt.strftime(form) if form else days
    frame = pd.DataFrame({"day": times.astype(int) if form == "%Y%m%d" else times, "load": 1.0})
    assert not lags.check_order(f"whole {form}", pa.Table.from_pandas(frame))
    left = frame.drop([20, 21, 40]).reset_index(drop=True)
    said = lags.check_order(f"x {form}", pa.Table.from_pandas(left))
    n = int((days.drop([20, 21, 40]).diff() > pd.Timedelta(days=1)).sum())
    first = f"{n} gaps, the first between {left['day'][19]} and {left['day'][20]}; the usual step is "
    assert said.startswith(f"x {form}, column 'day': {first}{86400 if form == 'unix' else '1 day'}")
    assert said.endswith("Lags count records, not time: predictions after a gap use older values.")
    strict = lags.model_copy(update={"gaps": "error"})
    assert not strict.check_order(f"whole {form}", pa.Table.from_pandas(frame))
    with pytest.raises(DataError, match=re.escape(first)):
        strict.check_order(f"x {form}", pa.Table.from_pandas(left))


def hours(days: pd.DatetimeIndex, first: int, last: int) -> list[pd.Timestamp]:
    return [day + pd.Timedelta(hours=hour) for day in days for hour in range(first, last)]


SHOP = hours(pd.date_range("2024-01-01", periods=90), 9, 18)
OFFICE = hours(pd.bdate_range("2024-01-01", periods=60), 8, 17)


@pytest.mark.parametrize(
    ("times", "left", "n"),
    [
        ([*pd.bdate_range("2024-01-01", periods=250)], [], 0),
        # a Wednesday, and a Friday, a weekend and a Monday
        ([*pd.bdate_range("2024-01-01", periods=250)], [7, 54, 55], 2),
        (SHOP, [], 0),
        (SHOP, [4, 40, 41, 89, 90], 3),
        (OFFICE, [], 0),
        (OFFICE, [*range(90, 200)], 1),
        # jitter of the clock
        ([time + pd.Timedelta(seconds=i % 7) for i, time in enumerate(OFFICE)], [100], 1),
        # too short to know whether weekends are regular
        ([*pd.bdate_range("2024-01-01", periods=9)], [], 1),
        ([*pd.date_range("2024-01-01", periods=30, freq="MS")], [20], 1),
        ([*pd.date_range("2024-01-01", periods=30, freq="7D")], [20], 1),
    ],
)
def test_times_that_each_week_lacks_are_no_gaps(times: list[pd.Timestamp], left: list[int], n: int) -> None:
    found = gaps_of([time for i, time in enumerate(times) if i not in left])
    assert (found.n if found else 0) == n
    if found and left:
        assert found.first == left[0] - 1


@pytest.mark.parametrize("n_known", [0, 1])
def test_too_few_records_before_those_to_forecast(n_known: int) -> None:
    """The records of the file are counted, not those up to the next prediction."""
    table = pa.table({"load": pa.array([*[1.0] * n_known, *[None] * 5], pa.float64())})
    said = f"x: {n_known} records? before the 5 at the end without a value of load. Expected at least 2: each"
    with pytest.raises(DataError, match=said):
        LagsConf(columns=["load"], n=2).with_forecasts("x", table, [])


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2023-10-29T02:30:00+0200", "2023-10-29 00:30"),
        ("2023-10-29 02:30:00+01:00", "2023-10-29 01:30"),
        ("29.10.2023 02:30 -05", "2023-10-29 07:30"),
        ("2023-10-29T02:30:00.25Z", "2023-10-29 02:30:00.25"),
        ("2023-12-31 24:00", "2024-01-01"),
        ("13/01/00 12:05 am", "2000-01-13 00:05"),
        ("31.12.99", "1999-12-31"),
        ("2024-01-05", "2024-01-05"),
        ("2024-01-05 10:00 Uhr", "2024-01-05 10:00"),
    ],
)
def test_times_of_texts(text: str, utc: str) -> None:
    assert {times[0] for times in times_of([text])} == {pd.Timestamp(utc).to_pydatetime()}


def test_texts_that_are_no_times() -> None:
    assert [len(times_of([text])) for text in ("1/2/2024", "13/2/2024", "2024-02-30", "Monday")] == [2, 1, 0, 0]


@pytest.mark.parametrize(
    "days", [list(range(6)), [f"{day:%d/%m/%Y}" for day in DAYS], [f"{day:%m/%d/%y}" for day in DAYS], [*"fedcba"]]
)
def test_records_in_order(days: list[Any]) -> None:
    lags = LagsConf(columns=["load"], n=2, order="day")
    for frame in (FRAME.assign(day=days), FRAME.drop(columns="day")):
        lags.check_order("x", pa.Table.from_pandas(frame))
