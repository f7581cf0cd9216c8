"""Models take numbers that are written as text, and words for missing values, as the training data have them."""

from __future__ import annotations

import json
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import singa_dask as sd
from singa_dask.errors import DataError
from singa_dask.serving import Limits, ModelServer
from tests.jobs.conftest import KEYS
from tests.serving.conftest import ask

N = 60
SPEND = np.random.default_rng(5).lognormal(8, 2, N).round(2)
FEATURES = ["spend", "age", "plan"]


def written() -> pd.DataFrame:
    """Return a table as people write it."""
    ages = ["unknown" if i % 7 == 3 else str(20 + i) for i in range(N)]
    plans = ["unknown" if i % 11 == 2 else ["basic", "plus"][i % 2] for i in range(N)]
    return pd.DataFrame({"spend": [f"{value:,.2f}" for value in SPEND], "age": ages, "plan": plans})


def plain() -> pd.DataFrame:
    """Return the same table with numbers, and nulls where there is no value."""
    ages = [np.nan if i % 7 == 3 else 20.0 + i for i in range(N)]
    plans = [None if i % 11 == 2 else ["basic", "plus"][i % 2] for i in range(N)]
    return pd.DataFrame({"spend": SPEND, "age": ages, "plan": plans})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sd.Model:
    folder = tmp_path_factory.mktemp("spend")
    table = written().assign(kind=np.where(np.arange(N) % 3, "a", "b"))
    table.to_csv(folder / "train.csv", index=False)
    reading = {"path": str(folder / "train.csv"), "batchsize": 10, "features": FEATURES, "label": "kind", "shape": [5]}
    reading |= {"missing": "mean", "categories": {"plan": ["", "basic", "plus"]}, "standardise": True}
    reading |= {"numbers": {"spend": {"thousands": ","}}, "na_values": ["unknown"]}
    layers = [sd.layer("CSVInput", name="data", store_conf=reading)]
    layers += [sd.layer("InnerProduct", name="fc", srclayers="data", num_output=2)]
    layers += [sd.layer("SoftmaxLoss", srclayers=["fc", "data"])]
    sd.train(sd.Job(sd.Net(layers), train_steps=5, **KEYS), run_dir=str(folder / "run"), progress=False)
    return sd.load_model(str(folder / "run"))


def test_texts_and_numbers_are_alike(model: sd.Model) -> None:
    texts, numbers = written(), plain()
    wanted = model.predict_proba(numbers)
    # texts and numbers in one column, as in JSON
    rows = json.loads(texts.to_json(orient="records"))
    for i in range(0, N, 2):
        rows[i]["spend"] = SPEND[i]
        rows[i]["age"] = rows[i]["age"] if rows[i]["age"] == "unknown" else int(rows[i]["age"])
    for row in rows[1::2]:
        row["age"] = None if row["age"] == "unknown" else int(row["age"])
    age = numbers["age"].astype(object).where(numbers["age"].notna(), "unknown")
    given: list[Any] = [
        rows,
        pd.DataFrame(rows),
        texts.assign(age=age),
        texts.assign(age=age).to_dict("list"),
        pa.table({**dict(zip(FEATURES, pa.Table.from_pandas(texts).columns, strict=True)), "age": numbers["age"]}),
        texts.assign(age=numbers["age"], plan=texts["plan"].astype("category")),
    ]
    for each in given:
        assert model.predict_proba(each).tobytes() == wanted.tobytes()


def test_partitions_of_dask(model: sd.Model) -> None:
    parts = dd.from_pandas(written().assign(age=plain()["age"]), npartitions=3)
    assert np.asarray(sd.predict(model, parts).compute()).tolist() == model.predict(plain()).tolist()


def test_a_request_with_texts(model: sd.Model) -> None:
    with ModelServer(model, Limits(16)) as server:
        one = {"spend": "2,365.04", "age": "unknown", "plan": "unknown"}
        answers = [
            ask(server.url, given={"records": [each], "proba": True})
            for each in (one, {"spend": 2365.04, "age": None, "plan": None})
        ]
        assert [each.status for each in answers] == [200, 200]
        assert answers[0].body == answers[1].body
        refused = ask(server.url, given={"records": [{**one, "spend": "2.365,04"}]})
        assert (refused.status, "'2.365,04' is not a number with thousands ','" in refused.body.decode()) == (400, True)


def test_texts_of_columns_of_which_nothing_is_said(model: sd.Model) -> None:
    with pytest.raises(DataError, match="x: column 'age' holds strings, expected numbers"):
        model.predict(written())
    with pytest.raises(DataError, match="texts among numbers: n/a"):
        model.predict(written()[:2].assign(age=[1, "n/a"]))
