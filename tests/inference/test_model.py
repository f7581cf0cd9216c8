"""Models: the same predictions, values and metrics as the command line, from arrays, frames and pictures in memory."""

from __future__ import annotations

import csv
import io
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from PIL import Image

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.data.stores import open_store
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.spelling import NumberConf, Spelling
from singa_dask.errors import CheckpointError, ConfigError, DataError
from singa_dask.inference.memory_records import describe_columns
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.serving import Limits, ModelServer
from tests.jobs.conftest import DIGITS, KEYS, digits_net
from tests.serving.conftest import ask


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the directory of a run on the digits, with checkpoints of two steps."""
    url = tmp_path_factory.mktemp("digits") / "run"
    keys = {**KEYS, "checkpoint_freq": 5, "threads": 1}
    sd.train(sd.Job(digits_net(), train_steps=6, **keys), run_dir=str(url), progress=False)
    return str(url)


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    """Return pixels and labels of 2,000 digits."""
    with open_store(str(DIGITS)) as store:
        blocks = [store.read_block(block.id) for block in store.blocks]
    return tuple(np.concatenate([block[name] for block in blocks]) for name in ("pixel", "label"))


def said(*arguments: str) -> str:
    """Return what a command writes to stdout."""
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def test_pictures_in_another_range_than_in_training(run: str, digits: tuple[Any, Any]) -> None:
    model, x = sd.load_model(run), digits[0][:25]
    scaled = x.astype(np.float32) / 255
    with pytest.warns(sd.DataWarning, match="x: all values of the pictures are from 0 to 1, but") as found:
        model.predict_proba(scaled)
    assert [each.filename for each in found] == [__file__]
    # bytes, a batch with one brighter pixel, and black pictures are no such pictures
    scaled[0, 0, 0] = 2
    for each in (x // 255, scaled, np.zeros_like(scaled)):
        model.predict_proba(each)
    with ModelServer(model, Limits(8)) as server:
        answer = ask(server.url, given={"records": (x[:2] / 255).tolist()}).json
    assert "all values of the pictures are from 0 to 1" in answer["warnings"][0]


@pytest.mark.long
def test_what_a_model_takes(run: str, digits: tuple[Any, Any]) -> None:
    model, x = sd.load_model(run), digits[0][:25]
    found = model.predict_proba(x)
    assert found.dtype == np.float32
    for same in (x.astype(np.float64), x.tolist(), x.reshape(25, 784), x[:, None]):
        assert model.predict_proba(same).tobytes() == found.tobytes()
    encoded = io.BytesIO()
    Image.fromarray(x[0]).save(encoded, "PNG")
    assert (model.predict_proba([encoded.getvalue(), Image.fromarray(x[1])]) == model.predict_proba(x[:2])).all()
    frame = pd.DataFrame(x.reshape(25, 784))
    assert model.predict_proba(frame).tobytes() == found.tobytes()
    with pytest.raises(DataError, match="x: values of type object, expected numbers"):
        model.predict(pd.Series({"a": 1.5, "b": "x"}))
    assert model.predict_proba(x[:0]).shape == (0, 10)
    assert model.predict(x).dtype == model.predict(x[:0]).dtype == np.int64
    assert model.extract(x[:1], "innerproduct").shape == (1, 16)
    assert model.layers == {
        "data": (28, 28),
        "innerproduct": (16,),
        "relu": (16,),
        "innerproduct2": (10,),
        "softmaxloss": (10,),
    }


def test_where_a_model_is_loaded_from(run: str, digits: tuple[Any, Any], tmp_path: Path) -> None:
    x = digits[0][:5]
    newest, first = sd.load_model(sd.open_run(run)), sd.load_model(run, step=5)
    assert first.step == 5
    assert (first.extract(x, "relu") != newest.extract(x, "relu")).any()
    for again in (
        sd.load_model(f"{run}/checkpoint/step-5"),
        sd.load_model(f"{run}/checkpoint/step-5", job=f"{run}/job.yaml"),
    ):
        assert (again.extract(x, "relu") == first.extract(x, "relu")).all()
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 7. Steps: 5, 6\."):
        sd.load_model(run, step=7)
    with pytest.raises(ConfigError, match=r"no run is here.*pass its job: job="):
        sd.load_model(str(tmp_path))


def test_a_pickled_model_reads_its_values_once_a_process(run: str, digits: tuple[Any, Any]) -> None:
    model = sd.load_model(run)
    model.predict(digits[0][:5])
    sent = pickle.dumps(model)
    assert len(sent) < 10_000
    received = pickle.loads(sent)
    assert received is pickle.loads(sent)
    assert (received.predict(digits[0][:5]) == model.predict(digits[0][:5])).all()


def test_several_inputs_are_given_by_name(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32)
    y = (x[:, 0] > x[:, 4]).astype(np.int64)
    parts = {"left": x[:, :3], "right": x[:, 3:]}
    net = sd.Net(
        [
            *(
                sd.layer("RecordInput", name=name, store_conf={"path": f"dask://{name}", "shape": [n], "batchsize": 5})
                for name, n in (("left", 3), ("right", 2))
            ),
            sd.layer("Concate", name="both", srclayers=["left", "right"], concate_dim=1),
            sd.layer("InnerProduct", name="fc", num_output=2),
            sd.layer("SoftmaxLoss", name="loss", srclayers=["fc", "right"]),
        ]
    )
    job = sd.Job(net, train_steps=4, **KEYS)
    data = {"left": (parts["left"], y), "right": (parts["right"], y)}
    model = sd.load_model(sd.train(job, data=data, run_dir=str(tmp_path / "run"), progress=False))
    weight, bias = (load_values(model.url)[name].values for name in ("fc.weight", "fc.bias"))
    np.testing.assert_allclose(model.extract(parts, "fc"), x @ weight.T + bias, rtol=1e-5, atol=1e-6)
    # before the first layer with params
    assert (model.extract(parts, "both") == x).all()
    assert sd.test(model, parts, y)["accuracy"] == np.mean(sd.predict(model, parts) == y)
    wrong = (
        (x, ConfigError, "pass a dict of records by layer to predict, extract or test"),
        ({"left": x}, DataError, "x: has left. Expected records of left, right"),
        ({**parts, "left": x[:4, :3]}, DataError, "x: records: 4 of left, 20 of right. Expected equal numbers"),
        ({**parts, "left": x}, DataError, r"x\['left'\]: records of \(5,\), expected \(3,\)"),
    )
    for given, kind, said in wrong:
        with pytest.raises(kind, match=said):
            model.predict(given)


def test_targets_of_a_net_that_was_trained_on_arrays(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    y = np.stack([x.sum(axis=1), x[:, 0]], axis=1)
    store = {"path": "dask://train", "shape": [3], "batchsize": 5}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=store),
            sd.layer("TargetInput", name="target", store_conf=store, size=2),
            sd.layer("InnerProduct", name="fc", srclayers=["data"], num_output=2),
            sd.layer("EuclideanLoss", name="loss", srclayers=["fc", "target"]),
        ]
    )
    job = sd.Job(net, train_steps=4, **KEYS)
    model = sd.load_model(sd.train(job, data=(x, y), run_dir=str(tmp_path / "run"), progress=False))
    wanted = ((model.predict(x) - y) ** 2).sum(axis=1).mean()
    assert model.test(x, y)["loss"] == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(DataError, match=r"y: float32 \(20, 3\), expected numbers \(20, 2\)"):
        model.test(x, x)


def test_a_model_in_several_threads(run: str, digits: tuple[Any, Any]) -> None:
    model, x = sd.load_model(run), digits[0]
    wanted = [model.extract(x[:n], "relu").tobytes() for n in range(1, 13)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda n: model.extract(x[:n], "relu").tobytes(), range(1, 13))) == wanted


WRONG: list[tuple[Any, str]] = [
    (np.zeros((28, 28)), r"records of \(28,\), expected \(28, 28\).*pass x\[None\]"),
    (np.zeros((2, 28, 27)), r"records of \(28, 27\), expected \(28, 28\)"),
    (np.full((3, 784), np.nan), r"x, row 0\[0\]: nan, expected a 32-bit float"),
    (np.array([["a"]]), "x: values of type <U1, expected numbers. Encode texts"),
    (["one.png"], r"x: texts\. Expected numbers, or pictures as bytes or of Pillow\. sd\.predict reads files"),
    ([[1], [2, 3]], "x: records of several shapes"),
    ([b"no picture"], "x, picture 0: not an image"),
    (np.ma.masked_equal(np.eye(784)[:2], 1), "x: masked values, expected a value everywhere"),
    (SimpleNamespace(toarray=None), r"x: an object of type types.SimpleNamespace, .*Call toarray\(\)"),
    (None, "x: a single value, expected an array"),
    (pd.DataFrame({"a": ["x"]}), "x, column 'a': values of type .*string, expected numbers"),
]


@pytest.mark.parametrize(("x", "message"), WRONG)
def test_records_that_do_not_fit(run: str, x: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        sd.load_model(run).predict(x)


def test_labels_that_do_not_fit(run: str, digits: tuple[Any, Any]) -> None:
    model, (x, y) = sd.load_model(run), digits
    with pytest.raises(DataError, match=r"y: 5 for 2000 records"):
        model.test(x, y[:5])
    with pytest.raises(DataError, match=r"y, row 0: .*The classes have no names"):
        model.test(x[:1], ["seven"])
    with pytest.raises(DataError, match=r"y, row 0: the label 0.5 is not an integer"):
        model.test(x[:1], [0.5])
    with pytest.raises(DataError, match=r"y, row 1: the label -1 is negative"):
        model.test(x[:2], [0, -1])
    with pytest.raises(DataError, match="y: masked values, expected a value everywhere"):
        model.test(x[:2], np.ma.masked_equal([3, 4], 4))
    with pytest.raises(DataError, match="the net needs labels, for layer 'data'"):
        model.test(x)
    with pytest.raises(ConfigError, match="layer 'nothing' is not in the net"):
        model.extract(x, "nothing")
    with pytest.raises(ConfigError, match="'relu' has no class probabilities"):
        model.predict_proba(x, "relu")


# -- tables ----------------------------------------------------------------------------------------------------


def table(n: int) -> pd.DataFrame:
    """Return a table with numbers, names, missing values, a class and a number to predict."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"mass": random.normal(size=n), "size": random.normal(size=n)})
    frame["colour"] = np.array(["blue", "green", "red"])[np.arange(n) % 3]
    frame["species"] = np.where(frame.mass > 0, "cat", "dog")
    frame["price"] = (2 * frame["size"]).astype(np.float32)
    frame.loc[4, "mass"] = np.nan
    return frame


def table_run(folder: Path, outputs: dict[str, Any], *layers: Any) -> str:
    """Train a net on the table; return the directory of the run."""
    table(45).to_csv(folder / "train.csv", index=False)
    records = {"path": str(folder / "train.csv"), "batchsize": 10, "features": ["mass", "colour"], "missing": "mean"}
    records |= {"shape": [4], "categories": {"colour": []}, **outputs}
    made = [sd.layer(kind, name=name, store_conf=records) for name, kind in (("data", "CSVInput"), *layers[:-1])]
    net = sd.Net(
        [*made, sd.layer("InnerProduct", name="fc", srclayers="data", num_output=2 - bool(layers[:-1])), layers[-1]]
    )
    sd.train(sd.Job(net, train_steps=5, **KEYS), run_dir=str(folder / "run"), progress=False)
    return str(folder / "run")


@pytest.fixture(scope="module")
def species(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run of a classifier of a table."""
    folder = tmp_path_factory.mktemp("species")
    return table_run(folder, {"label": "species"}, sd.layer("SoftmaxLoss", srclayers=["fc", "data"]))


@pytest.mark.long
def test_a_table_is_encoded_as_in_training(species: str) -> None:
    model, frame = sd.load_model(species), table(45)
    assert model.class_names == ("cat", "dog")
    arguments = (
        "predict",
        f"{species}/job.yaml",
        "--init-from",
        species,
        "--data",
        f"{Path(species).parent}/train.csv",
    )
    rows = list(csv.DictReader(io.StringIO(said(*arguments, "--quiet"))))
    found = model.predict(frame)
    assert found.tolist() == [row["class"] for row in rows]
    assert [np.float32(row["probability"]) for row in rows] == model.predict_proba(frame).max(axis=1).tolist()
    assert (model.predict(pa.Table.from_pandas(frame)) == found).all()
    assert (model.predict(frame[["colour", "mass"]].astype({"colour": "category"})) == found).all()
    measured = json.loads(said("test", *arguments[1:4], "--steps", "0", "--json", "--quiet"))["test"]
    assert model.test(frame) == measured
    assert model.test(frame.drop(columns="species"), frame.species) == measured
    assert model.test(frame, (frame.species == "dog").to_numpy()) == measured
    assert model.test(frame, frame.species.to_numpy("S")) == measured
    with pytest.raises(DataError, match=r"y, row 1: unknown class 'cow'. Classes: cat, dog"):
        model.test(frame[:2], ["cat", "cow"])


class Stream:
    """A frame of another library, which NumPy takes for an array."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table, self.columns = pa.Table.from_pandas(frame), list(frame.columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._table.to_pandas(), dtype)


def test_columns_of_a_stream_are_found_by_name(species: str) -> None:
    model, frame = sd.load_model(species), table(45)
    wanted = model.extract(frame, "fc")
    assert (model.extract(Stream(frame), "fc") == wanted).all()
    assert (model.extract(pa.Table.from_pandas(frame).to_reader(), "fc") == wanted).all()
    encoded = pd.DataFrame(model.extract(frame, "data"), columns=["blue", "green", "red", "mass"])
    with pytest.raises(DataError, match=r"x: columns 'mass', 'colour' are missing. Columns: blue, green, red, weight"):
        model.extract(Stream(encoded.rename(columns={"mass": "weight"})), "fc")
    assert model.test(frame, Stream(frame[["species"]])) == model.test(frame)


def test_a_column_of_objects_without_values_is_filled(species: str) -> None:
    model, frame = sd.load_model(species), table(45)
    missing = frame.assign(mass=np.nan), frame.assign(mass=np.full(45, None, object))
    assert (model.extract(missing[0], "fc") == model.extract(missing[1], "fc")).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"colour": "pink"},
            "x, row 0, column 'colour': unknown category 'pink'. Expected a known one: blue, green, red",
        ),
        ({"colour": None}, "x, row 0, column 'colour': no value"),
        ({"mass": "heavy"}, "x, row 0, column 'mass': 'heavy' is not a number"),
        ({"mass": [1]}, "x, row 0, column 'mass': values of type list.*, expected one number in each record"),
        ({"mass": np.inf}, "x, row 0, column 'mass': inf does not fit"),
    ],
)
def test_columns_that_do_not_fit(species: str, change: dict[str, Any], message: str) -> None:
    frame = table(9)[:1].drop(columns=list(change))
    for name, value in change.items():
        frame[name] = [value]
    with pytest.raises(DataError, match=message):
        sd.load_model(species).predict(frame)


def test_columns_that_are_missing(species: str) -> None:
    model = sd.load_model(species)
    with pytest.raises(DataError, match=r"x: column 'mass' is missing. Columns: size, colour"):
        model.predict(table(9)[:2].drop(columns="mass"))
    with pytest.raises(DataError, match=r"'mass', 'colour' are missing. Did you mean 'Mass'\? Columns: hue, Mass"):
        model.predict(pd.DataFrame({"hue": ["red"], "Mass": [1.5]}))
    for unnamed in (np.zeros((3, 2)), [[1.5, "red"]]):
        with pytest.raises(DataError, match=r"x: values without names. Pass objects, .* Columns: mass, colour"):
            model.predict(unnamed)


def test_a_path_and_proba_are_taken_as_by_sd_predict(species: str) -> None:
    model, frame = sd.load_model(species), table(9)
    np.testing.assert_array_equal(model.predict(frame, proba=True), model.predict_proba(frame))
    with pytest.raises(DataError, match=r"x: the path 'new.csv', .* read by sd.predict\(run, 'new.csv'\)"):
        model.predict(Path("new.csv"))


def test_columns_are_described() -> None:
    forms = {"price": NumberConf(thousands=",", unit="$")}
    facts = TableFacts(
        ("price", "flag", "code", "v"), {}, {"code": tuple(map(str, range(150)))}, widths={"v": 3},
        spelling=Spelling(forms, ("none",)), booleans=("flag",),
    )  # fmt: skip
    found = describe_columns(StoreConf(path="x.csv", features=["price"], missing="skip", unknown="ignore"), facts)
    assert found == {
        "features": {
            "price": {"type": "number", "numbers": {"thousands": ",", "unit": "$"}},
            "flag": {"type": "boolean"},
            "code": {"type": "category", "categories": tuple(map(str, range(100))), "n_categories": 150},
            "v": {"type": "vector", "length": 3},
        },
        "missing": "error",
        "unknown": "ignore",
        "na_values": ["none"],
    }


def test_values_of_a_regression(tmp_path: Path) -> None:
    loss = sd.layer("EuclideanLoss", srclayers=["fc", "target"])
    run = table_run(tmp_path, {"target": ["price"]}, ("target", "TargetInput"), loss)
    model, frame = sd.load_model(run), table(45)
    assert (model.output, model.is_classifier) == ("fc", False)
    found = model.predict(frame)
    assert (found.shape, found.dtype) == ((45,), np.float32)
    assert (found == model.extract(frame, "fc")[:, 0]).all()
    measured = json.loads(said("test", f"{run}/job.yaml", "--init-from", run, "--steps", "0", "--json", "--quiet"))
    assert model.test(frame) == model.test(frame, frame.price) == measured["test"]
    with pytest.raises(DataError, match="y: the net needs targets, for layer 'target'"):
        model.test(model.extract(frame, "data"))
    with pytest.raises(DataError, match=r"y: 3 for 2 records"):
        model.test(frame[:2], {"price": [1, 2, 3], "size": [1, 2]})
    with pytest.raises(DataError, match=r"y, row 1\[0\]: nan, expected a 32-bit float"):
        model.test(frame[:2], [1.0, np.nan])
