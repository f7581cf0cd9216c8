"""Nets with several input layers that name columns of one table: the table is enough, however it arrives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask import dataframe

import singa_dask as sd
from singa_dask import nn
from singa_dask.serving import Limits, ModelServer
from tests.jobs.conftest import KEYS
from tests.serving.conftest import ask

FRAME = pd.DataFrame(
    {"size": [0.5, 0.25, 1.0, 2.0], "colour": ["red", "blue", "red", "green"], "shop": [30, 10, 10, 20]}
)


def codes(column: str) -> Any:
    """Return the number of each category in sorted order, by pandas."""
    return FRAME[column].astype("category").cat.codes.to_numpy(np.float32)[:, None]


def net(path: str, shop: str) -> sd.Net:
    """Return a net with a layer for each column; the name of one may be that of its column."""

    def read(name: str, column: str, **more: Any) -> dict[str, Any]:
        keys: dict[str, Any] = {"path": path, "features": [column], "shape": [1], "batchsize": 2, **more}
        return nn.RecordInput(name=name, **keys)

    encoded = {"encoding": "index", "has_label": False}
    return sd.Net(
        [
            read("size" if shop == "shop" else "sizes", "size", label="kind"),
            read("colour" if shop == "shop" else "colours", "colour", categories={"colour": []}, **encoded),
            read(shop, "shop", categories={"shop": []}, **encoded),
            nn.Embedding(vocab_size=3, feature_dim=2, srclayers="colour" if shop == "shop" else "colours", name="e1"),
            nn.Embedding(vocab_size=3, feature_dim=2, srclayers=shop, name="e2"),
            nn.Concate(concate_dim=1, srclayers=["size" if shop == "shop" else "sizes", "e1", "e2"]),
            nn.InnerProduct(2, name="fc"),
            nn.SoftmaxLoss(srclayers=["fc", "size" if shop == "shop" else "sizes"], name="loss"),
        ]
    )


def trained(tmp_path: Path, shop: str) -> sd.Model:
    FRAME.assign(kind=["a", "b", "b", "a"]).to_csv(tmp_path / "train.csv", index=False)
    job = sd.Job(net(str(tmp_path / "train.csv"), shop), train_steps=2, threads=1, **KEYS)
    return sd.load_model(sd.train(job, run_dir=str(tmp_path / "run"), progress=False))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sd.Model:
    return trained(tmp_path_factory.mktemp("shared"), "shops")


@pytest.fixture(scope="module")
def wanted(model: sd.Model) -> Any:
    """Return the probabilities for records by layer, encoded by pandas."""
    by_layer = {"sizes": FRAME[["size"]].to_numpy(), "colours": codes("colour"), "shops": codes("shop")}
    return model.predict_proba(by_layer)


def test_tables_in_memory(model: sd.Model, wanted: Any) -> None:
    shuffled = FRAME.assign(other="x")[["other", "shop", "size", "colour"]]
    for x in (FRAME, shuffled, pa.table(FRAME), FRAME.to_dict("list"), FRAME.to_dict("records")):
        np.testing.assert_array_equal(model.predict_proba(x), wanted)
    for one in (FRAME.iloc[2], FRAME.iloc[2].to_dict()):
        np.testing.assert_allclose(model.predict_proba(one), wanted[2:3], rtol=1e-6)
    lazy = sd.predict(model, dataframe.from_pandas(FRAME, npartitions=2), proba=True)
    np.testing.assert_allclose(lazy.compute().to_numpy(), wanted, rtol=1e-6)
    labelled = FRAME.assign(kind=["a", "b", "b", "a"])
    right = (wanted.argmax(axis=1) == [0, 1, 1, 0]).mean()
    assert model.test(labelled)["accuracy"] == model.test(FRAME, labelled.kind)["accuracy"] == right


def test_stored_tables(model: sd.Model, wanted: Any, tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "new.csv", index=False)
    FRAME.to_parquet(tmp_path / "new.parquet")
    for name in ("new.csv", "new.parquet"):
        np.testing.assert_array_equal(sd.predict(model, tmp_path / name, proba=True), wanted)
    np.save(tmp_path / "new.npy", codes("colour"))
    with pytest.raises(sd.ConfigError, match="npy has no named columns, and the layers sizes, colours, shops read"):
        sd.predict(model, tmp_path / "new.npy")


def test_requests_to_a_server(model: sd.Model, wanted: Any) -> None:
    with ModelServer(model, Limits(3)) as server:
        given = {"records": FRAME.to_dict("records"), "proba": True}
        answer = ask(server.url, given=given).json
        np.testing.assert_allclose(answer["probabilities"], wanted, rtol=1e-5)
        # a list of records, and one record, need no key around them
        assert ask(server.url, "/predict?proba=1", given=given["records"]).json == answer
        one = ask(server.url, "/predict?proba=1", given=given["records"][0]).json["probabilities"]
        assert one == ask(server.url, given={"records": given["records"][:1], "proba": True}).json["probabilities"]
        assert "sizes: unknown key" in ask(server.url, given={"sizes": 1.0}).json["error"]
        assert "colour: unknown key" in ask(server.url, given={"colour": "blue", "proba": True}).json["error"]
        record = ask(server.url, "/model").json["record"]
        assert (record["columns"], [*record["features"]]) == (["size", "colour", "shop"], ["size", "colour", "shop"])
        assert "values without names" in ask(server.url, given={"records": [[0.5]]}).json["error"]
        assert ask(server.url, given={"records": []}).json["predictions"] == []
    assert model.example("loss") == {"size": 0.0, "colour": "blue", "shop": "10"}


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (FRAME[["size"]].to_numpy(), "x: values without names. Several input layers read them"),
        (FRAME["size"].to_numpy(), "x: values without names."),
        (FRAME[["size", "shop"]], "x: column 'colour' is missing."),
        (FRAME["size"], "x: column 'size' is missing."),
        ({"sizes": FRAME}, "x: has sizes. Expected records of sizes, colours, shops."),
        (FRAME.assign(shop=77), "x, row 0, column 'shop': unknown category '77'."),
    ],
)
def test_refused_records(model: sd.Model, x: Any, message: str) -> None:
    with pytest.raises(sd.DataError, match=re.escape(message)):
        model.predict(x)


def test_layers_with_the_names_of_their_columns(tmp_path: Path) -> None:
    model = trained(tmp_path, "shop")
    arrays = {"size": FRAME[["size"]].to_numpy(), "colour": codes("colour"), "shop": codes("shop")}
    wanted = model.predict_proba(arrays)
    for x in (FRAME, {**FRAME.to_dict("list"), "shop": ["30", "10", "10", "20"]}, dict.fromkeys(arrays, FRAME)):
        np.testing.assert_array_equal(model.predict_proba(x), wanted)
    np.testing.assert_allclose(model.predict_proba(FRAME.iloc[0].to_dict()), wanted[:1], rtol=1e-6)
    with pytest.raises(sd.DataError, match=r"'shop' is an input layer and a column\. Pass a DataFrame for columns, or"):
        model.predict(FRAME.to_dict("list"))
