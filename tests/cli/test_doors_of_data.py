"""test --data, empty files, directories as outputs, other encodings, and nested columns beside predictions."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import singa_dask as sd
from tests.cli.conftest import Call

N = 120
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=N).round(3), "b": RNG.normal(size=N).round(3)})
FRAME["region"] = RNG.choice(["süd", "nord"], N)
FRAME["kind"] = np.where(FRAME["a"] + RNG.normal(size=N) > FRAME["b"], "more", "less")
GIVEN = ["job.yaml", "--init-from", "run", "--data"]


@pytest.fixture
def trained_table(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train a net on a table, in the working directory."""
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("train.csv", index=False)
    assert call("init", "train.csv", "--label", "kind").exit_code == 0
    assert call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=60").exit_code == 0


@pytest.mark.usefixtures("trained_table")
def test_other_records_are_tested_as_scikit_learn_says(call: Call) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    new = FRAME[["kind", "region", "b", "a"]].head(57)
    new.to_csv("new.csv", index=False)
    new.head(20).to_parquet("one.parquet")
    new.tail(37).to_csv("two.csv", index=False)
    predicted = pd.read_csv(io.StringIO(call("predict", *GIVEN, "new.csv").stdout))["class"]
    expected = {
        "accuracy": metrics.accuracy_score(new["kind"], predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(new["kind"], predicted),
        "f1_macro": metrics.f1_score(new["kind"], predicted, average="macro"),
    }
    for data in (["new.csv"], ["one.parquet", "--data", "two.csv"]):
        result = call("test", *GIVEN, *data, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["records"] == 57
        for name, value in expected.items():
            assert found["test"][name] == pytest.approx(value, abs=1e-6)
    new.assign(a=new["a"].where(new.index != 3)).to_csv("gap.csv", index=False)
    assert "pass --missing mean" in call("test", *GIVEN, "gap.csv").stderr
    assert call("test", *GIVEN, "gap.csv", "--missing", "mean").exit_code == 0
    new.drop(columns="kind").to_csv("none.csv", index=False)
    refused = call("test", *GIVEN, "none.csv")
    assert refused.exit_code == 2 and "'kind'" in refused.stderr
    assert call("test", *GIVEN, "new.csv", "--steps", 1).exit_code == 2


@pytest.mark.usefixtures("trained_table")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_without_records_gives_none(call: Call, suffix: str) -> None:
    none = FRAME.drop(columns="kind").head(0)
    none.to_csv("new.csv", index=False)
    none.astype({"region": "string"}).to_parquet("new.parquet", index=False)
    result = call("predict", *GIVEN, f"new.{suffix}", "--keep", "a")
    assert (result.exit_code, result.stdout) == (0, "record,a,class,number,probability\n")
    assert result.stderr == f"new.{suffix}: 0 records\n"
    assert call("predict", *GIVEN, f"new.{suffix}", "--proba", "--out", "out.parquet").exit_code == 0
    schema = pq.read_schema("out.parquet")
    assert schema.names == ["record", "less", "more"] and schema.types == [pa.int64(), pa.float32(), pa.float32()]
    assert sd.predict("run", f"new.{suffix}", proba=True).shape == (0, 2)
    none[["a", "region"]].to_csv("other.csv", index=False)
    assert call("predict", *GIVEN, "other.csv").exit_code != 0
    Path("zero.csv").touch()
    for options in ([], ["--keep", "a"]):
        refused = call("predict", *GIVEN, "zero.csv", *options)
        assert (refused.exit_code, refused.stdout, refused.stderr) == (2, "", "--data zero.csv: it is empty.\n")


@pytest.mark.usefixtures("trained_table")
def test_another_encoding_is_named_with_its_line_and_option(call: Call) -> None:
    new = FRAME.drop(columns="kind").sort_values("region")
    new.to_csv("new.csv", index=False, encoding="latin-1")
    line = 2 + int((new["region"] == "nord").sum())
    refused = call("predict", *GIVEN, "new.csv")
    assert refused.stderr.startswith(f"--data new.csv, line {line}: the text is not UTF-8: ")
    option = "neuralnet.layer[data].store_conf.charset=latin-1"
    assert refused.stderr.endswith(f"Pass --set '{option}' if that is its encoding.\n")
    found = call("predict", *GIVEN, "new.csv", "--set", option)
    new.to_csv("same.csv", index=False)
    assert found.exit_code == 0 and found.stdout == call("predict", *GIVEN, "same.csv").stdout


def test_advised_options_work_as_printed_in_jobs_of_several_readers(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = FRAME.drop(columns="kind")
    frame.to_csv("train.csv", index=False)
    assert call("init", "train.csv", "--target", "b").exit_code == 0
    assert call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=20").exit_code == 0
    frame.to_csv("bar.csv", index=False, sep="|")
    frame.assign(b=frame["b"].where(frame.index > 3)).to_csv("gap.csv", index=False)
    frame[4:].to_csv("rest.csv", index=False)
    for verb, name, same in (("predict", "bar", "train"), ("test", "gap", "rest")):
        refused = call(verb, *GIVEN, f"{name}.csv")
        assert refused.exit_code in (1, 2) and refused.stderr.count(f"{name}.csv") == 1
        options = re.findall(r"--set '([^']*)'", refused.stderr)
        assert len(options) == 2
        found = call(verb, *GIVEN, f"{name}.csv", *(word for each in options for word in ("--set", each)))
        assert (found.exit_code, found.stdout) == (0, call(verb, *GIVEN, f"{same}.csv").stdout), found.stderr


@pytest.mark.usefixtures("trained_table")
def test_another_separator_and_quotes_that_are_characters_are_named_with_their_option(call: Call) -> None:
    new = FRAME.drop(columns="kind").assign(note="x")
    new.to_csv("same.csv", index=False)
    new.assign(note='"x').to_csv("new.csv", index=False, sep=";", quoting=csv.QUOTE_NONE)
    changes: list[str] = []
    for _ in "separator", "quotes":
        refused = call("predict", *GIVEN, "new.csv", "--keep", "a", *changes)
        assert refused.exit_code and refused.stderr.startswith("--data new.csv, line ")
        option = re.search("Pass --set '(.*?)'", refused.stderr)
        assert option
        changes += ["--set", option[1]]
    found = call("predict", *GIVEN, "new.csv", "--keep", "a", *changes)
    assert (found.exit_code, found.stdout) == (0, call("predict", *GIVEN, "same.csv", "--keep", "a").stdout)


@pytest.mark.usefixtures("trained_table")
def test_nested_columns_are_json_in_csv(call: Call) -> None:
    nested = {"lst": [[1, None], []], "of": [{"x": "é"}, None]}
    odd = {"took": pa.array([1, 2], pa.duration("s"))}
    table = pa.Table.from_pandas(FRAME.head(2)[["a", "b", "region"]], preserve_index=False)
    for name, values in (nested | odd).items():
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, "new.parquet")
    result = call("predict", *GIVEN, "new.parquet", "--keep", "lst,of")
    assert result.exit_code == 0, result.output
    written = pd.read_csv(io.StringIO(result.stdout), keep_default_na=False)
    for name, values in nested.items():
        assert [json.loads(text) if text else None for text in written[name]] == values
    for name in odd:
        refused = call("predict", *GIVEN, "new.parquet", "--keep", name)
        assert (refused.exit_code, refused.stdout) == (2, "") and "Write Parquet" in refused.stderr
        assert call("predict", *GIVEN, "new.parquet", "--keep", name, "--out", f"{name}.parquet").exit_code == 0
        assert pq.read_table(f"{name}.parquet")[name].to_pylist() == table[name].to_pylist()
