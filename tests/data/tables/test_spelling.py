"""Numbers that are written as text in tables: money, percent, thousands, and words for missing values."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables.dates import DateConf
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.spelling import NumberConf
from singa_dask.errors import DataError
from singa_dask.inference.stored_records import with_options
from tests.contracts.records import read_all

ROWS = [
    ("$1,234.50", "unknown", "12,5 %", "red", 1.5),
    ("-$5.00", "34", "0,1 %", "unknown", 2.0),
    ("($12,345,678.25)", "71", "n.a.", "", 3.25),
    ("", "9", "99 %", "red", 4.0),
]
COLUMNS = ["price", "age", "rate", "colour", "x"]
WANTED = np.array(
    # of prices and rates the numbers in the texts; the mean of the others where there is none
    [
        [1234.5, (34 + 71 + 9) / 3, 12.5, 0, 1, 1.5],
        [-5, 34, 0.1, 1, 0, 2],
        [-12345678.25, 71, (12.5 + 0.1 + 99) / 3, 1, 0, 3.25],
        [(1234.5 - 5 - 12345678.25) / 3, 9, 99, 0, 1, 4],
    ],
    np.float32,
)
KEYS = {
    "features": COLUMNS,
    "numbers": {"price": {"thousands": ",", "unit": "$"}, "age": {}, "rate": {"decimal": ",", "unit": "%"}},
    "na_values": ["unknown", "n.a."],
    "categories": {"colour": ["", "red"]},
    "missing": "mean",
}


def frame() -> pd.DataFrame:
    return pd.DataFrame(ROWS, columns=COLUMNS)


def write(path: Path) -> None:
    table = frame()
    match path.suffix:
        case ".csv":
            table.to_csv(path, index=False)
        case ".parquet":
            table.astype({"colour": "category", "price": "category"}).to_parquet(path)
        case ".jsonl":
            table.to_json(path, orient="records", lines=True)
        case ".json":
            rows = table.to_dict("records")
            # numbers among texts
            rows[1]["age"], rows[1]["price"] = 34, -5
            path.write_text(json.dumps(rows))
        case ".xlsx":
            pytest.importorskip("openpyxl")
            table.to_excel(path, index=False)


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl", "json", "xlsx"])
def test_each_format_has_the_same_numbers(tmp_path: Path, form: str) -> None:
    write(path := tmp_path / f"x.{form}")
    with TableStore(str(path), **KEYS) as store:
        np.testing.assert_array_equal(read_all(store)["data"], WANTED)
        facts = store.table_facts
    assert facts is not None
    # what is learned is enough to read others in the same way
    known = TableFacts.from_dict(json.loads(json.dumps(facts.to_dict())))
    keys = {"categories": KEYS["categories"], "missing": "mean", "facts": known.to_dict()}
    with TableStore(str(path), **keys) as store:
        np.testing.assert_array_equal(read_all(store)["data"], WANTED)


def test_words_among_numbers_of_json_lines_and_csv(tmp_path: Path) -> None:
    rows = [{"age": 34, "kind": "a"}, {"age": "n/k", "kind": "n/k"}, {"age": 9, "kind": "b"}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "x.csv").write_text("age,kind\n34,a\n n/k ,n/k\n9,b\n")
    keys: dict[str, Any] = {"features": ["age", "kind"], "na_values": ["n/k"], "missing": -1}
    for name in ("x.jsonl", "x.csv"):
        with TableStore(str(tmp_path / name), categories={"kind": ["", "a", "b"]}, **keys) as store:
            np.testing.assert_array_equal(read_all(store)["data"], [[34, 0, 1, 0], [-1, 1, 0, 0], [9, 0, 0, 1]])
        # what is listed is a name
        with TableStore(str(tmp_path / name), categories={"kind": ["a", "b", "n/k"]}, **keys) as store:
            np.testing.assert_array_equal(read_all(store)["data"], [[34, 1, 0, 0], [-1, 0, 0, 1], [9, 0, 1, 0]])


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("tolerant", [False, True])
def test_a_text_that_is_no_number_is_named_or_skipped(tmp_path: Path, form: str, tolerant: bool) -> None:
    values = ["1.234,5", "2,5", "3.5.1", "4"]
    table = pd.DataFrame({"x": values, "y": range(4)})
    place = {"csv": "line 4", "parquet": "row group 0, record 2", "jsonl": "line 3"}[form]
    match form:
        case "csv":
            table.to_csv(tmp_path / "x.csv", index=False)
        case "parquet":
            table.to_parquet(tmp_path / "x.parquet")
        case "jsonl":
            table.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    keys: dict[str, Any] = {"features": ["x", "y"], "numbers": {"x": {"thousands": ".", "decimal": ","}}}
    said = f"{place}, column 'x': '3.5.1' is not a number with thousands '.', decimal ','"
    with TableStore(str(tmp_path / f"x.{form}"), tolerant=tolerant, **keys) as store:
        if not tolerant:
            with pytest.raises(DataError, match=said):
                store.read_block(0)
            return
        arrays, bad = store.salvage(0)
    assert {row: fault.rpartition(f"x.{form}, ")[2].rstrip(".") for row, fault in bad.items()} == {2: said}
    np.testing.assert_array_equal(arrays["data"][[0, 1, 3]], [[1234.5, 0], [2.5, 1], [4, 3]])


@pytest.mark.parametrize("thousands", [",", "."])
def test_pandas_reads_the_same_numbers(tmp_path: Path, thousands: str) -> None:
    decimal = "." if thousands == "," else ","
    values = np.random.default_rng(0).normal(0, 10.0 ** np.arange(-2, 10, 0.05))
    texts = [f"{value:,.4f}".translate(str.maketrans({",": thousands, ".": decimal})) for value in values]
    pd.DataFrame({"x": texts}).to_csv(tmp_path / "x.csv", index=False, sep=";")
    wanted = pd.read_csv(tmp_path / "x.csv", sep=";", thousands=thousands, decimal=decimal)["x"]
    numbers = NumberConf(thousands=thousands, decimal=decimal).parse(pa.array(texts))
    assert numbers.to_pylist() == wanted.tolist()


@pytest.mark.parametrize(
    ("form", "texts", "numbers"),
    [
        (
            {"thousands": ","},
            ["12,34,567.89", "1,23", "1,234,56", "0,123", "1e3", "+5", "--5"],
            [1234567.89, *[None] * 3, 1000, 5, None],
        ),
        (
            {"unit": "$"},
            ["$5", "5", "$ 5", "-$5", "$-5", "($5)", "$5$", "€5"],
            [5, None, 5, -5, -5, -5, None, None],
        ),
        (
            {"decimal": ",", "unit": "%"},
            ["12,5 %", "12,5%", "\u22123\u202f%", "0,12", "%"],
            [12.5, 12.5, -3, None, None],
        ),
        (
            {"thousands": " "},
            ["1 234", "1\u202f234\u00a0567", "1\u2009234.5", "12 34"],
            [1234, 1234567, 1234.5, None],
        ),
        ({"thousands": "'"}, ["1'234", "1\u2019234.50", "12345-"], [1234, 1234.5, -12345]),
        # a dash in place of no cents is no sign
        ({}, ["5.-", "5.\u2013", "5.", "5-"], [None, None, None, -5]),
        ({}, ["(5)", ".5", "5.0", "", "-", ".", "inf", "0x1", "1_0", "\u0663"], [-5, 0.5, 5, *[None] * 7]),
    ],
)
def test_how_numbers_are_written(form: dict[str, str], texts: list[str], numbers: list[float | None]) -> None:
    assert NumberConf(**form).parse(pa.array(texts)).to_pylist() == numbers


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"thousands": "."}, "'.' is the decimal mark, too"),
        ({"thousands": "1"}, "'1' is a digit or a sign"),
        ({"thousands": ",,"}, "at most 1 character"),
        ({"decimal": ";"}, "decimal"),
        ({"unit": "m2"}, "'m2' has digits or signs"),
    ],
)
def test_forms_that_say_two_things(form: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        NumberConf.model_validate(form)


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("price,y\n1,2\n")
    with pytest.raises(DataError, match=r"numbers names 'prize', which is not a column. Did you mean 'price'"):
        TableStore(str(tmp_path / "x.csv"), features=["price"], numbers={"prize": {}})


def test_a_number_that_lacks_its_unit_is_refused_with_the_setting_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('x,flag\n"$1,250.50",true\n$3.00,false\n')
    (tmp_path / "new.csv").write_text("x,flag\n1250.50,true\n3.00,0\n")
    (tmp_path / "no.csv").write_text("x,flag\n$3.00,no\n")
    with TableStore(
        str(tmp_path / "train.csv"), features=["x", "flag"], numbers={"x": {"thousands": ",", "unit": "$"}}
    ) as store:
        wanted, facts = read_all(store)["data"], store.table_facts.to_dict()
    with TableStore(str(tmp_path / "new.csv"), facts=facts) as store, pytest.raises(DataError) as refused:
        store.read_block(0)
    assert "line 2, column 'x': '1250.50' is not a number with thousands ','" in str(refused.value)
    assert refused.value.remedy is not None
    told = str(with_options(refused.value, ["data"]))
    setting = re.search(r"Pass --set 'neuralnet\.layer\[data\]\.store_conf\.numbers=(.*)' if no number", told)
    assert setting is not None
    with TableStore(str(tmp_path / "new.csv"), facts=facts, numbers=json.loads(setting[1])) as store:
        np.testing.assert_array_equal(read_all(store)["data"], wanted)
    assert "percent" not in told and "fractions" not in told
    said = "line 2, column 'flag': 'no' is not a boolean, as in the training data. Expected true, false, 1 or 0"
    with TableStore(str(tmp_path / "no.csv"), facts=facts) as store, pytest.raises(DataError, match=said):
        store.read_block(0)


def test_one_setting_reads_all_columns_that_lack_their_units(tmp_path: Path) -> None:
    columns = ["price", "cost", "rate", "fee"]
    (tmp_path / "train.csv").write_text('price,cost,rate,fee\n"$1,250.50",$3,12%,$1\n$3.00,,56%,$2\n')
    (tmp_path / "new.csv").write_text("price,cost,rate,fee\n1250.50,3,12,$1\n3.00,NA,56,$2\n")
    money = {"thousands": ",", "unit": "$"}
    numbers = {"price": money, "cost": money, "rate": {"unit": "%"}, "fee": {"unit": "$"}}
    with TableStore(str(tmp_path / "train.csv"), features=columns, numbers=numbers, missing=0) as store:
        wanted, facts = read_all(store)["data"], store.table_facts.to_dict()
    with TableStore(str(tmp_path / "new.csv"), facts=facts, missing=0) as store, pytest.raises(DataError) as refused:
        store.read_block(0)
    assert "Numbers without a unit are also in: 'cost', 'rate'." in str(refused.value)
    assert "56 % is read as 56, so 0.56 means 0.56 %" in str(refused.value)
    assert refused.value.remedy is not None
    setting = json.loads(refused.value.remedy.values[0])
    with TableStore(str(tmp_path / "new.csv"), facts=facts, numbers=setting, missing=0) as store:
        np.testing.assert_array_equal(read_all(store)["data"], wanted)


def test_a_date_in_another_order_names_the_option_that_reads_it(tmp_path: Path) -> None:
    form = DateConf(parts=["month", "day"], day_first=True)
    refused = form.refusal("new.csv, line 2", "when", "01/31/2024")
    assert refused.wants("dates")
    told = str(with_options(refused, ["data"]))
    setting = re.search(r"Pass --set '(neuralnet.layer\[data\].store_conf.dates=(.*))'", told)
    assert setting, told
    again = DateConf(**json.loads(setting[2])["when"])
    assert again.parse(pa.array(["01/31/2024"])).to_pylist() == [datetime(2024, 1, 31)]
    # "2024-01-99" is no date in any order
    assert not form.refusal("new.csv, line 2", "when", "2024-01-99").wants("dates")
