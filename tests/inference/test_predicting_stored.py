"""Stored records in Python: the bits of the command line, on a cluster or without one."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from dask import array
from distributed import Client
from pyarrow.csv import write_csv
from pyarrow.parquet import write_table

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.data.stores import STORES
from singa_dask.data.tables.encoder import SKIPPED
from singa_dask.data.tables.table_reader import TableReader
from singa_dask.inference.stored_records import StoredRecords
from tests.contracts.records import read_all
from tests.jobs.conftest import DIGITS, KEYS, digits_net
from tests.runtime.processes import small_cluster

N = 130


def records_of(url: Path | str) -> dict[str, np.ndarray]:
    """Return all records of a store."""
    with sd.open_store(str(url)) as store:
        return read_all(store)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run, which has trained on few digits; beside it is ``digits.arrow``."""
    folder = tmp_path_factory.mktemp("stored")
    few = {name: values[:N] for name, values in records_of(DIGITS).items()}
    STORES.find("arrow").write(str(folder / "digits.arrow"), few)
    # oneDNN divides sums among threads on some processors, so that bits depend on their number
    job = sd.Job(digits_net(), train_steps=6, test_freq=3, test_steps=2, threads=1, **KEYS)
    job = job.replace({"neuralnet.layer[data].store_conf.path": str(folder / "digits.arrow")})
    job.save(folder / "job.yaml")
    sd.train(job, run_dir=str(folder / "run"), progress=False)
    return folder / "run"


def said(verb: str, run: Path, *more: Any) -> str:
    """Return what a verb prints for a run."""
    arguments = [verb, run.parent / "job.yaml", "--init-from", run, "--quiet", *more]
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.long
def test_the_verbs_give_the_same_bits(run: Path, tmp_path: Path) -> None:
    data, model = run.parent / "digits.arrow", sd.load_model(str(run))
    assert (model.step, model.output, model.class_names) == (6, "softmaxloss", ())
    pixels, labels = (records_of(data)[name] for name in ("pixel", "label"))
    rows = list(csv.DictReader(io.StringIO(said("predict", run, "--data", data))))
    found, shares = sd.predict(run, data), sd.predict(model, data, proba=True)
    assert found.tolist() == [int(row["number"]) for row in rows] == model.predict(pixels).tolist()
    assert [np.float32(row["probability"]) for row in rows] == shares.max(axis=1).tolist()
    assert (shares == model.predict_proba(pixels)).all()

    layer = "innerproduct2"
    said("extract", run, "--layer", layer, "--out", tmp_path / "verb.arrow")
    out = sd.extract(str(run), None, layer, out=tmp_path / "python.arrow")
    assert out == str(tmp_path / "python.arrow")
    written = records_of(out)
    assert (tmp_path / "python.arrow").read_bytes() == (tmp_path / "verb.arrow").read_bytes()
    assert written["label"].tolist() == labels.tolist()
    assert written["data"].tobytes() == model.extract(pixels, layer).tobytes()
    for given in None, data:
        assert (sd.extract(model, given, layer) == written["data"]).all()
    with pytest.raises(sd.ConfigError, match=r"python\.arrow: exists already\. .* Give overwrite=True to replace it"):
        sd.extract(run, data, layer, out=out)

    own, whole = (json.loads(said("test", run, "--json", *more))["test"] for more in ([], ["--steps", 0]))
    assert sd.test(run) == own != whole
    assert sd.test(model, steps=0) == sd.test(run, data) == model.test(pixels, labels) == whole


def test_a_run_of_an_earlier_version(run: Path) -> None:
    # whose resolved.yaml says so
    job = sd.load(run.parent / "job.yaml", {"neuralnet.layer[data].store_conf.resize": []})
    assert sd.test(sd.load_model(str(run), job=job)) == sd.test(run)


@pytest.mark.long
def test_metrics_of_a_pass_are_those_of_scikit_learn(run: Path, tmp_path: Path) -> None:
    scores, data, model = pytest.importorskip("sklearn.metrics"), run.parent / "digits.arrow", sd.load_model(str(run))
    pixels, labels = (records_of(data)[name] for name in ("pixel", "label"))
    p = sd.predict(run, data, proba=True)
    wanted = {
        "f1_weighted": scores.f1_score(labels, p.argmax(1), average="weighted"),
        "roc_auc_ovr": np.mean([scores.roc_auc_score(labels == k, p[:, k]) for k in range(10)]),
        "perplexity": np.exp(-np.log(p[np.arange(N), labels].astype(np.float64)).mean()),
    }
    names, matrix = [*wanted, "confusion_matrix"], scores.confusion_matrix(labels, p.argmax(1))
    in_parts = (array.from_array(each, chunks=(50, *each.shape[1:])) for each in (pixels, labels))
    for found in (
        sd.test(run, data, metrics=names),
        model.test(pixels, labels, metrics=names),
        sd.test(model, *in_parts, metrics=names),
    ):
        assert found.keys() == {"loss", "accuracy", *names}
        assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-6)
        assert (found["confusion_matrix"] == matrix).all()
    assert sd.test(run, data, metrics=names[:2])["roc_auc_ovr"] == pytest.approx(wanted["roc_auc_ovr"], rel=1e-12)

    for suffix in ("csv", "svg", "png"):
        given = ["--steps", 0, "--metrics", "f1_weighted", "--confusion", tmp_path / f"c.{suffix}", "--json"]
        told = json.loads(said("test", run, *given))["test"]
        assert told["confusion_matrix"] == matrix.tolist() and "roc_auc_ovr" not in told
        assert told["f1_weighted"] == pytest.approx(wanted["f1_weighted"], rel=1e-12)
    rows = list(csv.reader((tmp_path / "c.csv").read_text().splitlines()))
    assert rows[0] == ["true \\ predicted", *map(str, range(10))]
    assert [[int(n) for n in row[1:]] for row in rows[1:]] == matrix.tolist()
    assert (tmp_path / "c.svg").read_text().startswith("<?xml") and (tmp_path / "c.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.cluster
@pytest.mark.long
def test_workers_of_a_cluster_give_the_same_bits(run: Path) -> None:
    data = run.parent / "digits.arrow"
    with small_cluster(1, 2) as cluster, Client(cluster) as client:
        assert (sd.predict(run, data, client=client) == sd.predict(run, data)).all()
        assert (sd.extract(run, data, "relu", client=client) == sd.extract(run, data, "relu")).all()
        assert sd.test(run, client=cluster.scheduler_address) == sd.test(run)


@pytest.mark.long
def test_targets_and_labels_of_a_table_are_tested(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(40, 2))
    lines = [f"{a},{b},{'high' if a > b else 'low'},{a + b}" for a, b in values]
    for name, part in (("train", lines), ("new", lines[:10])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,kind,sum", *part, ""]))
    table = {"path": str(tmp_path / "train.csv"), "batchsize": 8, "features": ["a", "b"], "target": ["sum"]}
    table |= {"label": ["kind"]}
    net = sd.Net(
        [
            sd.layer("CSVInput", name="data", store_conf=table),
            sd.layer("TargetInput", name="sum", store_conf=table),
            sd.layer("LabelInput", name="kind", store_conf=table, label_conf={"column": "kind"}),
            sd.layer("InnerProduct", name="fc", srclayers="data", num_output=1),
            sd.layer("EuclideanLoss", srclayers=["fc", "sum"]),
            sd.layer("InnerProduct", name="scores", srclayers="data", num_output=2),
            sd.layer("SoftmaxLoss", name="kinds", srclayers=["scores", "kind"]),
        ]
    )
    url = sd.train(sd.Job(net, train_steps=5, **KEYS), run_dir=str(tmp_path / "run"), progress=False).url
    new, model = tmp_path / "new.csv", sd.load_model(url)
    frame = pytest.importorskip("pandas").read_csv(new)
    assert sd.test(url, new) == model.test(frame)
    assert sd.predict(url, new, layer="kinds").tolist() == model.predict(frame, "kinds").tolist()
    assert (sd.predict(url, new, layer="fc") == model.predict(frame, "fc")).all()


def test_predictions_skip_no_record(tmp_path: Path) -> None:
    rows = ["a,b,kind", *(f"{i},{i % 3},{'odd' if i % 2 else 'even'}" for i in range(12))]
    (tmp_path / "train.csv").write_text("\n".join([*rows, ""]))
    (tmp_path / "new.csv").write_text("\n".join([*rows[:4], "9,,odd", ""]))
    table = {"path": str(tmp_path / "train.csv"), "batchsize": 4, "features": ["a", "b"], "label": ["kind"]}
    net = sd.Net(
        [
            sd.layer("CSVInput", name="data", store_conf={**table, "missing": "skip"}),
            sd.layer("InnerProduct", name="fc", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
        ]
    )
    job, new = sd.Job(net, train_steps=2, **KEYS), tmp_path / "new.csv"
    job.save(tmp_path / "job.yaml")
    model = sd.load_model(sd.train(job, run_dir=str(tmp_path / "run"), progress=False))
    text = sd.DataError(f"/a.csv, line 3, column 'text': no value. {SKIPPED.text}", remedy=SKIPPED)
    assert (
        str(StoredRecords("/a.csv").renamed(text, []))
        == "/a.csv, line 3, column 'text': no value. Leave the record out."
    )
    refused = r"new\.csv, line 5, column 'b': no value\. Leave the record out, or pass missing='mean' or a number to"
    for call in (lambda: sd.predict(model, new), lambda: sd.extract(model, new, "fc")):
        with pytest.raises(sd.DataError, match=refused):
            call()
    given = ["predict", tmp_path / "job.yaml", "--init-from", tmp_path / "run", "--data", new]
    said = CliRunner().invoke(main, [str(each) for each in given])
    assert said.exit_code == 1
    assert said.stderr.startswith(f"--data {new}, line 5, column 'b': no value. Leave the record out")
    frame = pytest.importorskip("pandas").read_csv(new)
    with pytest.raises(sd.DataError, match=r"column 'b': no value. The job skips such records. Leave the record out"):
        sd.predict(model, frame)
    # each says at the line of its caller what the job leaves out
    with pytest.warns(sd.DataWarning, match="1 record is left out for missing values") as said:
        assert sd.test(model, new) == sd.test(model, frame) == sd.test(model, frame[:3])
    assert [each.filename for each in said] == [__file__] * 2


def test_records_without_a_label_are_predicted_and_not_tested(tmp_path: Path) -> None:
    rows = ["a,kind", *(f"{i},{'odd' if i % 2 else 'even'}" for i in range(12))]
    (tmp_path / "train.csv").write_text("\n".join([*rows, "12,", ""]))
    (tmp_path / "new.csv").write_text("\n".join([*rows[:4], "9,", ",odd", ""]))
    table = {"path": str(tmp_path / "train.csv"), "batchsize": 4, "features": ["a"], "label": ["kind"]}
    net = sd.Net(
        [
            sd.layer("CSVInput", name="data", store_conf={**table, "missing": "mean", "unlabelled": "skip"}),
            sd.layer("InnerProduct", name="fc", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
        ]
    )
    job, new = sd.Job(net, train_steps=2, **KEYS), tmp_path / "new.csv"
    model = sd.load_model(sd.train(job, run_dir=str(tmp_path / "run"), progress=False))
    frame = pytest.importorskip("pandas").read_csv(new)
    assert sd.predict(model, new).tolist() == model.predict(frame).tolist()
    assert len(model.predict(frame)) == 5
    with pytest.warns(sd.DataWarning, match="1 record is left out") as said:
        assert sd.test(model, new) == model.test(frame) == model.test(frame.drop(index=3))
    assert len(said) == 2


def test_mistakes_are_named(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.zeros((4, 3), np.uint8))
    x = np.zeros((1, 28, 28), np.uint8)
    with pytest.raises(sd.ConfigError, match=r"none\.arrow: no such file or directory"):
        sd.predict(run, tmp_path / "none.arrow")
    with pytest.raises(sd.ConfigError, match=r"flat\.npy: records of \(3,\), expected \(28, 28\)"):
        sd.test(run, tmp_path / "flat.npy")
    with pytest.raises(sd.ConfigError, match="layer 'relu' has no class probabilities"):
        sd.predict(run, DIGITS, layer="relu", proba=True)
    with pytest.raises(sd.ConfigError, match="phase: 'train', expected 'test' or 'val'"):
        sd.test(run, phase="train")
    with pytest.raises(sd.ConfigError, match="y: stored records include their labels"):
        sd.test(run, DIGITS, [1])
    for call in (lambda: sd.predict(run, x, client="tcp://127.0.0.1:1"), lambda: sd.extract(run, x, "relu", out="x")):
        with pytest.raises(sd.ConfigError, match=r"^(client|out): only for stored records"):
            call()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_many_tasks_scan_a_table_once_and_say_once_what_is_left_out(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, path = np.random.default_rng(1), tmp_path / f"table.{suffix}"
    kinds = [None if i % 100 == 7 else "high" if i % 2 else "low" for i in range(6000)]
    table = pa.table({"a": rng.normal(size=6000), "b": rng.normal(size=6000), "kind": kinds})
    if suffix == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    else:
        {"csv": write_csv, "parquet": write_table}[suffix](table, path)
    records = {"path": str(path), "batchsize": 100, "features": ["a", "b"], "label": ["kind"], "unlabelled": "skip"}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=records),
            sd.layer("InnerProduct", name="fc", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
        ]
    )
    run = sd.train(sd.Job(net, train_steps=2, **KEYS), run_dir=str(tmp_path / "run"), progress=False)
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    scanned: list[str] = []
    scan = TableReader.learn
    monkeypatch.setattr(TableReader, "learn", lambda table, *how: scanned.append(table.url) or scan(table, *how))
    with pytest.warns(sd.DataWarning) as said:
        sd.test(run, steps=0)
    assert [str(each.message) for each in said] == [
        f"{path}: 60 records are left out for missing values; 5940 are read."
    ]
    assert scanned == [str(path)]
