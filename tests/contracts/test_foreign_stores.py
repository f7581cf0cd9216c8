"""What every store must do that reads the files of others; a new format is a new line in NAMES."""

from __future__ import annotations

import contextlib
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.testing.store_exam import check_fetched
from tests.contracts.foreign import FOREIGN, NAMES, shape_of, write_foreign, zipped
from tests.contracts.records import SUFFIX, assert_same, pixels, read_all

FILES = [backend for backend in FOREIGN if not backend.startswith("image-") and backend != "zarr"]
# Formats without checksums, or whose checksums are of more than is read at a time: a wrong byte is a wrong
# value, or an unknown name of an array.
UNCHECKED = ["cifar", "idx", "npy", "npz"]
# in these a wrong byte may also be another place or order of whole chunks
UNORDERED = ["hdf5"]
ZIPPED = ["cifar", "idx", "tfrecord", "webdataset"]


def records_of(backend: str, n: int) -> Arrays:
    records = pixels(n, shape_of(backend))
    records["label"] = np.sort(np.arange(n, dtype=np.int32) % 3)
    return records


def test_every_store_is_tested() -> None:
    # these read text and tables, whose records are not arrays of bytes, or files of others, and have tests of their own
    others = {"image-parquet", "jsonl", "lines", "shards", "table"}
    assert {*FOREIGN, *SUFFIX, *others} == set(STORES.names())


@pytest.mark.parametrize("backend", FOREIGN)
def test_records_come_back_and_travel(backend: str, tmp_path: Path) -> None:
    records = records_of(backend, 90)
    with open_store(write_foreign(tmp_path, backend, records), backend) as store:
        assert store.count == 90
        assert list(store.schema) == ["pixel", "label"]
        assert_same(read_all(store), records)
        with pickle.loads(pickle.dumps(store)) as copy:
            assert copy.fingerprint == store.fingerprint
            assert_same(read_all(copy), records)


@pytest.mark.parametrize("backend", FOREIGN)
def test_many_blocks(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("arrays.stored_array", "arrays.cifar", "arrays.column", "images.image"):
        monkeypatch.setattr(f"singa_dask.data.stores.{module}.BLOCK_BYTES", 1000)
    monkeypatch.setattr("singa_dask.data.blocks.cut_blocks.__defaults__", (1000,))
    records = records_of(backend, 90)
    with open_store(write_foreign(tmp_path, backend, records), backend) as store:
        assert len(store.blocks) > 1
        assert [block.id for block in store.blocks] == list(range(len(store.blocks)))
        assert_same(read_all(store), records)


@pytest.mark.parametrize("backend", [each for each in FOREIGN if each not in ("cifar", "image-folder", "image-list")])
def test_the_backend_is_told_by_suffix(backend: str, tmp_path: Path) -> None:
    with open_store(write_foreign(tmp_path, backend, records_of(backend, 3))) as store:
        assert store.count == 3


@pytest.mark.parametrize("backend", FOREIGN)
def test_a_missing_file_is_named(backend: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*no such file"):
        open_store(str(tmp_path / "nowhere"), backend)


@pytest.mark.parametrize("backend", FOREIGN)
def test_an_empty_file_is_named(backend: str, tmp_path: Path) -> None:
    path = tmp_path / NAMES[backend]
    path.mkdir() if backend == "image-folder" else path.touch()
    with pytest.raises(
        DataError, match=rf"{path.name}: .*(empty|not whole CIFAR records|not an npz|no images|no records)"
    ):
        open_store(str(path), backend)


@pytest.mark.parametrize("backend", FILES)
def test_a_file_cut_short_anywhere_is_named(backend: str, tmp_path: Path) -> None:
    path = Path(write_foreign(tmp_path, backend, records_of(backend, 40)))
    whole = path.read_bytes().rstrip(b"\0") if backend == "webdataset" else path.read_bytes()
    for length in sorted({1, 7, 100, len(whole) // 2 + 3, len(whole) - 1}):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=path.name):
            open_store(str(path), backend)


@pytest.mark.parametrize("backend", FILES)
def test_damage_anywhere_is_a_data_error_or_does_no_harm(backend: str, tmp_path: Path) -> None:
    records = records_of(backend, 6)
    path = Path(write_foreign(tmp_path, backend, records))
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        # headers more often than what follows them
        damaged[random.integers(min(len(whole), random.choice([40, 600, 1 << 30])))] = random.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(DataError), open_store(str(path), backend) as store:
            found = read_all(store)
            assert {"pixel"} <= set(found) <= set(records)
            shapes = {name: (values.shape, values.dtype) for name, values in found.items()}
            assert shapes == {name: (records[name].shape, records[name].dtype) for name in found}
            n_wrong = sum(np.count_nonzero(records[name] != values) for name, values in found.items())
            if backend not in UNORDERED:
                assert n_wrong + len(set(records) - set(found)) <= (backend in UNCHECKED)


@pytest.mark.parametrize("backend", FOREIGN)
def test_a_url_that_is_not_local(backend: str, tmp_path: Path) -> None:
    records = records_of(backend, 30)
    write_foreign(tmp_path, backend, records)
    for path in tmp_path.rglob("*.*" if backend.startswith("image-") else "*"):
        if path.is_file():
            fs.write_atomic(f"memory://foreign/{path.relative_to(tmp_path)}", path.read_bytes())
    with open_store(f"memory://foreign/{NAMES[backend]}", backend) as store:
        assert_same(read_all(store), records)
        check_fetched(store)
    fs.remove_tree("memory://foreign")


@pytest.mark.parametrize("backend", ZIPPED)
def test_a_gzipped_file(backend: str, tmp_path: Path) -> None:
    records = records_of(backend, 30)
    url = zipped(Path(write_foreign(tmp_path, backend, records)))
    if backend == "idx":
        zipped(tmp_path / "train-labels-idx1-ubyte")
    with open_store(url, backend) as store:
        assert_same(read_all(store), records)
    Path(url).write_bytes(Path(url).read_bytes()[:-9])
    with pytest.raises(DataError, match=r"\.gz: the gzip file is damaged"):
        open_store(url, backend)


def test_a_directory_without_read_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = write_foreign(tmp_path, "image-folder", records_of("image-folder", 3))
    shutil.rmtree(Path(url) / "class-0")
    (Path(url) / "class-0").mkdir()

    def refuse(path: str, *_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    # root may read everything, so the system is asked to refuse
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(DataError, match=r"classes: .*Permission denied"):
        open_store(url, "image-folder")
