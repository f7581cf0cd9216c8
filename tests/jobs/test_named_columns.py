"""A net that was trained on a CSV file with a header, the label first, finds the columns of other data by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.errors import CheckpointError, DataError, UnitError
from singa_dask.serving import Limits, ModelServer
from tests.jobs.conftest import KEYS
from tests.selection import mostly_long
from tests.serving.conftest import ask

NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    x = np.random.default_rng(0).normal(size=(300, 4)) * [1, 10, 100, 0.1] + [0, 5, -50, 3]
    table = pd.DataFrame(x, columns=NAMES)
    table.insert(0, "kind", (x[:, 0] + x[:, 1] / 10 > 0.5).astype(int))
    return table


@pytest.fixture(scope="module")
def run(data: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the directory of a run whose test net reads ``test.csv`` beside it."""
    folder = tmp_path_factory.mktemp("columns")
    data[:200].to_csv(folder / "train.csv", index=False)
    data[200:].to_csv(folder / "test.csv", index=False)
    store = {"batchsize": 50, "shape": [4], "standardise": True}
    net = sd.Net(
        [
            sd.layer("CSVInput", name="data", include=["train"], store_conf={**store, "path": folder / "train.csv"}),
            sd.layer("CSVInput", name="data", include=["test"], store_conf={**store, "path": folder / "test.csv"}),
            sd.layer("InnerProduct", num_output=8),
            sd.layer("ReLU"),
            sd.layer("InnerProduct", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["innerproduct2", "data"]),
        ]
    )
    sd.train(sd.Job(net, train_steps=100, **KEYS), run_dir=str(folder / "run"), progress=False)
    return str(folder / "run")


def metrics_of(run: str, path: Path) -> Any:
    change = f"neuralnet.layer[1].store_conf.path={path}"
    arguments = ["test", f"{run}/job.yaml", "--init-from", run, "--set", change, "--steps", "0", "--json"]
    return CliRunner().invoke(main, arguments)


def predictions(run: str, path: Path) -> Any:
    return CliRunner().invoke(main, ["predict", f"{run}/job.yaml", "--init-from", run, "--data", str(path)])


def permuted(table: pd.DataFrame) -> pd.DataFrame:
    return table[["kind", "d", "c", "b", "a"]]


def label_inside(table: pd.DataFrame) -> pd.DataFrame:
    return table[["d", "c", "kind", "b", "a"]]


def with_others(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(id=[f"r{i}" for i in range(len(table))], z=1.0)[["id", "z", "d", "c", "kind", "b", "a"]]


@pytest.mark.parametrize("change", mostly_long([with_others, permuted, label_inside], 3))
def test_a_csv_file_in_another_order(run: str, data: pd.DataFrame, tmp_path: Path, change: Callable[..., Any]) -> None:
    table = change(data[200:])
    table.to_csv(tmp_path / "other.csv", index=False)
    expected = metrics_of(run, Path(run).parent / "test.csv")
    found = metrics_of(run, tmp_path / "other.csv")
    assert json.loads(found.stdout)["test"] == json.loads(expected.stdout)["test"]
    assert json.loads(found.stdout)["test"]["accuracy"] > 0.9
    same = predictions(run, Path(run).parent / "test.csv").stdout
    assert same.count("\n") == 101
    files = {"other.csv": table.to_csv, "x.parquet": table.to_parquet}
    for name, write in files.items():
        write(tmp_path / name, index=False)
    table.to_json(tmp_path / "x.jsonl", orient="records", lines=True, double_precision=15)
    for name in ("x.jsonl", *files):
        assert predictions(run, tmp_path / name).stdout == same


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda table: table.rename(columns={"b": "bb"}),
            "column 'b' is missing. Did you mean 'bb'? Columns: kind, a, bb",
        ),
        (lambda table: table.drop(columns="c"), "column 'c' is missing. Columns: kind, a, b, d."),
    ],
)
def test_columns_that_are_not_there_are_named(
    run: str, data: pd.DataFrame, tmp_path: Path, change: Callable[..., Any], text: str
) -> None:
    table = change(data[200:])
    table.to_csv(tmp_path / "other.csv", index=False)
    table.to_parquet(tmp_path / "x.parquet")
    table.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    table.to_json(tmp_path / "x.json", orient="records")
    assert text in metrics_of(run, tmp_path / "other.csv").stderr
    for name in ("x.parquet", "x.jsonl", "x.json"):
        assert text in predictions(run, tmp_path / name).stderr
    with pytest.raises(DataError, match=re.escape(text.partition(" Columns")[0])):
        sd.load_model(run).predict(table)


def test_a_file_without_a_header_is_read_by_position(
    run: str, data: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data[200:].to_csv(tmp_path / "plain.csv", index=False, header=False)
    found = metrics_of(run, tmp_path / "plain.csv")
    assert caplog.text.count("the columns have no names, so they are read in the order of the training data") == 1
    assert json.loads(found.stdout)["test"] == json.loads(metrics_of(run, Path(run).parent / "test.csv").stdout)["test"]


def test_a_model_finds_columns_by_name(run: str, data: pd.DataFrame) -> None:
    model, table = sd.load_model(run), with_others(data[200:])
    expected = model.predict_proba(data[200:][NAMES].to_numpy())
    columns: dict[str, Any] = {name: table[name].to_numpy() for name in table.columns}
    for same in (table, pa.Table.from_pandas(table), columns, table.to_dict("records"), table.to_dict("list")):
        assert model.predict_proba(same).tobytes() == expected.tobytes()
        # the label, too, has its name from the training data
        assert model.test(same)["accuracy"] > 0.9
    rows = table.to_dict("records")
    del rows[3]["a"]
    with pytest.raises(DataError, match="x, row 3, 'a': lacks this key of the first object"):
        model.predict(rows)
    with pytest.raises(DataError, match="column 'b' is missing"):
        model.predict({name: [1.0] for name in "acd"})


def test_a_server_finds_columns_by_name(run: str, data: pd.DataFrame) -> None:
    expected = sd.load_model(run).predict(data[200:][NAMES].to_numpy())
    records = label_inside(data[200:]).drop(columns="kind").to_dict("records")
    with ModelServer(sd.load_model(run), Limits(8)) as server:
        assert ask(server.url, given={"records": records}).json["predictions"] == expected.tolist()
        wrong = ask(server.url, given={"records": [{"a": 1, "bb": 2, "c": 3, "d": 4}]})
    assert "records: column 'b' is missing. Did you mean 'bb'? Columns: a, bb, c, d." in wrong.json["error"]


def test_names_stay_in_checkpoints(run: str, data: pd.DataFrame, tmp_path: Path) -> None:
    job = sd.load(f"{run}/job.yaml")
    again = sd.train(job, run_dir=str(tmp_path / "from"), init_from=run, progress=False)
    table = permuted(data[200:])
    assert sd.load_model(again).test(table)["accuracy"] > 0.9
    tables = json.loads((Path(again.url) / "checkpoint" / "step-100" / "manifest.json").read_text())["tables"]
    assert (tables["data"]["features"], tables["data"]["labels"]) == (NAMES, [["kind", []]])
    more = sd.train(job.replace({"train_steps": 110}), run_dir=again.url, resume=True, progress=False)
    assert sd.load_model(more).test(table)["accuracy"] > 0.9
    with pytest.raises(CheckpointError):
        sd.load_model(more, step=5)


def test_a_class_without_a_score_is_refused_before_it_is_met(data: pd.DataFrame, tmp_path: Path) -> None:
    names = np.array(["low", "high", "odd"])
    data.assign(kind=names[[*data["kind"][:-1], 2]]).to_csv(tmp_path / "train.csv", index=False)
    store = {"path": str(tmp_path / "train.csv"), "batchsize": 10, "shape": [4], "label": "kind"}
    layers = [sd.layer("CSVInput", name="data", store_conf=store), sd.layer("InnerProduct", num_output=2)]
    layers += [sd.layer("SoftmaxLoss", srclayers=["innerproduct", "data"])]
    wanted = r"step 0: layer softmaxloss: 'data' has 3 classes, high, low, odd, but there are scores for 2\. "
    wanted += r"Set num_output: 3 in the layer of the scores\."
    with pytest.raises(UnitError, match=wanted):
        sd.train(sd.Job(sd.Net(layers), train_steps=2, **KEYS), run_dir=str(tmp_path / "run"), progress=False)
