"""Jobs on data of Python objects: the same bits as from files, and nothing left behind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import singa_dask as sd
from singa_dask.conf import Phase
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.hosts import local_parts
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.jobs.datasets.records import Dataset
from singa_dask.jobs.train import RunOptions
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.jobs.conftest import KEYS

QUIET: RunOptions = {"progress": False}
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(40, 6))
Y = RANDOM.integers(0, 3, 40)
FRACTIONS = RANDOM.normal(size=(40, 2))


def classify(path: str = "dask://train", **keys: Any) -> sd.Job:
    """Return a job that learns labels."""
    records = {"path": path, "shape": [6], "batchsize": 5, "shuffle": "full"}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=records),
            sd.layer("InnerProduct", name="scores", num_output=3),
            sd.layer("SoftmaxLoss", srclayers=["scores", "data"]),
        ]
    )
    return sd.Job(net, train_steps=20, **{**KEYS, **keys})


def regress(path: str = "dask://train", size: int = 2) -> sd.Job:
    """Return a job that learns numbers."""
    records = {"path": path, "shape": [6], "batchsize": 5, "shuffle": "full"}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=records),
            sd.layer("TargetInput", name="numbers", store_conf=records, size=size),
            sd.layer("InnerProduct", name="found", srclayers="data", num_output=size),
            sd.layer("EuclideanLoss", srclayers=["found", "numbers"]),
        ]
    )
    return sd.Job(net, train_steps=20, **KEYS)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of temporary files, which is that of this test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def values_of(run: sd.Run) -> dict[str, bytes]:
    """Return the params of the newest checkpoint of a run."""
    return {name: stored.values.tobytes() for name, stored in load_values(run.url).items()}


def write_shards(folder: Path, fields: dict[str, np.ndarray], rows: int) -> str:
    """Write records as shards of so many records; return their pattern."""
    for first in range(0, len(X), rows):
        chunk = {name: values[first : first + rows] for name, values in fields.items()}
        ArrowStore.write(str(folder / f"shard-{first:03}.arrow"), chunk)
    return str(folder / "shard-*.arrow")


@pytest.mark.long
def test_arrays_train_to_the_same_bits_as_their_files(tmp_path: Path, temporary: Path) -> None:
    fields = {"data": X.astype(np.float32), "label": Y.astype(np.int32)}
    ArrowStore.write(str(tmp_path / "whole.arrow"), fields)
    of_file = sd.train(classify(str(tmp_path / "whole.arrow")), run_dir=str(tmp_path / "file"), **QUIET)
    run = sd.train(classify(), data=(X, Y), run_dir=str(tmp_path / "numpy"), **QUIET)
    assert values_of(run) == values_of(of_file)
    shards = write_shards(tmp_path, fields, 10)
    of_shards = sd.train(classify(shards), run_dir=str(tmp_path / "shards"), **QUIET)
    lazy = da.from_array(X, chunks=(10, 2)), da.from_array(Y, chunks=7)
    of_dask = sd.train(classify(), data={"train": lazy}, run_dir=str(tmp_path / "dask"), **QUIET)
    assert values_of(of_dask) == values_of(of_shards)
    assert not list(temporary.glob("singa-dask-*"))
    assert "dask://train" in (tmp_path / "dask" / "job.yaml").read_text()
    assert "dask://train" in (tmp_path / "dask" / "resolved.yaml").read_text()


@pytest.mark.long
def test_targets_of_arrays(tmp_path: Path) -> None:
    fields = {"data": X.astype(np.float32), "target": FRACTIONS.astype(np.float32)}
    pattern = write_shards(tmp_path, fields, 40)
    job = regress(pattern).replace(
        {f"neuralnet.layer[{name}].store_conf.has_label": False for name in ("data", "numbers")}
    )
    of_file = sd.train(job, run_dir=str(tmp_path / "file"), **QUIET)
    run = sd.train(regress(), data=(X, FRACTIONS), run_dir=str(tmp_path / "numpy"), **QUIET)
    assert values_of(run) == values_of(of_file)
    with pytest.raises(
        sd.ConfigError, match=r"dask://train/part.*: the records have 2 targets, expected 1\. Set target_conf"
    ):
        sd.train(regress(size=1), data=(X, FRACTIONS), **QUIET)


def weighted(job: sd.Job, **more: Any) -> sd.Job:
    """Return a job whose loss reads weights."""
    layers = job.conf.neuralnet.layer
    records = layers[0].store_conf
    loss = layers[-1].model_copy(update={"srclayers": [*layers[-1].srclayers, "weights"]})
    return job.replace(
        {"neuralnet.layer": [*layers[:-1], sd.layer("WeightInput", name="weights", store_conf=records), loss]}
    )


@pytest.mark.long
def test_weights_of_records(tmp_path: Path) -> None:
    weights = RANDOM.integers(0, 3, 40)
    run = sd.train(weighted(classify()), data=(X, Y, weights), run_dir=str(tmp_path / "numpy"), **QUIET)
    fields = {"data": X.astype(np.float32), "label": Y.astype(np.int32), "weight": weights[:, None].astype(np.float32)}
    ArrowStore.write(str(tmp_path / "whole.arrow"), fields)
    path = str(tmp_path / "whole.arrow")
    of_file = sd.train(weighted(classify(path)), run_dir=str(tmp_path / "file"), **QUIET)
    assert values_of(run) == values_of(of_file)
    # each record counts once
    ones = sd.train(weighted(classify()), data=(X, Y, np.ones(40)), run_dir=str(tmp_path / "ones"), **QUIET)
    plain = sd.train(classify(), data=(X, Y), run_dir=str(tmp_path / "plain"), **QUIET)
    assert values_of(ones) == values_of(plain) != values_of(run)
    model = sd.load_model(run)
    assert model.predict(X).shape == (40,)
    assert model.test(X, Y)["accuracy"] == sd.load_model(of_file).test(X, Y)["accuracy"]
    with pytest.raises(sd.ConfigError, match=r"no layer reads the weights of data 'train'\. Add a WeightInput"):
        sd.train(classify(), data=(X, Y, weights), **QUIET)
    with pytest.raises(sd.ConfigError, match=r"the records have no weight, which WeightInput needs"):
        sd.train(weighted(classify()), data=(X, Y), **QUIET)


@pytest.mark.long
def test_a_weight_of_a_frame_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(6)])
    target, weights = pd.Series(FRACTIONS[:, 0], name="y"), pd.Series(RANDOM.random(40), name="w")
    apart = sd.train(weighted(regress(size=1)), data=(frame, target, weights), run_dir=str(tmp_path / "a"), **QUIET)
    columns = {
        f"neuralnet.layer[{name}].store_conf.{key}": value
        for name in ("data", "numbers", "weights")
        for key, value in (("target", ["y"]), ("weight", "w"))
    }
    job = weighted(regress(size=1)).replace(columns)
    within = sd.train(job, data=frame.assign(y=target, w=weights), run_dir=str(tmp_path / "b"), **QUIET)
    lazy = tuple(dd.from_pandas(each, npartitions=1) for each in (frame, target, weights))
    of_dask = sd.train(weighted(regress(size=1)), data=lazy, run_dir=str(tmp_path / "c"), **QUIET)
    assert values_of(apart) == values_of(within) == values_of(of_dask)
    lines = frame.assign(y=target, w=weights)
    assert sd.load_model(within).test(lines)["loss"] != sd.load_model(within).test(frame, target)["loss"]


@pytest.mark.long
def test_a_run_goes_on_with_the_same_data(tmp_path: Path) -> None:
    url = str(tmp_path / "run")
    whole = sd.train(classify(), data=(X, Y), run_dir=str(tmp_path / "whole"), **QUIET)
    sd.train(classify().replace({"train_steps": 9}), data=(X, Y), run_dir=url, **QUIET)
    run = sd.train(classify(), data=(X, Y), run_dir=url, resume=True, **QUIET)
    assert run.summary["steps"] == 20
    assert values_of(run) == values_of(whole)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, r"store_conf.path: no data named 'train'\. Pass it from Python: singa_dask\.train\(job, data="),
        (
            {"trian": (X, Y)},
            r"(?s)no data named 'train'\. .*Did you mean 'trian'.*no input layer of the job reads data 'trian'",
        ),
        ({"train": (X, Y), "test": X}, r"no input layer of the job reads data 'test'\. It reads train"),
        ((X[:, :5], Y), r"store_conf.path: dask://train: records of \(5,\), expected \(6,\)"),
        (X, r"the records have no labels\. Set has_label: false"),
        ((X, FRACTIONS), r"the records have targets, which are floats, and no labels\. Pass .* y\.astype\(int\)"),
    ],
)
def test_data_that_do_not_fit_the_job(data: Any, message: str, tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(sd.ConfigError, match=message):
        sd.train(classify(), data=data, run_dir=str(tmp_path / "run"), **QUIET)
    assert not (tmp_path / "run").exists()
    assert not list(temporary.glob("singa-dask-*"))


@pytest.mark.long
def test_frames_train_to_the_same_bits_as_their_files(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(kind=np.array(["dog", "cat", "owl"])[Y])
    for i, first in enumerate(range(0, 40, 10)):
        frame[first : first + 10].to_parquet(tmp_path / f"part-{i}.parquet", index=False)
    named = {"neuralnet.layer[data].store_conf.label": ["kind"]}
    of_files = sd.train(
        classify(str(tmp_path / "part-*.parquet")).replace(named), run_dir=str(tmp_path / "file"), **QUIET
    )
    lazy = dd.from_pandas(frame, npartitions=4)
    alone = sd.train(classify().replace(named), data=lazy, run_dir=str(tmp_path / "alone"), **QUIET)
    pair = sd.train(classify(), data=(lazy[list("abcdef")], lazy.kind), run_dir=str(tmp_path / "pair"), **QUIET)
    assert values_of(of_files) == values_of(alone) == values_of(pair)


@pytest.mark.parametrize("backend", ["csv", "table", "jsonl"])
def test_a_job_for_a_file_reads_a_series_from_a_frame(backend: str, tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=40).astype(str)
    frame = pd.DataFrame({"day": days, "sales": [f"{value} EUR" for value in np.round(Y + RANDOM.random(40), 3)]})
    frame.to_csv(tmp_path / "sales.csv", index=False, sep=";")
    lags = {"columns": ["sales"], "n": 2, "order": "day"}
    store = {
        "features": ["sales_lag1", "sales_lag2"],
        "target": "sales",
        "lags": lags,
        "shape": [2],
        "batchsize": 19,
        "separator": ";",
        "standardise": True,
    }
    store |= {"numbers": {"sales": {"unit": "EUR"}}}
    values = []
    for path, named in ((str(tmp_path / "sales.csv"), "csv"), ("dask://train", backend)):
        records = {**store, "path": path, "backend": named}
        net = sd.Net(
            [
                sd.layer("RecordInput", name="data", store_conf=records),
                sd.layer("TargetInput", name="target", store_conf=records),
                sd.layer("InnerProduct", name="out", srclayers=["data"], num_output=1),
                sd.layer("EuclideanLoss", srclayers=["out", "target"]),
            ]
        )
        job = sd.Job(net, train_steps=4, **KEYS)
        run_dir = str(tmp_path / f"run-{path[:4]}".replace("/", ""))
        run = sd.train(job, data=None if path[0] == "/" else frame, run_dir=run_dir, **QUIET)
        values.append(load_values(run.url))
    for name, of_file in values[0].items():
        np.testing.assert_array_equal(of_file.values, values[1][name].values)


def test_a_frame_needs_the_names_of_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(kind=Y)
    job = classify().replace({"neuralnet.layer[data].store_conf.shape": [7]})
    with pytest.raises(sd.ConfigError, match=r"dask://train/part.*no labels\. .*label.*has_label: false"):
        sd.train(job, data=frame, **QUIET)
    named = {"neuralnet.layer[data].store_conf.label": ["kin"]}
    with pytest.raises(sd.ConfigError, match=r"dask://train/part.*unknown column 'kin'\. Did you mean 'kind'"):
        sd.train(classify().replace(named), data=frame, **QUIET)


def test_data_that_cannot_be_computed(tmp_path: Path, temporary: Path) -> None:
    def fail(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        raise ValueError("no such sensor")

    lazy = da.from_array(X, chunks=(10, 6)).map_blocks(fail, dtype=X.dtype, meta=X[:0])
    with pytest.raises(
        DataError, match=r"dataset 'train', partition 0: the records cannot be computed: ValueError: no such sensor"
    ):
        sd.train(classify(), data=(lazy, da.from_array(Y, chunks=10)), run_dir=str(tmp_path / "run"), **QUIET)
    assert not list(temporary.glob("singa-dask-*"))


def test_a_job_with_data_can_be_looked_at_without_them() -> None:
    assert classify().nets()[Phase.TRAIN].n_params == 21


def test_files_are_deleted_when_a_run_is_stopped_or_interrupted(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Path] = []
    run = sd.start(
        classify().replace({"train_steps": 1_000_000}),
        data=(X, Y),
        run_dir=str(tmp_path / "stopped"),
        on_event=lambda event: found.extend(temporary.glob("singa-dask-*/train/*.arrow")),
        **QUIET,
    )
    run.stop()
    run.wait()
    assert found
    assert not list(temporary.glob("singa-dask-*"))

    def interrupt(block: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    lazy = da.from_array(X, chunks=(20, 6)).map_blocks(interrupt, dtype=X.dtype, meta=X[:0])
    with dask.config.set(scheduler="synchronous"), pytest.raises(KeyboardInterrupt):
        sd.train(classify(), data=(lazy, da.from_array(Y, chunks=20)), run_dir=str(tmp_path / "new"), **QUIET)
    assert not list(temporary.glob("singa-dask-*"))


def test_what_a_killed_process_has_left_is_deleted(temporary: Path) -> None:
    datasets = {"a b": as_dataset("a b", X)}
    dead = temporary / "singa-dask-data-dead"
    dead.mkdir()
    (dead / "lock").touch()
    with local_parts(datasets) as urls:
        assert not dead.exists()
        with local_parts(datasets):
            assert Path(urls["a b"]).with_name("part-00000.arrow").exists()
    assert not list(temporary.iterdir())


def test_records_of_another_shape_are_refused_before_they_are_computed(tmp_path: Path) -> None:
    def never(block: np.ndarray) -> np.ndarray:
        raise AssertionError

    lazy = da.from_array(X, chunks=(20, 6)).map_blocks(never, dtype=X.dtype, meta=X[:0])
    job = classify().replace({"neuralnet.layer[data].store_conf.shape": [5]})
    with pytest.raises(sd.ConfigError, match=r"store_conf.path: dask://train: records of \(6,\), expected \(5,\)"):
        sd.train(job, data=(lazy, da.from_array(Y, chunks=20)), run_dir=str(tmp_path / "run"), **QUIET)


def test_a_disk_that_is_full() -> None:
    def write(value: Any, path: str, index: int) -> int:
        raise OSError(28, "No space left on device")

    full = Dataset("train", (X,), write, ".arrow")
    message = r"dataset 'train': the records cannot be written to .*: No space left on device\. To write .*set TMPDIR"
    with pytest.raises(DataError, match=message), local_parts({"train": full}):
        pass
