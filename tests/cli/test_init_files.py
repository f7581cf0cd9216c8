"""``init`` on tables of several files, whose columns may differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from singa_dask.data.stores.tables.table_store import TableStore
from tests.cli.conftest import Call, noted
from tests.cli.test_init_tables import FRAME, KIND, N, done, refused


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_directory_of_a_table(call: Call, form: str) -> None:
    """As dask.dataframe and Spark write it."""
    Path("table").mkdir()
    for i in range(3):
        part = FRAME.assign(kind=KIND)[i * 40 : (i + 1) * 40]
        part.to_csv(f"table/{i}.part.csv", index=False) if form == "csv" else part.to_parquet(f"table/part.{i}.parquet")
    said = done(call, "table", "--label", "kind", "-o", "job.yaml")
    assert f"table: 120 {form} records" in said
    assert said.endswith(f"--data NEW.{form}\n")
    assert "features: 2 of numbers" in said
    assert "records      120 in 3 files" in call("data", "inspect", "table").stdout
    run = said.splitlines()[-2].split()[1:]
    assert call(*run, "--set", "train_steps=2").exit_code == 0


@pytest.mark.parametrize(
    ("form", "change", "said"),
    [
        ("csv", "no header", "1.csv: there is no column 'age', unlike in other files of the table."),
        ("parquet", "other", "1.parquet: column 'fare' is of type string, but of type number in other files of the"),
    ],
)
def test_parts_with_other_columns_are_refused(call: Call, form: str, change: str, said: str) -> None:
    Path("table").mkdir()
    first = second = FRAME.assign(kind=np.array(["a", "b", "c"])[KIND])
    second = second.assign(fare="high") if change == "other" else second
    for i, part in enumerate((first, second)):
        if form == "csv":
            part.to_csv(f"table/{i}.csv", index=False, header=not i or change != "no header")
        else:
            part.to_parquet(f"table/{i}.parquet")
    assert said in refused(call, "table", "--label", "kind")


@pytest.mark.parametrize("first", [False, True], ids=["later files have it", "the first file has it"])
@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_column_that_some_files_lack_has_missing_values_there(call: Call, form: str, first: bool) -> None:
    """As pandas reads the files together, in training and in predictions."""
    Path("table").mkdir()
    whole = FRAME.assign(kind=np.array(["a", "b", "c"])[KIND])
    parts = [whole[:40].drop(columns="fare"), whole[40:].assign(kind=whole.kind[40:])[["kind", "fare", "age"]]]
    for i, part in enumerate(parts[::-1] if first else parts):
        write = {"csv": part.to_csv, "parquet": part.to_parquet, "jsonl": part.to_json}[form]
        write(f"table/{i}.{form}", **({"orient": "records", "lines": True} if form == "jsonl" else {"index": False}))
    said = done(call, "table", "--label", "kind", "-o", "job.yaml")
    assert "features: 2 of numbers" in said
    # a line of JSON may lack a key in any file
    files = "; missing in 1 of 2 files" if form != "jsonl" else ""
    assert f"fare 40 no value{files} the mean of the training data" in noted(said)
    with TableStore("table", features=["age", "fare"], label="kind", missing="mean") as store:
        read = np.concatenate([store.read_block(i)["data"] for i in range(len(store.blocks))])
    together = pd.concat(parts[::-1] if first else parts)
    fare = together.fare.fillna(together.fare.mean())
    np.testing.assert_allclose(np.sort(read[:, 1]), np.sort(fare.to_numpy(np.float32)), rtol=1e-6)
    run, predict = (line.split()[1:] for line in said.splitlines()[-2:])
    assert call(*run, "--set", "train_steps=2").exit_code == 0
    result = call(*predict[:-1], "table", "--keep", "fare")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, N + 1), result.output
    assert sum(line.split(",")[1] == "" for line in result.stdout.splitlines()) == 40


def test_files_with_other_headers_are_not_copied_below_one(call: Call) -> None:
    Path("table").mkdir()
    whole = FRAME.assign(kind=KIND)
    whole[:60].to_csv("table/0.csv", index=False)
    whole[60:][["fare", "age", "kind"]].to_csv("table/1.csv", index=False)
    said = refused(call, "table", "--label", "kind", "--copy")
    assert "table/1.csv: its header differs from that of table/0.csv" in said
