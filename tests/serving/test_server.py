"""The server: what it answers, also to many clients at a time, and how it ends."""

from __future__ import annotations

import gzip
import io
import json
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import singa_dask as sd
from singa_dask.errors import ConfigError
from singa_dask.serving import Limits, ModelServer
from tests.inference.test_model import table, table_run
from tests.serving.conftest import Slow, ask

NPY = "application/x-npy"


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def close(given: Any, expected: Any) -> None:
    """Check values that were computed in batches of other sizes: sums may be in another order."""
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)


def test_predictions_are_those_of_the_model(url: str, model: sd.Model, digits: Any) -> None:
    x = digits[:21]
    wanted = {"predictions": model.predict(x).tolist(), "step": 6, "model": "tiny"}
    assert ask(url, given={"records": x.tolist()}).json == wanted
    found = ask(url, given={"records": x.reshape(21, 784).tolist(), "proba": True}).json
    close(found.pop("probabilities"), model.predict_proba(x))
    assert found == wanted
    values = ask(url, given={"records": x.tolist(), "layer": "relu"}).json["predictions"]
    close(values, model.extract(x, "relu"))


def test_arrays_and_pictures(url: str, model: sd.Model, digits: Any) -> None:
    x = digits[:5]
    for given in (x, x.astype(">f8"), np.asfortranarray(x)):
        answer = ask(url, "/predict?proba=true", npy(given), NPY, headers={"Accept": NPY})
        assert answer.headers["content-type"] == NPY
        close(np.load(io.BytesIO(answer.body)), model.predict_proba(x))
    picture = io.BytesIO()
    Image.fromarray(x[0]).save(picture, "PNG")
    found = ask(url, "/predict?layer=softmaxloss", picture.getvalue(), "image/png").json
    assert found["predictions"] == model.predict(x[:1]).tolist()


def raw_deflate(body: bytes) -> bytes:
    """Compress without the header of zlib, as some clients do."""
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("X-GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
        ("", bytes),
    ],
)
def test_compressed_bodies(
    url: str, model: sd.Model, digits: Any, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    x = digits[:40]
    for body, kind in ((json.dumps({"records": x.tolist()}).encode(), "application/json"), (npy(x), NPY)):
        answer = ask(url, given=compress(body), kind=kind, headers={"Content-Encoding": encoding})
        assert answer.json["predictions"] == model.predict(x).tolist()


def test_what_it_says_of_itself(model: sd.Model, digits: Any) -> None:
    with ModelServer(model, Limits(4)) as server:
        assert ask(server.url, "/health").json == {"status": "ok", "model": "tiny", "step": 6}
        ask(server.url, given={"records": digits[:9].tolist()})
        ask(server.url, given={"records": 3})
        found = ask(server.url, "/model").json
        server.app.ending = True
        assert ask(server.url, "/health").status == 503
        assert ask(server.url, given={"records": digits[:1].tolist()}).status == 503
    assert found["record"] == {"shape": [28, 28], "columns": None}
    assert found["layers"]["relu"] == [16]
    assert found["counts"] == {"requests": 2, "errors": 1, "records": 9, "batches": 3}


def test_objects_by_name_of_column(tmp_path: Path) -> None:
    run = table_run(tmp_path, {"label": "species"}, sd.layer("SoftmaxLoss", srclayers=["fc", "data"]))
    model, frame = sd.load_model(run), table(9)[["mass", "colour"]]
    records = frame.astype(object).where(frame.notna(), None).to_dict("records")
    with ModelServer(model, Limits(8)) as server:
        found = ask(server.url, given={"records": records}).json
        assert found["predictions"] == model.predict(frame).tolist()
        assert found["classes"] == ["cat", "dog"]
        colours = {"type": "category", "categories": ["blue", "green", "red"], "n_categories": 3}
        assert ask(server.url, "/model").json["record"] == {
            "shape": [4],
            "columns": ["mass", "colour"],
            "features": {"mass": {"type": "number"}, "colour": colours},
            "missing": "mean",
            "unknown": "error",
        }
        wrong = [{**records[0]}, {**records[1], "colour": "pink"}]
        answer = ask(server.url, given={"records": wrong})
        assert (answer.status, "records, row 1, column 'colour': unknown category 'pink'" in answer.json["error"]) == (
            400,
            True,
        )
        filled = model.predict(frame[:2].assign(mass=[None, records[1]["mass"]])).tolist()
        partial = [{**records[0], "mass": None}, records[1]]
        assert ask(server.url, given={"records": partial}).json["predictions"] == filled
        misspelt = [records[0], {"mas": 1.0, "colour": "red"}]
        answer = ask(server.url, given={"records": misspelt})
        assert answer.status == 400
        assert answer.json["error"].startswith("records, row 1, 'mas': a key that the first object lacks.")
        answer = ask(server.url, given={"records": [records[0], {"colour": "red"}]})
        assert answer.json["error"].startswith("records, row 1, 'mass': lacks this key of the first object. Pass null")
        answer = ask(server.url, given={"records": [records[0], {**records[1], "mass": [1, 2]}]})
        said = "records, row 1, column 'mass': a value of type list among values of type float. Convert it to numbers"
        assert answer.json["error"].startswith(said)
        for bad in ([records[0], 3], [{"mass": 1, "colour": "red"}, {"mass": "x", "colour": "red"}], [{"mass": 1}]):
            assert ask(server.url, given={"records": bad}).status == 400


def test_records_of_a_time_series(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=30).astype(str)
    frame = pd.DataFrame({"day": days, "sales": np.sin(np.arange(30)), "open": np.arange(30) % 2})
    lags = {"columns": ["sales"], "n": 3, "order": "day"}
    features = ["open", *(f"sales_lag{k}" for k in (1, 2, 3))]
    store = {
        "path": "dask://train",
        "features": features,
        "target": "sales",
        "lags": lags,
        "shape": [4],
        "batchsize": 9,
    }
    layers = [
        sd.layer("RecordInput", name="data", store_conf=store),
        sd.layer("TargetInput", name="target", store_conf=store),
        sd.layer("InnerProduct", name="out", srclayers=["data"], num_output=1),
        sd.layer("EuclideanLoss", srclayers=["out", "target"]),
    ]
    sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    job = sd.Job(sd.Net(layers), train_steps=20, train_one_batch={"alg": "BP"}, updater=sgd)
    run = sd.train(job, data=frame, run_dir=str(tmp_path / "run"), progress=False)
    model = sd.load_model(run.url)
    # the values of the last five days are not known yet
    frame.loc[25:, "sales"] = np.nan
    records = frame.astype(object).where(frame.notna(), None).to_dict("records")
    with ModelServer(model, Limits(8)) as server:
        found = ask(server.url, given={"records": records}).json
        assert (len(found["predictions"]), found["history"]) == (27, 3)
        assert found["predictions"] == model.predict(frame).tolist()
        described = ask(server.url, "/model").json["record"]
        assert (set(described["columns"]), described["history"]) == ({"day", "sales", "open"}, 3)
        example = ask(server.url, given={"records": server.app.examples}).json
        assert (len(example["predictions"]), example["history"]) == (1, 3)
        assert [each["open"] for each in server.app.examples] == [0.0] * 4


def test_many_clients_get_their_own_answers(model: sd.Model, digits: Any) -> None:
    wanted = model.predict_proba(digits[:320])
    with ModelServer(model, Limits(16)) as server, ThreadPoolExecutor(32) as pool:

        def one(i: int) -> Any:
            n = 1 + i % 3
            if i % 8 == 7:
                return ask(server.url, given={"records": digits[i : i + n, :27].tolist()}).status
            found = ask(server.url, given={"records": digits[i : i + n].tolist(), "proba": True}).json
            close(found["probabilities"], wanted[i : i + n])
            return 200

        found = list(pool.map(one, range(128)))
        assert found == [400 if i % 8 == 7 else 200 for i in range(128)]


def test_it_answers_what_has_arrived_and_ends(model: sd.Model) -> None:
    with ModelServer(model, Limits(4)) as server:
        client = Slow(server.url, b'{"records": [%s]}' % (b"[" + b"0," * 783 + b"0]"))
        server.stop()
        assert client.finish() == 200
        server.wait()
    with pytest.raises(ConnectionRefusedError):
        ask(server.url, "/health")


def test_a_port_in_use(model: sd.Model) -> None:
    with ModelServer(model, Limits(4)) as server:
        with pytest.raises(ConfigError, match=r"cannot listen there: Address already"):
            ModelServer(model, Limits(4), port=int(server.url.rpartition(":")[2]))
    with pytest.raises(ConfigError, match=r"cannot listen there: .*not known"):
        ModelServer(model, Limits(4), "no.such.host.invalid")


def test_a_net_that_keeps_state(model: sd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model._net(model.output), "sequential", "gru")
    with pytest.raises(ConfigError, match=r"layer 'gru' keeps state from batch to batch. Expected a net whose"):
        ModelServer(model, Limits(4))


def test_a_model_that_cannot_be_served_leaves_no_threads(model: sd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Any:
        raise ConfigError("no.")

    before = set(threading.enumerate())
    for step in ("record", "columns", "zeros"):
        with monkeypatch.context() as patched:
            patched.setattr(model, step, refuse)
            with pytest.raises(ConfigError, match="no"):
                ModelServer(model, Limits(4))
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread.name


def test_a_layer_that_is_not_there(model: sd.Model) -> None:
    with pytest.raises(ConfigError, match=r"no layer 'nothing' to predict from. Layers: data, innerproduct"):
        ModelServer(model, Limits(4), layer="nothing")
