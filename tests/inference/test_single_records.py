"""Single records: predicted without a table, with the bits, the errors and the counts of records in a frame."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import singa_dask as sd
from singa_dask.conf import Phase
from singa_dask.data.tables.row_encoder import RowEncoder
from singa_dask.errors import DataError
from singa_dask.inference.memory_records import MemoryReading
from singa_dask.inference.sized_nets import PASSES_BEFORE_BOUND
from singa_dask.layers.neuron import InnerProduct
from singa_dask.serving import Limits, ModelServer
from singa_dask.training import ALGORITHMS, BP
from tests.jobs.conftest import KEYS
from tests.serving.conftest import ask

N = 40
TABLE = pd.DataFrame(
    {
        "size": np.linspace(-3, 5, N),
        "count": np.arange(N) * 7 - 3,
        "town": ["Bern", "Rom", "Zürich", "NA"] * (N // 4),
        "open": [True, False] * (N // 2),
        "day": pd.date_range("2024-02-27", periods=N).strftime("%Y-%m-%d"),
        "share": [f"{i} %" for i in range(10, 10 + N)],
        "kind": ["p", "q", "q", "p"] * (N // 4),
    }
)
RECORDS: list[dict[str, Any]] = TABLE.drop(columns="kind").to_dict("records")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("single")
    TABLE.to_csv(folder / "train.csv", index=False)
    store = {
        "path": str(folder / "train.csv"),
        "batchsize": 8,
        "shape": [28],
        "standardise": True,
        "label": "kind",
        "features": [*RECORDS[0]],
        "categories": {"town": ["Bern", "Rom", "Zürich", "NA"]},
        "dates": {"day": ["year", "month", "weekday"]},
        "numbers": {"share": {"unit": "%"}},
    }
    layers = [
        sd.layer("CSVInput", name="data", store_conf=store),
        sd.layer("InnerProduct", name="fc1", num_output=9),
        sd.layer("ReLU", name="relu"),
        sd.layer("Dropout", name="drop"),
        sd.layer("InnerProduct", name="fc2", num_output=2),
        sd.layer("SoftmaxLoss", name="loss", srclayers=["fc2", "data"]),
    ]
    sd.train(sd.Job(sd.Net(layers), train_steps=5, **KEYS), run_dir=str(folder / "run"), progress=False)
    return str(folder / "run")


def warmed(run: str, **reading: Any) -> sd.Model:
    """Return a model that has predicted all records one by one, and several passes more."""
    model = sd.load_model(run, **reading)
    for record in (RECORDS * 2)[: N + PASSES_BEFORE_BOUND]:
        model.predict(record)
    return model


def outcome(model: sd.Model, x: Any) -> tuple[Any, ...]:
    """Return the probabilities of records, or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found: Any = model.predict_proba(x).tobytes()
        except DataError as error:
            found = str(error)
    return found, [str(each.message) for each in caught]


@pytest.mark.parametrize("threads", [1, None])
def test_single_records_have_the_bits_of_a_frame(
    run: str, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sd.load_model(run, threads=threads)
    wanted = [model.extract(TABLE, layer) for layer in model.layers]
    classes = model.predict(TABLE)
    for _ in range(2):
        found = [np.concatenate([model.extract(each, layer) for each in RECORDS]) for layer in model.layers]
        assert [each.tobytes() for each in found] == [each.tobytes() for each in wanted]
        assert [*map(model.predict, RECORDS)] == classes[:, None].tolist()
    # neither the table encoder nor the code of the layers is needed any more
    monkeypatch.setattr(RowEncoder, "learn", None)
    monkeypatch.setattr(InnerProduct, "forward", None)
    monkeypatch.setattr("singa_dask.inference.memory_records._as_table", None)
    assert [model.predict([each]).tolist() for each in RECORDS] == classes[:, None].tolist()
    assert model.predict({**RECORDS[3], "id": 5, "note": "é"}).tolist() == classes[3:4].tolist()
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(model.predict, RECORDS * 5)] == [*classes[:, None].tolist() * 5]


CHANGES: list[dict[Any, Any]] = [
    {"size": None},
    {"size": float("nan")},
    {"size": None, "count": np.float64("nan")},
    {"size": None, "count": "7"},
    {"size": 1e39},
    {"size": 10**400},
    {"size": "1.5"},
    {"size": "1,5"},
    {"size": True},
    {"size": np.float32(1.5)},
    {"size": np.float64(1.5)},
    {"size": 2**63},
    {"size": [1.5]},
    {"count": "seven"},
    {"count": 2**53 + 1},
    {"town": "Paris"},
    {"town": "bern"},
    {"town": " Bern "},
    {"town": None},
    {"town": ""},
    {"town": 3},
    {"town": "Zu\u0308rich"},
    {"open": "true"},
    {"open": 1},
    {"open": 1.0},
    {"open": 2},
    {"day": "2024-02-30"},
    {"day": "27.2.2024"},
    {"day": None},
    {"day": pd.Timestamp("2024-03-01")},
    {"share": 0.56},
    {"share": 56},
    {"share": "56"},
    {"share": "0.5 %"},
    {"extra": "\ud800"},
    {"extra": object()},
    {"extra": [1, 2]},
    {"si\u0301ze": 1},
    {1: 2, "1": 3},
]


@pytest.mark.parametrize("reading", [{}, {"missing": "mean", "unknown": "ignore"}], ids=["strict", "filling"])
def test_other_values_have_the_outcome_of_a_table(
    run: str, reading: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = warmed(run, **reading)
    changed = [{**RECORDS[5], **change} for change in CHANGES]
    changed += [{name: value for name, value in RECORDS[5].items() if name != left} for left in RECORDS[5]]
    found = [[outcome(model, record) for _ in range(2)] for record in changed]
    monkeypatch.setattr(MemoryReading, "plain", lambda *_: None)
    for record, each in zip(changed, found, strict=True):
        assert each == [outcome(model, record)] * 2, record


def test_a_server_counts_the_same(run: str) -> None:
    model = sd.load_model(run, missing="mean", unknown="ignore")
    record = {**RECORDS[5], "size": None, "town": "Paris"}
    wanted = np.float64(model.predict_proba(TABLE[5:6]))
    with ModelServer(model, Limits(4)) as server:
        for _ in range(PASSES_BEFORE_BOUND + 2):
            answer = ask(server.url, given={"records": [RECORDS[5]], "proba": True}).json
            assert answer["probabilities"] == wanted.tolist()
            assert not {"filled", "unknown", "warnings"} & answer.keys()
            answer = ask(server.url, given=record).json
            assert (answer["filled"], answer["unknown"]) == ({"size": 1}, {"town": 1})
            answer = ask(server.url, given={**RECORDS[5], "size": None, "count": None}).json
            assert (answer["filled"], "unknown" in answer) == ({"size": 1, "count": 1}, False)
        assert "fractions" in ask(server.url, given={**RECORDS[5], "share": 0.3}).json["warnings"][0]


@pytest.mark.parametrize("standardise", [False, True])
def test_one_row_of_an_array(tmp_path: Path, standardise: bool) -> None:
    x = np.random.default_rng(1).normal(size=(30, 5)).astype(np.float32)
    store = {"path": "dask://train", "shape": [5], "batchsize": 6, "standardise": standardise}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=store),
            sd.layer("InnerProduct", name="fc", num_output=3),
            sd.layer("TargetInput", name="target", store_conf=store, size=3),
            sd.layer("EuclideanLoss", name="loss", srclayers=["fc", "target"]),
        ]
    )
    job = sd.Job(net, train_steps=4, **KEYS)
    run = sd.train(job, data={"train": (x, x[:, :3])}, run_dir=str(tmp_path / "run"), progress=False)
    model = sd.load_model(run)
    wanted = model.predict(x)
    for kind in (np.float32, np.float64):
        found = [model.predict(x[i : i + 1].astype(kind)) for i in range(30)]
        assert np.concatenate(found).tobytes() == wanted.tobytes()
    x[0, 3] = np.nan
    with pytest.raises(DataError, match=r"x, row 0\[3\]: nan, expected a 32-bit float"):
        model.predict(x[:1])
    with pytest.raises(DataError, match=r"shape \(5,\), expected \(n, 5\)\. This is the shape of one record"):
        model.predict(x[1])


def test_an_algorithm_with_a_forward_pass_of_its_own_keeps_it(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubling(BP):
        def forward(self, phase: Phase, collect: Any) -> None:
            super().forward(phase, collect)
            self.net.layers[-1].features[0].data[...] *= 2

    plain = sd.load_model(run).extract(RECORDS[0], "fc2")
    monkeypatch.setattr(ALGORITHMS, "find", lambda name: Doubling)
    model = sd.load_model(run)
    for _ in range(PASSES_BEFORE_BOUND + 2):
        np.testing.assert_array_equal(model.extract(RECORDS[0], "fc2"), 2 * plain)
