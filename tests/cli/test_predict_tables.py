"""Predictions of tables: columns beside them, probabilities by names of classes, and a record that is an example."""

from __future__ import annotations

import io
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import singa_dask as sd
from singa_dask.serving import Limits, ModelServer
from tests.cli.conftest import Call
from tests.serving.conftest import ask

N = 90
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=N).round(3), "b": RNG.normal(size=N).round(3)})
FRAME["kind"] = np.where(FRAME["a"] > FRAME["b"], "more", "less")
NEW = FRAME[["b", "a"]].assign(
    key=[f"{i:05d}" for i in range(N)], note=[None if i == 7 else f"no, {i}" for i in range(N)]
)


@pytest.fixture
def job(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a job on a table, which was run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("train.csv", index=False)
    assert call("init", "train.csv", "--label", "kind", "--test-split", 0).exit_code == 0
    assert call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=60").exit_code == 0
    return "job.yaml"


def table(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


def test_a_threshold_chooses_one_of_two_classes_by_every_door(call: Call, job: str) -> None:
    NEW.to_csv("new.csv", index=False)
    given = ["predict", job, "--init-from", "run", "--data", "new.csv"]
    model = sd.load_model("run")
    proba = model.predict_proba(NEW)
    for threshold in (0.0, 0.2, float(np.median(proba[:, 1])), 1.0):
        number = (proba[:, 1] >= np.float32(threshold)).astype(int)
        classes = np.array(["less", "more"])[number]
        found = table(call(*given, "--threshold", threshold).stdout)
        assert list(found) == ["record", "class", "number", "probability"]
        assert found["class"].tolist() == classes.tolist()
        assert np.float32(found["probability"]).tolist() == proba[range(N), number].tolist()
        assert sd.predict("run", "new.csv", threshold=threshold).tolist() == classes.tolist()
        assert model.predict(NEW, threshold=threshold).tolist() == classes.tolist()
    given_rows = NEW[["a", "b"]].to_dict("records")
    with ModelServer(model, Limits(8), threshold=0.2) as server:
        answer = ask(server.url, given={"records": given_rows, "proba": True}).json
        array = ask(server.url, given=given_rows, headers={"Accept": "application/x-npy"}).body
        assert ask(server.url, "/model").json["threshold"] == 0.2
    assert answer["classes"] == ["less", "more"]
    chosen = ["more" if pair[1] >= np.float32(0.2) else "less" for pair in answer["probabilities"]]
    assert answer["predictions"] == np.load(io.BytesIO(array)).tolist() == chosen
    assert chosen != model.predict(NEW).tolist()
    assert np.float32(answer["probabilities"]) == pytest.approx(proba, rel=1e-5)
    assert call(*given, "--threshold", 0.5).stdout == call(*given).stdout
    assert "--proba" in call(*given, "--threshold", 0.5, "--proba").stderr
    with pytest.raises(sd.ConfigError, match="expected a probability, from 0 to 1"):
        model.predict(NEW, threshold=2)
    for door in (
        lambda: model.predict(NEW, threshold=0.5, proba=True),
        lambda: sd.predict("run", NEW, threshold=0.5, proba=True),
    ):
        with pytest.raises(sd.ConfigError, match="no class is chosen"):
            door()
    with pytest.raises(sd.ConfigError, match="expected a probability, from 0 to 1"):
        ModelServer(model, Limits(8), threshold=float("nan"))
    three = FRAME.assign(kind=RNG.choice(["a", "b", "c"], N))
    three.to_csv("three.csv", index=False)
    assert call("init", "three.csv", "--label", "kind", "--test-split", 0, "-o", "three.yaml").exit_code == 0
    assert call("run", "three.yaml", "--run-dir", "three", "--set", "train_steps=2").exit_code == 0
    for command in (
        ["predict", "three.yaml", "--init-from", "three", "--data", "new.csv"],
        ["serve", "three", "--port", 0],
    ):
        refused = call(*command, "--threshold", 0.5)
        assert refused.exit_code and "has 3 classes, expected two classes. Leave it out." in refused.stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_are_kept_as_they_are(call: Call, job: str, suffix: str) -> None:
    if suffix == "csv":
        NEW.to_csv("new.csv", index=False)
    else:
        NEW.to_parquet("new.parquet", row_group_size=20)
    given = ["predict", job, "--init-from", "run", "--data", f"new.{suffix}"]
    result = call(*given, "--keep", "key, note, key")
    assert result.exit_code == 0, result.output
    plain, kept = table(call(*given).stdout), table(result.stdout)
    assert list(kept) == ["record", "key", "note", "class", "number", "probability"]
    pd.testing.assert_frame_equal(kept[["class", "number", "probability"]], plain[["class", "number", "probability"]])
    assert kept["key"].tolist() == NEW["key"].tolist()
    assert kept["note"].tolist() == NEW["note"].fillna("").tolist()
    proba = table(call(*given, "--proba", "--keep", "key").stdout)
    assert list(proba) == ["record", "key", "less", "more"]
    expected = sd.load_model("run").predict_proba(NEW[["a", "b"]])
    np.testing.assert_allclose(proba[["less", "more"]].astype(float), expected, rtol=1e-5)


@pytest.mark.parametrize("options", [[], ["--topk", 2], ["--proba"]])
def test_predictions_as_parquet(call: Call, job: str, options: list[object]) -> None:
    new = NEW.assign(id=np.arange(N) + 2**60, day=pd.Timestamp("2024-01-31"))
    new.to_parquet("new.parquet", row_group_size=20)
    given = ["predict", job, "--init-from", "run", "--data", "new.parquet", "--keep", "id,key,note,day", *options]
    result = call(*given, "--out", "out.parquet")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    written, expected = pd.read_parquet("out.parquet"), pd.read_csv(io.StringIO(call(*given).stdout))
    kept = ["id", "key", "note", "day"]
    pd.testing.assert_frame_equal(written[kept], pd.read_parquet("new.parquet")[kept])
    predicted = expected.drop(columns=kept)
    single = dict.fromkeys(predicted.select_dtypes("float"), "float32")
    pd.testing.assert_frame_equal(written.drop(columns=kept), predicted.astype(single), check_exact=True)


def test_the_record_that_serve_shows_can_be_predicted(job: str, call: Call) -> None:
    model = sd.load_model("run")
    example = model.example(model.output)
    assert example == pytest.approx(FRAME[["a", "b"]].mean().to_dict(), rel=1e-3)
    assert model.predict(pd.DataFrame([example])).shape == (1,)


def test_what_cannot_be_kept_is_named(call: Call, job: str) -> None:
    NEW.to_csv("new.csv", index=False)
    given = ["predict", job, "--init-from", "run", "--data", "new.csv"]
    refused = call(*given, "--keep", "nota")
    assert refused.exit_code == 2
    assert (
        refused.stderr
        == f"--keep: {Path.cwd()}/new.csv: there is no column 'nota'. Did you mean 'note'? Columns: b, a, key, note.\n"
    )
    assert call(*given, "--proba", "--topk", 2).exit_code == 2
    np.savez("new.npz", data=NEW[["a", "b"]])
    refused = call("predict", job, "--init-from", "run", "--data", "new.npz", "--keep", "record")
    assert refused.exit_code == 1 and "new.npz: " in refused.stderr


def test_values_that_training_never_lacked(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap in a number, or in a category, of one record: refused with the option that predicts it all the same."""
    monkeypatch.chdir(tmp_path)
    learned = FRAME.assign(key=np.tile(["x", "y"], N // 2))
    learned.to_csv("train.csv", index=False)
    given = ["--label", "kind", "--features", "a,b,key", "--test-split", 0, "-o", "gaps.yaml"]
    assert call("init", "train.csv", *given).exit_code == 0
    assert call("run", "gaps.yaml", "--run-dir", "gaps", "--set", "train_steps=20").exit_code == 0
    new = learned.drop(columns="kind").head(6)
    predicted = ["predict", "gaps.yaml", "--init-from", "gaps", "--proba", "--data"]

    def scores(frame: pd.DataFrame, *options: object) -> pd.DataFrame:
        frame.to_csv("new.csv", index=False)
        result = call(*predicted, "new.csv", *options)
        assert result.exit_code == 0, result.output
        return table(result.stdout)

    def refused(frame: pd.DataFrame) -> str:
        frame.to_csv("new.csv", index=False)
        result = call(*predicted, "new.csv")
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr

    whole, gap = scores(new), new.assign(a=new["a"].where(new.index != 2))
    assert refused(gap).endswith("column 'a': no value. Leave the record out, or pass --missing mean or a number.\n")
    # as if the mean stood there
    filled = scores(new.assign(a=new["a"].where(new.index != 2, learned["a"].mean())))
    pd.testing.assert_frame_equal(scores(gap, "--missing", "mean"), filled, atol=1e-5)
    pd.testing.assert_frame_equal(scores(gap, "--missing", "mean").drop(2), whole.drop(2))
    zero = scores(new.assign(a=new["a"].where(new.index != 2, 0.0)))
    pd.testing.assert_frame_equal(scores(gap, "--missing", "0"), zero)
    for value, said in ((None, "no value. Leave"), ("z", "Expected a known one: x, y. Leave")):
        gap = new.assign(key=new["key"].where(new.index != 2, value))
        assert refused(gap).endswith(f"{said} the record out, or pass --unknown ignore.\n")
        found = scores(gap, "--unknown", "ignore")
        pd.testing.assert_frame_equal(found.drop(2), whole.drop(2))
        assert not found.loc[2].equals(whole.loc[2])
    assert call(*predicted, "new.csv", "--missing", "skip").exit_code == 2
    both = new.assign(a=new["a"].where(~new.index.isin([2, 4])), key=new["key"].where(new.index != 2))
    said = "line 4, columns 'a', 'key': no value, the first of 2 such records in 6. Leave the record out, or pass "
    assert refused(both).endswith(f"{said}--missing mean or a number and --unknown ignore.\n")
    for options in ([], ["--workers", 1]):
        result = call(*predicted, "new.csv", "--missing", "mean", "--unknown", "ignore", *options)
        assert result.stderr.endswith("filled 3 values: column a 2, key 1\n"), result.stderr
    both.to_parquet("new.parquet")
    quiet = call(*predicted, "new.parquet", "--missing", "0", "--unknown", "ignore", "--quiet", "--out", "out.csv")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_a_text_among_numbers_is_found_by_its_line(call: Call, job: str) -> None:
    NEW.assign(a=NEW["a"].astype(object).where(NEW.index != 4, "abc")).to_csv("new.csv", index=False)
    refused = call("predict", job, "--init-from", "run", "--data", "new.csv")
    assert refused.stderr == "--data new.csv, line 6, column 'a': 'abc' is not a number.\n"


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_nothing_is_kept_of_no_records(call: Call, job: str, suffix: str) -> None:
    frame = NEW.head(0)
    frame.to_csv("new.csv", index=False) if suffix == "csv" else frame.to_parquet("new.parquet")
    result = call("predict", job, "--init-from", "run", "--data", f"new.{suffix}", "--keep", "key")
    assert (result.exit_code, result.stdout) == (0, "record,key,class,number,probability\n")
    assert result.stderr == f"new.{suffix}: 0 records\n"


def test_booleans_are_compared_with_their_predictions(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FRAME.assign(kind=FRAME["a"] > FRAME["b"]).to_parquet("flags.parquet")
    assert call("init", "flags.parquet", "--label", "kind", "--test-split", 0, "-o", "flags.yaml").exit_code == 0
    assert call("run", "flags.yaml", "--run-dir", "flags", "--set", "train_steps=100").exit_code == 0
    given = ["predict", "flags.yaml", "--init-from", "flags", "--data", "flags.parquet", "--keep", "kind"]
    assert call(*given, "--out", "out.parquet").exit_code == 0
    found, shown = pd.read_parquet("out.parquet"), table(call(*given).stdout)
    assert (found["kind"] == found["class"]).mean() > 0.9
    assert shown["class"].tolist() == found["class"].astype(str).str.lower().tolist()


def test_numbers_that_are_kept_are_numbers(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target is kept as the job reads it, money too, and a code as it is written."""
    monkeypatch.chdir(tmp_path)
    cost = [f"${1000 + i}.50" for i in range(N)]
    FRAME.assign(cost=cost, code="007").drop(columns="kind").to_csv("cost.csv", index=False)
    assert call("init", "cost.csv", "--target", "cost", "--test-split", 0, "-o", "cost.yaml").exit_code == 0
    assert call("run", "cost.yaml", "--run-dir", "cost", "--set", "train_steps=5").exit_code == 0
    given = ["predict", "cost.yaml", "--init-from", "cost", "--data", "cost.csv", "--keep", "code,cost"]
    assert call(*given, "--out", "out.parquet").exit_code == 0
    kept = pd.read_parquet("out.parquet")
    assert kept["cost"].tolist() == [1000.5 + i for i in range(N)]
    assert set(kept["code"]) == {"007"}
    assert table(call(*given).stdout)["cost"].astype(float).tolist() == kept["cost"].tolist()
    refused = call("predict", "cost.yaml", "--init-from", "cost", "--data", "cost.csv", "--keep", "cots")
    assert "no column 'cots'. Did you mean 'cost'? Columns: a, b, cost, code." in refused.stderr


def test_no_two_columns_have_one_name(call: Call, job: str) -> None:
    NEW.rename(columns={"key": "record", "note": "class"}).assign(less=1).to_csv("new.csv", index=False)
    given = ["predict", job, "--init-from", "run", "--data", "new.csv"]
    refused = call(*given, "--keep", "b,record")
    said = "--keep: the predictions have a column 'record', too. Rename the column of the data, or keep"
    assert (refused.exit_code, refused.stdout, said in refused.stderr) == (2, "", True), refused.output
    names = ["record", "less", "class", "number", "probability"]
    assert list(table(call(*given, "--keep", "less").stdout)) == names
    # the label beside its prediction
    names = ["record", "class", "loss.class", "loss.number", "loss.probability"]
    assert list(table(call(*given, "--keep", "class").stdout)) == names
    assert call(*given, "--keep", "class", "--out", "out.parquet").exit_code == 0
    assert list(pd.read_parquet("out.parquet")) == names
    assert list(table(call(*given, "--keep", "less", "--proba").stdout)) == ["record", "less", "loss.less", "loss.more"]
    # a class with the name of the column that numbers the records
    FRAME.assign(kind=FRAME["kind"].replace("more", "record")).to_csv("other.csv", index=False)
    assert call("init", "other.csv", "--label", "kind", "--test-split", 0, "-o", "other.yaml").exit_code == 0
    assert call("run", "other.yaml", "--run-dir", "other", "--set", "train_steps=5").exit_code == 0
    result = call("predict", "other.yaml", "--init-from", "other", "--data", "new.csv", "--proba")
    assert list(table(result.stdout)) == ["record", "loss.less", "loss.record"]


# -- a time series -----------------------------------------------------------------------------------------------

SERIES = pd.DataFrame(
    {"time": pd.date_range("2024-01-30", periods=60, freq="7h"), "wind": RNG.normal(size=60).round(3)}
)
SERIES["load"] = SERIES["wind"].cumsum().round(4)
SERIES["state"] = np.where(SERIES["load"].diff() > 0, "up", "down")
# the newest record is to be predicted, and has no value yet
HISTORY = (
    SERIES[-9:]
    .assign(load=[*SERIES["load"][-9:-1], None], state=[*SERIES["state"][-9:-1], None])
    .reset_index(drop=True)
)


@pytest.fixture(params=[("--target", "load"), ("--label", "state")])
def series(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Return what a job predicts, which was run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    option, name = request.param
    SERIES.to_csv("series.csv", index=False)
    made = call("init", "series.csv", option, name, "--lags", 2, "--features", f"wind,{name}_lag*")
    assert made.exit_code == 0, made.output
    assert call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=30").exit_code == 0
    return str(name)


def test_lags_are_made_of_the_history(call: Call, series: str) -> None:
    shifted = HISTORY.assign(**{f"{series}_lag{k}": HISTORY[series].shift(k) for k in (1, 2)})[2:]
    model = sd.load_model("run")
    wanted, extracted = model.predict(shifted), model.extract(shifted, model.output)
    assert len(wanted) == 7
    texts = HISTORY.assign(time=HISTORY["time"].astype(str))
    rows = texts.astype(object).where(texts.notna(), None).to_dict("records")
    for data in (HISTORY, pa.Table.from_pandas(HISTORY), rows, HISTORY.to_dict("list")):
        assert model.extract(data, model.output).tobytes() == extracted.tobytes()
    found = sd.predict(model, HISTORY)
    assert (found.index.tolist(), found.tolist()) == (list(range(2, 9)), wanted.tolist())
    HISTORY.to_csv("new.csv", index=False)
    HISTORY.to_parquet("new.parquet", row_group_size=4)
    HISTORY.to_json("new.jsonl", orient="records", lines=True, date_format="iso", double_precision=15)
    Path("parts").mkdir()
    for i in range(3):
        HISTORY[3 * i : 3 * i + 3].to_csv(f"parts/{i}.csv", index=False)
    shifted.to_csv("shifted.csv", index=False)
    for name in ("new.csv", "new.parquet", "new.jsonl", "parts"):
        assert sd.predict("run", name).tolist() == wanted.tolist()
        said = call("predict", "job.yaml", "--init-from", "run", "--data", name, "--keep", "wind")
        assert said.stderr == f"{name}: the first 2 records are only history and not predicted\n"
        written = table(said.stdout)
        assert written["record"].tolist() == [str(i) for i in range(2, 9)]
        assert written["wind"].astype(float).tolist() == HISTORY["wind"][2:].tolist()
    # a table that has the lags is read as it is
    said = call("predict", "job.yaml", "--init-from", "run", "--data", "shifted.csv")
    assert (said.stderr, len(table(said.stdout))) == ("", 7)
    assert sd.predict("run", "shifted.csv").tolist() == wanted.tolist()
    with ModelServer(model, Limits(8)) as server:
        answers = [ask(server.url, given={"records": rows[:n]}).json for n in (9, 2)]
    assert (answers[0]["predictions"], answers[0]["history"]) == (wanted.tolist(), 2)
    assert answers[1]["error"].startswith("records: 2 records. Expected more than 2: ")


def test_what_is_no_history_is_refused(call: Call, series: str) -> None:
    model = sd.load_model("run")
    for change, said in (
        (HISTORY[::-1], "its records are not in the order of time. Sort them by time."),
        (HISTORY.drop(columns=series), f"column '{series}' is missing. Columns: "),
        (HISTORY.drop(columns="wind"), "column 'wind' is missing. Columns: "),
        (HISTORY[:2], "2 records. Expected more than 2: "),
    ):
        change.to_csv("new.csv", index=False)
        result = call("predict", "job.yaml", "--init-from", "run", "--data", "new.csv")
        assert result.exit_code != 0 and result.stderr.startswith(f"--data new.csv: {said}"), result.output
        with pytest.raises(sd.DataError, match=f"x: {said}"):
            model.predict(change)
    lazy = dd.from_pandas(HISTORY, npartitions=2)
    with pytest.raises(sd.DataError, match=r"data: a record needs the 2 before it, but Dask partitions .*compute\(\)"):
        sd.predict(model, lazy)


def test_several_records_ahead(call: Call, series: str) -> None:
    """As many as lack their value, each from the predictions for those before, by every door."""
    model, filled = sd.load_model("run"), SERIES[-12:].reset_index(drop=True).astype({series: object})
    filled.loc[8:, series] = None
    ahead = filled.copy()
    for i in range(8, 12):
        filled.loc[i, series] = model.predict(filled[: i + 1])[-1]
    wanted = model.predict(filled).tolist()
    assert wanted[-4:] == filled[series][-4:].tolist()
    for data in (ahead, pa.Table.from_pandas(ahead), ahead.to_dict("list")):
        assert sd.predict(model, data).tolist() == wanted
    ahead.to_csv("new.csv", index=False)
    ahead.to_parquet("new.parquet", row_group_size=4)
    for name in ("new.csv", "new.parquet"):
        assert sd.predict("run", name).tolist() == wanted
        for options in ([], ["--proba"] if series == "state" else []):
            said = call("predict", "job.yaml", "--init-from", "run", "--data", name, "--keep", "wind", *options)
            assert "the last 3 records are predicted, each from the predictions before it" in said.stderr
            written = table(said.stdout)
            assert written["record"].tolist() == [str(i) for i in range(2, 12)]
            assert written["wind"].astype(float).tolist() == ahead["wind"][2:].tolist()
    # another layer has no predictions to go on from
    said = call("predict", "job.yaml", "--init-from", "run", "--data", "new.csv", "--layer", "data")
    refused = f"--data new.csv: the last 4 records have no {series}, but each needs the values of the 2 before it. "
    assert said.stderr.startswith(refused)
    with pytest.raises(sd.DataError, match=f"x: the last 4 records have no {series}"):
        model.extract(ahead, "data")


def test_gaps_of_the_history_are_told(call: Call, series: str) -> None:
    """By every door, once a call; several predictions ahead read the history several times."""
    model, ahead = sd.load_model("run"), SERIES[-14:].drop(SERIES.index[-9]).reset_index(drop=True)
    ahead[series] = ahead[series].astype(object)
    ahead.loc[10:, series] = None
    before, after = SERIES["time"].iloc[[-10, -8]]
    said = f"column 'time': 1 gap, the first between {before} and {after}; the usual step is 7:"
    ahead.to_csv("holes.csv", index=False)
    ahead.to_parquet("holes.parquet")
    for name, predict in (
        ("x", lambda: model.predict(ahead)),
        ("x", lambda: sd.predict(model, ahead)),
        ("holes.csv", lambda: sd.predict("run", "holes.csv")),
        ("holes.parquet", lambda: sd.predict("run", "holes.parquet")),
    ):
        with pytest.warns(sd.DataWarning, match=f"{name}, {said}") as found:
            predict()
        assert [each.filename for each in found] == [__file__]
    result = call("predict", "job.yaml", "--init-from", "run", "--data", "holes.csv")
    assert (result.exit_code, result.stderr.count(said)) == (0, 1)
    rows = ahead[:11].assign(time=ahead["time"].astype(str)).to_dict("records")
    with ModelServer(model, Limits(8)) as server:
        whole, holed = (ask(server.url, given={"records": each}).json for each in (rows[-5:], rows))
    assert "warnings" not in whole
    (warning,) = holed["warnings"]
    assert warning.startswith(f"records, {said}")


def test_errors_of_the_history_name_the_line(call: Call, series: str) -> None:
    """Also where the records of several files become one series, and where predictions are made of the last ones."""
    new = SERIES[-12:].reset_index(drop=True).astype({series: object})
    new.loc[8:, series] = None
    new.loc[9, "wind"] = None
    new.to_csv("new.csv", index=False)
    Path("parts").mkdir()
    new[:5].to_csv("parts/0.csv", index=False)
    new[5:].to_csv("parts/1.csv", index=False)
    for name, place in (("new.csv", "new.csv, line 11"), ("parts", "parts/1.csv, line 6")):
        said = call("predict", "job.yaml", "--init-from", "run", "--data", name)
        assert f"{place}, column 'wind': no value" in said.stderr, said.output
    with pytest.raises(sd.DataError, match="x, row 9, column 'wind': no value"):
        sd.load_model("run").predict(new)


def test_a_value_of_a_series_is_named_by_its_own_column(call: Call, series: str) -> None:
    """In files whose newest records have no value, whose values are texts, or that lack the column."""
    new = SERIES[-12:].reset_index(drop=True)
    new[series] = new[series].astype(object).where(new.index < 8, None)
    new.to_csv("new.csv", index=False)
    said = call("test", "job.yaml", "--init-from", "run", "--data", "new.csv").stderr
    assert f"new.csv, line 10, column '{series}': no value" in said, said
    new.drop(columns=series).to_csv("new.csv", index=False)
    for command in ("test", "predict"):
        said = call(command, "job.yaml", "--init-from", "run", "--data", "new.csv").stderr
        assert f"new.csv: column '{series}' is missing. Columns: time, wind" in said, said
    if series == "state":
        return
    texts = SERIES[-12:].astype({series: str}).reset_index(drop=True)
    texts.loc[4, series] = "0.00 EUR"
    texts.to_csv("new.csv", index=False)
    texts.to_parquet("new.parquet")
    for name, place in (("new.csv", "line 6"), ("new.parquet", "row group 0, record 4")):
        for command in ("test", "predict"):
            said = call(command, "job.yaml", "--init-from", "run", "--data", name).stderr
            assert f"{name}, {place}, column 'load': '0.00 EUR' is not a number" in said, said


def test_lags_of_money(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lags are made of the numbers that texts say."""
    monkeypatch.chdir(tmp_path)
    numbers = SERIES.assign(load=SERIES["load"].round(2) * 1000 + 50_000)
    texts = numbers.assign(load=[f"${value:,.2f}" for value in numbers["load"]])
    found = []
    for frame in (numbers, texts):
        frame.to_csv("series.csv", index=False)
        options = ("--target", "load", "--lags", 2, "--features", "wind,load_lag*", "--overwrite")
        assert call("init", "series.csv", *options).exit_code == 0
        assert call("run", "job.yaml", "--run-dir", f"run{len(found)}", "--set", "train_steps=5").exit_code == 0
        model = sd.load_model(f"run{len(found)}")
        new = frame[-9:].reset_index(drop=True).assign(time=lambda each: each["time"].astype(str))
        new.to_csv("new.csv", index=False)
        new.to_parquet("new.parquet")
        found += [model.predict(new), model.predict(new.to_dict("records"))]
        found += [sd.predict(model, "new.csv"), sd.predict(model, "new.parquet")]
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([200, 404], "int64"),
        ([2024.0, 2025.0], "float64"),
        ([0, 1], "int64"),
        ([False, True], "bool"),
        (["1", "b"], ""),
        (["false", "true"], ""),
    ],
)
def test_classes_have_the_type_of_the_label(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, values: list[object], dtype: str
) -> None:
    """Compared by pandas with the label itself, through each way to predict."""
    monkeypatch.chdir(tmp_path)
    frame = FRAME.assign(kind=np.array(values)[(FRAME["a"] > FRAME["b"]).astype(int)])
    frame.to_csv("some.csv", index=False) if suffix == "csv" else frame.to_parquet("some.parquet")
    # in CSV, the texts true and false are booleans, for pandas too
    frame["kind"] = (pd.read_csv if suffix == "csv" else pd.read_parquet)(f"some.{suffix}")["kind"]
    assert call("init", f"some.{suffix}", "--label", "kind", "--test-split", 0).exit_code == 0
    assert call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=100").exit_code == 0
    given = ["predict", "job.yaml", "--init-from", "run", "--data", f"some.{suffix}", "--keep", "kind"]
    assert call(*given, "--out", "out.parquet").exit_code == 0
    written, shown = pd.read_parquet("out.parquet"), pd.read_csv(io.StringIO(call(*given).stdout))
    model, x = sd.load_model("run"), frame[["a", "b"]]
    lazy = sd.predict(model, dd.from_pandas(x, npartitions=2))
    series = sd.predict(model, x)
    accuracy = model.test(x, frame["kind"])["accuracy"]
    assert accuracy > 0.9
    for found in (written["class"], model.predict(x), series, lazy.compute(), sd.predict("run", f"some.{suffix}")):
        assert dtype in ("", str(found.dtype))
        assert (np.asarray(found) == frame["kind"].to_numpy()).mean() == pytest.approx(accuracy)
    assert (written["class"] == written["kind"]).mean() == pytest.approx(accuracy)
    assert written["class"].dtype == written["kind"].dtype
    assert dtype in ("", str(lazy.dtype))
    with ModelServer(model, Limits(8)) as server:
        answer = ask(server.url, given={"records": x.to_dict("records")}).json
        facts = ask(server.url, "/model").json
    # JSON tells 1, 1.0, true and "1" apart
    kinds = {type(each) for each in (*answer["predictions"], *answer.get("classes", ()), *(facts["classes"] or ()))}
    assert (answer["predictions"], kinds) == (series.tolist(), {type(series.tolist()[0])})
    if "classes" in answer:
        assert answer["classes"] == facts["classes"] == sorted(set(frame["kind"].tolist()))
    assert (shown["class"] == shown["kind"]).mean() == pytest.approx(accuracy)
