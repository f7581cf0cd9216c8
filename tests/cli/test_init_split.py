"""The test set that ``init`` splits off: of each class the same share, as a part of the data, or in files."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from singa_dask import fs
from singa_dask.conf import load
from singa_dask.data.split import SplitConf
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.split_store import SplitStore
from singa_dask.inputs.open_records import open_records
from singa_dask.inputs.store_conf import StoreConf
from tests.cli.conftest import Call, noted
from tests.contracts.records import read_all

RANDOM = np.random.default_rng(3)
# label -> number of records; the one of class 3 is learned
COUNTS = {0: 60, 1: 30, 2: 9, 3: 1}
SIDE = 12


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new directory."""
    monkeypatch.chdir(tmp_path)


def labels() -> np.ndarray:
    return RANDOM.permutation(np.repeat(list(COUNTS), list(COUNTS.values())))


def numbered(wanted: np.ndarray, shape: tuple[int, ...] = (SIDE, SIDE)) -> np.ndarray:
    """Make an image of each label, whose first value is its number."""
    images = RANDOM.integers(0, 256, (len(wanted), *shape), dtype=np.uint8)
    images.reshape(len(wanted), -1)[:, 0] = np.arange(len(wanted))
    return images


def init(call: Call, *arguments: object) -> str:
    result = call("init", *arguments)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    checked = call("validate", "job.yaml", "--strict")
    assert checked.exit_code == 0, checked.output
    return result.stderr


def stores(n: int = 2) -> list[dict[str, Any]]:
    """Return what the first layers of the job say of the records to train and to test on."""
    found = [layer.given_block(StoreConf) for layer in load("job.yaml").job.neuralnet.layer[:n]]
    return [each.model_dump(exclude_defaults=True) for each in found if each is not None]


def read(conf: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return all records that a job reads."""
    options = {**conf.get("user_conf", {}), **{key: conf[key] for key in ("resize", "channels") if key in conf}}
    with open_store(conf["path"], conf["backend"], **options) as store:
        blocks = [store.read_block(block.id) for block in store.blocks]
        names = {"class_names": np.array(store.class_names)}
    return names | {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def read_parts(n: int = 2) -> list[dict[str, np.ndarray]]:
    """Return the records that the nets to train and to test read, by the layers' rules."""
    found = []
    # with a layer for what is predicted there are two of each net
    for conf in map(StoreConf.model_validate, stores(n)[:: n // 2]):
        store = open_records(conf, conf.backend)
        if conf.split and "split" not in store.option_names():
            store = SplitStore(store, conf.split)
        with store:
            found.append(read_all(store) | {"class_names": np.array(store.class_names)})
    return found


def check_read_alike(call: Call, data: str) -> None:
    """Check that a net has the same predictions for the data as for both parts of it."""
    ran = call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", "run", "--quiet")
    assert ran.exit_code == 0, ran.output
    paths = [str(store["path"]) for store in stores()]
    found = [call("predict", "job.yaml", "--init-from", "run", "--data", each) for each in (data, *paths)]
    assert [each.exit_code for each in found] == [0, 0, 0], found[0].output
    whole, train, test = ([line.split(",", 1)[1] for line in each.stdout.splitlines()[1:]] for each in found)
    assert sorted(whole) == sorted([*train, *test])


def check_split(whole: np.ndarray, share: float = 0.2) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Check that each record is in one part, and how many of each class are in the test set."""
    return check_parts(whole, [read(store) for store in stores()], share)


def check_parts(
    whole: np.ndarray, parts: Sequence[dict[str, np.ndarray]], share: float = 0.2
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    train, test = parts
    counts = Counter(test["label"].tolist())
    assert counts == {label: round(share * n) for label, n in COUNTS.items() if n > 1}
    numbers = [part["pixel"].reshape(len(part["pixel"]), -1)[:, 0].tolist() for part in (train, test)]
    assert sorted(numbers[0] + numbers[1]) == list(range(len(whole)))
    for part, own in zip((train, test), numbers, strict=True):
        np.testing.assert_array_equal(part["label"], whole[own])
    return train, test


def write_table(frame: pd.DataFrame, file: str) -> None:
    if file == "table":
        Path(file).mkdir()
        for i in range(3):
            frame.iloc[i::3].to_parquet(f"table/part-{i}.parquet", index=False)
        return
    suffix = file.split(".")[1]
    writers: dict[str, Callable[..., object]] = {
        "csv": frame.to_csv,
        "parquet": partial(frame.to_parquet, row_group_size=7),
        "jsonl": partial(frame.to_json, orient="records", lines=True),
        "json": partial(frame.to_json, orient="records"),
        "feather": frame.to_feather,
    }
    writers[suffix](file, **({"index": False} if suffix in ("csv", "parquet") else {}))


@pytest.mark.parametrize("seed", [1, 8])
@pytest.mark.parametrize("file", ["x.csv", "x.csv.gz", "x.parquet", "x.jsonl", "x.json", "x.feather", "table"])
def test_a_table_is_not_copied_and_of_each_class_the_same_share_is_to_test_on(call: Call, file: str, seed: int) -> None:
    wanted = labels()
    write_table(pd.DataFrame({"pixel": np.arange(100) + 0.5, "kind": np.array(list("abcd"))[wanted]}), file)
    said = init(call, file, "--label", "kind", "--seed", seed)
    assert "to test on: 20 at random, about the same share of each class, seed " in said
    assert sorted(os.listdir()) == sorted([file, "job.yaml"])
    assert [store["path"] for store in stores()] == [file, file]
    train, test = read_parts()
    assert train["class_names"].tolist() == list("abcd")
    assert Counter(test["label"].tolist()) == {0: 12, 1: 6, 2: 2}
    assert sorted([*train["data"][:, 0], *test["data"][:, 0]]) == (np.arange(100) + 0.5).tolist()


def test_another_seed_tests_on_other_records(call: Call) -> None:
    write_table(pd.DataFrame({"pixel": RANDOM.random(100), "kind": labels()}), "x.csv")
    found = []
    for seed in (1, 1, 2):
        init(call, "x.csv", "--label", "kind", "--seed", seed, "--overwrite")
        found.append(read_parts()[1]["data"].tolist())
    assert found[0] == found[1] != found[2]


def test_of_numbers_to_predict_the_share_is_exact(call: Call) -> None:
    write_table(pd.DataFrame({"a": RANDOM.random(250), "y": RANDOM.normal(size=250)}), "x.csv")
    assert "to test on: 50 at random, seed " in init(call, "x.csv", "--target", "y")
    assert [len(part["data"]) for part in read_parts(4)] == [200, 50]


@pytest.mark.parametrize("file", ["x.csv", "x.parquet", "x.json"])
def test_a_time_series_is_not_copied(call: Call, file: str) -> None:
    n = 60
    series = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=n).astype(str), "wind": RANDOM.normal(size=n)})
    series["load"] = series["wind"].cumsum()
    write_table(series, file)
    assert "to test on: the last 12 by day" in init(call, file, "--target", "load", "--lags", 2)
    assert sorted(os.listdir()) == ["job.yaml", file]
    expected = pd.concat([series["wind"], series["load"].shift(1), series["load"].shift(2)], axis=1).iloc[2:]
    found = [part["data"] for part in read_parts(4)]
    assert [len(each) for each in found] == [46, 12]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-6)


def test_arrays_are_not_copied(call: Call) -> None:
    wanted = labels()
    images = numbered(wanted, (SIDE, SIDE, 3))
    np.savez("images.npz", images=images, kind=wanted)
    said = init(call, "images.npz", "--label", "kind")
    assert "to test on: 20 at random, about the same share of each class, seed " in said
    assert sorted(os.listdir()) == ["images.npz", "job.yaml"]
    check_parts(wanted, read_parts())
    ran = call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", "run", "--quiet", "--json")
    assert json.loads(ran.stdout)["steps"] == 2, ran.output


@pytest.mark.parametrize("data", ["pictures", "list.txt"])
def test_pictures_are_not_copied(call: Call, data: str) -> None:
    wanted = labels()
    write_pictures("pictures", wanted, list("abcd"))
    if data == "list.txt":
        lines = [f"pictures/{'abcd'[label]}/no {i}.png {label}\n" for i, label in enumerate(wanted)]
        Path(data).write_text("".join(lines))
    init(call, data)
    assert sorted({*os.listdir(), "pictures"}) == sorted({data, "job.yaml", "pictures"})
    check_parts(wanted, read_parts())


@pytest.mark.long
def test_arrays(call: Call) -> None:
    wanted = labels()
    images = numbered(wanted, (SIDE, SIDE, 3))
    np.savez("images.npz", images=images, kind=wanted, class_names=["a", "b", "c", "d"])
    copies = ("images.npz", "--label", "kind", "--copy")
    said = init(call, *copies, "--seed", "7")
    assert "images.npz: 100 npz records of 3 x 12 x 12 values in 4 classes\n" in said
    how = "20 at random, as many of each class, seed 7, a copy, 0.0 MB in all"
    assert f"job-data/test.arrow: {how}; the others in job-data/train.arrow\n" in said
    train, test = check_split(wanted)
    np.testing.assert_array_equal(test["pixel"], images[test["pixel"][:, 0, 0, 0]])
    assert train["class_names"].tolist() == ["a", "b", "c", "d"]
    assert [store["layout"] for store in stores()] == ["NHWC", "NHWC"]
    first = Path("job-data/test.arrow").read_bytes()
    init(call, *copies, "--seed", "7", "--overwrite")
    assert Path("job-data/test.arrow").read_bytes() == first
    init(call, *copies, "--overwrite")
    assert Path("job-data/test.arrow").read_bytes() != first
    init(call, *copies, "--test-split", "0.5", "--overwrite")
    check_split(wanted, 0.5)
    check_read_alike(call, "images.npz")


def test_arrays_that_are_large_are_not_copied(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.survey.split.MAX_COPIED", 100 * SIDE * SIDE)
    wanted = labels()
    np.savez("images.npz", images=numbered(wanted), kind=wanted)
    said = init(call, "images.npz", "--label", "kind")
    assert "random, seed 1; chosen as they are read, nothing is copied\n" in said
    assert not Path("job-data").exists()
    assert [store["path"] for store in stores()] == ["images.npz", "images.npz"]
    assert [store["split"]["part"] for store in stores()] == ["train", "test"]


def test_numbers_with_64_bits_keep_them(call: Call) -> None:
    seconds = 1.6e9 + np.arange(200) / 16
    np.savez("x.npz", data=np.stack([seconds, RANDOM.random(200)], axis=1), label=np.arange(200) % 2)
    init(call, "x.npz", "--copy")
    found = [read(store)["data"][:, 0] for store in stores()]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), seconds)


def write_pictures(folder: str, wanted: np.ndarray, names: list[str], sizes: tuple[int, ...] = (SIDE,)) -> None:
    for i, (image, label) in enumerate(zip(numbered(wanted), wanted, strict=True)):
        path = Path(folder, names[label], f"no {i}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        side = sizes[i % len(sizes)]
        Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST).save(path)


# with numbers that are not those of the classes, and blanks
@pytest.mark.parametrize("names", [["1", "10", "2", "3"], ["New York", "a", "b c", "d"]])
def test_a_folder_of_pictures(call: Call, names: list[str]) -> None:
    wanted = labels()
    write_pictures("my pictures", wanted, names)
    n_bytes = sum(path.stat().st_size for path in Path("my pictures").rglob("*"))
    said = init(call, "my pictures", "--copy")
    how = "20 at random, as many of each class, seed 1, a list of pictures"
    assert f"job-data/test.txt: {how}; the others in job-data/train.txt\n" in said
    assert "my pictures: 100 image-folder records of 1 x 12 x 12 values in 4 classes\n" in said
    assert sum(path.stat().st_size for path in Path("job-data").iterdir()) < n_bytes
    train, test = check_split(wanted)
    assert train["class_names"].tolist() == test["class_names"].tolist() == names
    assert all((store["resize"], store["channels"]) == ([SIDE, SIDE], 1) for store in stores())


@pytest.mark.parametrize(
    ("names", "tested", "said"),
    [
        (["cat"] * 4, [], "pictures/train: all records are of one class, 'cat'. Expected two classes at least."),
        (["cat", "dog", "elk", "fox"], ["ant"] * 4, "pictures/test: unknown class names: ant."),
        (["cat", "dog\nelk", "elk", "fox"], [], "a list of pictures has a name in each line"),
        (["cat", "dog\telk", "elk", "fox"], [], "a list of pictures has a name in each line"),
    ],
)
def test_no_job_is_written_that_a_run_refuses(call: Call, names: list[str], tested: list[str], said: str) -> None:
    write_pictures("pictures/train", labels(), names)
    if tested:
        write_pictures("pictures/test", labels()[:4], tested)
    result = call("init", "pictures/train", "--copy")
    assert (result.exit_code, said in result.stderr) == (1, True), result.output
    assert os.listdir() == ["pictures"]


@pytest.mark.long
def test_what_was_learned_of_a_folder_names_pictures_of_other_sizes(call: Call) -> None:
    write_pictures("pictures", labels(), ["cat", "dog", "elk", "fox"], (80, 90))
    said = init(call, "pictures", "--copy")
    assert "--data PICTURE" in said
    ran = call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", "run", "--quiet")
    assert ran.exit_code == 0, ran.output
    picture = next(Path("pictures/cat").iterdir())
    Image.open(picture).resize((123, 70)).save("new.png")
    for data, n in (("new.png", 1), ("pictures/cat", COUNTS[0]), ("pictures", 100), ("job-data/test.txt", 20)):
        predicted = call("predict", "job.yaml", "--init-from", "run", "--data", data)
        assert predicted.exit_code == 0, predicted.output
        assert len(predicted.stdout.splitlines()) == n + 1


def test_a_list_of_pictures(call: Call) -> None:
    wanted = labels()
    write_pictures("pictures", wanted, list("abcd"))
    lines = [f"pictures/{'abcd'[label]}/no {i}.png {label}\n" for i, label in enumerate(wanted)]
    Path("list.txt").write_text("".join(lines))
    init(call, "list.txt", "--copy")
    check_split(wanted)
    assert [store["path"] for store in stores()] == ["job-data/train.txt", "job-data/test.txt"]
    init(call, "job-data/test.txt", "--test-split", "0", "--overwrite")
    assert (stores()[0]["backend"], len(read(stores()[0])["label"])) == ("image-list", 20)


@pytest.mark.long
def test_pictures_in_one_file_are_scaled_as_before(call: Call) -> None:
    wanted = labels()
    write_pictures("pictures", wanted, list("abcd"), (80, 90))
    files = sorted(Path("pictures").rglob("*.png"), key=lambda path: int(path.stem.split()[1]))
    rows = [{"image": {"bytes": path.read_bytes(), "path": path.name}} for path in files]
    pd.DataFrame(rows).assign(species=wanted).to_parquet("images.parquet")
    init(call, "images.parquet", "--label", "species", "--copy")
    assert [store["shape"] for store in stores()] == [[3, 64, 64]] * 2
    assert Counter(read(stores()[1])["label"].tolist()) == {0: 12, 1: 6, 2: 2}
    ran = call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", "run", "--quiet")
    assert ran.exit_code == 0, ran.output
    for data, backend, n in (("images.parquet", "image-parquet", 100), ("pictures/a", "image-folder", 60)):
        predicted = call("predict", "job.yaml", "--init-from", "run", "--data", data, "--backend", backend)
        assert predicted.exit_code == 0, predicted.output
        assert len(predicted.stdout.splitlines()) == n + 1


@pytest.mark.long
def test_lines_of_objects_keep_their_keys(call: Call) -> None:
    rows = [{"width": i / 7, "height": i % 5, "kind": "ab"[i % 2]} for i in range(60)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    init(call, "rows.jsonl", "--label", "kind", "--copy")
    assert sum(len(read(store)["label"]) for store in stores()) == 60
    check_read_alike(call, "rows.jsonl")


@pytest.mark.parametrize("field", ["target", "label"])
def test_records_with_other_outputs_than_one_label(call: Call, field: str) -> None:
    values = RANDOM.random((40, 3)).astype(np.float32)
    outputs = values[:, :2] if field == "target" else (values[:, :2] > 0.5).astype(np.int32)
    STORES.find("arrow").write(str(Path("x.arrow").absolute()), {"data": values, field: np.ascontiguousarray(outputs)})
    result = call("init", "x.arrow")
    found = "no" if field == "target" else "several"
    expected = "Expected one label for each record, because a net of init learns classes."
    said = f"x.arrow: the records have {found} labels. {expected}\n"
    assert (result.exit_code, result.stderr) == (1, said)


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_few_records_of_each_class_are_all_learned(call: Call, suffix: str) -> None:
    label, values = np.arange(40) % 20, RANDOM.random((40, 2)).astype(np.float32)
    if suffix == "csv":
        pd.DataFrame(values, columns=["a", "b"]).assign(label=label).to_csv("x.csv", index=False)
    else:
        np.savez("x.npz", data=values, label=label)
    assert "no test set is beside it" in init(call, f"x.{suffix}", "--label", "label")
    assert [store["path"] for store in stores()] == [f"x.{suffix}"]


def write_there(folder: str, frame: pd.DataFrame, suffix: str) -> str:
    """Write a table that is not on a disk of this host: a directory of files, as Spark writes it."""
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        part = io.BytesIO()
        if suffix == "csv":
            frame.iloc[rows].to_csv(part, index=False)
        else:
            frame.iloc[rows].to_parquet(part, index=False)
        fs.write_atomic(f"{folder}/part-{i:05d}.{suffix}", part.getvalue())
    fs.write_atomic(f"{folder}/_SUCCESS", b"")
    return folder


@pytest.fixture
def there() -> Iterator[str]:
    folder = f"memory://{uuid.uuid4().hex}"
    yield folder
    fs.remove_tree(folder)


def rows_of(split: dict[str, Any], n: int) -> list[int]:
    rows: list[int] = SplitConf.model_validate(split).rows(0, n).tolist()
    return rows


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_elsewhere_is_not_copied(call: Call, there: str, suffix: str) -> None:
    n = 600
    frame = pd.DataFrame({"a": np.arange(n) / 7, "b": RANDOM.random(n), "kind": [f"k{i % 3}" for i in range(n)]})
    said = init(call, write_there(there, frame, suffix), "--label", "kind")
    assert list(Path.cwd().iterdir()) == [Path.cwd() / "job.yaml"]
    confs = stores()
    assert [conf["path"] for conf in confs] == [there, there]
    splits = [conf["split"] for conf in confs]
    train, test = (rows_of(split, n) for split in splits)
    assert sorted([*train, *test]) == list(range(n))
    how = f"{len(test)} at random, about the same share of each class, seed {splits[0]['seed']}"
    assert f"to test on: {how}; chosen as they are read, nothing is copied\n" in said
    assert f"for {len(train)} records" in Path("job.yaml").read_text()
    for conf, rows in zip(confs, (train, test), strict=True):
        with open_records(StoreConf.model_validate(conf), conf["backend"]) as store:
            np.testing.assert_allclose(read_all(store)["data"], frame.iloc[rows][["a", "b"]], rtol=1e-6)


def test_the_last_records_by_date_are_to_test_on(call: Call, there: str) -> None:
    n = 200
    dates = pd.date_range("2024-01-01", periods=n).date
    frame = pd.DataFrame({"day": dates, "a": RANDOM.random(n), "y": RANDOM.normal(size=n)})
    said = init(call, write_there(there, frame, "parquet"), "--target", "y")
    assert "to test on: the last 40 by day; chosen as they are read, nothing is copied\n" in said
    parts = [each["split"]["part"] for each in stores(4) if each["split"]["test_from"] == 160]
    assert parts == ["train", "train", "test", "test"]  # the features and the target of each


def test_a_class_that_would_not_be_learned_is_named(call: Call, there: str) -> None:
    n = 100
    kinds = np.where(np.arange(n) == n - 1, "rare", np.array(["one", "two"])[np.arange(n) % 2])
    frame = pd.DataFrame({"a": RANDOM.random(n), "kind": kinds})
    said = init(call, write_there(there, frame, "csv"), "--label", "kind", "--lags", 1)
    assert "warning: kind: only the test set has rare. Choose another --seed or --test-split.\n" in said


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_records_without_a_label_elsewhere_are_left_out_and_those_without_a_feature_are_not(
    call: Call, there: str, suffix: str
) -> None:
    n = 100
    frame = pd.DataFrame({"a": RANDOM.random(n), "kind": [f"k{i % 2}" for i in range(n)]})
    frame.loc[[5, 6], "kind"] = None
    frame.loc[[6, 7, 8], "a"] = None
    said = init(call, write_there(there, frame, suffix), "--label", "kind")
    assert "kind 2 no value record left out" in noted(said)
    assert "a 3 no value the mean of the training data" in noted(said)
    assert f": {n - 2} {suffix} records of" in said
    assert said.endswith(f" --data NEW.{suffix}\n")
    found = [open_records(StoreConf.model_validate(conf), "table") for conf in stores()]
    assert sum(store.count for store in found) == n - 2
    assert f"to test on: {found[1].count} at random" in said
    for store in found:
        store.close()


def test_a_test_set_with_records_without_a_label(call: Call) -> None:
    n = 60
    frame = pd.DataFrame({"a": RANDOM.random(n), "kind": [f"k{i % 2}" for i in range(n)]})
    frame.to_csv("train.csv", index=False)
    frame[:20].assign(kind=[None, *frame["kind"][1:20]]).to_csv("test.csv", index=False)
    said = init(call, "train.csv", "--label", "kind")
    assert "test.csv: 19 records to test on\n" in said
    assert "kind 1 no value in test.csv record left out" in noted(said)
    assert [conf["unlabelled"] for conf in stores()] == ["skip", "skip"]


def test_counts_are_those_of_records_that_are_read(call: Call, there: str) -> None:
    n = 100
    kinds = [f"k{i // 2 % 2}" for i in range(n)]
    frame = pd.DataFrame({"a": RANDOM.random(n), "b": list("xy") * (n // 2), "kind": kinds})
    frame.loc[[5, 6], "b"] = None
    said = init(call, write_there(there, frame, "csv"), "--label", "kind", "--missing", "skip")
    assert f": {n - 2} csv records of 3 values in 2 classes\n" in said
    found = [open_records(StoreConf.model_validate(conf), "table") for conf in stores()]
    assert f"to test on: {found[1].count} at random" in said
    assert [sum(store.count for store in found), stores()[0]["categories"]] == [n - 2, {"b": ["x", "y"]}]
    for store in found:
        store.close()


@pytest.mark.parametrize("data", ["table", "table/part-*.csv"])
def test_copies_of_data_elsewhere_lie_beside_them(call: Call, there: str, data: str) -> None:
    n = 100
    frame = pd.DataFrame({"a": np.arange(n) + 0.5, "kind": [None if i == 5 else f"k{i % 2}" for i in range(n)]})
    write_there(f"{there}/table", frame, "csv")
    folder = f"{there}/{'table/' * ('*' in data)}job-data"
    how = "20 at random, as many of each class, seed 1"
    for more in ([], ["--overwrite"]):
        said = init(call, f"{there}/{data}", "--label", "kind", "--copy", *more)
        assert f"{folder}/test.csv: {how}; the others in {folder}/train.csv\n" in said
    assert os.listdir() == ["job.yaml"]
    assert fs.ls(folder) == ["test.csv", "train.csv"]
    train, test = read_parts()
    assert Counter(test["label"].tolist()) == {0: 10, 1: 10}
    assert sorted([*train["data"][:, 0], *test["data"][:, 0]]) == frame["a"].drop(5).tolist()
    assert (
        f"{folder}: exists already"
        in call("init", f"{there}/{data}", "--label", "kind", "--copy", "-o", "job.yml").stderr
    )


def test_copies_of_arrays_elsewhere_lie_beside_them(call: Call, there: str) -> None:
    wanted = labels()
    url = f"{there}/images.arrow"
    STORES.find("arrow").write(url, {"pixel": numbered(wanted), "label": wanted.astype(np.int32)})
    init(call, url, "--copy")
    assert [store["path"] for store in stores()] == [f"{there}/job-data/{name}.arrow" for name in ("train", "test")]
    check_split(wanted)


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_large_data_are_not_copied(call: Call, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.survey.split.MAX_COPIED", 1000)
    monkeypatch.setattr("singa_dask.survey.read_table.MAX_BYTES", 1000)
    monkeypatch.setattr("singa_dask.survey.read_table.BLOCK_BYTES", 1000)
    values, kinds = RANDOM.random((400, 2)), np.arange(400) % 2
    if suffix == "csv":
        pd.DataFrame(values, columns=["a", "b"]).assign(label=kinds).to_csv("x.csv", index=False)
    else:
        np.savez("x.npz", data=values, label=kinds)
    result = call("init", f"x.{suffix}", "--copy")
    assert result.exit_code == 1
    assert f"x.{suffix}: --copy: more than 256 MiB are not copied. Leave it out." in result.stderr
    assert os.listdir() == [f"x.{suffix}"]
    init(call, f"x.{suffix}")
    assert sum(len(part["label"]) for part in read_parts()) == 400


def test_categories_that_no_training_record_has_are_named(call: Call) -> None:
    """The last records by date have months that the net never learns, and the advice of the warning helps."""
    n = 480
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=n, freq="18h"), "size": RANDOM.normal(size=n)})
    frame["sold"] = frame["size"] + RANDOM.normal(size=n)
    frame["extra"] = RANDOM.normal(size=n)
    for month, part in frame.groupby(frame.when.dt.month):
        folder = Path("sales", f"month={month:02}")
        folder.mkdir(parents=True)
        part.to_parquet(folder / "part.parquet", index=False)
    month, n_test = frame.when.dt.month, n // 5
    learned, tested = set(month[:-n_test]), month[-n_test:]
    absent = sorted(set(tested) - learned)
    share = tested.isin(absent).mean()
    names = ", ".join(f"{each:02}" for each in absent)
    warning = f"warning: month: no training record has {names}, but {share:.1%} of the test records do. "
    advice = "--drop extra,month to leave the column out, or --drop extra,when to test on records drawn at random"
    said = init(call, "sales", "--target", "sold", "--drop", "extra")
    assert warning in said and f"{advice}.\n" in said, said
    for drop in ("extra,month", "extra,when"):
        assert "no training record has" not in init(call, "sales", "--target", "sold", "--drop", drop, "--overwrite")
    assert 'split: {"part": "train", "test_share"' in Path("job.yaml").read_text()
    frame.assign(month=month.map("m{}".format)).to_csv("x.csv", index=False)
    said = init(call, "x.csv", "--target", "sold", "--overwrite", "--copy")
    assert f"month: no training record has {', '.join(f'm{each}' for each in absent)}, but" in said


def test_a_category_of_few_test_records_is_named_without_leaving_its_column_out(call: Call) -> None:
    n = 1000
    shops = [f"shop {i % 9}" for i in range(n - 3)] + ["new shop", "shop 1", "shop 2"]
    days = pd.date_range("2020-01-01", periods=n)
    pd.DataFrame({"day": days, "shop": shops, "x": RANDOM.normal(size=n), "kind": np.arange(n) % 2}).to_parquet(
        "x.parquet"
    )
    said = init(call, "x.parquet", "--label", "kind")
    assert "shop: no training record has new shop, but 0.5% of the test records do. Other columns decide about" in said
