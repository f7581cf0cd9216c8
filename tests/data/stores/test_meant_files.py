"""What files a store reads: the one that is named, those of a pattern, and of tables with a log none."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from singa_dask import fs
from singa_dask.data.stores.detection import detect
from singa_dask.data.stores.opening import open_store
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
from tests.contracts.records import assert_same, read_all

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
    "_started_7 has no _committed_7": ["_started_7", "_started_6", "_committed_6"],
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


PACKED = {
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: pa.compress(data, "zstd", asbytes=True),
    "lz4": lambda data: pa.compress(data, "lz4", asbytes=True),
}
SUFFIXES = {"bzip2": "bz2", "xz": "xz", "zstd": "zst", "lz4": "lz4"}


@pytest.mark.parametrize("name", PACKED)
def test_how_a_file_is_compressed_is_said(name: str, tmp_path: Path) -> None:
    data = PACKED[name](b"a,kind\n1,x\n2,y\n" * 9)
    said = rf"{name}\. Decompress it, or compress it with gzip\.$"
    for file in (tmp_path / f"x.csv.{SUFFIXES[name]}", tmp_path / "x.csv", tmp_path / "x.tar"):
        file.write_bytes(data)
        for backend in (None, "csv", "table", "jsonl", "webdataset", "idx"):
            with pytest.raises(DataError, match=f"{file.name}: compressed with {said}"):
                open_store(str(file), backend)
        with pytest.raises(DataError, match=said):
            decode_text(str(file))


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.tsv.gz", "x.unknown"])
def test_empty_files_are_called_empty(name: str, tmp_path: Path) -> None:
    for content in (b"", gzip.compress(b"")) if name != "x.unknown" else (b"",):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}: (it is empty|no lines)\."):
            open_store(str(tmp_path / name))


def test_gzipped_lines_of_numbers_are_found_by_their_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"1,2.5,3\n0,1,4\n"))
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(b"1\t2.5\t3\n0\t1\t4\n"))
    for name, options in (("x.csv.gz", {}), ("x.tsv.gz", {"separator": "\t"})):
        with open_store(str(tmp_path / name), **options) as store:
            expected = {"data": np.array([[2.5, 3], [1, 4]], np.float32), "label": np.array([1, 0], np.int32)}
            assert_same(read_all(store), expected)


@pytest.mark.parametrize("form", ["csv", "parquet", "feather", "json", "jsonl"])
def test_a_pattern_of_a_table_is_one_table_as_its_directory_is(form: str, tmp_path: Path) -> None:
    """Classes, categories and means are those of all files, and no file has all."""
    parts = [
        pd.DataFrame({"h": [1.0, None], "c": ["x", "y"], "kind": ["a", "b"]}),
        pd.DataFrame({"h": [6.0, 5.0], "c": ["z", "y"], "kind": ["c", "b"]}),
    ]
    for i, part in enumerate(parts):
        made = {
            "csv": lambda path, part=part: part.to_csv(path, index=False),
            "parquet": part.to_parquet,
            "feather": part.to_feather,
            "json": lambda path, part=part: part.to_json(path, orient="records"),
            "jsonl": lambda path, part=part: part.to_json(path, orient="records", lines=True),
        }
        made[form](tmp_path / f"part-{i}.{form}")
    options = {"features": ["h", "c"], "categories": {"c": ["x", "y", "z"]}, "label": "kind", "missing": "mean"}
    with open_store(str(tmp_path / f"*.{form}"), "table", **options) as store:
        assert store.class_names == ("a", "b", "c")
        assert_same(
            read_all(store),
            {
                "data": np.array([[1, 1, 0, 0], [4, 0, 1, 0], [6, 0, 0, 1], [5, 0, 1, 0]], np.float32),
                "label": np.array([0, 1, 2, 1], np.int32),
            },
        )
    with open_store(str(tmp_path), "table", **options) as store:
        assert store.class_names == ("a", "b", "c")


def test_what_is_in_a_zip_archive_is_said(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "train.csv.zip", "w") as archive:
        archive.writestr("train.csv", "a,b\n1,2\n")
    with pytest.raises(
        DataError, match=r"train\.csv\.zip: the file is a zip archive of train\.csv, not of arrays\. Unpack it\.$"
    ):
        open_store(str(tmp_path / "train.csv.zip"))


BYTES = st.binary(min_size=1, max_size=8).filter(lambda name: not {*b"/\0"} & {*name} and name not in (b".", b".."))


@settings(max_examples=60)
@given(st.sets(BYTES, min_size=1, max_size=6))
def test_tables_in_files_whose_names_are_any_bytes(tmp_path_factory: pytest.TempPathFactory, names: set[bytes]) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    shown = [os.fsdecode(name + b".csv") for name in sorted(names)]
    for number, name in enumerate(shown):
        table(folder / name, number)
    assert [values_of(folder / name) for name in shown] == [[number] for number in range(len(shown))]
    # hidden files, and those that begin with _, are no parts of a directory
    parts = [number for number, name in enumerate(shown) if name[0] not in "._"]
    try:
        assert sorted(values_of(folder)) == parts
    except DataError as error:
        assert not parts or "rename them" in str(error)  # as the names of train and test sets
