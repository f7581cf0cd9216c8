"""What ``init --lags`` says about a time series, beside pandas."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import Call

RANDOM = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new directory."""
    monkeypatch.chdir(tmp_path)


def series(step: str, n: int) -> pd.DataFrame:
    times = pd.date_range("2024-01-01", periods=n, freq=step)
    return pd.DataFrame({"time": times, "hour": times.hour + RANDOM.normal(size=n), "sales": RANDOM.normal(size=n)})


def said(call: Call, frame: pd.DataFrame, *options: object) -> str:
    frame.to_csv("x.csv", index=False)
    result = call("init", "x.csv", "--overwrite", "--target", "sales", "--lags", "2", *map(str, options))
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.mark.parametrize(
    ("step", "n", "seasons"),
    [
        ("h", 400, {"a day": 24, "a week": 168}),
        ("15min", 400, {"a day": 96}),
        ("D", 60, {"a week": 7}),
        ("W-MON", 140, {"52 weeks": 52}),
        ("ME", 80, {"a year": 12}),
        ("QS", 40, {"a year": 4}),
    ],
)
def test_naive_forecasts_are_shifts_of_the_series(call: Call, step: str, n: int, seasons: dict[str, int]) -> None:
    frame = series(step, n)
    if step == "D":
        # a value that is missing, and Unix times
        frame["time"] = frame["time"].astype("datetime64[s]").astype(int)
    text = said(call, frame)
    n_test = int(re.search(r"the last (\d+) by time", text)[1])  # type: ignore[index]
    expected = {"the last value": 1, **{f"the value {name} before": k for name, k in seasons.items()}}
    [line] = [line for line in text.splitlines() if "naive forecasts of sales" in line]
    found = {name: float(score) for name, score in re.findall(r"(the (?:last )?value[\w ]*?) is off by ([\d.]+)", line)}
    squares = {name: (frame.sales - frame.sales.shift(k))[-n_test:] ** 2 for name, k in expected.items()}
    assert found == {name: pytest.approx(each.mean() ** 0.5, rel=1e-5) for name, each in squares.items()}
    assert f"on {n_test} records" in line
    assert "test judges one step ahead" in text


def test_naive_forecasts_of_classes_and_without_dates(call: Call) -> None:
    frame = series("D", 60).drop(columns="time")
    frame["sales"] = np.where(np.arange(60) % 7 < 2, "few", "many")
    frame.to_csv("x.csv", index=False)
    result = call("init", "x.csv", "--label", "sales", "--lags", "8")
    assert result.exit_code == 0, result.output
    right = (frame.sales == frame.sales.shift(1))[-10:].mean()
    assert f"sales: the last value is right in {right:.1%}; on 10 records" in result.stderr


def test_lags_stay_beside_chosen_features(call: Call) -> None:
    text = said(call, frame := series("h", 100), "--features", "hour")
    assert "hour, sales_lag1, sales_lag2" in text
    assert "hour, sales_lag2\n" in said(call, frame, "--features", "hour,sales_lag2")
    # distinct whole numbers look like ids, but not as lags
    frame["sales"] = np.arange(100) * 3
    assert "sales_lag1, sales_lag2\n" in (text := said(call, frame)) and "is an id" not in text


def test_too_few_test_records(call: Call) -> None:
    assert "warning: 4 test records: too few to judge a net." in said(call, series("h", 22))
    assert "too few" not in said(call, series("h", 60))


def test_series_below_one_another(call: Call) -> None:
    frame = series("D", 30)
    pd.concat([frame.assign(shop=shop, no=RANDOM.normal(size=30)) for shop in ("north", "south")]).to_csv("x.csv")
    result = call("init", "x.csv", "--target", "sales", "--lags", "2")
    assert result.exit_code == 1, result.output
    assert (
        "the dates of time start again at record 31, where shop changes from north to south. The table seems to hold "
        "several series, but one job reads one. Write a table for each series."
    ) in " ".join(result.stderr.split())


def test_series_that_alternate(call: Call) -> None:
    shops = [series("D", 30).assign(shop=shop, no=RANDOM.normal(size=30)) for shop in ("north", "south")]
    pd.concat(shops).sort_values("time", kind="stable").to_csv("x.csv", index=False)
    result = call("init", "x.csv", "--target", "sales", "--lags", "2")
    assert result.exit_code == 1, result.output
    one_each = "several records have one time, such as 2024-01-01, one for each value of shop. Write a table for each"
    assert one_each in " ".join(result.stderr.split())
    # each shop has dates of its own, so no date is there twice
    frame = series("D", 60).assign(shop=RANDOM.choice(["north", "south"], 60))
    frame["sales"] += np.where(frame["shop"] == "north", 100, 200)
    own = (
        "warning: shop: sales is closer to the last record with the same shop than to the record before. If shop names"
    )
    assert own in said(call, frame)
    assert own in said(call, frame.drop(columns="time"))
    assert own not in said(call, frame, "--drop", "shop")
    # a weekday is no series, and neither is a column that has nothing to do with sales
    frame["shop"] = frame["time"].dt.day_name()
    frame["sales"] = np.where(frame["time"].dt.day_of_week < 5, 100, 20) + RANDOM.normal(size=60)
    assert "closer" not in said(call, frame.assign(weather=RANDOM.choice(["sun", "rain"], 60)))
