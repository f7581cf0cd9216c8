"""``init`` on tables: it names the right label or asks, reads what it is told, and refuses with the true reason."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from singa_dask.conf import load
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.inputs.store_conf import StoreConf
from tests.cli.conftest import Call, noted
from tests.selection import mostly_long

N = 120
RANDOM = np.random.default_rng(0)
KIND = np.arange(N) % 3
FRAME = pd.DataFrame({"age": RANDOM.normal(40, 9, N).round(1), "fare": RANDOM.gamma(2, 10, N).round(2)})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stores() -> list[dict[str, Any]]:
    layers = load("job.yaml").job.neuralnet.layer
    found = [conf for layer in layers[:2] if (conf := layer.given_block(StoreConf)) is not None]
    return [conf.model_dump(exclude_defaults=True) for conf in found]


def done(call: Call, *arguments: object) -> str:
    result = call("init", *arguments)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    checked = call("validate", "job.yaml", "--strict")
    assert checked.exit_code == 0, checked.output
    return result.stderr


def refused(call: Call, *arguments: object) -> str:
    result = call("init", *arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert not Path("job.yaml").exists()
    assert not Path("job-data").exists()
    return result.stderr


def test_a_file_beside_that_has_no_labels_is_what_to_predict(call: Call) -> None:
    """As competitions give it."""
    FRAME.assign(kind=KIND).to_csv("train.csv", index=False)
    FRAME[:7].to_csv("test.csv", index=False)
    said = done(call, "train.csv", "--label", "kind", "-o", "job.yaml")
    assert "test.csv has no kind: it is not a test set, but records to predict" in said
    run, predict = (line.split()[1:] for line in said.splitlines()[-2:])
    assert call(*run, "--set", "train_steps=2").exit_code == 0
    result = call(*predict)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 8), result.output
    # one with labels is a test set, and so is one that is named
    FRAME[:7].assign(kind=1).to_csv("test.csv", index=False)
    assert "it is not a test set" not in done(call, "train.csv", "--label", "kind", "-o", "job.yaml", "--overwrite")
    FRAME[:7].to_csv("test.csv", index=False)
    result = call("init", "train.csv", "--label", "kind", "--test", "test.csv", "-o", "other.yaml")
    assert (result.exit_code, "column 'kind' is missing" in result.stderr) == (1, True)


def test_the_command_that_predicts_keeps_an_id(call: Call) -> None:
    FRAME.assign(kind=KIND, customer_id=range(1000, 1000 + len(FRAME))).to_csv("train.csv", index=False)
    assert done(call, "train.csv", "--label", "kind").endswith("--data NEW.csv --keep customer_id\n")
    # but of records that have none
    FRAME[:7].to_csv("test.csv", index=False)
    assert done(call, "train.csv", "--label", "kind", "--overwrite").endswith("--data test.csv\n")


def test_the_command_that_predicts_texts_keeps_their_id(call: Call) -> None:
    texts = [f"{word} number {i % 9} of some" for i, word in enumerate(np.resize(["good", "bad", "so"], 120))]
    frame = pd.DataFrame(
        {"review_id": range(5000, 5120), "stars": 3, "text": texts, "label": np.resize(["y", "n"], 120)}
    )
    frame.to_csv("x.csv", index=False)
    assert done(call, "x.csv", "--text", "text").endswith("--data NEW.csv --keep review_id\n")
    assert "# Left out: review_id (an id by its name), stars (not the text)." in Path("job.yaml").read_text()


@pytest.mark.parametrize("lags", [(), ("--lags", 2)])
def test_the_command_that_predicts_a_time_series_keeps_the_times(call: Call, lags: tuple[Any, ...]) -> None:
    SERIES.to_csv("x.csv", index=False)
    run, predict = done(call, "x.csv", "--target", "value", *lags).splitlines()[-2:]
    assert predict.endswith("--data NEW.csv --keep day")
    assert call(*run.split()[1:], "--set", "train_steps=2").exit_code == 0
    SERIES[-5:].to_csv("NEW.csv", index=False)
    result = call(*predict.split()[1:])
    assert result.exit_code == 0 and result.stdout.splitlines()[-1].startswith("4,2024-02-29,"), result.output
    # records that are not in the order of their times are no series
    SERIES.sample(frac=1, random_state=1).to_csv("x.csv", index=False)
    assert "--keep" not in done(call, "x.csv", "--target", "value", "--overwrite").splitlines()[-1]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("kind", "line 7, column 'kind': unknown category 'x'"),
        ("age", "line 7, column 'age': no value"),
        ("number", "test.csv: label 7. Expected labels from 0 to 2, as in train.csv."),
    ],
)
def test_a_test_set_that_a_run_would_refuse_is_refused(call: Call, column: str, said: str) -> None:
    table = FRAME.assign(kind=np.array(["a", "b", "c"])[KIND], number=KIND)
    table.to_csv("train.csv", index=False)
    table[column] = table[column].where(table.index != 5, {"kind": "x", "age": np.nan, "number": 7}[column])
    table[:9].to_csv("test.csv", index=False)
    label, other = ("number", "kind") if column == "number" else ("kind", "number")
    assert said in refused(call, "train.csv", "--label", label, "--drop", other)


@pytest.mark.parametrize("first", [None, "red"])
def test_json_lines_are_the_table_that_csv_is(call: Call, first: object) -> None:
    table = FRAME.assign(colour=[first, *np.array(["red", "green"])[KIND[1:] % 2]], kind=KIND)
    table.to_csv("x.csv", index=False)
    table.to_json("x.jsonl", orient="records", lines=True)
    said = [done(call, file, "--label", "kind", "--missing", "skip", "--overwrite") for file in ("x.csv", "x.jsonl")]
    conf = [{**each, **each.get("user_conf", {})} for each in stores()]
    assert said[0].splitlines()[1:3] == said[1].splitlines()[1:3]
    done(call, "x.csv", "--label", "kind", "--missing", "skip", "--overwrite")
    keys = ("features", "categories", "shape")
    assert [{key: each.get(key) for key in keys} for each in stores()] == [
        {k: each.get(k) for k in keys} for each in conf
    ]
    assert "target: fare, given" in done(call, "x.jsonl", "--target", "fare", "--missing", "skip", "--overwrite")


def test_numbers_of_16_bits_and_lists_of_several_lengths(call: Call) -> None:
    lists = {"vector": [[1.0, i] for i in range(N)], "lists": [[1.0] * (i % 3) for i in range(N)]}
    FRAME.assign(half=np.float16(np.arange(N) % 7), **lists, kind=KIND).to_parquet("x.parquet")
    said = done(call, "x.parquet", "--label", "kind")
    assert "features: 4 of numbers, 0 of categories: age, fare, half, vector\n" in said
    assert f"lists {N} lists of different lengths left out" in noted(said)


@pytest.mark.parametrize("option", ["--label", "--target", "--separator", "--test"])
def test_options_of_tables_are_refused_for_a_text(call: Call, option: str) -> None:
    Path("book").write_text("once upon a time\nthere was a fox, and a dog; it ran\n" * 40)
    assert f"book: read as a text, for which {option} is not" in refused(call, "book", option, "c")


# -- which column is the label -------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "numbered": KIND,
    "signs": np.where(KIND == 0, -1, 1),
    "thousands": np.where(KIND == 0, 1000, 2000),
    "ratings": 1 + np.arange(N) % 10,
    "texts": np.array(["cat", "dog", "elk"])[KIND],
    "booleans": KIND == 1,
    "floats": (KIND == 1).astype(float),
    "prices": RANDOM.normal(size=N),
}
NAMES = ("label", "Class", "y", "target", "species", "survived", "quality", "Outcome")
POSITIONS = ("first", "middle", "last")


def made(number: int) -> tuple[pd.DataFrame, str]:
    """Return a table with ids, features that look like labels, and its label."""
    kind, name = list(product(VALUES, NAMES))[number]
    table = FRAME.assign(deck=np.array(list("abc"))[np.arange(N) // 7 % 3], count=np.arange(N) // 5 % 4)
    if number % 4 == 0:
        table.insert(0, ("PassengerId", "Id", "Unnamed: 0", "customer_id")[number // 4 % 4], np.arange(N))
    if number % 5 == 0:
        table.insert(2, "class", np.array(["1st", "2nd"])[np.arange(N) // 3 % 2])
    position = POSITIONS[number % 3]
    table.insert({"first": 0, "middle": 2, "last": table.shape[1]}[position], name, VALUES[kind])
    return table, name


@pytest.mark.parametrize("number", range(len(VALUES) * len(NAMES)))
def test_the_right_label_or_a_question(call: Call, number: int) -> None:
    table, name = made(number)
    has_header = number % 6 != 5
    table.to_csv("x.csv", index=False, header=has_header)
    result = call("init", "x.csv")
    if result.exit_code:
        assert result.exit_code == 1
        assert "which column is the label?" in result.stderr or "classes, or numbers to predict?" in result.stderr
        assert has_header is False or f"\n  {name} (" in result.stderr or f"--label {name}" in result.stderr
        return
    found = stores()[0]
    chosen = found.get("label") or found.get("target") or [table.columns[0]]
    assert chosen == [name]
    assert not {"PassengerId", "Id", "Unnamed: 0", "customer_id"} & {*found.get("features", [])}


@pytest.mark.long
def test_most_telling_names_are_taken(call: Call) -> None:
    taken = 0
    for number in range(len(VALUES) * len(NAMES)):
        table, name = made(number)
        if name in NAMES[:4]:
            table.to_csv(f"{number}.csv", index=False)
            taken += not call("init", f"{number}.csv", "-o", f"{number}.yaml").exit_code
    assert taken > 20


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "diabetes", "linnerud"])
def test_tables_of_scikit_learn(call: Call, name: str) -> None:
    found = getattr(datasets, f"load_{name}")(as_frame=True)
    found.frame.to_csv("x.csv", index=False)
    if name == "linnerud":
        assert "Weight (column 4" in refused(call, "x.csv")
        done(call, "x.csv", *(f"--target={each}" for each in found.target_names))
        assert stores()[0]["target"] == found.target_names
        return
    said = done(call, "x.csv")
    key = "target" if name == "diabetes" else "label"
    assert (stores()[0][key], stores()[0]["shape"]) == (["target"], [found.data.shape[1]])
    counts = found.target.value_counts().sort_index()
    if key == "label":
        assert ", ".join(f"{k} {n} ({n / len(found.target):.0%})" for k, n in counts.items()) in said
    else:
        assert f"deviation {found.target.std(ddof=0):.6g}" in said


# -- what is said about the columns -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", mostly_long(["signs", "thousands", "ratings"], 3))
def test_whole_numbers_are_classes_by_name(call: Call, kind: str) -> None:
    FRAME.assign(grade=VALUES[kind]).to_csv("x.csv", index=False)
    done(call, "x.csv", "--label", "grade", "--copy")
    names = sorted(set(VALUES[kind].tolist()))
    assert stores()[0]["categories"] == {"grade": [str(each) for each in names]}
    assert f"innerproduct_conf: {{num_output: {len(names)}}}" in Path("job.yaml").read_text()
    assert call("run", "job.yaml", "--run-dir", "run", "--quiet", "--set", "train_steps=2").exit_code == 0
    predicted = call("predict", "job.yaml", "--init-from", "run", "--data", "job-data/test.csv")
    assert {row["class"] for row in csv.DictReader(io.StringIO(predicted.stdout))} <= {str(each) for each in names}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.arange(N) % 30, "are the 30 different numbers of 'y' classes, or numbers to predict? Pass --label y for"),
        (np.arange(N) % 3 / 2, "are the 3 different numbers of 'y' classes, or numbers to predict?"),
    ],
)
def test_classes_or_numbers(call: Call, values: Any, said: str) -> None:
    FRAME.assign(y=values).to_csv("x.csv", index=False)
    assert said in refused(call, "x.csv")
    done(call, "x.csv", "--label", "y")
    assert stores()[0]["label"] == ["y"]
    done(call, "x.csv", "--target", "y", "--overwrite")
    assert stores()[0]["target"] == ["y"]


def test_ids_constants_texts_dates_and_the_label_in_other_words_are_left_out(call: Call) -> None:
    table = FRAME.assign(
        number=np.arange(N) + 500,
        constant=1,
        name=[f"n{i}" for i in range(N)],
        day="2020-01-01",
        code=KIND + 7,
        empty=np.nan,
        label=np.array(["cat", "dog", "elk"])[KIND],
    )
    table.to_csv("x.csv", index=False)
    said = done(call, "x.csv")
    assert stores()[0]["features"] == ["age", "fare"]
    dates = "dates: to learn from their parts, set the key dates of the job"
    assert noted(said)[1:] == [
        f"number {N} numbers the records left out",
        f"constant {N} constant left out",
        f"name {N} texts, different in each record left out",
        f"day {N} {dates} left out",
        f"code {N} is label in other words left out",
        "empty 0 no values left out",
    ]
    done(call, "x.csv", "--features", "age,number", "--overwrite")
    assert stores()[0]["features"] == ["age", "number"]
    done(call, "x.csv", "--drop", "f*", "--overwrite")
    assert stores()[0]["features"] == ["age"]


def test_a_header_that_is_none(call: Call) -> None:
    # the first flower of the file of UCI would name the columns
    frame = datasets.load_iris(as_frame=True).data
    flowers = frame.assign(kind=np.repeat(["Iris-setosa", "Iris-versicolor", "Iris-virginica"], 50))
    flowers.to_csv("iris.data", index=False, header=False)
    assert "Its columns have no names. Pass --label first, --label last" in refused(call, "iris.data")
    said = done(call, "iris.data", "--label", "last")
    assert said.startswith("iris.data: 150 data records of 4 values in 3 classes\n")
    assert stores()[0] | {"header": False, "label": ["5"], "features": ["1", "2", "3", "4"]} == stores()[0]
    pd.DataFrame(RANDOM.normal(size=(N, 3))).to_csv("numbered.csv", index=False)
    said = call("init", "numbered.csv", "--overwrite", "--label", "last").stderr
    assert "does its first line name the columns? It has 0, 1, 2. Pass --header if it does, or --no-header." in said
    done(call, "numbered.csv", "--overwrite", "--target", "2", "--header")
    assert stores()[0]["features"] == ["0", "1"]


@pytest.mark.long
def test_the_label_last_without_a_header(call: Call) -> None:
    FRAME.assign(kind=(FRAME["fare"] > 20).astype(int)).to_csv("x.csv", index=False, header=False)
    assert "Pass --label first, --label last" in refused(call, "x.csv")
    done(call, "x.csv", "--label", "last")
    ran = call("run", "job.yaml", "--run-dir", "run", "--quiet", "--json", "--set", "train_steps=400")
    assert json.loads(ran.stdout)["test"]["accuracy"] > 0.9, ran.output
    FRAME.to_csv("new.csv", index=False, header=False)
    predicted = call("predict", "job.yaml", "--init-from", "run", "--data", "new.csv")
    found = [int(row["class"]) for row in csv.DictReader(io.StringIO(predicted.stdout))]
    assert np.mean(found == (FRAME["fare"] > 20)) > 0.9


def reviews() -> pd.DataFrame:
    """Return 200 sentences of two classes; no two are equal."""
    words = [("dull", "boring", "awful"), ("great", "lovely", "superb")]
    said = [f"The {('film', 'plot', 'cast')[i % 3]} was {words[i % 2][i // 6 % 3]}, no {i}" for i in range(200)]
    return pd.DataFrame(
        {"text": said, "year": 2000 + np.arange(200) // 9, "label": np.array(["bad", "good"])[[0, 1] * 100]}
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", pytest.param("jsonl", marks=pytest.mark.long)])
def test_texts(call: Call, suffix: str) -> None:
    table, file = reviews(), f"x.{suffix}"
    write = {"csv": lambda frame, to: frame.to_csv(to, index=False), "parquet": pd.DataFrame.to_parquet}
    write |= {"feather": pd.DataFrame.to_feather}
    write |= {"jsonl": lambda frame, to: frame.to_json(to, orient="records", lines=True)}
    write[suffix](table, file)
    said = done(call, file, "--text", "text")
    # seven words and marks in each; all of them but the numbers repeat
    distinct = {word for text in table["text"] for word in text.lower().replace(",", " , ").split()}
    assert f"text: text. {len(distinct)} different words; of a text 7 (median) to 7" in said
    n_repeated = len(distinct) - 200
    assert stores()[0]["texts"] == {"text": {"length": 7, "vocab_size": n_repeated + 1, "lowercase": True}}
    if suffix in ("csv", "feather"):
        return
    steps = ["--set", "train_steps=100", "--set", "updater.learning_rate.base_lr=0.01"]
    ran = call("run", "job.yaml", "--run-dir", "run", "--quiet", "--json", *steps)
    assert json.loads(ran.stdout)["test"]["accuracy"] > 0.95, ran.output
    # raw texts of another form, with words that were never seen
    new = pd.DataFrame({"text": ["Awful cast, sadly", "what a lovely film", "superb"]})
    other = "jsonl" if suffix == "parquet" else "csv"
    write[other](new, f"new.{other}")
    predicted = call("predict", "job.yaml", "--init-from", "run", "--data", f"new.{other}")
    assert [row["class"] for row in csv.DictReader(io.StringIO(predicted.stdout))] == ["bad", "good", "good"]


@pytest.mark.parametrize("data", ["x.jsonl", "*.jsonl"])
def test_json_lines_take_the_options_of_tables(call: Call, data: str) -> None:
    table = FRAME.assign(kind=np.array(["a", "b", "c"])[KIND])
    table.loc[3, "age"] = None
    table.to_json("x.jsonl", orient="records", lines=True)
    said = done(call, data, "--label", "kind", "--missing", "mean", "--drop", "fare")
    assert "features: 1 of numbers, 0 of categories: age" in said
    assert stores()[0]["missing"] == "mean"


@pytest.mark.parametrize("n", [11, 38, 59, 219])
def test_two_workers_can_share_the_batches(call: Call, n: int) -> None:
    pd.DataFrame({"a": RANDOM.normal(size=n), "kind": np.arange(n) % 2}).to_csv("x.csv", index=False)
    done(call, "x.csv", "--label", "kind")
    checked = call("validate", "job.yaml", "--cluster", "allreduce")
    assert checked.exit_code == 0, checked.output


SPOKEN = {
    "Chinese": (
        lambda i: f"我们{'买看吃'[i % 3]}了，{'很好' if i % 2 else '很差'}。{'一二三四五'[i % 5]}次！",
        "我们，很好。",
    ),
    "Thai": (lambda i: f"{'ร้าน' * (1 + i % 3)}{'ดีมาก' if i % 2 else 'แย่มาก'}{'ค่ะ' * (i % 4)}", "ร้านดีมาก"),
    "names": (lambda i: f"{'bcdfgh'[i % 6]}{'aeiou'[i % 5]}{'lmnr'[i // 7 % 4]}{'ia' if i % 2 else 'us'}", "Lilia"),
}


@pytest.mark.parametrize(("said", "good"), SPOKEN.values(), ids=list(SPOKEN))
def test_texts_without_blanks_between_words(call: Call, said: Callable[[int], str], good: str) -> None:
    table = pd.DataFrame({"text": list(map(said, range(120))), "label": ["bad", "good"] * 60})
    table.to_csv("x.csv", index=False)
    assert re.search(r"text: text\. \d+ different characters; of a text", done(call, "x.csv", "--text", "text"))
    assert stores()[0]["texts"]["text"]["tokens"] == "characters"
    assert "A recurrent net of characters" in Path("job.yaml").read_text()
    sets = ["--set", "train_steps=60", "--set", "updater.learning_rate.base_lr=0.01"]
    ran = call("run", "job.yaml", "--run-dir", "run", "--quiet", "--json", *sets)
    assert json.loads(ran.stdout)["test"]["accuracy"] > 0.9, ran.output
    pd.DataFrame({"text": [good]}).to_csv("new.csv", index=False)
    assert ",good," in call("predict", "job.yaml", "--init-from", "run", "--data", "new.csv").stdout


@pytest.mark.parametrize("url", ["reviews", "reviews/train", "reviews/train/*/*.txt"])
def test_texts_in_folders_become_a_table_by_the_command_that_is_named(call: Call, url: str) -> None:
    for i, (text, label) in enumerate(reviews()[["text", "label"]].itertuples(index=False)):
        file = Path("reviews/train", label, f"{i}.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    said = refused(call, url)
    command = said.partition("pass --text text: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert "label: label, by its name. 2 classes: bad 100 (50%), good 100 (50%)" in done(
        call, "texts.jsonl", "--text", "text"
    )


@pytest.mark.parametrize("url", ["books", "books/*.txt"])
def test_several_texts_become_one_by_the_command_that_is_named(call: Call, url: str) -> None:
    Path("books").mkdir()
    for i in range(3):
        Path(f"books/{i}.txt").write_text("To be, or not to be.\n" * 200)
    subprocess.run(refused(call, url).partition("Join them: ")[2], shell=True, check=True)
    assert "all.txt: 12600 characters" in done(call, "all.txt")


def test_texts_are_not_guessed(call: Call) -> None:
    table = reviews().drop(columns="year")
    table.to_csv("x.csv", index=False)
    table.to_json("x.jsonl", orient="records", lines=True)
    for file in ("x.csv", "x.jsonl"):
        assert "is 'text' a column of texts, to learn from their words?" in (said := refused(call, file))
        assert said.endswith("Pass --text text to learn from its words.\n")
    table.assign(text=table["text"].str.partition(",")[0]).to_csv("x.csv", index=False)
    assert "or --category text if its 18 different values are categories" in refused(call, "x.csv")
    done(call, "x.csv", "--category", "text")
    assert len(stores()[0]["categories"]["text"]) == 18
    plans = ["month to month", "one year only", "two whole years"]
    pd.DataFrame({"plan": plans * 100, "label": [0, 1, 1] * 100}).to_csv("plans.csv", index=False)
    done(call, "plans.csv", "--overwrite")
    assert stores()[0]["categories"] == {"plan": plans}
    result = call("init", "x.csv", "--text", "text", "--features", "text", "--overwrite")
    assert "Expected a column of strings, one label" in result.stderr
    result = call("init", "x.csv", "--text", "text", "--net", "mlp", "--overwrite")
    assert "--net word-rnn is for a column of texts" in result.stderr
    table.assign(text=[None, *table["text"][1:]]).to_csv("x.csv", index=False)
    done(call, "x.csv", "--text", "text", "--overwrite")
    assert stores()[0]["missing"] == "skip"


def test_inspect_measures_texts(call: Call) -> None:
    table = reviews()
    table.to_csv("x.csv", index=False)
    table.drop(columns="year").to_json("x.jsonl", orient="records", lines=True)
    for file in ("x.csv", "x.jsonl"):
        facts = json.loads(call("data", "inspect", file, "--json").stdout)
        wanted = {"median": 7, "longest": 7, "length": 7, "distinct": 213, "vocab_size": 14, "tokens": "words"}
        assert facts["texts"] == {"text": wanted}
    assert "texts: {text: {length: 7, vocab_size: 14, lowercase: true}}" in " ".join(
        call("data", "inspect", "x.csv").stdout.split()
    )


SERIES = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=60), "wind": RANDOM.normal(size=60)})
SERIES["value"] = SERIES["wind"].cumsum()


@pytest.mark.parametrize("file", ["x.csv", "x.parquet"])
def test_a_time_series(call: Call, file: str) -> None:
    getattr(SERIES, f"to_{file[2:]}")(file, index=False)
    said = done(call, file, "--target", "value", "--lags", 2, "--copy")
    assert "features: 3 of numbers, 0 of categories: wind, value_lag1, value_lag2" in said
    assert "the last 12 by day" in said
    expected = SERIES.assign(value_lag1=SERIES["value"].shift(1), value_lag2=SERIES["value"].shift(2))[2:]
    written = [pd.read_parquet(f"job-data/{name}.parquet") for name in ("train", "test")]
    assert [len(each) for each in written] == [46, 12]
    pd.testing.assert_frame_equal(pd.concat(written)[expected.columns[1:]].reset_index(drop=True),
                                  expected.iloc[:, 1:].reset_index(drop=True))  # fmt: skip


def test_clocks_that_change_and_a_gap(call: Call) -> None:
    """An hour that comes twice has two offsets from UTC; hours without records are said."""
    hours = pd.date_range("2023-10-28", periods=66, freq="h", tz="Europe/Berlin")[[*range(30), *range(36, 66)]]
    for form in ("%Y-%m-%dT%H:%M:%S%z", "%d.%m.%Y %H:%M %z"):
        SERIES.drop(columns="day").assign(time=hours.strftime(form)).to_csv("x.csv", index=False)
        said = done(call, "x.csv", "--target", "value", "--lags", 2, "--overwrite")
        assert "the last 12 by time" in said
        gap = r"time +1 +gaps of up to 7:00:00; most steps are 1:00:00 +lags count records, not time"
        assert re.search(gap, said), said
    SERIES.to_csv("x.csv", index=False)
    assert "gaps" not in done(call, "x.csv", "--target", "value", "--lags", 2, "--overwrite")


FORMS = ["%Y-%m-%d %H:%M", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%y", "%m/%d/%Y %I:%M %p"]


@pytest.mark.parametrize("form", [*FORMS, "s", "ms"])
def test_the_order_of_dates_of_any_form(call: Call, form: str) -> None:
    """Those with a `/` and less than a month have two readings."""
    days = pd.Series(pd.date_range("2024-01-25", periods=60, freq="D" if form[-1] in "Yy" else "7h"))
    texts = days.dt.strftime(form) if form in FORMS else days.astype(f"datetime64[{form}]").astype(int)
    table = SERIES.drop(columns="day").assign(time=texts)
    table.to_json("x.json", orient="records")
    table.to_csv("x.csv", index=False)
    for file in ("x.json", "x.csv"):
        assert "the last 12 by time" in done(call, file, "--target", "value", "--lags", 2, "--overwrite")
    Path("job.yaml").unlink()
    table.iloc[::-1].to_csv("x.csv", index=False)
    lags = ("x.csv", "--target", "value", "--lags", 2)
    said = "its records are not in the order of time. Sort them by time, or pass --drop time if their order is right."
    assert said in refused(call, *lags)
    pd.concat([table, table]).sort_index().to_csv("x.csv", index=False)
    said = f"several records have one time, such as {texts[0]}. Write a table for each series"
    assert said in refused(call, *lags)
    assert "warning: no column of dates: the records are read as one series" in done(call, *lags, "--drop", "time")


def test_no_time_series(call: Call) -> None:
    SERIES.iloc[::-1].to_parquet("x.parquet", index=False)
    lags = ("x.parquet", "--target", "value", "--lags")
    assert "its records are not in the order of day. Sort them by day, or" in refused(call, *lags, 2)
    SERIES.assign(value_lag1=0).to_parquet("x.parquet", index=False)
    assert "it has a column 'value_lag1' already" in refused(call, *lags, 2)
    assert "it has 60 records. Expected more" in refused(call, *lags, 60)
    SERIES.to_parquet("x.parquet", index=False)
    assert "expected more records, no --test, and a share" in refused(call, *lags, 55)
    assert "expected --target NAME, or --label NAME" in refused(call, "x.parquet", "--lags", 2)


@pytest.mark.long
def test_several_labels_and_targets(call: Call) -> None:
    table = FRAME.assign(kind=VALUES["texts"], sign=VALUES["signs"], big=FRAME["age"] * 1e4, small=FRAME["fare"] / 1e4)
    table.to_csv("x.csv", index=False)
    done(call, "x.csv", "--label", "kind", "--label", "sign", "--drop", "big,small")
    assert stores()[0]["categories"] == {"kind": ["cat", "dog", "elk"], "sign": ["-1", "1"]}
    assert call("run", "job.yaml", "--quiet", "--set", "train_steps=2").exit_code == 0
    done(call, "x.csv", "--target", "big", "--target", "small", "--drop", "kind,sign", "--copy", "--overwrite")
    assert call("run", "job.yaml", "--run-dir", "run", "--quiet", "--set", "train_steps=400").exit_code == 0
    predicted = call("predict", "job.yaml", "--init-from", "run", "--data", "job-data/test.csv")
    rows, truth = pd.read_csv(io.StringIO(predicted.stdout)), pd.read_csv("job-data/test.csv")
    for name in ("big", "small"):
        assert ((rows[name] - truth[name]) ** 2).mean() < 0.1 * truth[name].var(), name


# -- how it is read ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_other_encodings_and_forms(call: Call) -> None:
    table = FRAME.rename(columns={"fare": "größe"}).assign(art=np.array(["rot", "grün", "blau"])[KIND])
    table.to_csv("latin.csv", index=False, sep=";", encoding="latin-1")
    assert "not UTF-8" in (said := refused(call, "latin.csv", "--label", "art"))
    assert "Or give --encoding, such as latin-1" in said
    done(call, "latin.csv", "--label", "art", "--encoding", "latin-1")
    assert stores()[0] | {"charset": "latin-1", "separator": ";", "features": ["age", "größe"]} == stores()[0]
    ran = call("run", "job.yaml", "--run-dir", "run", "--quiet", "--set", "train_steps=2")
    assert ran.exit_code == 0, ran.output
    predicted = call("predict", "job.yaml", "--init-from", "run", "--data", "latin.csv").stdout
    table.to_json("x.json", orient="records")
    Path("x.csv.gz").write_bytes(gzip.compress(table.to_csv(index=False).encode()))
    table.to_parquet("x.parquet")
    for form in ("x.json", "x.csv.gz", "x.parquet"):
        done(call, form, "--label", "art", "--overwrite")
        assert stores()[0]["features"] == ["age", "größe"]
        ran = call("run", "job.yaml", "--run-dir", "run", "--quiet", "--overwrite", "--set", "train_steps=2")
        assert ran.exit_code == 0, ran.output
        # the same net, and the same records
        assert call("predict", "job.yaml", "--init-from", "run", "--data", form).stdout == predicted


@pytest.mark.parametrize(
    ("separator", "given", "missing", "wanted"),
    [("|", [], "", "mean"), ("\t", [], "skip", "skip"), ("#", ["--separator", "#"], "0", 0.0)],
)
def test_separators_and_missing_values(
    call: Call, separator: str, given: list[str], missing: str, wanted: str | float
) -> None:
    table = FRAME.assign(label=VALUES["texts"])
    table.loc[7, "age"] = np.nan
    table.to_csv("x.csv", index=False, sep=separator)
    done(call, "x.csv", *given, *(["--missing", missing] if missing else []))
    assert (stores()[0]["features"], stores()[0]["missing"]) == (["age", "fare"], wanted)
    ran = call("run", "job.yaml", "--quiet", "--set", "train_steps=2")
    assert ran.exit_code == 0, ran.output


@pytest.mark.long
def test_sheets_of_excel(call: Call) -> None:
    pytest.importorskip("openpyxl")
    FRAME.assign(kind=VALUES["texts"]).to_excel("x.xlsx", index=False)
    done(call, "x.xlsx", "--label", "kind")
    assert call("run", "job.yaml", "--run-dir", "run", "--quiet", "--set", "train_steps=2").exit_code == 0
    predicted = call("predict", "job.yaml", "--init-from", "run", "--data", "x.xlsx")
    assert len(predicted.stdout.splitlines()) == N + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,a,label\n1,2,0\n3,4,1\n", "x.csv, line 1: column 'a' occurs twice. Rename one."),
        ("a,b,label\n1,2,0\n3,1\n3,4,1\n", "x.csv, line 3: 2 fields, expected 3, as in the header."),
        (
            "a,b,label\n1,2,0\n3,4,1\n5,n.a.,1\n6,7,0\n",
            "x.csv: column 'b': most values are numbers, but not 'n.a.' (1, ",
        ),
        ("a,b,label\n1,2,0\n3,4,0\n", "x.csv: column 'label' has only one value, '0'. Expected at least two."),
        ("a,b,label\n1,2,\n3,4,\n", "x.csv: column 'label' has no values. Expected at least two."),
        (
            "a,b,label\n1,2,2024-01-31\n3,4,2024-02-29\n",
            "x.csv: column 'label' has values of kind date. Expected classes, or numbers, in a column that you make",
        ),
        (
            "a,b,label\n" + "1,2,0\n3,4,01\n5,6,1\n" * 5,
            "x.csv: column 'label': 0, 01, 1, which are 2 different numbers.",
        ),
    ],
)
def test_the_true_reason(call: Call, text: str, said: str) -> None:
    Path("x.csv").write_text(text)
    assert refused(call, "x.csv").startswith(said)


# -- the test set --------------------------------------------------------------------------------------------


def test_a_test_set_of_each_class(call: Call) -> None:
    kinds = np.array(["a"] * 70 + ["b"] * 48 + ["c"] + [""])
    table = FRAME.assign(kind=RANDOM.permutation(kinds))
    table.to_csv("x.csv", index=False)
    copies = ("--label", "kind", "--test-split", "0.25", "--seed", "7", "--copy")
    said = done(call, "x.csv", *copies)
    train, test = (pd.read_csv(f"job-data/{part}.csv") for part in ("train", "test"))
    assert test["kind"].value_counts().to_dict() == {"a": 18, "b": 12}
    assert train["kind"].value_counts().to_dict() == {"a": 52, "b": 36, "c": 1}
    both = pd.concat([train, test]).sort_values(["age", "fare"], ignore_index=True)
    whole = table[table["kind"] != ""].sort_values(["age", "fare"], ignore_index=True)
    pd.testing.assert_frame_equal(both, whole)
    assert [store["path"] for store in stores()] == ["job-data/train.csv", "job-data/test.csv"]
    assert "job-data/test.csv: 30 at random, as many of each class, seed 7; the others in job-data/train.csv" in said
    assert "kind 1 no value record left out" in noted(said)
    assert "features: 2 of numbers, 0 of categories: age, fare\n" in said
    again = Path("job-data/test.csv").read_bytes()
    done(call, "x.csv", *copies, "--overwrite")
    assert Path("job-data/test.csv").read_bytes() == again


def test_records_in_order_of_time_are_split_by_it(call: Call) -> None:
    FRAME.assign(day=pd.date_range("2020-01-01", periods=N).astype(str), target=FRAME["age"]).to_csv(
        "x.csv", index=False
    )
    assert "job-data/test.csv: the last 24 by day; the others" in done(call, "x.csv", "--copy")
    assert pd.read_csv("job-data/train.csv")["day"].max() < pd.read_csv("job-data/test.csv")["day"].min()
    days = pd.date_range("2020-01-01", periods=N).astype(str)
    # a class that comes late is learned, too
    FRAME.assign(day=days, label=["a", "b"] * 55 + ["c"] * 10).to_csv("late.csv", index=False)
    assert "job-data/test.csv: 24 at random, as many of each class" in done(call, "late.csv", "--copy", "--overwrite")
    done(call, "x.csv", "--test-split", "0", "--overwrite")
    assert stores()[0]["path"] == "x.csv"
    assert "There is no test set" in Path("job.yaml").read_text()


def test_what_is_no_part_of_a_value_is_said(call: Call) -> None:
    """Words for missing values, blanks, and classes that differ by a full stop, as in the files of Adult."""
    rows = [(i % 7, ["Private", "?", "State-gov"][i % 3], ["<=50K", ">50K", ">50K."][i % 5 % 3]) for i in range(N)]
    lines = [f"{'NA' if i < 5 else age},0{i % 4}1, {work}, {income}" for i, (age, work, income) in enumerate(rows)]
    Path("adult.csv").write_text("\n".join(["age,zip, work, income", *lines]))
    said = done(call, "adult.csv", "--label", "income", "-o", "job.yaml")
    assert noted(said)[1:] == [
        "age 5 no value: 'NA' (5) the mean of the training data",
        "work 40 no value: '?' (40) category ''",
        f"income {N} blanks around values no part of them",
        f"work {N} blanks around values no part of them",
        f"zip {N} numbers with leading zeros lost; --category zip keeps codes",
    ]
    assert "warning: income: '>50K' and '>50K.' are different classes.\n" in said
    assert stores()[0]["categories"]["work"] == ["", "Private", "State-gov"]


def test_a_class_that_is_called_like_a_missing_value(call: Call) -> None:
    """``NA`` is a missing label until ``--classes`` names it; the job then reads as many of it as pandas counts."""
    risk = pd.Series(["NA", "low", "high", "low"] * (N // 4))
    FRAME[: len(risk)].assign(risk=risk).to_csv("x.csv", index=False)
    said = done(call, "x.csv", "--label", "risk", "-o", "job.yaml")
    assert f"risk {N // 4} no value: 'NA' ({N // 4}) record left out; --classes can name it" in noted(said)
    said = done(call, "x.csv", "--label", "risk", "--classes", "low,NA,high", "--overwrite")
    assert "3 classes: low 60 (50%), NA 30 (25%), high 30 (25%)" in said and "risk" not in " ".join(noted(said))
    options = stores()[0] | {"split": None}
    with TableStore(**{key: options[key] for key in ("features", "label", "categories")}, url="x.csv") as store:
        labels = np.concatenate([store.read_block(each.id)["label"] for each in store.blocks])
    assert np.bincount(labels).tolist() == [60, 30, 30]


def test_amounts_given_as_a_label(call: Call) -> None:
    amounts = [f"${1000 + i * 7:,}.50" for i in range(len(FRAME))]
    FRAME.assign(cost=["none so far", *amounts[1:]]).to_csv("x.csv", index=False)
    assert "Expected classes, which repeat. Pass --target cost to predict them as numbers." in refused(
        call, "x.csv", "--label", "cost", "-o", "job.yaml"
    )


def test_integers_that_are_equal_as_float64_are_constant_in_each_format(call: Call) -> None:
    frame = FRAME.assign(big=2**60 + np.arange(len(FRAME)) % 9, small=2**40 + np.arange(len(FRAME)) % 9)
    frame.to_csv("x.csv", index=False)
    frame.to_parquet("x.parquet")
    frame.to_json("x.jsonl", orient="records", lines=True)
    for data in ("x.csv", "x.parquet", "x.jsonl"):
        said = done(call, data, "--target", "age", "-o", "job.yaml", "--overwrite")
        assert f"big {len(frame)} constant left out" in noted(said)
        assert "\nfeatures: 2 of numbers, 0 of categories: fare, small\n" in said


def test_lone_quotes_of_texts(call: Call) -> None:
    texts = [f"{'quote ' * (i % 3)}some words {i % 7}" for i in range(N)]
    texts[30], texts[60] = f'"{texts[30]}', f'{texts[60]}"'
    Path("texts.tsv").write_text("".join(["text\ty\n", *(f"{text}\t{'ab'[i % 2]}\n" for i, text in enumerate(texts))]))
    said = refused(call, "texts.tsv", "--text", "text", "--label", "y", "-o", "job.yaml")
    assert (
        "line 32: a quote that begins here ends on a later line, and each line between could be a record. Pass "
        "--no-quotes if" in said
    )
    assert said.endswith("here, --quotes if they quote texts of several lines.\n")
    said = done(call, "texts.tsv", "--text", "text", "--label", "y", "--no-quotes", "-o", "job.yaml", "--copy")
    assert f"{N} tsv records" in said
    assert stores()[0]["quotes"] is False
    parts = [Path(f"job-data/{name}.csv").read_text().split("\n")[1:-1] for name in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == sorted(Path("texts.tsv").read_text().split("\n")[1:-1])


def test_a_test_set_of_other_classes_is_refused_before_a_job_is_written(call: Call) -> None:
    """As in Adult, whose test set has a full stop behind each class."""
    FRAME.assign(income=np.array(["<=50K", ">50K", ">50K"])[KIND]).to_csv("train.csv", index=False)
    FRAME.assign(income=np.array(["<=50K.", ">50K.", ">50K."])[KIND]).to_csv("test.csv", index=False)
    said = refused(call, "train.csv", "--label", "income", "-o", "job.yaml")
    assert "test.csv, line 2, column 'income': unknown category '<=50K.'. Expected a known one:" in said


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_of_codes_is_read_as_categories_by_all_layers(call: Call, suffix: str) -> None:
    codes = [["01234", "02345", "10234"][i % 3] for i in range(N)]
    frame = pd.DataFrame({"zip": codes, "code": [i % 4 + 3.0 for i in range(N)], "x": range(N)})
    frame["kind"] = [["a", "b"][i % 2] for i in range(N)]
    frame.loc[5, "code"] = None
    frame["code"] = frame["code"].astype("Int64")
    frame["x"] = frame["x"] * 0.5
    frame.to_csv("x.csv", index=False) if suffix == "csv" else frame.to_parquet("x.parquet")
    options = ("--label", "kind", "--category", "zip", "--category", "code", "--overwrite")
    result = call("init", f"x.{suffix}", *options)
    assert result.exit_code == 0, result.stderr
    assert "leading zeros" not in result.stderr
    text = Path("job.yaml").read_text()
    categories = '{"zip": ["01234", "02345", "10234"], "code": ["", "3", "4", "5", "6"]}'
    assert text.count(f"categories: {categories}") == text.count("shape: [9]") == 2
    result = call("run", "job.yaml", "--run-dir", "codes", "--set", "train_steps=2")
    assert result.exit_code == 0, result.stderr
    refused = call("init", f"x.{suffix}", "--label", "kind", "--category", "x", "--overwrite")
    assert refused.exit_code == 1 and "--category x: all values are different" in refused.stderr
