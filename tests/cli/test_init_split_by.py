"""``init --split-by``: all records of a customer are to train, or all to test on, as pandas counts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from singa_dask.conf import load
from singa_dask.inputs.open_records import open_records
from singa_dask.inputs.store_conf import StoreConf
from tests.cli.conftest import Call
from tests.contracts.records import read_all

N = 600
RANDOM = np.random.default_rng(1)
OWNERS = RANDOM.integers(0, 90, N)
FRAME = pd.DataFrame({"row": np.arange(N) + 0.5, "customer": OWNERS, "kind": np.array(["one", "two"])[OWNERS % 2]})
BY = ("--label", "kind", "--split-by", "customer")
WRITERS: dict[str, Callable[..., object]] = {
    "x.csv": lambda frame: frame.to_csv("x.csv", index=False),
    "x.parquet": lambda frame: frame.to_parquet("x.parquet", row_group_size=50),
    "x.jsonl": lambda frame: frame.to_json("x.jsonl", orient="records", lines=True),
    "x.json": lambda frame: frame.to_json("x.json", orient="records"),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(call: Call, *arguments: object) -> str:
    result = call("init", *arguments)
    assert result.exit_code == 0, result.output
    checked = call("validate", "job.yaml", "--strict")
    assert checked.exit_code == 0, checked.output
    return result.stderr


def stores() -> list[dict[str, Any]]:
    found = [layer.given_block(StoreConf) for layer in load("job.yaml").job.neuralnet.layer[:2]]
    return [each.model_dump(exclude_defaults=True) for each in found if each]


def parts() -> list[pd.DataFrame]:
    """Return the rows of the table that the nets to train and to test read."""
    found = []
    for conf in map(StoreConf.model_validate, stores()):
        with open_records(conf, conf.backend) as store:
            found.append(FRAME.iloc[read_all(store)["data"][:, 0].astype(int)])
    return found


def check_parts(printed: str, seed: int = 1) -> pd.DataFrame:
    train, test = parts()
    assert pd.concat([train, test]).sort_index().equals(FRAME)
    assert not {*train["customer"]} & {*test["customer"]}
    counts = [(len(part), part["customer"].nunique()) for part in (test, train)]
    assert 5 < counts[0][1] < 35
    (n_test, of_test), (n_train, of_train) = counts
    how = f"{n_test} with {of_test} values of customer; {n_train} with {of_train} to train on, seed {seed}"
    assert how in printed
    assert "customer 600 the records are split by it left out" in " ".join(printed.split())
    return test


@pytest.mark.parametrize("file", WRITERS)
def test_all_records_of_a_customer_are_in_one_part(call: Call, file: str) -> None:
    WRITERS[file](FRAME)
    printed = said(call, file, *BY)
    assert "; chosen as they are read, nothing is copied\n" in printed
    test = check_parts(printed)
    assert sorted(os.listdir()) == ["job.yaml", file]
    conf = stores()[0]
    assert conf["split"] == {"part": "train", "test_share": 0.2, "seed": 1, "key": "customer"}
    assert f"for {N - len(test)} records" in Path("job.yaml").read_text()
    other = check_parts(said(call, file, *BY, "--seed", 4, "--overwrite"), seed=4)
    assert not other.equals(test)


def test_copies_are_the_same_parts(call: Call) -> None:
    WRITERS["x.csv"](FRAME)
    said(call, "x.csv", *BY)
    expected = parts()
    check_parts(said(call, "x.csv", *BY, "--copy", "--overwrite"))
    assert [conf["path"] for conf in stores()] == ["job-data/train.csv", "job-data/test.csv"]
    assert all(a.sort_index().equals(b) for a, b in zip(expected, parts(), strict=True))


def test_columns_of_texts_and_positions(call: Call) -> None:
    # 7 and 007 are two customers
    frame = FRAME.assign(customer=[f"{'00' * (row % 2)}{owner}" for row, owner in enumerate(OWNERS)])
    frame.to_csv("x.csv", index=False)
    printed = said(call, "x.csv", "--label", "kind", "--split-by", "2")
    train, test = (frame.iloc[part.index] for part in parts())
    assert not {*train["customer"]} & {*test["customer"]}
    assert {*train["customer"].astype(int)} & {*test["customer"].astype(int)}
    assert f"{len(test)} with {test['customer'].nunique()} values of customer" in printed


def test_a_directory_of_hive(call: Call) -> None:
    for owner, rows in FRAME.groupby("customer"):
        folder = Path("table", f"customer={owner}")
        folder.mkdir(parents=True)
        rows.drop(columns="customer").to_parquet(folder / "part.parquet", index=False)
    check_parts(said(call, "table", *BY, "-o", "job.yaml"))


def test_large_tables_are_looked_at_in_part(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_BYTES", 4000), ("SEEN_BYTES", 3000), ("MIN_BYTES", 1000), ("BLOCK_BYTES", 1000)):
        monkeypatch.setattr(f"singa_dask.survey.read_table.{name}", value)
    WRITERS["x.csv"](FRAME)
    printed = said(call, "x.csv", *BY)
    assert "to test on: of the " in printed and " records that were read " in printed
    train, test = parts()
    assert len(train) + len(test) == N
    assert not {*train["customer"]} & {*test["customer"]}


def test_a_train_set_beside_a_test_set_is_split_all_the_same(call: Call) -> None:
    FRAME.to_csv("train.csv", index=False)
    FRAME[:9].to_csv("test.csv", index=False)
    check_parts(said(call, "train.csv", *BY, "-o", "job.yaml"))


def test_what_is_odd_is_said(call: Call) -> None:
    FRAME.assign(customer=FRAME["customer"].where(FRAME.index > 6).astype("Int64")).to_csv("x.csv", index=False)
    assert "warning: customer: 7 records without a value, to train on.\n" in said(call, "x.csv", *BY)
    assert {*range(7)} <= {*parts()[0].index}
    FRAME.assign(customer=[f"c{i}" for i in range(N)]).to_csv("x.csv", index=False)
    assert "warning: customer: a different value in each record, so" in said(call, "x.csv", *BY, "--overwrite")


def test_texts_of_customers(call: Call) -> None:
    texts = [f"some words of {'good' if owner % 2 else 'bad'} things {row % 9}" for row, owner in enumerate(OWNERS)]
    FRAME.assign(text=texts, customer=FRAME["customer"].where(FRAME.index > 6)).to_csv("x.csv", index=False)
    printed = said(call, "x.csv", *BY, "--text", "text")
    assert "warning: customer: 7 records without a value, to train on.\n" in printed
    assert [conf["split"]["key"] for conf in stores()] == ["customer", "customer"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--split-by", "same"], "--split-by same: its 1 different value would be in one part. Choose another column"),
        (["--split-by", "kind"], "--split-by kind: this column is predicted."),
        (["--split-by", "client"], "no column 'client' for --split-by."),
        (["--split-by", "customer", "--test", "y.csv"], "--split-by, and --test. Pass one of them."),
        (["--split-by", "customer", "--lags", "2"], "--split-by, and --lags. Pass one of them."),
    ],
)
def test_what_is_refused(call: Call, more: list[str], why: str) -> None:
    FRAME.assign(same="one").to_csv("x.csv", index=False)
    FRAME.to_csv("y.csv", index=False)
    result = call("init", "x.csv", "--label", "kind", *more)
    assert (result.exit_code, why in result.stderr) == (2 if "no column" in why else 1, True), result.output
    assert not Path("job.yaml").exists()


def test_arrays_have_no_keys(call: Call) -> None:
    np.savez("x.npz", data=RANDOM.random((40, 2)), label=np.arange(40) % 2)
    assert "--split-by is for tables with named columns" in call("init", "x.npz", "--split-by", "label").stderr


def test_predictions_need_no_key(call: Call) -> None:
    WRITERS["x.parquet"](FRAME)
    said(call, "x.parquet", *BY)
    ran = call("run", "job.yaml", "--run-dir", "run", "--quiet", "--set", "train_steps=2")
    assert ran.exit_code == 0, ran.output
    FRAME[["row"]].to_csv("new.csv", index=False)
    predicted = call("predict", "job.yaml", "--init-from", "run", "--data", "new.csv")
    assert len(predicted.stdout.splitlines()) == N + 1, predicted.output


def test_ids_whose_records_are_alike_are_named_if_both_parts_have_them(call: Call) -> None:
    random, n_customers = np.random.default_rng(0), 100
    customer = np.repeat(np.arange(n_customers), 10)
    left = random.permutation(np.arange(n_customers) % 2)[customer]
    frame = pd.DataFrame({"customer_id": [f"C{n}" for n in customer], "age": random.normal(size=1000), "left": left})
    table = frame.sample(frac=1, random_state=0)
    paid = table.assign(paid=table.left * 100 + table.age).drop(columns="left")
    warning = "customer_id: 100 values in 1000 records, and most records of a value have the same {}."
    for written, options, column in (
        (table, ["--label", "left"], "left"),
        (paid, ["--target", "paid"], "paid"),
        (table, ["--label", "left", "--split-by", "customer_id"], ""),
        # a customer who sometimes leaves is no sign of a leak
        (table.assign(left=random.permutation(left)), ["--label", "left"], ""),
        # the copies come last, because later commands would take them as test sets
        (table, ["--label", "left", "--copy"], "left"),
    ):
        written.to_csv("x.csv", index=False)
        result = call("init", "x.csv", *options, "--overwrite")
        assert result.exit_code == 0, result.output
        assert (warning.format(column) in result.stderr) == bool(column)
        assert ("Pass --split-by customer_id to test on other values.\n" in result.stderr) == bool(column)
