"""Models take numbers that are written as text, and words for missing values, as the training data have them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import singa_dask as sd
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.scaling import Scaling
from singa_dask.errors import ConfigError, DataError
from singa_dask.inference.memory_records import MemoryReading
from singa_dask.inputs.store_conf import StoreConf
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


@pytest.mark.parametrize("form", [repr, "{:.2f}".format, " {!r}".format, "{:e}".format, lambda value: str(int(value))])
def test_texts_are_the_numbers_that_they_are_in_csv(model: sd.Model, tmp_path: Path, form: Callable[..., str]) -> None:
    ages = ["" if i % 7 == 3 else "N/A" if i % 7 == 4 else form(20 + i / 3) for i in range(N)]
    texts = written().assign(age=ages)
    texts.to_csv(tmp_path / "new.csv", index=False)
    texts.to_parquet(tmp_path / "new.parquet")
    texts.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    numbers = texts.assign(age=[float(each) if each.strip() not in ("", "N/A") else None for each in ages])
    wanted = model.predict_proba(numbers)
    with open(tmp_path / "new.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    mixed = [{**row, "age": numbers["age"][i] if i % 2 else row["age"]} for i, row in enumerate(rows)]
    frames = [pd.read_csv(tmp_path / "new.csv", dtype=str, keep_default_na=False), texts, texts.astype("string")]
    frames += [texts.assign(age=texts["age"].astype("category")), pa.Table.from_pandas(texts), texts.to_dict("list")]
    for data in (*frames, rows, mixed, pd.DataFrame(mixed)):
        assert model.predict_proba(data).tobytes() == wanted.tobytes()
    for name in ("new.csv", "new.parquet", "new.jsonl"):
        assert sd.predict(model, tmp_path / name, proba=True).tobytes() == wanted.tobytes(), name
    lazy = sd.predict(model, dd.from_pandas(texts, npartitions=3), proba=True)
    assert lazy.compute(scheduler="sync").to_numpy().tobytes() == wanted.tobytes()
    with ModelServer(model, Limits(16)) as server:
        answers = [ask(server.url, given={"records": each, "proba": True}).json for each in (rows, mixed)]
    assert all(np.float32(each["probabilities"]).tobytes() == wanted.tobytes() for each in answers)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("twelve", "'twelve' is not a number"),
        ("(5)", r"'\(5\)' is not a number"),
        ("1_000", "'1_000' is not a number"),
        ("5,5", "'5,5' has a decimal comma"),
        ("true", "'true' is not a number"),
    ],
)
def test_texts_that_are_not_numbers(model: sd.Model, tmp_path: Path, value: str, said: str) -> None:
    rows = [{"spend": "2,365.04", "age": age, "plan": "basic"} for age in ("7", "8", value)]
    pd.DataFrame(rows).to_parquet(tmp_path / "new.parquet")
    for data in (rows, [{**rows[0], "age": 7}, *rows[1:]], pd.DataFrame(rows)):
        with pytest.raises(DataError, match=rf"x, row 2, column 'age': {said}"):
            model.predict(data)
    with pytest.raises(DataError, match=rf"new.parquet, .*record 2, column 'age': {said}"):
        sd.predict(model, tmp_path / "new.parquet")


def test_booleans_are_no_numbers_unless_they_were_in_training(model: sd.Model, tmp_path: Path) -> None:
    record = {"spend": 5.0, "age": True, "plan": "basic"}
    pd.DataFrame([record]).to_parquet(tmp_path / "new.parquet")
    pd.DataFrame([record]).to_csv(tmp_path / "new.csv", index=False)
    with ModelServer(model, Limits(16)) as server:
        answer = ask(server.url, given={"records": [record]})
    said = "column 'age' holds booleans, expected numbers as in training."
    assert (answer.status, answer.json["error"]) == (400, f"records: {said}")
    for data in ([record], pd.DataFrame([record]), tmp_path / "new.parquet", tmp_path / "new.csv"):
        with pytest.raises((DataError, ConfigError), match=said):
            sd.predict(model, data)
    for age in ([True, 7], ["7", True]):
        with pytest.raises(DataError, match=r"row 1, column 'age': a value of type \w+ among values of type"):
            model.predict([{**record, "age": each} for each in age])


def test_texts_of_booleans(tmp_path: Path) -> None:
    facts = TableFacts(("on", "x"), booleans=("on",))
    texts = {"on": ["true", "False", "1", " TRUE"], "x": ["1", "2", "3", "4"]}
    given = MemoryReading(StoreConf(shape=[2]), facts).records(texts)
    assert given.read(0, 4)["data"].tolist() == [[1, 1], [0, 2], [1, 3], [1, 4]]
    assert TableFacts.from_dict(facts.to_dict()) == facts
    for text, said in (
        ("true,1\n7,2\n", "line 3, column 'on': 7 is not a boolean"),
        ("1,1\n2,2\n", "line 3, column 'on': 2 is not a boolean"),
        ("1,.1\n0,true\n1,.3\n", "line 3, column 'x': 'true' is a boolean, and other values are numbers"),
    ):
        (tmp_path / "x.csv").write_text(f"on,x\n{text}")
        with pytest.raises(DataError, match=said), TableStore(str(tmp_path / "x.csv"), facts=facts.to_dict()) as store:
            store.read_block(0)
    for number in (7, "7", 0.5):
        refused = f"row 1, column 'on': {number} is not a boolean. Expected true, false, 1 or 0"
        with pytest.raises(DataError, match=refused):
            MemoryReading(StoreConf(shape=[2]), facts).records({"on": [1, number], "x": [2, 3]}).read(0, 2)
    # checkpoints of before do not say which columns were booleans
    known = TableFacts.from_dict({key: value for key, value in facts.to_dict().items() if key != "booleans"})
    bools = {"on": [True], "x": [False]}
    assert MemoryReading(StoreConf(shape=[2]), known).records(bools).read(0, 1)["data"].tolist() == [[1, 0]]
    with pytest.raises(DataError, match="x: column 'x' holds booleans"):
        MemoryReading(StoreConf(shape=[2]), facts).records(bools).read(0, 1)


def test_one_record(model: sd.Model) -> None:
    texts, numbers = written(), plain()
    wanted = model.predict_proba(numbers)
    for i in (0, 2, 3):
        for one in (numbers.iloc[i], numbers.iloc[i].to_dict(), texts.iloc[i], texts.iloc[i].to_dict()):
            assert model.predict_proba(one).tobytes() == wanted[i : i + 1].tobytes()
            assert len(sd.predict(model, one)) == 1
    with pytest.raises(DataError, match=r"x: 'spend' has one value, 'age' several. Pass a list of values for each col"):
        model.predict({"spend": 1, "age": [1, 2], "plan": ["basic", "plus"]})


def test_one_record_with_a_vector_and_columns_that_are_not_read() -> None:
    reading = MemoryReading(StoreConf(shape=[4]), TableFacts(("x", "v"), widths={"v": 3}))
    one = {"x": 7, "v": [1, 2, 3], "user": {"city": "Oslo"}, "tags": []}
    for record in (one, {**one, "v": np.array([1.0, 2, 3])}):
        assert reading.records(record).read(0, 1)["data"].tolist() == [[7, 1, 2, 3]]
    two = reading.records({"x": [7, 8], "v": [[1, 2, 3], [4, 5, 6]], "tags": [[], ["a"]]})
    assert two.read(0, 2)["data"].tolist() == [[7, 1, 2, 3], [8, 4, 5, 6]]
    with pytest.raises(DataError, match=r"x: column 'x' is missing. Columns: user, tag, v"):
        reading.records({"user": {}, "tag": "a", "v": [1, 2, 3]})
    with pytest.raises(DataError, match="x: 'v' has one value, 'x' several"):
        reading.records({"x": [7, 8], "v": [1, 2, 3]})


def test_fractions_in_a_percent_column_are_warned_of(tmp_path: Path) -> None:
    reading = {"features": ["rate", "x"], "numbers": {"rate": {"unit": "%"}}, "missing": "mean"}

    def facts_of(rates: list[str]) -> TableFacts:
        pd.DataFrame({"rate": rates, "x": range(len(rates))}).to_csv(tmp_path / "train.csv", index=False)
        with TableStore(str(tmp_path / "train.csv"), **reading) as store:
            return store.table_facts

    facts, small = facts_of(["12%", "56%", "0.5%"]), facts_of(["0.5%", "0.7%", "1.2%"])
    usual = Scaling(np.array([45.0, 5.0]), np.array([20.0, 3.0]))
    low = Scaling(np.array([3.0, 5.0]), np.array([4.0, 3.0]))

    def is_warned(rates: Any, known: TableFacts = facts, scaling: Scaling | None = usual) -> list[bool]:
        """Return whether frames, records and files of all formats with these rates are warned of."""
        frame, warned = pd.DataFrame({"rate": rates, "x": range(len(rates))}), []
        for given in (frame, pa.table(frame), frame.to_dict("records")):
            warned.append(
                MemoryReading(StoreConf(shape=[2], missing="mean"), known, scaling=scaling).records(given).warning
            )
        frame.to_csv(tmp_path / "new.csv", index=False)
        frame.to_parquet(tmp_path / "new.parquet")
        frame.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
        # a CSV file without percent signs is read by the setting that its error names
        without_signs = {"rate": {}} if frame["rate"].dtype == float else {}
        for path, numbers in (("new.csv", without_signs), ("new.parquet", {}), ("new.jsonl", {})):
            keys = reading | {"facts": known.to_dict(), "numbers": numbers}
            with TableStore(str(tmp_path / path), **keys) as store:
                filled = store.begin_counting(scaling)
                store.read_block(0)
                warned.append(" ".join(FillCounts.total(filled.values()).warnings()))
        assert all("0.56 is read as 0.56 %" in each for each in warned if each)
        return [bool(each) for each in warned]

    assert all(is_warned([0.56, 1.0, 0.0, np.nan]))
    assert not any(is_warned([0.56, 12.0]))
    assert not any(is_warned([0.0, 1.0, 1.0]))
    assert not any(is_warned(["0.56%", "0.12%"]))
    # a single value is judged by the mean and the deviation of the training data
    assert all(is_warned([0.56]))
    assert not any([*is_warned([0.56], scaling=None), *is_warned([0.56], scaling=low), *is_warned([1.2])])
    # small values cannot be judged if the training data has them, too
    assert not any(is_warned([0.56, 0.12], small))


def test_predictions_of_files_and_answers_have_the_warning(tmp_path: Path) -> None:
    frame = pd.DataFrame({"rate": ["12%", "56%"] * 5, "x": range(10), "kind": ["a", "b"] * 5})
    frame.to_csv(tmp_path / "train.csv", index=False)
    reading = {"path": str(tmp_path / "train.csv"), "batchsize": 10, "features": ["rate", "x"], "label": "kind"}
    reading |= {"numbers": {"rate": {"unit": "%"}}, "shape": [2], "standardise": True}
    layers = [sd.layer("CSVInput", name="data", store_conf=reading)]
    layers += [sd.layer("InnerProduct", name="fc", srclayers="data", num_output=2)]
    layers += [sd.layer("SoftmaxLoss", srclayers=["fc", "data"])]
    run = str(tmp_path / "run")
    sd.train(sd.Job(sd.Net(layers), train_steps=1, **KEYS), run_dir=run, progress=False)
    fractions = frame.assign(rate=[0.12, 0.56] * 5)
    fractions.to_parquet(tmp_path / "new.parquet")
    said = "column rate: all values are from 0 to 1"
    with pytest.warns(sd.DataWarning, match=f"new.parquet, {said}"):
        sd.predict(run, tmp_path / "new.parquet")
    with pytest.warns(sd.DataWarning, match=f"new.parquet, {said}"):
        sd.test(run, tmp_path / "new.parquet")
    with pytest.warns(sd.DataWarning, match=f"x, {said}"):
        model = sd.load_model(run)
        model.predict(fractions)
    records = fractions[["rate", "x"]].to_dict("records")
    with ModelServer(model, Limits(16)) as server:
        assert said in json.loads(ask(server.url, given={"records": records}).body)["warnings"][0]
