"""Standardised input: what scikit-learn's scaler gives, in every topology, kept in checkpoints; no net goes without."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.data.stores import STORES
from singa_dask.data.tables import table_reader
from singa_dask.data.tables.files.table_part import OpenRuns
from singa_dask.errors import CheckpointError, ConfigError, DataError, LeftQueueError
from singa_dask.runtime import local_cluster
from singa_dask.runtime.job import dask_tasks
from singa_dask.runtime.job.driver import record_scaling
from tests.jobs.conftest import KEYS
from tests.selection import circles, mostly_long

N, N_TRAIN = 900, 600
NAMES = ["time", "a", "rare", "constant"]


def records() -> tuple[Any, Any]:
    """Return Unix seconds of an hour, a number, a value that is rarely filled and a constant, and two classes."""
    rng = np.random.default_rng(0)
    time, a = 1.7e9 + rng.integers(0, 3600, N), rng.normal(5, 2, N)
    rare = np.where(np.arange(N) % 50 == 3, 250.0, 0)
    y = ((time - 1.7e9 > 1800) | (a > 8)).astype(np.int32)
    return np.stack([time, a, rare, np.full(N, 7.0)], axis=1), y


def frame(x: Any, y: Any) -> pd.DataFrame:
    return pd.DataFrame({"label": y, **dict(zip(NAMES, x.T, strict=True))})


def net(store: dict[str, Any], kind: str = "RecordInput", **test: Any) -> sd.Net:
    """Return a net of two inner products; ``test`` are changes of the store of the test net."""
    tested = {**store, "shuffle": "none", **test}
    inputs = [sd.layer(kind, name="data", include=["train"], store_conf=store)]
    inputs += [sd.layer(kind, name="data", include=["test"], store_conf=tested)]
    layers = [sd.layer("InnerProduct", num_output=16), sd.layer("ReLU"), sd.layer("InnerProduct", num_output=2)]
    return sd.Net([*inputs, *layers, sd.layer("SoftmaxLoss", srclayers=["innerproduct2", "data"])])


def job(store: dict[str, Any], kind: str = "RecordInput", **keys: Any) -> sd.Job:
    store = {"batchsize": 60, "shape": [4], "standardise": True, "shuffle": "full", **store}
    return sd.Job(net(store, kind, **keys.pop("test", {})), **{"train_steps": 40, "disp_freq": 10, **KEYS, **keys})


def train(made: sd.Job, url: Path, **given: Any) -> sd.Run:
    return sd.train(made, run_dir=str(url), progress=False, **given)


def stored(url: Path, step: int) -> dict[str, Any]:
    manifest = json.loads((url / "checkpoint" / f"step-{step}" / "manifest.json").read_text())
    found: dict[str, Any] = manifest["scalings"]
    return found


@pytest.fixture
def table(tmp_path: Path) -> str:
    x, y = records()
    frame(x[:N_TRAIN], y[:N_TRAIN]).to_csv(tmp_path / "train.csv", index=False)
    return str(tmp_path / "train.csv")


def as_csv(x: Any, y: Any, path: Path) -> tuple[str, dict[str, Any]]:
    frame(x, y).to_csv(path / "x.csv", index=False)
    return "CSVInput", {"path": str(path / "x.csv")}


def as_table(x: Any, y: Any, path: Path) -> tuple[str, dict[str, Any]]:
    frame(x, y).to_parquet(path / "x.parquet")
    return "RecordInput", {"path": str(path / "x.parquet"), "label": ["label"], "features": NAMES}


def as_npy(x: Any, y: Any, path: Path) -> tuple[str, dict[str, Any]]:
    np.save(path / "X.npy", x)
    np.save(path / "y.npy", y)
    return "RecordInput", {"path": str(path / "X.npy")}


def as_lines(x: Any, y: Any, path: Path) -> tuple[str, dict[str, Any]]:
    frame(x, y).to_json(path / "x.jsonl", orient="records", lines=True, double_precision=15)
    return "RecordInput", {"path": str(path / "x.jsonl")}


def as_lists(x: Any, y: Any, path: Path) -> tuple[str, dict[str, Any]]:
    pd.DataFrame({"label": y, "x": list(x)}).to_parquet(path / "x.parquet")
    return "RecordInput", {"path": str(path / "x.parquet")}


def as_hdf5(x: Any, y: Any, path: Path) -> tuple[str, dict[str, Any]]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "x.h5", "w") as file:
        file["data"], file["label"] = x, y
    return "RecordInput", {"path": str(path / "x.h5")}


@pytest.mark.parametrize("store", mostly_long([as_csv, as_table, as_lines, as_npy, as_lists, as_hdf5], 3))
def test_values_are_those_of_the_standard_scaler(store: Callable[..., Any], tmp_path: Path) -> None:
    x, y = records()
    kind, conf = store(x[:N_TRAIN], y[:N_TRAIN], tmp_path)
    run = train(job(conf, kind, train_steps=1), tmp_path / "run")
    expected = StandardScaler().fit(x[:N_TRAIN])
    model = sd.load_model(run)
    # a constant column of others may have any value
    x[N_TRAIN:, 3] = np.arange(N - N_TRAIN)
    scaled = expected.transform(x) * [1, 1, 1, 0]
    found = model.extract(x, "data")
    np.testing.assert_allclose(found, scaled, rtol=1e-6, atol=1e-7)
    if kind == "CSVInput":
        columns = frame(x, y)[["constant", "rare", "time", "a"]]
        assert model.extract(columns, "data").tobytes() == found.tobytes()
    else:
        there = sd.extract(run, str(conf["path"]), layer="data")
        np.testing.assert_allclose(there, found[:N_TRAIN], rtol=1e-6, atol=1e-12)


@pytest.mark.long
def test_arrays_from_python_keep_their_digits(tmp_path: Path) -> None:
    x, y = records()
    data = {"train": (x[:N_TRAIN], y[:N_TRAIN]), "test": (x[N_TRAIN:], y[N_TRAIN:])}
    made = job({"path": "dask://train"}, test={"path": "dask://test"}, test_freq=40, test_steps=5)
    run = train(made.replace({"train_steps": 300, "test_freq": 300}), tmp_path / "run", data=data)
    expected = StandardScaler().fit(x[:N_TRAIN])
    assert stored(tmp_path / "run", 300)["data"]["mean"] == pytest.approx(expected.mean_, rel=1e-15)
    reached = make_pipeline(StandardScaler(), LogisticRegression()).fit(*data["train"]).score(*data["test"])
    # rounded to 32 bits, all seconds are multiples of 128
    assert run.summary["test"]["accuracy"] >= reached
    wide = sd.load_model(run).extract(x, "data")
    np.testing.assert_allclose(wide[:, :3], expected.transform(x)[:, :3], rtol=1e-6, atol=1e-7)


def test_channels_of_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, [[[[200]], [[100]], [[30]]]], (50, 3, 6, 5), np.uint8)
    STORES.find("arrow").write(str(tmp_path / "x.arrow"), {"pixel": x, "label": np.zeros(50, np.int32)})
    run = train(
        job({"path": str(tmp_path / "x.arrow"), "shape": [3, 6, 5], "batchsize": 25}, train_steps=1), tmp_path / "run"
    )
    mean, std = x.mean(axis=(0, 2, 3)), x.std(axis=(0, 2, 3))
    found = stored(tmp_path / "run", 1)["data"]
    assert (found["mean"], found["std"]) == (pytest.approx(mean, rel=1e-12), pytest.approx(std, rel=1e-12))
    expected = (x - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(sd.load_model(run).extract(x, "data"), expected, rtol=1e-5, atol=1e-6)


SYNCHRONOUS: dict[str, dict[str, Any]] = {
    "two": {"nworkers_per_group": 2, "nworkers_per_procs": 2},
    "three": {"nworkers_per_group": 3, "nservers_per_group": 2},
}


@pytest.mark.parametrize("name", circles(["two", "partitioned", "three", "downpour"], long=1))
def test_every_topology_has_the_same_numbers(table: str, tmp_path: Path, name: str) -> None:
    made = job({"path": table}, "CSVInput")
    one = train(made, tmp_path / "one")
    cluster = SYNCHRONOUS.get(name, SYNCHRONOUS["two"])
    if name == "downpour":
        cluster = {"nworker_groups": 2, "nserver_groups": 1, "nworkers_per_group": 1, "nworkers_per_procs": 2}
    change: dict[str, Any] = {"cluster": cluster}
    if name == "partitioned":
        change["neuralnet.layer[innerproduct].partition_dim"] = 1
    run = train(made.replace(change), tmp_path / "other")
    assert stored(tmp_path / "one", 40) == stored(tmp_path / "other", 40)
    if name != "downpour":
        losses = [each.history.loss.to_numpy() for each in (one, run)]
        assert len(losses[0]) > 3
        np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.long
def test_a_checkpoint_has_the_numbers_to_go_on_with(tmp_path: Path) -> None:
    x, y = records()
    _, conf = as_npy(x, y, tmp_path)
    made = job(conf, train_steps=10)
    train(made, tmp_path / "run")
    first = stored(tmp_path / "run", 10)
    # other values under the same name
    np.save(tmp_path / "X.npy", 3 * x + 5)
    train(made.replace({"train_steps": 20}), tmp_path / "run", resume=True)
    train(made, tmp_path / "from", init_from=str(tmp_path / "run"))
    assert first == stored(tmp_path / "run", 20) == stored(tmp_path / "from", 10)
    train(made, tmp_path / "new")
    assert stored(tmp_path / "new", 10)["data"]["mean"] == pytest.approx(3 * np.array(first["data"]["mean"]) + 5)
    with pytest.raises(CheckpointError, match=r"layer data: the net was trained on standardised records. Set stand"):
        train(
            made.replace({"neuralnet.layer[0].store_conf.standardise": False}),
            tmp_path / "no",
            init_from=str(tmp_path / "run"),
        )


@pytest.mark.long
def test_a_net_without_the_numbers_is_refused(tmp_path: Path) -> None:
    x, y = records()
    _, conf = as_npy(x, y, tmp_path)
    without = job({**conf, "standardise": False}, train_steps=2)
    run = train(without, tmp_path / "run")
    asks = job(conf, train_steps=2)
    with pytest.raises(DataError, match=r"layer data: standardise: true .* this net has none: it was trained without"):
        sd.load_model(run, job=asks).predict(x)
    change = "neuralnet.layer[1].store_conf.standardise=true"
    said = CliRunner().invoke(main, ["test", f"{run.url}/job.yaml", "--init-from", run.url, "--set", change])
    assert said.exit_code == 1
    assert "this net has none: it was trained without" in said.stderr
    with pytest.raises(CheckpointError, match=r"step-2: layer data: standardise: true"):
        train(asks.replace({"train_steps": 4}), tmp_path / "run", resume=True)
    run = train(asks, tmp_path / "with")
    with pytest.raises(DataError, match="layer data: the net was trained on standardised records"):
        sd.load_model(run, job=without).predict(x)


def test_tests_standardise_as_training_does(table: str) -> None:
    made = job({"path": table}, "CSVInput", test={"standardise": False}, test_freq=10, test_steps=1)
    with pytest.raises(
        ConfigError, match=r"standardise: the training net has standardise: true. Set the same value here"
    ):
        train(made, Path(table).parent / "run")


def test_what_cannot_be_standardised_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"standardise: it computes mean and standard deviation itself. Leave out mean_v"
    ):
        job({"path": "x", "mean_value": 3.0})
    x, y = records()
    too_large = "column 1: the standard deviation of values from .* to 1e.300"
    for value, text in ((np.nan, "record 700, column 1: the value is nan"), (1e300, too_large)):
        x[700, 1] = value
        _, conf = as_npy(x, y, tmp_path)
        with pytest.raises(DataError, match=text):
            train(job(conf), tmp_path / "run")


def test_few_digits_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = records()
    _, conf = as_npy(x.astype(np.float32), y, tmp_path)
    train(job(conf, train_steps=1), tmp_path / "run")
    log = "".join(path.read_text() for path in (tmp_path / "run" / "log").iterdir())
    assert "column 0: values of 1.7e+09 with a standard deviation of" in log


@pytest.mark.long
def test_a_pixel_that_is_rarely_lit_does_no_harm(tmp_path: Path) -> None:
    x, y = load_digits(return_X_y=True)
    np.save(tmp_path / "X.npy", x[:1200])
    np.save(tmp_path / "y.npy", y[:1200].astype(np.int32))
    made = job({"path": str(tmp_path / "X.npy"), "shape": [64]}, train_steps=400)
    made = made.replace({"neuralnet.layer[innerproduct2].innerproduct_conf.num_output": 10})
    model = sd.load_model(train(made, tmp_path / "run"))
    rare = (x[:1200] > 0).mean(axis=0)
    lit = np.flatnonzero((x[1200:, (rare > 0) & (rare < 0.02)] > 0).any(axis=1)) + 1200
    assert len(lit) > 20
    assert model.test(x[1200:], y[1200:])["loss"] < 0.6
    # with running statistics of batches it was 19.7
    assert model.test(x[lit], y[lit])["loss"] < 1


@pytest.mark.parametrize("shift", mostly_long([1.7e9, 0], 2))
def test_exported_nets_take_raw_columns(tmp_path: Path, shift: float) -> None:
    x, y = records()
    x[:, 0] += shift - 1.7e9
    _, conf = as_npy(x, y, tmp_path)
    run = train(job(conf), tmp_path / "run")
    expected, kind = sd.load_model(run).predict_proba(x), np.float64 if shift else np.float32
    sd.export(run, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    [found] = session.run(None, {"data": x.astype(kind)})
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # PyTorch has no name here; tests/oracles computes with such modules
    sd.export(run, tmp_path / "model.py")
    text, weights = (tmp_path / "model.py").read_text(), load_file(next(tmp_path.glob("model*.safetensors")))
    assert (".float()" in text, weights["data_mean"].dtype, weights["data_std"].dtype) == (bool(shift), kind, kind)
    scaled = ((x.astype(kind) - weights["data_mean"]) / weights["data_std"]).astype(np.float32)
    np.testing.assert_allclose(scaled, sd.load_model(run).extract(x, "data"), rtol=1e-5, atol=1e-5)
    sd.export(run, tmp_path / "params.npz")
    with np.load(tmp_path / "params.npz") as file:
        facts = json.loads(str(file["__metadata__"]))["inputs"]
    assert facts["data"]["standardise"] == stored(tmp_path / "run", 40)["data"]


@pytest.mark.parametrize("n_groups", [3, 4, 7, 60])
def test_of_many_records_some_groups_at_equal_distances_are_measured(
    n_groups: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    n_rows, size = 60, 100
    x = np.random.default_rng(1).normal(np.arange(n_rows * size)[:, None], 3, (n_rows * size, 4)).astype(np.float32)
    path = str(tmp_path / "many.arrow")
    STORES.find("arrow").write(path, [{"data": x, "label": np.zeros(len(x), np.int32)}], block_bytes=size * 20)
    with STORES.find("arrow")(path) as store:
        assert {block.n for block in store.blocks} == {size}
        monkeypatch.setattr(record_scaling, "GROUP_BYTES", size * store.record_bytes)
    monkeypatch.setattr(record_scaling, "MAX_GROUPS", n_groups)
    every = -(-n_rows // n_groups)
    read = np.concatenate([x[i * size : (i + 1) * size] for i in range(0, n_rows, every)]).astype(np.float64)
    for n_workers in (1, 2):
        conf = job({"path": path}, cluster={"nworkers_per_group": n_workers}).conf
        found = record_scaling.compute_scalings(conf, [], [], dask_tasks.run_here, pytest.fail)["data"]
        np.testing.assert_allclose(found["mean"], read.mean(0), rtol=1e-9)
        np.testing.assert_allclose(found["std"], read.std(0), rtol=1e-9)


def test_one_large_row_group_is_held_while_groups_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(8000, 4)), columns=list("abcd")).assign(label=1)
    frame.to_parquet(path, row_group_size=1000)
    monkeypatch.setattr(table_reader, "DECODED_BYTES", 1 << 10)
    monkeypatch.setattr(table_reader, "DECODED_RECORDS", 16)
    monkeypatch.setattr(record_scaling, "GROUP_BYTES", 1 << 12)
    held: list[int] = []
    keep = OpenRuns.keep
    monkeypatch.setattr(OpenRuns, "keep", lambda runs, *run: keep(runs, *run) or held.append(len(runs._runs)))
    conf = job({"path": str(path), "backend": "table", "label": "label"}).conf
    record_scaling.compute_scalings(conf, [], [], dask_tasks.run_here, pytest.fail)
    assert set(held) == {1} and len(held) > 16


def test_the_pass_over_the_records_ends_when_the_job_is_stopped(
    table: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began, ended = threading.Event(), threading.Event()

    def endless(layer: Any, index: int, count: int) -> Any:
        began.set()
        try:
            while True:
                record_scaling.check_wanted()
        finally:
            ended.set()

    def check() -> None:
        if began.is_set():
            raise LeftQueueError("SIGINT", 130)

    monkeypatch.setattr(record_scaling, "measure", endless)
    monkeypatch.setattr(dask_tasks, "LOOK_S", 0.01)
    conf = job({"path": table}, "CSVInput").conf
    with local_cluster(1, processes=False) as client:
        with pytest.raises(LeftQueueError, match="SIGINT"):
            record_scaling.compute_scalings(conf, [], [], dask_tasks.on_dask(client, (), None, check), print)
        assert ended.wait(60)
