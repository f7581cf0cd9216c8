"""``init`` for every kind of data that people have: the job that it writes passes every check, and trains."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from singa_dask.conf import load
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.survey.column_kinds import are_like_names, is_like_code, sentinel_of, unfit
from singa_dask.survey.columns import ColumnSurvey
from tests.cli.conftest import ROOT, Call
from tests.contracts.foreign import png, tar
from tests.selection import mostly_long

N = 80
PENGUINS = ROOT / "data" / "penguins"


def table() -> pd.DataFrame:
    """Return numbers, a category with a missing value, and free text."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"area": random.normal(100, 20, N), "floor": np.arange(N) % 7})
    frame["kind"] = np.array(["flat", "house", "hut", None], dtype=object)[np.arange(N) % 4]
    frame["note"] = [f"note {i}" for i in range(N)]
    frame["price"] = frame.area * 1000 + np.where(frame.kind == "house", 20_000, 0) + 0.5
    return frame


def pictures() -> list[bytes]:
    random = np.random.default_rng(1)
    return [png(random.integers(0, 256, (3, 20 + i % 3, 24), dtype=np.uint8)) for i in range(20)]


def penguins() -> str:
    return str(PENGUINS / "train.csv")


def penguins_of_parquet() -> str:
    pd.read_csv(PENGUINS / "train.csv").to_parquet("train.parquet")
    pd.read_csv(PENGUINS / "test.csv").to_parquet("test.parquet")
    return "train.parquet"


def numbers_to_predict() -> str:
    table().to_csv("train.csv", index=False)
    table()[:30].to_csv("test.csv", index=False)
    return "train.csv"


def numbers_to_predict_of_parquet() -> str:
    table().to_parquet("prices.parquet")
    return "prices.parquet"


def json_lines() -> str:
    rows = [{"height": i % 5, "width": i / 7, "species": "ab"[i % 2]} for i in range(N)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "rows.jsonl"


def hugging_face() -> str:
    rows = [{"image": {"bytes": data, "path": f"{i}.png"}, "label": i % 3} for i, data in enumerate(pictures())]
    pd.DataFrame(rows).to_parquet("images.parquet")
    return "images.parquet"


def webdataset(labels: Sequence[Any] = (0, 1, 2)) -> str:
    files = []
    for i, data in enumerate(pictures()):
        facts = {"label": labels[i % 3], "user": "a"}
        files += [(f"{i:03d}.png", data), (f"{i:03d}.json", json.dumps(facts).encode())]
    Path("images.tar").write_bytes(tar(files))
    return "images.tar"


def image_list() -> str:
    Path("pictures").mkdir()
    for i, data in enumerate(pictures()):
        Path(f"pictures/{i}.png").write_bytes(data)
    Path("list.txt").write_text("".join(f"pictures/{i}.png {i % 3}\n" for i in range(20)))
    return "list.txt"


KINDS: dict[Callable[[], str], dict[str, Any]] = {
    penguins: {
        "label": ["species"],
        "categories": {"island": ["Biscoe", "Dream", "Torgersen"], "sex": ["", "female", "male"]},
        "missing": "mean",
    },
    penguins_of_parquet: {"label": ["species"], "shape": [11]},
    numbers_to_predict: {"target": ["price"], "features": ["area", "floor", "kind"], "shape": [6]},
    numbers_to_predict_of_parquet: {"target": ["price"], "categories": {"kind": ["", "flat", "house", "hut"]}},
    json_lines: {"user_conf": {"label": "species"}},
    hugging_face: {"backend": "image-parquet", "resize": [20, 20], "shape": [3, 20, 20]},
    webdataset: {"user_conf": {"label": "json.label"}, "resize": [20, 20]},
    image_list: {"backend": "image-list", "resize": [20, 20]},
}


@pytest.mark.parametrize("write", mostly_long(KINDS, 8), ids=lambda write: write.__name__)
def test_a_job_for_it_trains(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    monkeypatch.chdir(tmp_path)
    labels = {penguins: "species", penguins_of_parquet: "species", json_lines: "species"}
    named = ["--label", labels.get(write, "price")] if write not in (hugging_face, webdataset, image_list) else []
    # a copy has pictures of one size
    split = ["--test-split", "0"] if write in (hugging_face, webdataset) else []
    result = call("init", write(), *named, *split)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    checked = call("validate", "job.yaml", "--strict")
    assert checked.exit_code == 0, checked.output
    store = load("job.yaml").job.neuralnet.layer[0].given_block(StoreConf)
    assert store is not None
    found = store.model_dump(exclude_defaults=True)
    assert {key: found.get(key) for key in KINDS[write]} == KINDS[write]
    ran = call("run", "job.yaml", "--set", "train_steps=2", "--quiet")
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize("labels", [("cat", "dog", "elk"), (0.5, 1.5, 2.5)], ids=["text", "fractions"])
def test_labels_in_json_that_are_no_integers(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: Sequence[Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("init", webdataset(labels))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"images.tar, record 000: the label {labels[0]!r} is not a 32-bit integer.")
    assert "user_conf: {label: json.label, classes: [names of the classes]}" in result.stderr
    assert not Path("job.yaml").exists()


def test_a_tar_of_folders_has_no_labels(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    picture = png(np.zeros((3, 4, 4), np.uint8))
    Path("x.tar").write_bytes(tar([("cat/0.png", picture), ("dog/1.png", picture)]))
    result = call("init", "x.tar")
    assert result.exit_code == 1
    assert result.stderr.startswith("x.tar: its pictures have no labels."), result.stderr
    assert "Extract a tar that has a folder of pictures for each class" in result.stderr


def test_two_labels_in_json_are_not_guessed(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"0.png": png(np.zeros((3, 4, 4), np.uint8)), "0.json": b'{"y": 1, "label": 0}'}
    Path("x.tar").write_bytes(tar(list(files.items())))
    result = call("init", "x.tar")
    assert result.exit_code == 1
    assert result.stderr == "x.tar: which field is the label? Pass --label NAME, one of label, y.\n"
    result = call("init", "x.tar", "--label", "y")
    assert result.exit_code == 0, result.output
    assert "json.y" in Path("job.yaml").read_text()


@pytest.mark.long
def test_a_net_learns_a_number(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call("init", numbers_to_predict(), "--label", "price")
    ran = call("run", "job.yaml", "--set", "train_steps=600", "--set", "test_freq=600", "--quiet", "--json")
    assert ran.exit_code == 0, ran.output
    # of a variance of about 4e8
    assert json.loads(ran.stdout)["test"]["loss"] < 1e8


@pytest.mark.parametrize(
    ("values", "noted"),
    [
        ((101, 205, 330, 412, 577, 698), "names"),
        ((102, 204, 5330), "names"),
        ((1, 2, 3, 4, 5), ""),
        ((0, 1, 2, 3, 5), ""),
        ((2001, 2004, 2010), ""),
        ((1, 2, 4, 8, 256, 512), ""),
        ((100, 110, 150, 200), ""),
        ((150, 300, 450), ""),
        ((101, 102, 103, 105), ""),
        ((11, 17, 30, 75, 160), "names"),
        ((11, 17, 30, 160), ""),
        ((18, 25, 35, 45, 50, 56), ""),
        ((20, 30, 40, 50, 60, 70, 160), ""),
        ((1, 2, 3, -999), "-999"),
        ((0.5, 0.75, 9999), "9999"),
        ((-1, 0, 1), ""),
        ((18, 60, 99), ""),
    ],
)
def test_numbers_that_may_be_names_or_mean_a_missing_value(values: tuple[float, ...], noted: str) -> None:
    column = ColumnSurvey("x", 1, "number", pa.array(np.resize(np.array(values, np.float64), 600)))
    found = sentinel_of(column)
    assert ("names" if are_like_names(column) else str(found[0]) if found else "") == noted
    assert found is None or found[1] == 600 // len(values)


def test_the_name_of_a_column_tells_codes() -> None:
    zones = pa.array(np.resize(np.array([20, 30, 40, 45, 50, 60, 190], np.float64), 600))
    named = "zoning_class Pclass MSSubClass product_type Type house.zone timeZone ZIP postcode ShopID".split()
    names = [*named, "ozone", "rooms", "age", "classes"]
    assert [name for name in names if is_like_code(ColumnSurvey(name, 1, "number", zones))] == named


@pytest.mark.parametrize(
    ("n_names", "n", "wanted"),
    [(20, 80, True), (21, 80, False), (60, 3000, True), (61, 3000, False), (251, 50_000, False)],
)
def test_texts_are_categories_if_each_has_enough_records(n_names: int, n: int, wanted: bool) -> None:
    names = pa.array([f"street {i % n_names}" for i in range(n)])
    column = ColumnSurvey("street", 1, "string", names)
    assert column.are_categories(n) is wanted
    assert unfit(column, is_wide=False) == ("" if wanted else f"texts, {n_names} different")


def test_columns_beside_lists_of_numbers_are_not_left_out_silently(tmp_path: Path, call: Call) -> None:
    lists, others = [[i % 2, i, 1.0] for i in range(N)], {"balance": [0.5] * N, "grade": [i % 2 for i in range(N)]}
    path = tmp_path / "lists.parquet"
    pd.DataFrame({"emb": lists, **others}).to_parquet(path)
    init = ("init", str(path), "--label", "grade", "-o", str(tmp_path / "job.yaml"))
    assert "balance: not read, beside a column of lists. Pass --backend table" in call(*init).output
    assert "Pass --backend table, too" in call(*init, "--overwrite", "--drop", "balance").output
    pd.DataFrame({"emb": lists, "grade": others["grade"]}).to_parquet(path)
    assert "not read" not in call(*init, "--overwrite").output
