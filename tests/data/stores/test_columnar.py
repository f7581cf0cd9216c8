"""Feather, streams of Arrow, ORC and directories of save_to_disk hold what the program that wrote them reads back."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import orc

from singa_dask.cli import main
from singa_dask.data.stores import detect, open_store, write_manifest
from singa_dask.data.stores.manifest_writer import check_manifests
from singa_dask.data.stores.store import Store
from singa_dask.errors import DataError
from tests.selection import mostly_long

N = 50
RANDOM = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "a": RANDOM.normal(size=N).astype(np.float32),
        "b": RANDOM.integers(-9, 9, N),
        "kind": [f"kind {i % 3}" for i in range(N)],
    }
)
LISTS = pa.table(
    {
        "x": pa.array(RANDOM.normal(size=(N, 6)).astype(np.float32).tolist(), pa.list_(pa.float32())),
        "y": pa.array(RANDOM.integers(0, 3, N)),
    }
)


def stream(table: pa.Table, path: Path, **options: Any) -> str:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema, **options) as writer:
        writer.write_table(table, 20)
    return str(path)


def feather(table: pa.Table, path: Path) -> str:
    pa.feather.write_feather(table, str(path), chunksize=20)
    return str(path)


def arrow_file(table: pa.Table, path: Path) -> str:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, 20)
    return str(path)


def in_orc(table: pa.Table, path: Path) -> str:
    orc.write_table(table, str(path), stripe_size=1000)
    return str(path)


def in_parquet(table: pa.Table, path: Path) -> str:
    pq.write_table(table, path, row_group_size=20)
    return str(path)


def saved(table: pa.Table, path: Path) -> str:
    """Write the files of ``Dataset.save_to_disk``, not in the order of their names."""
    path.mkdir()
    names = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]
    for name, part in zip(names, (table.slice(0, 30), table.slice(30)), strict=True):
        stream(part, path / name)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (path / "dataset_info.json").write_text("{}")
    return str(path)


WRITERS: dict[str, Callable[[pa.Table, Path], str]] = {
    "x.feather": feather,
    "x.arrow": stream,
    "y.arrow": arrow_file,
    "x.orc": in_orc,
    "saved": saved,
}


def values(store: Store, name: str) -> np.ndarray[Any, Any]:
    return np.concatenate([store.read_block(block.id)[name] for block in store.blocks])


@pytest.mark.parametrize("name", WRITERS)
def test_lists_of_numbers_are_records(name: str, tmp_path: Path) -> None:
    url = WRITERS[name](LISTS, tmp_path / name)
    assert detect(url) == "parquet"
    with open_store(url) as store:
        np.testing.assert_array_equal(values(store, "data"), np.array(LISTS["x"].to_pylist(), np.float32))
        assert values(store, "label").tolist() == LISTS["y"].to_pylist()


CUBES = RANDOM.integers(0, 255, (N, 2, 3, 4)).astype(np.int16)
TENSORS = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.int16(), (2, 3, 4), permutation=[2, 1, 0]),
    pa.FixedSizeListArray.from_arrays(CUBES.ravel(), 24),
)
NESTED = {
    "lists": pa.array(CUBES.tolist(), pa.list_(pa.large_list(pa.list_(pa.int16())))),
    "fixed lists": pa.array(CUBES.tolist(), pa.list_(pa.list_(pa.list_(pa.int16(), 4), 3), 2)),
    "permuted tensors": TENSORS,
}


@pytest.mark.parametrize(
    ("name", "kind"),
    # ORC has neither lists of a fixed length nor tensors
    [(name, kind) for name in (*WRITERS, "x.parquet") for kind in NESTED if name != "x.orc" or kind == "lists"],
)
def test_nested_lists_of_numbers_are_records_of_their_shape(name: str, kind: str, tmp_path: Path) -> None:
    table = pa.table({"x": NESTED[kind], "y": LISTS["y"]})
    url = {**WRITERS, "x.parquet": in_parquet}[name](table, tmp_path / name)
    with open_store(url) as store:
        expected = TENSORS.to_numpy_ndarray() if kind == "permuted tensors" else CUBES
        np.testing.assert_array_equal(values(store, "data"), expected)
        assert values(store, "label").tolist() == LISTS["y"].to_pylist()


@pytest.mark.parametrize("suffix", ["arrow", "feather"])
def test_the_schema_of_an_arrow_file_says_whether_it_is_mapped(suffix: str, tmp_path: Path) -> None:
    lists, converted = arrow_file(LISTS, tmp_path / f"x.{suffix}"), str(tmp_path / f"y.{suffix}")
    call("convert", "parquet", lists, converted)
    for url, backend in ((lists, "parquet"), (converted, "arrow")):
        assert detect(url) == backend
        with open_store(url) as store:
            assert store.mapped == (backend == "arrow")
            np.testing.assert_array_equal(values(store, "data"), np.array(LISTS["x"].to_pylist(), np.float32))
    many = pa.table({f"a column with a long name {i}": [i] for i in range(1000)})
    with pytest.raises(
        DataError, match="backend: parquet reads lists of numbers, backend: table columns by their names"
    ):
        open_store(arrow_file(many, tmp_path / f"z.{suffix}"))


@pytest.mark.parametrize("name", WRITERS)
def test_named_columns_are_a_table(name: str, tmp_path: Path) -> None:
    url = WRITERS[name](pa.Table.from_pandas(FRAME), tmp_path / name)
    with open_store(url, "table", label="kind") as store:
        np.testing.assert_array_equal(values(store, "data"), FRAME[["a", "b"]].to_numpy(np.float32))
        names = [store.class_names[label] for label in values(store, "label")]
    assert names == FRAME.kind.tolist()


def test_categories_and_class_names_of_hugging_face_are_kept(tmp_path: Path) -> None:
    names = {"info": {"features": {"y": {"names": ["cat", "dog", "eel"], "_type": "ClassLabel"}}}}
    table = LISTS.replace_schema_metadata({"huggingface": json.dumps(names)})
    with open_store(saved(table, tmp_path / "named")) as store:
        assert store.class_names == ("cat", "dog", "eel")
    frame = FRAME.astype({"kind": "category"})
    frame.to_feather(tmp_path / "x.feather")
    with open_store(str(tmp_path / "x.feather"), "table", label="kind") as store:
        assert [store.class_names[label] for label in values(store, "label")] == FRAME.kind.tolist()


def call(*args: object) -> str:
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result.output


VECTORS = pa.table(
    {
        "embedding": LISTS["x"],
        "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * N, dtype=np.int32)), 2),
        "age": pa.array(np.arange(N)),
        "kind": FRAME.kind,
    }
)


@pytest.mark.parametrize("name", [*WRITERS, "x.parquet"])
def test_vectors_and_numbers_are_features_beside_labels_of_text(name: str, tmp_path: Path) -> None:
    url = {**WRITERS, "x.parquet": in_parquet}[name](VECTORS, tmp_path / name)
    expected = {
        each: np.array(VECTORS[each].to_pylist(), np.float32).reshape(N, -1) for each in VECTORS.schema.names[:3]
    }
    for features in (["embedding"], ["age", "embedding", "pair"]):
        with open_store(url, "table", features=features, label="kind") as store:
            np.testing.assert_array_equal(values(store, "data"), np.hstack([expected[each] for each in features]))
            assert [store.class_names[label] for label in values(store, "label")] == FRAME.kind.tolist()
    with pytest.raises(
        DataError, match=r"'embedding' has an array in each record\. Set features, with it or not; or read"
    ):
        open_store(url, "table", label="kind")


def test_wrong_vectors(tmp_path: Path) -> None:
    rows: list[Any] = [[1.0, 2.0], None, [1.0, None], [3.0, float("nan")], [4.0, 5.0]]
    table = pa.table({"x": pa.array(rows, pa.list_(pa.float64())), "y": range(5)})
    url = in_parquet(table, tmp_path / "x.parquet")
    with open_store(url, "table", label="y", missing="skip") as store:
        assert values(store, "data").tolist() == [[1, 2], [4, 5]]
        assert values(store, "label").tolist() == [0, 4]
    with open_store(url, "table", label="y", missing=-1) as store:
        assert values(store, "data").tolist() == [[1, 2], [-1, -1], [1, -1], [3, -1], [4, 5]]
    with open_store(url, "table", label="y") as store, pytest.raises(DataError, match="record 1, column 'x': no value"):
        store.read_block(0)
    with pytest.raises(DataError, match=r"'x' has vectors, which missing: mean cannot fill in\. Set missing: skip"):
        open_store(url, "table", label="y", missing="mean")
    url = in_parquet(pa.table({"x": [[1.0, 2.0], [1.0, 2.0], [1.0]], "y": range(3)}), tmp_path / "x.parquet")
    with open_store(url, "table", label="y") as store:
        with pytest.raises(DataError, match="row group 0, record 2, column 'x': 1 values, expected 2"):
            store.read_block(0)
        good, bad = store.salvage(0)
        assert good["data"].tolist() == [[1, 2], [1, 2], [0, 0]]
        assert list(bad) == [2]


@pytest.mark.parametrize("name", mostly_long(WRITERS, len(WRITERS)))
def test_commands_read_it(name: str, tmp_path: Path) -> None:
    url = WRITERS[name](pa.Table.from_pandas(FRAME), tmp_path / name)
    assert "50" in call("data", "inspect", url, "--label", "kind")
    target = str(tmp_path / "converted.arrow")
    call("convert", "table", url, target, "--label", "kind", "--verify")
    with open_store(target) as store:
        np.testing.assert_array_equal(values(store, "data"), FRAME[["a", "b"]].to_numpy(np.float32))
    job = tmp_path / "job.yaml"
    call("init", url, "--label", "kind", "--out", job)
    call("validate", job)


def test_commands_read_vectors(tmp_path: Path) -> None:
    url, target, job = in_parquet(VECTORS, tmp_path / "x.parquet"), str(tmp_path / "y.arrow"), tmp_path / "job.yaml"
    call("convert", "table", url, target, "--label", "kind", "--features", "embedding,age", "--verify")
    with open_store(target) as store:
        assert store.table_facts is not None
        assert store.table_facts.widths == {"embedding": 6}
        np.testing.assert_array_equal(values(store, "data")[:, 6], np.arange(N))
    assert "vector" in call("data", "inspect", url, "--label", "kind", "--features", "embedding")
    call("init", url, "--label", "kind", "--out", job)
    assert "shape: [8]" in job.read_text(), "age numbers the records"
    call("validate", job)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_directory_of_files_is_a_store_by_its_backend(suffix: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"features": LISTS["x"].to_pylist(), "label": LISTS["y"].to_pylist()})
    for i in range(2):
        part, path = frame[25 * i : 25 * i + 25], tmp_path / f"part-{i}.{suffix}"
        part.to_parquet(path) if suffix == "parquet" else part.to_json(path, orient="records", lines=True)
    (tmp_path / "README.md").write_text("read me\n")
    with open_store(str(tmp_path), suffix) as store:
        assert values(store, "label").tolist() == LISTS["y"].to_pylist()
    (tmp_path / f"part-1.{suffix}").rename(tmp_path / f"test-1.{suffix}")
    (tmp_path / f"part-0.{suffix}").rename(tmp_path / f"train-0.{suffix}")
    with pytest.raises(DataError, match="files of test and train would be read as one dataset"):
        open_store(str(tmp_path), suffix)


def test_splits_are_never_one_store(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for split in ("train", "test"):
        saved(LISTS, tmp_path / split)
    for backend in (None, "parquet", "table"):
        with pytest.raises(DataError, match=rf"splits train, test, .* Name one: {tmp_path}/train\."):
            open_store(str(tmp_path), backend)
    assert open_store(f"{tmp_path}/train").count == N


@pytest.mark.parametrize(("first", "second"), [("train", "test"), ("labelled", "other")])
def test_sets_of_files_as_on_the_hub_are_never_one_store(first: str, second: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "README.md").write_text("---\nconfigs: []\n---\n")
    for name in (first, second):
        for i in range(2):
            in_parquet(LISTS.slice(25 * i, 25), data / f"{name}-{i:05d}-of-00002.parquet")
    sets = " or ".join(f"{data}/{name}-*.parquet" for name in sorted([first, second]))
    for backend in (None, "parquet", "table"):
        with pytest.raises(DataError, match=re.escape(f"It has sets of files: name one, {sets}.")):
            open_store(str(tmp_path), backend)
    files = f"[{{split: {first}, path: data/{first}-*}}, {{split: {second}, path: [data/*.x, '*/y']}}]"
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n- config_name: plain\n  data_files: {files}\n---\n# Data\n")
    named = f"Its README.md names sets of files. Name one: {data}/{first}-* ({first} of plain), {data}/*.x ({second} of"
    for backend in (None, "parquet", "table"):
        with pytest.raises(DataError, match=rf"{re.escape(named)} plain\)\.$"):
            open_store(str(tmp_path), backend)
    for backend in ("parquet", "table"):
        with pytest.raises(
            DataError, match=f"files of {' and '.join(sorted([first, second]))} would be read as one dataset"
        ):
            open_store(str(data), backend)
    with open_store(f"{data}/{first}-*.parquet") as store:
        np.testing.assert_array_equal(values(store, "data"), np.array(LISTS["x"].to_pylist(), np.float32))


@pytest.mark.parametrize("name", ["x.feather", "x.orc", "x.json"])
def test_a_manifest_is_of_the_file_not_of_its_form_in_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, options = tmp_path / name, {"label": "kind"}
    if name == "x.json":
        FRAME.to_json(path, orient="records")
    else:
        WRITERS[name](pa.Table.from_pandas(FRAME), path)
    write_manifest(str(path), "table", **options)
    with open_store(str(path), "table", **options) as store:
        fingerprint = store.fingerprint
    # as another version of pyarrow may
    write = functools.partial(pq.ParquetWriter, compression="gzip", use_dictionary=False)
    monkeypatch.setattr(pq, "ParquetWriter", write)
    with open_store(str(path), "table", **options) as store:
        check_manifests(store)
        assert all(block.crc is not None for block in store.blocks)
        assert len(values(store, "data")) == N
        assert store.fingerprint == fingerprint
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"kind 1", b"kind 2"))
    with (
        pytest.raises(DataError, match="damaged, or newer than its manifest"),
        open_store(str(path), "table", **options) as store,
    ):
        store.read_block(0)


def cut_stream(folder: Path) -> str:
    path = folder / "x.arrow"
    stream(LISTS, path)
    path.write_bytes(path.read_bytes()[:-8])
    return str(path)


def feather_1(folder: Path) -> str:
    (folder / "x.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    return str(folder / "x.feather")


def union(folder: Path) -> str:
    column = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    return stream(pa.table({"x": column}), folder / "x.arrow")


def permuted(folder: Path) -> str:
    kind = pa.fixed_shape_tensor(pa.int16(), (2, 3, 4), permutation=[2, 0, 1])
    return stream(pa.table({"x": pa.ExtensionArray.from_storage(kind, TENSORS.storage)}), folder / "x.arrow")


def without_a_file(folder: Path) -> str:
    url = saved(LISTS, folder / "saved")
    Path(url, "data-00001-of-00002.arrow").unlink()
    return url


def not_orc(folder: Path) -> str:
    (folder / "x.orc").write_bytes(b"ORC" + bytes(100))
    return str(folder / "x.orc")


REFUSED: dict[str, tuple[Callable[[Path], str], dict[str, Any], str]] = {
    "cut stream": (cut_stream, {}, "has no end. It is truncated"),
    "feather 1": (feather_1, {}, "Feather version 1, .* Write version 2"),
    "union": (union, {}, "has types that Parquet lacks: Unhandled type"),
    "permuted in two ways": (permuted, {}, r"\(4, 2, 3\) by the specification of Arrow, but \(3, 4, 2\) as pyarrow"),
    "a file is missing": (without_a_file, {}, "state.json names data-00001-of-00002.arrow, which does not exist"),
    "orc": (not_orc, {}, "not an ORC file, is damaged"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_a_file_that_is_refused(form: str, tmp_path: Path) -> None:
    write, options, message = REFUSED[form]
    url = write(tmp_path)
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path))}.*{message}"):
        open_store(url, **options)
