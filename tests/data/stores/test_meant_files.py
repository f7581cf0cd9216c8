"""What files a store reads: the one that is named, those of a pattern, and of tables with a log none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from singa_dask import fs
from singa_dask.data.stores.opening import detect, open_store
from singa_dask.data.stores.table import TableStore
from singa_dask.errors import DataError

Call = Callable[..., Any]
TABLE = {"features": ["x"], "label": "y"}


def table(path: Path, *values: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x,y\n" + "".join(f"{value},1\n" for value in values))


def values_of(url: Path | str) -> list[float]:
    with TableStore(str(url), **TABLE) as store:
        return [float(x) for block in store.blocks for x in store.read_block(block.id)["data"][:, 0]]


def test_a_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    for n, name in enumerate(("train1.csv", "train[1].csv", "what?.csv", "a*.csv", "ab.csv", "report[2].csv")):
        table(tmp_path / name, n)
        assert values_of(tmp_path / name) == [n]
    assert values_of(tmp_path / "train[[]1].csv") == [1]
    assert sorted(values_of(tmp_path / "*.csv")) == [0, 1, 2, 3, 4, 5]


def test_hidden_files_are_not_meant(tmp_path: Path) -> None:
    for n, name in enumerate(("a.csv", ".part-0.csv", ".~lock.a.csv#")):
        table(tmp_path / name, n)
    assert values_of(tmp_path / "*.csv") == values_of(tmp_path) == [0]


def test_directories_by_a_pattern(tmp_path: Path) -> None:
    """More of them than threads open files."""
    for n in range(6):
        for k in range(3):
            (tmp_path / f"part-{n}").mkdir(exist_ok=True)
            (tmp_path / f"part-{n}" / f"{k}.jsonl").write_text(f'{{"data": [{n}.0, {k}.0], "label": {k}}}\n')
    with open_store(f"{tmp_path}/part-*", "jsonl") as store:
        rows = [list(row) for block in store.blocks for row in store.read_block(block.id)["data"]]
    assert rows == [[n, k] for n in range(6) for k in range(3)]


LAKES = {
    "Delta": ["_delta_log/00000000000000000000.json"],
    "Hudi": [".hoodie/hoodie.properties"],
    "Iceberg": ["../metadata/v1.metadata.json"],
    "_started_7 without _committed_7": ["_started_7", "_started_6", "_committed_6"],
}


@pytest.mark.parametrize("what", ["", "/*.csv", "/**"])
@pytest.mark.parametrize("kind", LAKES)
def test_tables_with_a_log_are_refused(tmp_path: Path, kind: str, what: str) -> None:
    folder = tmp_path / "table" / "data"
    table(folder / "a.csv", 1)
    table(folder / "b.csv", 2)
    assert values_of(f"{folder}{what}") == [1, 2]
    for name in LAKES[kind]:
        fs.write_atomic(f"{folder}/{name}", b"{}")
    with pytest.raises(DataError, match=kind):
        values_of(f"{folder}{what}")
    for open_it in (open_store, lambda url: open_store(url, "csv")):
        with pytest.raises(DataError):
            open_it(f"{folder}{what}").close()


def test_a_job_that_has_committed_its_files_is_read(tmp_path: Path) -> None:
    table(tmp_path / "a.csv", 1)
    for name in ("_started_7", "_committed_7", "_SUCCESS"):
        (tmp_path / name).touch()
    assert values_of(tmp_path) == [1]


@pytest.mark.parametrize("name", ["part-{}.csv", "part-{}.csv.gz", "part-{}.parquet", "part-{}.jsonl", "x={}/part.csv"])
def test_a_directory_of_parts_is_a_table(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "kind": ["x", "y"]})
    writers = {"csv": frame.to_csv, "gz": frame.to_csv, "parquet": frame.to_parquet}
    for i in range(3):
        file = tmp_path / "table" / name.format(i)
        file.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("jsonl"):
            frame.to_json(file, orient="records", lines=True)
        else:
            writers[name.rpartition(".")[2]](file, index=False)
    (tmp_path / "table" / "_SUCCESS").touch()
    assert detect(str(tmp_path / "table")) == "table"
    with open_store(str(tmp_path / "table"), features=["a"], label="kind") as store:
        assert (store.count, store.class_names) == (6, ("x", "y"))
    # but texts, and files of several kinds, are not
    (tmp_path / "table" / "book.txt").write_text("once")
    assert detect(str(tmp_path / "table")) is None
