"""Columns that `predict --keep` writes beside predictions: types, lists, names and counts, in each format of output."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Call

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=N).round(4)
SPEND = RNG.lognormal(8, 2, N).round(2)
FRAME = pd.DataFrame({"id": np.arange(N) + 17, "code": [f"{i:05d}" for i in range(N)], "active": X > 0.1})
FRAME = FRAME.assign(age=[20.0 + i if i % 7 else None for i in range(N)], x=X, spend=SPEND)
FRAME = FRAME.assign(
    day="2024-01-31", country="NA", plan=["basic", "plus"] * (N // 2), status=np.where(X > 0, 200, 404)
)
WRITTEN = FRAME.assign(
    active=FRAME["active"].map({True: "true", False: "false"}),
    age=[f"{age:.0f}" if age == age else "" for age in FRAME["age"]],
    spend=[f"{value:,.2f}" for value in SPEND],
)
JOB = """
name: kept
train_steps: 5
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed, base_lr: 0.1}}
neuralnet:
  layer:
  - name: data
    type: CSVInput
    store_conf: {path: train.csv, batchsize: 20, features: [active, age, x, spend, plan], label: status, missing: mean,
      unknown: ignore, categories: {plan: [], status: []},
      numbers: {spend: {thousands: ","}}, standardise: true, shape: [6]}
  - {name: fc, type: InnerProduct, srclayers: [data], innerproduct_conf: {num_output: 2},
     param: [{name: w, init: {type: Gaussian}}, {name: b}]}
  - {name: loss, type: SoftmaxLoss, srclayers: [fc, data]}
"""
GIVEN = ["predict", "job.yaml", "--init-from", "run", "--data"]
PREDICTED = ["class", "number", "probability"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a trained net, and tables that nothing changes."""
    folder = tmp_path_factory.mktemp("kept")
    WRITTEN.to_csv(folder / "train.csv", index=False)
    FRAME.to_parquet(folder / "typed.parquet", index=False)
    (folder / "job.yaml").write_text(JOB)
    return folder


@pytest.fixture(autouse=True)
def job(trained: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in that directory."""
    monkeypatch.chdir(trained)
    if not Path("run").exists():
        result = call("run", "job.yaml", "--run-dir", "run", "--quiet")
        assert result.exit_code == 0, result.output


def test_columns_of_csv_have_the_types_that_the_job_knows(call: Call) -> None:
    """Of several files and processes and in each format the types of the same table in Parquet, but unused columns."""
    new = WRITTEN.astype(object)
    new.loc[3, ["spend", "active", "status", "day"]] = ""
    new.loc[4, "plan"], new.loc[5, "plan"] = "gold", ""
    for i in range(3):
        new[20 * i : 20 * i + 20].to_csv(f"new-{i}.csv", index=False)
    given = [*GIVEN, "new-*.csv", "--overwrite", "--keep", ",".join(FRAME)]
    for options in ([], ["--workers", 2]):
        result = call(*given, "--out", "out.parquet", *options)
        assert result.exit_code == 0, result.output
        assert result.stderr.endswith(
            "out.parquet: 60 records\ncolumns that stay text, as in CSV: id, code, day, country\n"
            "filled 12 values: column active 1, age 9, spend 1, plan 1\n"
            "encoded 1 unknown category as zeros: column plan 1\n"
        )
        found = pq.read_table("out.parquet")
        numbers = dict.fromkeys(("age", "x", "spend"), pa.float64())
        types = {**dict.fromkeys(FRAME, pa.string()), **numbers, "active": pa.bool_(), "status": pa.int64()}
        types |= {"class": pa.int64(), "number": pa.int64(), "probability": pa.float32()}
        assert dict(zip(found.column_names[1:], found.schema.types[1:], strict=True)) == types
        for name in FRAME:
            source = FRAME[name] if types[name] != pa.string() else new[name].astype(str).replace("", None)
            expected = [None if new.loc[i, name] == "" else value for i, value in enumerate(source)]
            assert found[name].to_pylist() == expected, name
    for name in ("out.arrow", "out.jsonl"):
        assert call(*given, "--out", name, "--quiet").stderr == ""
    assert pa.ipc.open_file("out.arrow").read_all().equals(found)
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    scores = found["probability"].to_numpy()
    assert np.array([line.pop("probability") for line in lines], np.float32).tobytes() == scores.tobytes()
    assert lines == found.drop_columns("probability").to_pylist()
    # CSV has the texts of the table, but money as numbers
    shown = pd.read_csv(io.StringIO(call(*given).stdout), dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(shown[list(FRAME)].drop(columns="spend"), new.astype(str).drop(columns="spend"))
    assert pd.to_numeric(shown["spend"]).equals(found["spend"].to_pandas())
    assert shown["probability"].astype("float32").to_numpy().tobytes() == scores.tobytes()


def test_lists_and_later_types_of_json_lines(call: Call) -> None:
    records = [
        {**{name: row[name] for name in FRAME if name != "status"}, "age": 20 + i, "tags": [i] * (i % 3), "n": i}
        for i, row in enumerate(FRAME.to_dict("records"))
    ]
    records[-1] |= {"n": 0.5, "tags": None, "of": {"a": ["2024-01-31"]}}
    Path("new.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    kept = [*GIVEN, "new.jsonl", "--overwrite", "--keep", "id,tags", "--keep", "n,of,day"]
    names = ["id", "tags", "n", "of", "day"]
    expected = [{name: record.get(name) for name in names} for record in records]
    assert call(*kept, "--out", "lists.parquet").exit_code == 0
    assert pq.read_table("lists.parquet").select(names).to_pylist() == expected
    assert call(*kept, "--out", "lists.jsonl").exit_code == 0
    found = [json.loads(line) for line in Path("lists.jsonl").read_text().splitlines()]
    assert [{name: line[name] for name in names} for line in found] == expected
    shown = pd.read_csv(io.StringIO(call(*kept).stdout), keep_default_na=False)
    assert [json.loads(text) if text else None for text in shown["tags"]] == [line["tags"] for line in expected]
    Path("mixed.jsonl").write_text("".join(json.dumps({**each, "n": str(each["n"])}) + "\n" for each in records[:2]))
    with open("mixed.jsonl", "a") as file:
        file.write(json.dumps(records[2]) + "\n")
    refused = call(*GIVEN, "mixed.jsonl", "--keep", "n")
    assert refused.exit_code == 1 and "mixed.jsonl, line 3: column 'n' is 2, expected a string" in refused.stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_names_of_kept_columns(call: Call, suffix: str) -> None:
    names = ["class", "probability", "file", "step", "a.b", "with blank", 'say "x"', "größe, €"]
    table = pq.read_table("typed.parquet").slice(0, 3)
    for name in (*names, "loss.class"):
        table = table.append_column(name, pa.array(["u", "v", "w"]))
    frame = table.to_pandas().drop(columns="spend").assign(spend=["1.5", "2", "3"])
    source = f"odd.{suffix}"
    if suffix == "csv":
        frame.to_csv(source, index=False)
    elif suffix == "parquet":
        frame.to_parquet(source)
    else:
        frame.to_json(source, orient="records", lines=True)
    given = [*GIVEN, source, "--overwrite", "--keep"]
    keep = ",".join([*names[:-2], '"say ""x"""', '"größe, €"'])
    expected = ["record", *names, *(f"loss.{name}" for name in PREDICTED)]
    shown = pd.read_csv(io.StringIO(call(*given, keep).stdout))
    result = call(*given, keep, "--out", "odd-out.parquet")
    said = "the output already has a column 'class', so predictions are in: loss.class, loss.number, loss.probability"
    assert result.exit_code == 0 and result.stderr.splitlines().count(said) == 1, result.output
    assert call(*given, keep, "--out", "odd-out.jsonl").exit_code == 0
    for found in (shown, pd.read_parquet("odd-out.parquet"), pd.read_json("odd-out.jsonl", lines=True)):
        assert list(found) == expected
        assert all(found[name].tolist() == ["u", "v", "w"] for name in names)
    refused = call(*given, "class,loss.class", "--out", "refused.jsonl")
    assert refused.exit_code == 2 and "the predictions have a column 'loss.class', too" in refused.stderr
    assert not Path("refused.jsonl").exists()


def test_stores_whose_columns_have_other_types(call: Call) -> None:
    """Known columns have one type; of others, a code and a number are refused, but not in CSV."""
    both = [*GIVEN, "train.csv", "--data", "typed.parquet", "--overwrite", "--keep"]
    assert call(*both, "active,age,spend,status,day", "--out", "both.parquet").exit_code == 0
    found = pd.read_parquet("both.parquet")
    for name in ("active", "age", "spend", "status"):
        assert found[name].head(N).equals(found[name].tail(N).reset_index(drop=True)), name
    refused = call(*both, "id", "--out", "ids.parquet")
    said = "column 'id' holds values of type int64 in typed.parquet and of type string in train.csv. Predict them"
    assert refused.exit_code == 2 and said in refused.stderr
    shown = pd.read_csv(io.StringIO(call(*both, "id").stdout))
    assert shown["id"].tolist() == 2 * FRAME["id"].tolist()


# numbers for the net, but codes and ids for people
CODES = pd.DataFrame(
    {"plz": [f"{1067 + 997 * i:05d}" for i in range(N)], "big": [f"{2**60 + 8 * i}" for i in range(N)]}
)
CODES = CODES.assign(n=np.arange(N) % 7, spend=WRITTEN["spend"], year=2020 + np.arange(N) % 3, month="07", cost=X)
REGRESSION = """
name: codes
train_steps: 2
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed, base_lr: 0.01}}
neuralnet:
  layer:
  - {name: data, type: CSVInput, store_conf: &store {path: codes.csv, batchsize: 20, features: [plz, big, n, spend],
     target: [cost], numbers: {spend: {thousands: ","}}, standardise: true, shape: [4]}}
  - {name: target, type: TargetInput, store_conf: *store}
  - {name: prediction, type: InnerProduct, srclayers: [data], innerproduct_conf: {num_output: 1},
     param: [{name: w, init: {type: Gaussian}}, {name: b}]}
  - {name: loss, type: EuclideanLoss, srclayers: [prediction, target]}
"""


def test_values_that_numbers_would_change(call: Call) -> None:
    """Sources with types keep them; columns of CSV are texts rather than numbers with fewer digits."""
    CODES.to_csv("codes.csv", index=False)
    CODES.to_parquet("codes.parquet", index=False)
    CODES.to_json("codes.jsonl", orient="records", lines=True)
    CODES.to_parquet("codes", index=False, partition_cols=["year", "month"])
    Path("codes.yaml").write_text(REGRESSION)
    assert call("run", "codes.yaml", "--run-dir", "codes-run", "--quiet").exit_code == 0
    given = ["predict", "codes.yaml", "--init-from", "codes-run", "--overwrite", "--data"]
    names = list(CODES)
    for source in ("codes.parquet", "codes.jsonl", "codes"):
        result = call(*given, source, "--keep", ",".join(names), "--out", "typed.parquet")
        assert result.exit_code == 0 and "columns that stay text" not in result.stderr, result.output
        found = pd.read_parquet("typed.parquet")[names]
        expected = CODES if source != "codes" else CODES.sort_values("year", kind="stable", ignore_index=True)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
        assert [str(found[name].dtype) for name in ("n", "year")] == ["int64", "int64"]
        shown = pd.read_csv(io.StringIO(call(*given, source, "--keep", ",".join(names)).stdout), dtype=str)
        assert shown[names].drop(columns="cost").equals(expected.astype(str).drop(columns="cost"))
    result = call(*given, "codes.csv", "--keep", ",".join(names), "--out", "codes-out.parquet")
    said = "the output already has a column 'cost', so predictions are in: prediction.cost\n"
    assert said in result.stderr and "columns that stay text, as in CSV: plz, big, year, month\n" in result.stderr
    found, spend = pq.read_table("codes-out.parquet"), CODES["spend"].str.replace(",", "").astype(float)
    assert found.select(names).to_pydict() == CODES.assign(spend=spend).astype({"year": str}).to_dict("list")
    assert [str(found.schema.field(name).type) for name in ("n", "spend")] == ["double", "double"]
    # in the same column of several files, all values are texts, or none
    CODES.assign(plz="5").to_csv("short.csv", index=False)
    both = call(*given, "short.csv", "--data", "codes.csv", "--keep", "plz", "--out", "both-codes.parquet")
    assert both.exit_code == 0, both.output
    assert pq.read_table("both-codes.parquet")["plz"].to_pylist() == ["5"] * N + CODES["plz"].tolist()
    refused = call(*given, "codes.csv", "--proba")
    assert refused.exit_code == 2 and "'prediction' predicts numbers, not classes. Leave --proba" in refused.stderr
