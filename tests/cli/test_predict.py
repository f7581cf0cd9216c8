"""``predict``: a table of files, classes and probabilities of new records."""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from singa_dask.data.stores import STORES
from tests.cli.conftest import BATCH, DIGITS, Call, digits


def table(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the first seven test digits as pictures, and return their folder, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    for i, image in enumerate(digits()["pixel"][:7]):
        Image.fromarray(image.reshape(28, 28)).save(tmp_path / "pictures" / f"{i}.png")
    return Path("pictures")


def test_predictions_agree(call: Call, job: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    given = [job, "--init-from", trained, "--set", BATCH]
    assert call("extract", *given, "--predictions", "--out", out, "--quiet").exit_code == 0
    extracted = np.loadtxt(out, delimiter=",")
    np.testing.assert_array_equal(extracted[:, 0], digits()["label"])
    result = call("predict", *given, "--data", DIGITS, "--topk", 3)
    assert result.exit_code == 0, result.output
    rows = table(result.stdout)
    assert list(rows[0]) == [
        *("record", "class", "number", "probability"),
        *("class_2", "number_2", "probability_2", "class_3", "number_3", "probability_3"),
    ]
    np.testing.assert_array_equal([int(row["record"]) for row in rows], np.arange(2000))
    np.testing.assert_array_equal([int(row["number"]) for row in rows], extracted[:, 1])
    chances = np.array([[float(row[f"probability{rank}"]) for rank in ("", "_2", "_3")] for row in rows])
    np.testing.assert_allclose(chances[:, 0], extracted[:, 2], rtol=1e-5)
    assert (np.diff(chances, axis=1) <= 0).all()


def test_a_run_brings_its_job_and_its_newest_values(call: Call, job: Path, trained: Path, tmp_path: Path) -> None:
    given = ["--data", DIGITS, "--set", BATCH, "--quiet"]
    newest = trained / "checkpoint" / "step-6"
    expected = call("predict", job, "--init-from", newest, *given).stdout
    assert expected
    for place in (trained, newest):
        assert call("predict", place, *given).stdout == expected
    result = call("test", tmp_path, "--quiet")
    assert result.exit_code and f"{tmp_path}: no run is here." in result.stderr


@pytest.mark.parametrize("kind", ["arrow", "csv"])
def test_new_records_of_any_kind(call: Call, job: Path, trained: Path, tmp_path: Path, kind: str) -> None:
    pixels = digits()["pixel"][:7].reshape(7, 28, 28)
    url = tmp_path / f"new.{kind}"
    if kind == "arrow":
        STORES.find("arrow").write(str(url), {"pixel": pixels})
    else:
        np.savetxt(url, pixels.reshape(7, -1), fmt="%d", delimiter=",")
    given = [job, "--init-from", trained]
    expected = call("predict", *given, "--data", DIGITS).stdout.splitlines(keepends=True)[:8]
    result = call("predict", *given, "--data", url, "--out", tmp_path / "lines.csv")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert result.stderr.endswith("lines.csv: 7 records\n")
    # the name says no format
    result = call("predict", *given, "--data", url, "--out", tmp_path / "lines")
    assert result.stderr.endswith("lines: 7 records, as CSV\n")
    assert (tmp_path / "lines.csv").read_text() == "".join(expected)


def test_no_file_is_replaced_unasked_and_none_that_is_read(
    call: Call, job: Path, trained: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "new.csv", tmp_path / "out.csv"
    np.savetxt(data, digits()["pixel"][:2].reshape(2, -1), fmt="%d", delimiter=",")
    content = data.read_bytes()
    given = ["predict", job, "--init-from", trained, "--data", data, "--out"]
    assert call(*given, out).exit_code == 0
    assert "exists already. Expected a new file. Give --overwrite to replace it" in call(*given, out).stderr
    assert call(*given, out, "--overwrite").exit_code == 0
    for read in (data, job):
        assert "this file is an input" in call(*given, read, "--overwrite").stderr
    assert data.read_bytes() == content
    assert "out.npy: predictions are written to files in .csv, .tsv, .parquet" in call(*given, "out.npy").stderr
    given[-2] = f"{tmp_path}/n*.csv"
    assert "this file is an input" in call(*given, data, "--overwrite").stderr


def test_pictures_are_told_by_their_files(call: Call, job: Path, trained: Path, pictures: Path) -> None:
    given = [job, "--init-from", trained]
    expected = table(call("predict", *given, "--data", DIGITS).stdout)[:7]
    for row, name in zip(expected, sorted(pictures.iterdir()), strict=True):
        row.pop("record")
        row["file"] = str(name)
    for data in ("pictures", "pictures/", "pictures/*.png"):
        result = call("predict", *given, "--data", data)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("file,class,number,probability\npictures/0.png,")
        assert table(result.stdout) == expected
    absolute = call("predict", *given, "--data", pictures.absolute())
    assert table(absolute.stdout)[6]["file"] == str(pictures.absolute() / "6.png")


@pytest.mark.long
def test_one_picture_and_several(call: Call, job: Path, trained: Path, pictures: Path) -> None:
    given = [job, "--init-from", trained, "--set", "neuralnet.layer[data].store_conf.batchsize=2"]
    (one,) = table(call("predict", *given, "--data", "pictures/3.png").stdout)
    several = table(call("predict", *given, "--data", "pictures", "--data", "pictures/3.png", "--data", DIGITS).stdout)
    assert list(several[0]) == ["file", "record", "class", "number", "probability"]
    assert len(several) == 7 + 1 + 2000
    for row in several[3], several[7]:
        assert {**one, "record": ""} == row
    assert (several[8]["file"], several[8]["record"], several[8]["class"]) == (str(DIGITS), "0", several[0]["class"])


def test_a_list_of_pictures(call: Call, job: Path, trained: Path, pictures: Path) -> None:
    (pictures / "list, new.txt").write_text("0.png 0\n2.png 0\n")
    given = [job, "--init-from", trained, "--backend", "image-list", "--data", pictures / "list, new.txt"]
    result = call("predict", *given, "--out", "x.tsv", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert [row["file"] for row in table(Path("x.tsv").read_text(), "\t")] == ["pictures/0.png", "pictures/2.png"]


def test_a_tar_for_a_net_of_a_list(call: Call, job: Path, trained: Path, pictures: Path) -> None:
    with tarfile.open("new.tar", "w") as tar:
        tar.add(pictures)
    given = [job, "--init-from", trained, "--set", "neuralnet.layer[data].store_conf.backend=image-list"]
    result = call("predict", *given, "--data", "new.tar")
    assert result.exit_code == 0, result.output
    assert len(table(result.stdout)) == 7


def test_classes_have_their_names(call: Call, job: Path, pictures: Path) -> None:
    for i, name in enumerate(sorted(pictures.iterdir())):
        folder = Path("classes", ("odd, low", "even", "odd, high")[i % 3])
        folder.mkdir(parents=True, exist_ok=True)
        name.rename(folder / name.name)
    image = "resize: [28, 28], channels: 1, batchsize: 3"
    text = job.read_text().replace("batchsize: 20", image).replace("num_output: 10", "num_output: 3")
    job.write_text(text.replace(str(DIGITS), "classes"))
    assert call("run", job, "--run-dir", "run", "--quiet").exit_code == 0
    result = call("predict", job, "--init-from", "run", "--data", "classes/even/1.png", "--topk", 3)
    assert result.exit_code == 0, result.output
    (row,) = table(result.stdout)
    named = {row[f"number{rank}"]: row[f"class{rank}"] for rank in ("", "_2", "_3")}
    assert named == {"0": "even", "1": "odd, high", "2": "odd, low"}
    assert '"odd, low"' in result.stdout
    # the class of a picture is the name of its folder
    kept = table(call("predict", job, "--init-from", "run", "--data", "classes", "--keep", "label").stdout)
    assert len(kept) == 7 and all(Path(row["file"]).parent.name == row["label"] for row in kept)
    refused = call("predict", job, "--init-from", "run", "--data", "classes", "--keep", "name")
    assert "pictures have only the column 'label', with their classes." in refused.stderr
    Path("flat.png").write_bytes(Path("classes/even/1.png").read_bytes())
    refused = call("predict", job, "--init-from", "run", "--data", "flat.png", "--keep", "label")
    assert "flat.png: its pictures have no labels." in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "none.arrow"], "--data none.arrow: no such file or directory."),
        (["--data", "run"], "--data run: the directory is empty."),
        (["--data", "text.png"], "--data text.png: neither a directory of images nor an image."),
        (["--data", "pictures", "--data", "bad.png"], "--data bad.png: not an image, or a damaged one: "),
        (["--data", "flat.npz"], "--data flat.npz: records of (3,), expected (28, 28) from shape."),
        (["--data", "short.csv"], "--data short.csv, line 1: 3 fields, expected 784"),
        (["--data", "x", "--topk", "11"], "--topk 11: layer 'loss' has 10 values. Expected at most 10."),
        (["--data", "x", "--layer", "no"], "layer 'no' is not in the net"),
    ],
)
def test_mistakes_are_told(
    call: Call, job: Path, trained: Path, pictures: Path, arguments: list[str], said: str
) -> None:
    Path("run").mkdir()
    Path("text.png").write_text("no picture")
    Path("short.csv").write_text("1,2,3\n")
    Path("bad.png").write_bytes(next(pictures.iterdir()).read_bytes()[:60])
    np.savez("flat.npz", x=np.zeros((4, 3), np.uint8))
    result = call("predict", job, "--init-from", trained, *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith(said)
    assert "Traceback" not in result.stderr
