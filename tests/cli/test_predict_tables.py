"""Predictions of tables: columns beside them, probabilities by names of classes, and a record that is an example."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import singa_dask as sd
from tests.cli.conftest import Call

N = 90
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=N).round(3), "b": RNG.normal(size=N).round(3)})
FRAME["kind"] = np.where(FRAME["a"] > FRAME["b"], "more", "less")
NEW = FRAME[["b", "a"]].assign(
    key=[f"{i:05d}" for i in range(N)], note=[None if i == 7 else f"no, {i}" for i in range(N)]
)


@pytest.fixture
def job(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a job on a table, which was run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("train.csv", index=False)
    assert call("init", "train.csv", "--label", "kind", "--test-split", 0).exit_code == 0
    assert call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=60").exit_code == 0
    return "job.yaml"


def table(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_are_kept_as_they_are(call: Call, job: str, suffix: str) -> None:
    if suffix == "csv":
        NEW.to_csv("new.csv", index=False)
    else:
        NEW.to_parquet("new.parquet", row_group_size=20)
    given = ["predict", job, "--init-from", "run", "--data", f"new.{suffix}"]
    result = call(*given, "--keep", "key, note, key")
    assert result.exit_code == 0, result.output
    plain, kept = table(call(*given).stdout), table(result.stdout)
    assert list(kept) == ["record", "key", "note", "class", "number", "probability"]
    pd.testing.assert_frame_equal(kept[["class", "number", "probability"]], plain[["class", "number", "probability"]])
    assert kept["key"].tolist() == NEW["key"].tolist()
    assert kept["note"].tolist() == NEW["note"].fillna("").tolist()
    proba = table(call(*given, "--proba", "--keep", "key").stdout)
    assert list(proba) == ["record", "key", "less", "more"]
    expected = sd.load_model("run").predict_proba(NEW[["a", "b"]])
    np.testing.assert_allclose(proba[["less", "more"]].astype(float), expected, rtol=1e-5)


def test_the_record_that_serve_shows_can_be_predicted(job: str, call: Call) -> None:
    model = sd.load_model("run")
    example = model.example(model.output)
    assert example == {"a": 0.0, "b": 0.0}
    assert model.predict(pd.DataFrame([example])).shape == (1,)


def test_what_cannot_be_kept_is_named(call: Call, job: str) -> None:
    NEW.to_csv("new.csv", index=False)
    given = ["predict", job, "--init-from", "run", "--data", "new.csv"]
    refused = call(*given, "--keep", "nota")
    assert refused.exit_code == 1
    assert refused.stderr == f"{Path.cwd()}/new.csv: no column 'nota'. Columns: b, a, key, note.\n"
    assert call(*given, "--proba", "--topk", 2).exit_code == 2
    np.savez("new.npz", data=NEW[["a", "b"]])
    refused = call("predict", job, "--init-from", "run", "--data", "new.npz", "--keep", "record")
    assert refused.exit_code == 1 and "new.npz: " in refused.stderr


def test_no_two_columns_have_one_name(call: Call, job: str) -> None:
    NEW.rename(columns={"key": "record", "note": "class"}).assign(less=1).to_csv("new.csv", index=False)
    given = ["predict", job, "--init-from", "run", "--data", "new.csv"]
    for options, name in (
        (["--keep", "class"], "class"),
        (["--keep", "less", "--proba"], "less"),
        (["--keep", "b,record"], "record"),
    ):
        refused = call(*given, *options)
        said = f"--keep: a column of the predictions is called '{name}', too. Rename the column of the data, or keep"
        assert (refused.exit_code, refused.stdout, said in refused.stderr) == (2, "", True), refused.output
    assert list(table(call(*given, "--keep", "less").stdout)) == ["record", "less", "class", "number", "probability"]
    # a class with the name of the column that numbers the records
    FRAME.assign(kind=FRAME["kind"].replace("more", "record")).to_csv("other.csv", index=False)
    assert call("init", "other.csv", "--label", "kind", "--test-split", 0, "-o", "other.yaml").exit_code == 0
    assert call("run", "other.yaml", "--run-dir", "other", "--set", "train_steps=5").exit_code == 0
    result = call("predict", "other.yaml", "--init-from", "other", "--data", "new.csv", "--proba")
    assert list(table(result.stdout)) == ["record", "loss.less", "loss.record"]
