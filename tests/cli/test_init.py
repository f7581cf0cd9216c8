"""``init``: a job file for data of any kind, which passes every check and trains."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from singa_dask.cli.init.job_file import commands
from singa_dask.conf import LayerConf, load
from singa_dask.data.split import SplitConf
from singa_dask.data.stores import STORES
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.neuron import InnerProductConf
from singa_dask.survey.arrays import choose_size
from singa_dask.survey.results import RecordSurvey
from tests.cli.conftest import ROOT, Call, digits, noted, read
from tests.contracts.foreign import FOREIGN, shape_of, write_foreign
from tests.contracts.records import pixels

N = 300


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a new directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def few() -> tuple[np.ndarray, np.ndarray]:
    records = digits()
    return records["pixel"][:N].reshape(N, 28, 28), records["label"][:N]


def write_pictures(folder: str, n: int = 40) -> None:
    images, labels = few()
    for i in range(n):
        path = Path(folder, "abcdefghij"[labels[i]], f"{i}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[i]).save(path)


def written(call: Call, *arguments: object) -> list[LayerConf]:
    """Write a job, let every check pass, and return its layers."""
    result = call("init", *arguments)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    checked = call("validate", "job.yaml", "--strict")
    assert checked.exit_code == 0, checked.output
    return list(load("job.yaml").job.neuralnet.layer)


def store_of(layer: LayerConf) -> dict[str, object]:
    store = layer.given_block(StoreConf)
    assert store is not None
    return store.model_dump(exclude_defaults=True)


# -- what is found -------------------------------------------------------------------------------------------


def test_digits(call: Call) -> None:
    layers = written(call, ROOT / "data" / "digits" / "train.arrow")
    assert [layer.type for layer in layers[:3]] == ["RecordInput", "RecordInput", "ImagePreprocess"]
    assert store_of(layers[0]) == {
        "backend": "arrow",
        "path": f"{ROOT}/data/digits/train.arrow",
        "batchsize": [64],
        "shape": [1, 28, 28],
        "std_value": [255],
        "shuffle": "full",
    }
    assert store_of(layers[1])["path"] == f"{ROOT}/data/digits/test.arrow"
    job = load("job.yaml").job
    assert (job.name, job.train_steps, job.test_freq, job.test_steps) == ("digits-convnet", 1250, 250, None)
    # the same by the name of its directory
    Path("job.yaml").unlink()
    assert written(call, ROOT / "data" / "digits") == layers


def test_images_with_channels_last(call: Call) -> None:
    images, labels = few()
    np.savez("images.npz", images=np.repeat(images[..., None], 3, axis=3), labels=labels)
    layers = written(call, "images.npz", "--test-split", "0")
    assert (store_of(layers[0])["shape"], store_of(layers[0])["layout"]) == ([3, 28, 28], "NHWC")
    assert layers[0].include == []
    text = Path("job.yaml").read_text()
    assert "There is no test set" in text
    assert "# To make one, see singa-dask convert --split.\n" in text


def test_pictures_in_a_folder_for_each_class(call: Call) -> None:
    write_pictures("my pictures")
    layers = written(call, "my pictures", "--test-split", "0")
    found = store_of(layers[0])
    assert {key: found[key] for key in ("backend", "path", "shape", "resize", "channels")} == {
        "backend": "image-folder",
        "path": "my pictures",
        "shape": [1, 28, 28],
        "resize": [28, 28],
        "channels": 1,
    }
    assert "# Classes: 0 a, 1 b, 2 c" in Path("job.yaml").read_text()
    write_pictures("split/train")
    write_pictures("split/val", 30)
    layers = written(call, "split", "--overwrite")
    assert [store_of(layer)["path"] for layer in layers[:2]] == ["split/train", "split/val"]


def test_converted_pictures_have_the_classes_of_their_folders(call: Call) -> None:
    write_pictures("photos")
    assert call("convert", "image-folder", "photos", "photos.arrow").exit_code == 0
    counted = {path.name: len(list(path.iterdir())) for path in sorted(Path("photos").iterdir())}
    result = call("init", "photos.arrow")
    shown = ", ".join(f"{name} {n} ({n / 40:.0%})" for name, n in counted.items())
    assert f"label: label, by the format. {len(counted)} classes: {shown}\n" in result.stderr
    labels = read("photos.arrow")["label"]
    rows = SplitConf.model_validate(store_of(load("job.yaml").job.neuralnet.layer[1])["split"]).rows(0, 40)
    largest = np.bincount(labels[rows]).max() / len(rows)
    assert f"to beat: always the largest class is right in {largest:.1%} on the test records\n" in result.stderr


def test_pictures_of_many_sizes_are_scaled(call: Call) -> None:
    for i in range(20):
        path = Path("pictures", "ab"[i % 2], f"{i}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((70 + i, 90, 3), i, np.uint8)).save(path)
    assert store_of(written(call, "pictures")[0])["shape"] == [3, 64, 64]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({(32, 32): 70, (48, 48): 30}, (32, 32)),
        ({(32, 32): 30, (48, 48): 70}, (32, 32)),
        # few small pictures do not shrink the rest
        ({(32, 32): 5, (48, 48): 95}, (48, 48)),
        ({(30, 40): 60, (60, 80): 40}, (30, 40)),
        ({(90, 90): 60, (200, 300): 40}, (90, 90)),
        ({(480 + i, 640): 1 for i in range(50)}, (64, 64)),
        ({(8, 8): 50, (9, 9): 51}, (12, 12)),
    ],
)
def test_pictures_are_hardly_ever_scaled_up(sizes: dict[tuple[int, int], int], expected: tuple[int, int]) -> None:
    assert choose_size([size for size, n in sizes.items() for _ in range(n)]) == expected


def test_tables(call: Call) -> None:
    random = np.random.default_rng(1)
    labels = np.arange(150) % 3
    values = random.normal(size=(150, 4)) * [1, 10, 100, 1000] + labels[:, None]
    np.savetxt("train.csv", np.column_stack([labels, values]), fmt=["%d", *["%.6g"] * 4], delimiter=";")
    header = "class;length;width;height;weight\n"
    Path("train.csv").write_text(header + Path("train.csv").read_text())
    np.savetxt("test.csv", np.column_stack([labels, values])[:31], fmt=["%d", *["%.6g"] * 4], delimiter=";")
    result = call("init", "train.csv")
    assert result.exit_code == 1
    assert "test.csv, line 1: expected a header with the names of the columns, got numbers: '0" in result.stderr
    Path("test.csv").write_text(header + Path("test.csv").read_text())
    layers = written(call, "train.csv")
    assert (layers[0].type, store_of(layers[0])["separator"]) == ("CSVInput", ";")
    assert (layers[2].type, layers[2].srclayers) == ("InnerProduct", ["data"])
    assert all(store_of(layer)["standardise"] for layer in layers[:2])
    assert "of 4 values in 3 classes" in call("init", "train.csv", "--overwrite").stderr
    assert layers[-2].block(InnerProductConf).num_output == 3
    ran = call("run", "job.yaml", "--set", "train_steps=20", "--quiet")
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize("backend", sorted({*FOREIGN} - {"cifar"}))
def test_stores_of_other_programs(call: Call, here: Path, backend: str) -> None:
    records = pixels(40, (3, 16, 16) if backend.startswith(("image", "web")) else shape_of(backend))
    url = write_foreign(here, backend, records)
    found = store_of(written(call, url, "--backend", backend)[0])
    assert np.prod(found["shape"]) == records["pixel"][0].size  # type: ignore[call-overload]


def test_files_as_downloaded(call: Call) -> None:
    images, labels = few()
    for part in ("train", "t10k"):
        head = b"\0\0\x08\x03" + np.array([N, 28, 28], ">u4").tobytes()
        Path(f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images.tobytes()))
        head = b"\0\0\x08\x01" + np.array([N], ">u4").tobytes()
        Path(f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + labels.astype(np.uint8).tobytes()))
    layers = written(call, ".")
    assert [store_of(layer)["path"] for layer in layers[:2]] == [
        "./train-images-idx3-ubyte.gz",
        "./t10k-images-idx3-ubyte.gz",
    ]
    Path("cifar").mkdir()
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        rows = np.concatenate([labels[:100, None].astype(np.uint8), np.zeros((100, 3072), np.uint8)], axis=1)
        Path("cifar", f"{name}.bin").write_bytes(rows.tobytes())
    layers = written(call, "cifar", "--overwrite")
    assert [store_of(layer)["path"] for layer in layers[:2]] == ["cifar/data_batch_*.bin", "cifar/test_batch.bin"]
    assert store_of(layers[0])["shape"] == [3, 32, 32]


@pytest.mark.parametrize("suffix", [".bin", ".lmdb", ".parquet"])
def test_stores(call: Call, suffix: str) -> None:
    images, labels = few()
    STORES.find({".bin": "kvfile"}.get(suffix, suffix[1:])).write(
        str(Path(f"x{suffix}").absolute()), {"pixel": images[:, 4:12, 4:12].copy(), "label": labels}
    )
    layers = written(call, f"x{suffix}", "--test-split", "0")
    assert (store_of(layers[0])["shape"], layers[1].type) == ([8, 8], "InnerProduct")


def test_a_text(call: Call) -> None:
    # like many texts, this one begins with an empty line
    Path("text.txt").write_text("\n" + "to be or not to be, that is the question\n" * 200)
    layers = written(call, "text.txt")
    assert [layer.type for layer in layers][:4] == ["CharRNN", "OneHot", "RNNLabel", "GRU"]
    assert "There is no test set" in Path("job.yaml").read_text()
    Path("numbers.txt").write_text("1 2.5 3\n0 1.5 2\n" * 20)
    assert written(call, "numbers.txt", "--overwrite", "--label", 1)[0].type == "CSVInput"
    assert written(call, "numbers.txt", "--overwrite", "--net", "char-rnn")[0].type == "CharRNN"


def test_the_deviation_of_images_in_order_of_brightness(call: Call) -> None:
    values = np.random.default_rng(0).normal(size=(8000, 14, 14)).astype(np.float32)
    values[4000:] += 10
    np.savez("images.npz", x=values, y=np.arange(8000) % 3)
    store = store_of(written(call, "images.npz")[0])
    assert (*store["mean_value"], *store["std_value"]) == pytest.approx((values.mean(), values.std()), rel=1e-4)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--encoding", "nope", "the charset is 'nope'. Expected"),
        ("--separator", ";;", "--separator ';;'. Expected one"),
    ],
)
def test_wrong_ways_to_read_a_table(call: Call, option: str, value: str, said: str) -> None:
    Path("x.csv").write_text("a,b,label\n1,2,0\n3,4,1\n")
    result = call("init", "x.csv", option, value)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"x.csv: {said}")


# -- what it says ----------------------------------------------------------------------------------------------


def test_it_says_what_to_do_next(call: Call) -> None:
    data = ROOT / "data" / "digits" / "train.arrow"
    result = call("init", data, "-o", "my job.yaml", "--net", "mlp")
    assert result.stderr == (
        f"{data}: 8000 arrow records of 1 x 28 x 28 values in 10 classes\n"
        "label: label, by the format. 10 classes: 0 801 (10%), 1 902 (11%), 2 793 (10%), 3 825 (10%), "
        "4 784 (10%), 5 691 (9%), 6 811 (10%), 7 856 (11%), 8 755 (9%), 9 782 (10%)\n"
        f"{data.parent}/test.arrow: 2000 records to test on\n"
        "to beat: always the largest class is right in 11.3%\n"
        "net: mlp of 256 and 128 hidden units, 5000 steps of 64 records\n"
        "my job.yaml: a job with net mlp. Next:\n"
        "  singa-dask run 'my job.yaml' --run-dir runs/my-job\n"
        "  singa-dask predict runs/my-job --data NEW.arrow\n"
    )
    text = Path("my job.yaml").read_text()
    assert text.startswith(f"# Written by singa-dask init {data} --net=mlp\n")
    assert "#   singa-dask run 'my job.yaml' --run-dir runs/my-job\n" in text


@pytest.mark.parametrize(
    ("source", "on_cluster", "run"),
    [
        ("memory://node/data/churn", True, "memory://node/data/runs/churn-mlp"),
        ("memory://node/data/part-*.csv", True, "memory://node/data/runs/part-mlp"),
        ("memory://node/data/churn", False, "runs/churn-mlp"),
        ("data/churn.csv", True, "runs/churn-mlp"),
        ("http://127.0.0.1:9/churn.csv", True, "runs/churn-mlp"),
    ],
)
def test_a_run_on_a_cluster_is_offered_beside_remote_data(source: str, on_cluster: bool, run: str) -> None:
    survey = RecordSurvey(source, source, "csv", (3,), (), 9, 1, "", features=("a",))
    first, then = commands(survey, "mlp", "job.yaml", on_cluster)
    assert first == f"singa-dask run job.yaml --run-dir {run}"
    assert f"predict {run} " in then


def test_numbers_that_look_like_codes_are_noted(call: Call) -> None:
    columns = {
        "zip": [10115 + i % 7 for i in range(40)],
        "area_code": [i % 5 for i in range(40)],
        "branch": [71000 + 13 * (i % 9) for i in range(40)],
        "age": [20 + i % 30 for i in range(40)],
        "founded": [1990 + i % 9 for i in range(40)],
        "income": [900 + 4000 * (i % 8) for i in range(40)],
        "label": [i % 2 for i in range(40)],
    }
    pd.DataFrame(columns).to_csv("x.csv", index=False)
    said = call("init", "x.csv").stderr
    hints = re.findall(
        r"(\S+) +40 +whole numbers like codes +read as numbers; --category (\S+) if they are codes", said
    )
    assert hints == [("zip", "zip"), ("area_code", "area_code"), ("branch", "branch")]
    options = [word for name, _ in hints for word in ("--category", name)]
    assert "whole numbers like codes" not in call("init", "x.csv", "--overwrite", *options).stderr


def test_each_job_has_a_run_directory_of_its_own(call: Call) -> None:
    Path("x.csv").write_text("a,b,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40)))
    Path("other").mkdir()

    def offered(out: str) -> str:
        result = call("init", "x.csv", "-o", out, "--overwrite")
        [run] = re.findall(r"singa-dask run \S+ --run-dir (\S+)\n", result.stderr)
        assert f"--run-dir {run}\n" in Path(out).read_text() and f"predict {run} " in result.stderr
        return run

    runs = [offered(out) for out in ("job.yaml", "mine.v1.yaml", "mine.v2.yaml", "other/job.yaml")]
    assert runs == ["runs/x-mlp", "runs/mine-v1", "runs/mine-v2", "other/runs/x-mlp"]
    # which a run of an earlier job has
    Path(runs[0]).mkdir(parents=True)
    assert offered("job.yaml") == "runs/x-mlp-2"


def test_a_job_file_is_not_replaced_unasked(call: Call) -> None:
    Path("job.yaml").write_text("mine")
    result = call("init", ROOT / "data" / "digits")
    said = "job.yaml: exists already. Expected a new file. Give --overwrite to replace it.\n"
    assert (result.exit_code, result.stderr) == (2, said)
    assert Path("job.yaml").read_text() == "mine"


def test_a_table_is_not_replaced_by_its_job(call: Call) -> None:
    Path("table.csv").write_text("a,label\n1,x\n2,y\n")
    result = call("init", "table.csv", "--out", "table.csv", "--overwrite")
    assert (result.exit_code, Path("table.csv").read_text()) == (2, "a,label\n1,x\n2,y\n")
    assert "table.csv: this file is an input" in result.stderr


def test_a_table_with_named_columns(call: Call) -> None:
    rows = "".join(f"{i},{i % 7},{['oak', 'elm'][i % 2]},a{i}\n" for i in range(40))
    Path("train.csv").write_text(f"age,height,species,name\n{rows},,oak,b\n")
    Path("test.csv").write_text("species,height,age\nelm,1,2\n")
    layers = written(call, "train.csv", "--label", "species")
    store = store_of(layers[0])
    assert (store["features"], store["label"], store["missing"]) == (["age", "height"], ["species"], "mean")
    assert store["shape"] == [2]
    assert "# Left out: name (texts, different in each record)." in Path("job.yaml").read_text()
    result = call("run", "job.yaml", "--set", "train_steps=2", "--quiet")
    assert result.exit_code == 0, result.output


def test_a_table_with_tabs(call: Call) -> None:
    rows = "".join(f"{i % 9}\t{i % 7}\t{['red', 'blue'][i % 2]}\n" for i in range(40))
    Path("train.tsv").write_text(f"width, cm\tage\tcolour\n{rows}")
    store = store_of(written(call, "train.tsv", "--label", "colour")[0])
    assert (store["features"], store["label"]) == (["width, cm", "age"], ["colour"])


@pytest.mark.parametrize("index", ["key", "__null_dask_index__"])
def test_the_index_of_a_frame_is_neither_feature_nor_label(call: Call, index: str) -> None:
    days = pa.array(range(40), pa.date32())
    columns = {"age": [i % 9 for i in range(40)], "day": days, "sold": ["no", "yes"] * 20, index: list(range(40))}
    described = {b"pandas": json.dumps({"index_columns": [index]}).encode()}
    pq.write_table(pa.table(columns).replace_schema_metadata(described), "train.parquet")
    store = store_of(written(call, "train.parquet", "--label", "sold")[0])
    assert (store["features"], store["label"]) == (["age", "day"], ["sold"])
    result = call("init", "train.parquet", "--overwrite", "--label", "sold")
    told = "day 40 dates such as '1970-01-01' read as weekday"
    assert noted(result.stderr)[1:] == [told, f"{index} 40 index left out"]


@pytest.mark.parametrize(
    ("freq", "parts"), [("YS", ["year"]), ("MS", ["year", "month"]), ("D", ["year", "month", "weekday"])]
)
def test_weekdays_are_features_only_of_dates_on_many_days_of_a_month(call: Call, freq: str, parts: list[str]) -> None:
    when = pd.Series(pd.date_range("1980-01-01", periods=800, freq=freq, unit="s")).sample(400, random_state=0)
    frame = pd.DataFrame({"when": when.dt.strftime("%Y-%m-%d"), "sold": ["no", "yes"] * 200})
    frame.to_csv("dates.csv", index=False)
    assert store_of(written(call, "dates.csv", "--label", "sold")[0])["dates"] == {"when": {"parts": parts}}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["none.arrow"], 2, "none.arrow: no such file or directory."),
        (["words.cvs"], 2, "words.cvs: no such file or directory. Did you mean 'words.csv'?"),
        (["empty"], 1, "empty: the directory is empty."),
        (["unlabelled.npz"], 1, "unlabelled.npz: the records have no labels."),
        (["negative.npz"], 1, "negative.npz: label -1. Expected labels from 0 on"),
        (["nan.csv", "--label", "1"], 1, "nan.csv: no columns for features. Left out: 2 (constant). Pass --features."),
        (["nan.npz"], 1, "nan.npz: nan or inf in block 0."),
        (["packed.csv.gz"], 1, "packed.csv.gz: which column is the label? Its columns have no names."),
        (["one.npy"], 1, "one.npy: one array has no labels. Write both: numpy.savez('train.npz', images"),
        (["words.csv", "--label", "color"], 1, "words.csv: no columns for features. Left out: name (texts,"),
        (["real.npz"], 1, "real.npz, block 0, record 0: the label 0.5 is not an integer."),
        (["keras.npz"], 1, "keras.npz: there is no array called images"),
        (
            ["flat.npz", "--net", "convnet"],
            2,
            "flat.npz: records of 3 values. --net convnet takes images of at least 12",
        ),
        (["short.txt"], 2, "short.txt: a text of 50 characters. Expected more than 50."),
        (["text.txt", "--net", "mlp"], 2, "text.txt: a text. Expected records with labels for --net mlp"),
    ],
)
def test_mistakes_are_told(call: Call, arguments: list[str], code: int, said: str) -> None:
    Path("empty").mkdir()
    Path("text.txt").write_text("to be or not to be")
    Path("short.txt").write_text("a" * 50)
    Path("nan.csv").write_text("0,1\n1,nan\n")
    np.savez("nan.npz", x=np.full((4, 3), np.nan), y=np.array([1, 0, 1, 1]))
    Path("packed.csv.gz").write_bytes(gzip.compress(b"0,1\n1,2\n"))
    Path("words.csv").write_text("name,color\nelm,green\noak,red\n")
    np.savez("real.npz", x=np.zeros((2, 3)), y=np.array([0.5, 1.0]))
    np.save("one.npy", np.zeros((4, 3)))
    np.savez("keras.npz", x_train=np.zeros((4, 3)), y_train=np.array([1, 0, 1, 1]))
    np.savez("unlabelled.npz", x=np.zeros((4, 3)))
    np.savez("negative.npz", x=np.zeros((4, 3)), y=np.array([1, -1, 1, 1]))
    np.savez("flat.npz", x=np.zeros((4, 3)), y=np.array([1, 0, 1, 1]))
    result = call("init", *arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert result.stderr.startswith(said)
    assert not Path("job.yaml").exists()


def test_what_to_do_with_columns_of_texts_and_pictures_without_folders(call: Call) -> None:
    write_pictures("photos")
    names = []
    for folder in sorted(path.name for path in Path("photos").iterdir()):
        for i, path in enumerate(sorted(Path("photos", folder).iterdir())):
            names.append((path.rename(f"photos/{folder}{i}.png").name, folder))
        Path("photos", folder).rmdir()
    result = call("init", "photos")
    said = "photos: pictures, but no folders of classes. Move each picture into a folder that has the name of its class"
    assert (result.exit_code, said in result.stderr) == (1, True)
    Path("labels.csv").write_text("file,label\n" + "".join(f"{name},{label}\n" for name, label in names))
    said = (
        "Pass --features. 'file' names pictures: write them as lines of NAME LABEL, without a header, to a .txt file."
    )
    assert call("init", "labels.csv").stderr.endswith(f"{said}\n")
    # what both say
    Path("photos/list.txt").write_text("".join(f"{name} {label}\n" for name, label in names))
    found = store_of(written(call, "photos/list.txt", "--test-split", "0")[0])
    assert (found["backend"], found["path"]) == ("image-list", "photos/list.txt")
    Path("names.csv").write_text("name,label\n" + "".join(f"{'ab'[i % 2] * i},{i % 2}\n" for i in range(1, 40)))
    said = "Pass --features, or --text name to learn from its words or characters."
    assert call("init", "names.csv", "-o", "names.yaml").stderr.endswith(f"{said}\n")
    assert call("init", "names.csv", "--text", "name", "-o", "names.yaml").exit_code == 0


# -- it trains ---------------------------------------------------------------------------------------------------


def trained(call: Call, *changes: str) -> dict[str, dict[str, float]]:
    sets = [part for change in changes for part in ("--set", change)]
    result = call("run", "job.yaml", "--run-dir", "run", "--quiet", "--json", *sets)
    assert result.exit_code == 0, result.output
    found: dict[str, dict[str, float]] = json.loads(result.stdout)
    return found


@pytest.mark.long
def test_a_perceptron_learns(call: Call) -> None:
    written(call, ROOT / "data" / "digits", "--net", "mlp")
    assert trained(call, "train_steps=500", "test_freq=500")["test"]["accuracy"] > 0.93


@pytest.mark.soak
def test_a_convolutional_net_learns_from_pictures(call: Call) -> None:
    write_pictures("pictures/train", 200)
    write_pictures("pictures/test", N)
    written(call, "pictures")
    assert trained(call, "train_steps=100", "test_freq=100")["test"]["accuracy"] > 0.85


@pytest.mark.soak
def test_a_recurrent_net_learns_a_text(call: Call) -> None:
    written(call, ROOT / "data" / "text" / "jargon.txt.gz")
    assert trained(call, "train_steps=150", "disp_freq=50")["train"]["loss"] < 2.8
    result = call("sample", "job.yaml", "--init-from", "run", "--length", 40)
    assert (result.exit_code, len(result.stdout.strip("\n")) > 10) == (0, True), result.output
