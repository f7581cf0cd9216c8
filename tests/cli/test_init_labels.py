"""``init`` takes no field for the label that may be something else, and says which features are like ids."""

from __future__ import annotations

import gzip
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_class_weight

from singa_dask.conf import load
from singa_dask.inputs.store_conf import StoreConf
from tests.cli.conftest import Call, noted

N = 60
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RANDOM.normal(size=N), "b": RANDOM.normal(size=N)})
KIND = np.arange(N) % 3


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def frame(**columns: Any) -> pd.DataFrame:
    """Return the columns, with a and b behind the first one."""
    found = FRAME.assign(**columns)
    first = next(iter(columns))
    return found[[first, "a", "b", *(name for name in columns if name != first)]]


def store() -> dict[str, Any]:
    conf = load("job.yaml").job.neuralnet.layer[0].given_block(StoreConf)
    assert conf is not None
    return conf.model_dump(exclude_defaults=True)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("last", ["survived", "quality"])
def test_an_id_is_not_the_label(call: Call, suffix: str, last: str) -> None:
    table = frame(PassengerId=np.arange(1, N + 1), **{last: KIND})
    if suffix == "csv":
        table.to_csv("x.csv", index=False)
    else:
        table.to_parquet("x.parquet")
    result = call("init", f"x.{suffix}")
    assert result.exit_code == 1
    said = "which column is the label? Pass --label NAME for classes, or --target NAME for numbers to predict."
    assert result.stderr.startswith(f"x.{suffix}: {said}")
    assert f"\n  {last} (column 4, 3 different: 0, 1, 2)\n" in result.stderr
    assert "PassengerId" not in result.stderr
    result = call("init", f"x.{suffix}", "--label", last)
    assert result.exit_code == 0, result.output
    assert (store()["label"], store()["features"]) == ([last], ["a", "b"])
    assert f"PassengerId {N} an id by its name left out" in noted(result.stderr)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_whole_numbers_of_classes_with_gaps(call: Call, suffix: str) -> None:
    """Pandas has them as floats, and writes 1.0 to CSV."""
    table = frame(quality=[{0: None, 1: 1, 2: 2}[kind] for kind in KIND])
    table.to_csv("x.csv", index=False)
    table.to_parquet("x.parquet")
    result = call("init", f"x.{suffix}", "--label", "quality")
    assert "label: quality, given. 2 classes: 1 20 (50%), 2 20 (50%)\n" in result.output
    assert store()["categories"] == {"quality": ["1", "2"]}
    result = call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=1")
    assert result.exit_code == 0, result.output


def test_many_whole_numbers_are_classes_if_they_repeat_often(call: Call) -> None:
    n = 2020
    table = pd.DataFrame({"a": RANDOM.normal(size=n), "shop": np.arange(n) % 101, "sold": np.arange(n) % 102})
    table.assign(price=np.arange(n) % 2000).to_csv("x.csv", index=False)
    table.head(510).to_csv("short.csv", index=False)
    assert "label: shop, given. 101 classes: 0 20 (1%), 1 20 (1%)" in call("init", "x.csv", "--label", "shop").output
    result = call("init", "x.csv", "--label", "sold", "--overwrite")
    found = "column 'sold' has 102 different numbers in 2020 records. Expected classes, which repeat."
    remedy = "Pass --target sold to predict numbers, or --label sold --category sold for classes."
    assert (result.exit_code, result.stderr) == (1, f"x.csv: {found} {remedy}\n")
    result = call("init", "short.csv", "--label", "sold", "--category", "sold", "--overwrite")
    assert "label: sold, given. 102 classes: 0 5 (1%)" in result.output
    # most occur once
    said = "target: price, given; 2000 different numbers are predicted as such."
    assert said in call("init", "x.csv", "--label", "price", "--overwrite").output


@pytest.mark.parametrize(
    ("n_yes", "n_maybe", "metric"), [(24, 0, "roc_auc"), (150, 0, "roc_auc"), (150, 100, ""), (24, 24, "roc_auc_ovr")]
)
def test_two_classes_and_rare_ones_are_judged_by_how_records_are_ranked(
    call: Call, n_yes: int, n_maybe: int, metric: str
) -> None:
    kinds = np.repeat(["no", "yes", "maybe"], [400 - n_yes - n_maybe, n_yes, n_maybe])
    pd.DataFrame({"a": np.random.default_rng(1).normal(size=400), "kind": kinds}).to_csv("x.csv", index=False)
    said = call("init", "x.csv", "--label", "kind").output
    assert f"metrics: [balanced_accuracy, f1_macro{', ' * bool(metric)}{metric}]\n" in Path("job.yaml").read_text()
    assert (f", with {metric} 0." in said) == bool(metric)
    result = call("run", "job.yaml", "--set", "train_steps=2") if metric else None
    assert result is None or f"{metric} = " in result.output


def test_weights_of_rare_classes_are_proposed_and_alike_names_are_told(call: Call) -> None:
    kinds = np.where(np.arange(400) % 20 == 0, "fraud", "calm")
    kinds[1:11] = "Calm"
    random = np.random.default_rng(1)
    sizes = np.resize(["Large", "small", "LARGE", "very  small", "Very small"], 400)
    pd.DataFrame({"a": random.normal(size=400), "size": sizes, "kind": kinds}).to_csv("x.csv", index=False)
    said = call("init", "x.csv", "--label", "kind", "--na-values", "-999,?").output
    assert "kind: 'Calm' and 'calm' are different classes" in said
    assert "size: 'LARGE' and 'Large', 'Very small' and 'very  small' are different categories" in said
    assert "--na-values: no column has the value '-999'" in said
    # by scikit-learn, beside the largest class; the classes are in the order of their names
    balanced = compute_class_weight("balanced", classes=np.unique(kinds), y=kinds)
    weights = ", ".join(f"{each / balanced.min():.3g}" for each in balanced)
    assert f"softmaxloss_conf: {{class_weights: [{weights}]}}" in Path("job.yaml").read_text()


def test_it_asks_on_a_terminal(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))

    def prompt(text: str, type: Any, err: bool) -> int:
        asked.append((text, type.max))
        return 3

    def confirm(text: str, default: bool, err: bool) -> bool:
        asked.append((text, default))
        return True

    frame(id=np.arange(N), kind=KIND).to_csv("x.csv", index=False)
    # the command has the name of its module
    monkeypatch.setattr(sys.modules["singa_dask.cli.init.command"], "sys", terminal)
    monkeypatch.setattr("click.prompt", prompt)
    monkeypatch.setattr("click.confirm", confirm)
    result = call("init", "x.csv")
    assert result.exit_code == 0, result.output
    assert "\n  3  kind (column 4, 3 different: 0, 1, 2)\n" in result.stderr
    assert asked == [("Which column is the label? Number", 3), ("Write job.yaml?", True)]
    assert store()["label"] == ["kind"]
    assert "--label=kind" in Path("job.yaml").read_text()


def test_numbers_without_names(call: Call) -> None:
    FRAME.round().astype(int).assign(kind=KIND).to_csv("x.csv", index=False, header=False)
    result = call("init", "x.csv")
    assert result.exit_code == 1
    said = "x.csv: which column is the label? Its columns have no names. Pass --label first, --label last or the"
    assert result.stderr.startswith(said)
    FRAME.assign(kind=KIND).to_csv("x.csv", index=False, header=False)
    assert call("init", "x.csv").stderr.startswith(said)
    assert not Path("job.yaml").exists()
    FRAME.assign(kind=KIND - 29).to_csv("x.csv", index=False, header=False)
    assert call("init", "x.csv").stderr.startswith(said)
    assert call("init", "x.csv", "--label", "last").exit_code == 0
    assert store()["categories"] == {"3": ["-29", "-28", "-27"]}


POSITIONS = (
    (["--target", "sales"], ["--target", "5"]),
    (["--target", "sales"], ["--target", "sales", "--target", "last"]),
    (["--target", "sales", "--lags", 3], ["--target", "last", "--lags", 3]),
    (
        ["--target", "sales", "--lags", 3, "--drop", "day,sales_lag1"],
        ["--target", "s*", "--lags", 3, "--drop", "first,*1"],
    ),
    (["--label", "place", "--text", "note"], ["--label", "2", "--text", "3"]),
    (["--label", "place", "--classes", "NA,x,y"], ["--label", "2", "--classes", "NA,x,y"]),
    (["--target", "sales", "--split-by", "day"], ["--target", "last", "--split-by", "d*"]),
    (["--label", "place", "--category", "temp"], ["--label", "2", "--category", "4"]),
)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_positions_and_patterns_are_columns_of_the_table(call: Call, suffix: str) -> None:
    days = pd.date_range("2024-01-01", periods=N).astype(str)
    notes = [f"{'good' if kind else 'bad'} and {i} more words" for i, kind in enumerate(KIND)]
    places = np.array(["NA", "x", "y"])[KIND]
    frame = pd.DataFrame({"day": days, "place": places, "note": notes, "temp": KIND * 7, "sales": FRAME["a"]})
    writers = {"csv": frame.to_csv, "parquet": frame.to_parquet, "jsonl": partial(frame.to_json, lines=True)}
    how: dict[str, Any] = {"orient": "records"} if suffix == "jsonl" else {"index": False}
    writers[suffix](f"x.{suffix}", **how)
    for named, others in POSITIONS:
        jobs = []
        for options in (named, others):
            result = call("init", f"x.{suffix}", "--overwrite", *map(str, options))
            assert result.exit_code == 0, result.output
            text = Path("job.yaml").read_text()
            jobs.append([line for line in text.splitlines() if "singa-dask init" not in line])
        assert jobs[0] == jobs[1], others
    result = call("init", f"x.{suffix}", "--target", "last", "--split-by", "*e", "-o", "none.yaml")
    assert result.exit_code == 2
    assert "--split-by *e: it matches place, note. Expected one column." in result.output


def test_a_label_of_numbers_in_json_lines_by_position(call: Call) -> None:
    FRAME.assign(k=KIND).to_json("x.jsonl", orient="records", lines=True)
    assert call("init", "x.jsonl", "--label", "last").exit_code == 0
    assert 'label: "k"' in Path("job.yaml").read_text()


def test_two_labels(call: Call) -> None:
    frame(label=KIND, y=KIND[::-1]).to_csv("x.csv", index=False)
    result = call("init", "x.csv")
    assert result.exit_code == 1
    assert "  label (column 1, 3 different: 0, 1, 2)\n  y (column 4, 3 different: 0, 1, 2)\n" in result.stderr
    assert call("init", "x.csv", "--label", "y").exit_code == 0
    assert store()["label"] == ["y"]
    said = call("init", "x.csv", "--label", "z", "--overwrite").stderr
    assert said == "x.csv: no column 'z' for --label. Known: a, b, label, y.\n"


def test_a_point_has_no_label(call: Call) -> None:
    frame(x=KIND, y=KIND).to_csv("x.csv", index=False)
    assert "which column is the label?" in call("init", "x.csv").stderr


@pytest.mark.parametrize("form", ["npz", "jsonl", "parquet"])
def test_other_stores(call: Call, form: str) -> None:
    values, ids = FRAME.to_numpy(np.float32), np.arange(N)
    if form == "npz":
        np.savez("x.npz", x=values, id=ids, kind=KIND)
    elif form == "jsonl":
        rows = [{"id": int(i), "a": i / 7, "kind": int(kind)} for i, kind in enumerate(KIND)]
        Path("x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        pd.DataFrame({"id": ids, "x": list(values), "kind": KIND}).to_parquet("x.parquet")
    result = call("init", f"x.{form}")
    assert result.exit_code == 1
    assert "which field is the label? Pass --label NAME, one of id" in result.stderr
    assert call("init", f"x.{form}", "--label", "kind").exit_code == 0
    assert store()["user_conf"]["label"] == "kind"
    checked = call("validate", "job.yaml", "--strict")
    assert checked.exit_code == 0, checked.output


def test_two_labels_of_arrays(call: Call) -> None:
    np.savez("x.npz", x=FRAME.to_numpy(), y=KIND, target=KIND[::-1])
    result = call("init", "x.npz")
    assert (result.exit_code, result.stderr) == (1, "x.npz: y and target could each be the label. Pass --label NAME.\n")
    assert call("init", "x.npz", "--label", "y").exit_code == 0
    result = call("init", "x.npz", "--backend", "lmdb", "--label", "y", "--overwrite")
    assert "have at most one label, which has no name" in result.stderr


def test_a_file_of_json_is_no_text(call: Call) -> None:
    Path("object.json").write_text(json.dumps({"a": [1, 2], "label": [0, 1]}))
    result = call("init", "object.json")
    assert result.exit_code == 1
    assert result.stderr.startswith("object.json: expected an array of objects, as pandas writes it by to_json(orient=")


def test_files_of_two_splits(call: Call) -> None:
    table = frame(label=KIND)
    for i in range(2):
        table.to_parquet(f"train-{i}.parquet")
    table[:20].to_parquet("test-0.parquet")
    result = call("init", ".")
    assert result.exit_code == 0, result.output
    assert f"{2 * N} parquet records" in result.stderr
    assert "20 records to test on" in result.stderr


@pytest.mark.parametrize("packed", ["train", "t10k"])
def test_one_of_two_sets_is_packed(call: Call, packed: str) -> None:
    for part in ("train", "t10k"):
        images = b"\0\0\x08\x03" + np.array([N, 12, 12], ">u4").tobytes() + bytes(N * 144)
        labels = b"\0\0\x08\x01" + np.array([N], ">u4").tobytes() + KIND.astype(np.uint8).tobytes()
        for name, content in (("images-idx3", images), ("labels-idx1", labels)):
            suffix = ".gz" if part == packed else ""
            Path(f"{part}-{name}-ubyte{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    result = call("init", ".")
    assert result.exit_code == 0, result.output
    assert f"{N} records to test on" in result.stderr


def test_inspect_names_ids(call: Call) -> None:
    frame(id=np.arange(5000, 5000 + N), kind=KIND).to_csv("x.csv", index=False)
    result = call("data", "inspect", "x.csv", "--label", "kind")
    assert "a different whole number in each record, like ids: id." in " ".join(result.stdout.split())
    result = call("data", "inspect", "x.csv", "--label", "id", "--features", "a")
    assert f"{N} different labels in {N} records, like ids" in " ".join(result.stdout.split())


@pytest.mark.parametrize("form", ["npz", "jsonl"])
@pytest.mark.parametrize(("other", "wrong"), [(1, -1), (1000, 2000), (5, 250)])
def test_labels_of_arrays_that_are_no_numbers_of_classes(call: Call, form: str, other: int, wrong: int) -> None:
    label = np.where(KIND == 0, other, wrong)
    if form == "npz":
        np.savez("x.npz", x=FRAME.to_numpy(), label=label)
    else:
        rows = zip(FRAME.to_numpy().tolist(), label.tolist(), strict=True)
        Path("x.jsonl").write_text("".join(f"{json.dumps({'data': x, 'label': y})}\n" for x, y in rows))
    result = call("init", f"x.{form}")
    assert result.exit_code == 1
    assert result.stderr == (
        f"x.{form}: label {wrong}. Expected labels from 0 on, a number for each of 2 classes. "
        "numpy.unique(labels, return_inverse=True) returns the classes and such numbers.\n"
    )
    assert not Path("job.yaml").exists()


def test_labels_like_ids_are_named(call: Call) -> None:
    np.savez("x.npz", x=RANDOM.normal(size=(N, 2)), label=np.arange(N) + 1000)
    result = call("init", "x.npz")
    assert result.exit_code == 0, result.output
    assert f"warning: {N} different labels in {N} records, like ids." in result.stderr


def test_features_of_json_lines_like_ids_are_named(call: Call) -> None:
    rows = [{"number": i, "a": i / 2, "label": int(KIND[i])} for i in range(N)]
    Path("x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for arguments in (["init", "x.jsonl"], ["data", "inspect", "x.jsonl"]):
        result = call(*arguments)
        assert result.exit_code == 0, result.output
        assert "number" in next(line for line in result.output.splitlines() if "like ids" in line)


def test_parts_of_a_table(call: Call) -> None:
    for part in (0, 1):
        frame(label=np.array(["cat", "dog"] * (N // 2))).to_csv(f"part-{part}.csv", index=False, sep=";")
    result = call("init", "part-*.csv")
    assert result.exit_code == 0, result.output
    assert f"{2 * N} csv records of 2 values in 2 classes" in result.stderr


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_test_set_with_columns_in_another_order(call: Call, suffix: str) -> None:
    for name, columns in (("train", ["label", "a", "b"]), ("test", ["label", "b", "a"])):
        table = frame(label=KIND)[columns]
        if suffix == "csv":
            table.to_csv(f"x-{name}.csv", index=False)
        else:
            table.to_json(f"x-{name}.jsonl", orient="records", lines=True)
    result = call("init", f"x-train.{suffix}")
    if suffix == "csv":
        # columns are found by name: the same records have the same predictions
        assert result.exit_code == 0, result.output
        assert call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", "run", "--quiet").exit_code == 0
        found = [
            call("predict", "job.yaml", "--init-from", "run", "--data", f"x-{name}.csv") for name in ("train", "test")
        ]
        assert found[0].exit_code == found[1].exit_code == 0
        assert found[0].stdout == found[1].stdout
        return
    assert result.exit_code == 1
    said = (
        f"x-test.{suffix}: values of b, a, but a, b in x-train.{suffix}. Expected the same columns in the same order."
    )
    assert said in result.stderr


def test_inspect_describes_a_table_that_no_job_can_read_yet(call: Call) -> None:
    frame(id=range(N), c=["n.a.", *FRAME["a"][1:]], label=KIND).to_csv("x.csv", index=False)
    result = call("data", "inspect", "x.csv")
    assert result.exit_code == 0, result.stderr
    assert "- c: most values are numbers, but not 'n.a.' (1, the first in record 1)." in result.stdout
    assert "It is not a table with named columns either: column 'c': 'n.a.' is not a number." in result.stdout


def test_inspect_shows_a_label_that_is_no_class_as_a_number(call: Call) -> None:
    FRAME.assign(y=FRAME["b"] * 3).to_parquet("x.parquet")
    result = call("data", "inspect", "x.parquet")
    assert result.exit_code == 0, result.output
    FRAME.assign(y=KIND).to_parquet("x.parquet")
    result = call("data", "inspect", "x.parquet")
    assert "3 classes" in result.stdout


def test_what_is_no_text_is_of_no_known_format(call: Call) -> None:
    Path("x.xyz").write_bytes(b"XYZ\xc8\xff" * 20)
    result = call("init", "x.xyz")
    assert result.exit_code == 1
    assert "the text is not UTF-8: byte 3 is 0xc8. Its format is unknown, too." in result.stderr


def test_a_dropped_column_is_no_label(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b,label\n" + "".join(f"{i * i % 11},{i % 7},{i % 2}\n" for i in range(60)))
    out = ["-o", tmp_path / "job.yaml"]
    assert "which column is the label?" in call("init", table, "--drop", "label", *out).stderr
    for drop in ("label", "last", "3"):
        said = call("init", table, "--label", "label", "--drop", drop, *out).stderr
        assert f"{table}: --drop {drop}: this column is predicted. Leave it out of --drop." in said
    assert call("init", table, "--label", "label", "--drop", "l*,b", *out).exit_code == 0
