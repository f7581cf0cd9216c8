r"""Files whose names are not UTF-8: Python has their bytes as surrogates, which no encoding has."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.conf.files import yaml_text
from singa_dask.conf.job import JobConf
from singa_dask.data.stores import STORES, open_store
from singa_dask.errors import DataError
from singa_dask.shown import shown
from tests.cli.conftest import Call
from tests.contracts.foreign import png
from tests.contracts.records import assert_same, read_all

ODD = "caf\udce9"
SEEN = r"caf\xe9"


def pictures(folder: Path, n: int = 12) -> Path:
    """Write pictures in two classes, one of which has an odd name, as its pictures have."""
    for label, name in enumerate((ODD, "dog")):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            pixel = np.full((3, 4, 4), 200 * label + i, np.uint8)
            (folder / name / f"{name}{i}.png").write_bytes(png(pixel))
    return folder


def test_texts_for_people_and_files_can_be_encoded(tmp_path: Path) -> None:
    for text in (shown(ODD), str(DataError(ODD))):
        assert text == SEEN
    assert shown("\ud83d") == r"\ud83d"
    file, names = str(tmp_path / ODD), [ODD, r"\U0010DCE9", rf"\{ODD}"]
    for written, read in (
        (json.dumps(names, ensure_ascii=False), json.loads),
        (yaml_text.dump(names), lambda text: yaml_text.read_plain(text, "x")),
    ):
        fs.write_atomic(file, written)
        assert read(fs.read_bytes(file).decode()) == names


def test_a_job_names_odd_files_in_other_processes_too() -> None:
    job = JobConf.model_validate(
        {"neuralnet": {"layer": [{"name": "x", "type": "ReLU"}]}, "cluster": {"workspace": ODD}}
    )
    assert JobConf.from_json(job.to_json().encode().decode()) == job


@pytest.mark.parametrize("backend", ["arrow", "csv", "kvfile", "lmdb", "npz", "parquet"])
def test_all_formats_are_written_and_read(backend: str, tmp_path: Path) -> None:
    records = {"data": np.arange(12, dtype=np.float32).reshape(6, 2), "label": np.arange(6, dtype=np.int32)}
    url = str(tmp_path / ODD / f"{ODD}.{backend}")
    STORES.find(backend).write(url, records)
    with open_store(url, backend) as store:
        assert_same(read_all(store), records)


def test_pictures(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pictures(Path("pics"))
    refused = call("init", "pics", "-o", "job.yaml", "--copy")
    assert refused.exit_code == 1
    assert rf"pics/{SEEN}/{SEEN}0.png: the name is not UTF-8" in refused.stderr
    assert "or leave --copy out" in refused.stderr
    assert call("init", "pics", "-o", "job.yaml").exit_code == 0
    trained = call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", f"run{ODD}")
    assert trained.exit_code == 0, trained.output
    given = ["job.yaml", "--init-from", f"run{ODD}"]
    for out in ([], ["--out", f"{ODD}.csv"]):
        result = call("predict", *given, "--data", "pics", *out)
        assert result.exit_code == 0, result.output
        text = Path(out[1]).read_text() if out else result.stdout
        rows = list(csv.DictReader(text.splitlines()))
        assert rows[0]["file"] == rf"pics/{SEEN}/{SEEN}0.png"
        assert {row["class"] for row in rows} <= {SEEN, "dog"}
    asked = call("test", *given, "--metrics", "confusion_matrix")
    assert asked.exit_code == 2 and "it is a table. Write it to a file: --confusion FILE." in asked.stderr
    assert call("test", *given, "--confusion", "c.csv").exit_code == 0
    assert SEEN in Path("c.csv").read_text()
    several = call("run", "job.yaml", "--run-dir", f"run{ODD}", "--overwrite", "--cluster", "allreduce")
    assert several.exit_code == 2
    said = rf"{tmp_path}/run{SEEN}: the name is not UTF-8, so it cannot be sent. Choose another --run-dir."
    assert several.stderr.splitlines()[-1] == said
    assert "Traceback" not in several.stderr
    assert call("data", "inspect", "pics").exit_code == call("show", f"run{ODD}").exit_code == 0
    assert call("plot", f"run{ODD}", "-o", "curves.html").exit_code == 0


def test_a_damaged_picture_ends_workers_of_several_processes(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = pictures(Path("pics"))
    assert call("init", folder, "-o", "job.yaml", "--test-split", 0).exit_code == 0
    (folder / ODD / f"{ODD}3.png").write_bytes(b"no picture")
    result = call("run", "job.yaml", "--set", "train_steps=2", "--cluster", "allreduce", "--run-dir", "run")
    assert result.exit_code == 1
    assert rf"{SEEN}/{SEEN}3.png: not an image" in result.stderr


def test_a_table(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = Path(ODD, f"{ODD}.csv")
    table.parent.mkdir()
    table.write_text("a,kind\n" + "".join(f"{i % 7},{'yes' if i % 2 else 'no'}\n" for i in range(40)))
    assert call("init", table, "--label", "kind", "-o", "job.yaml", "--test-split", 0).exit_code == 0
    assert call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", "run").exit_code == 0
    result = call("predict", "job.yaml", "--init-from", "run", "--data", table)
    assert result.exit_code == 0, result.output
