"""What every store must do, whatever its format: of all in `STORES` that can be written."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError
from singa_dask.testing import check_store
from singa_dask.testing.store_exam import check_fetched
from tests.contracts.records import (
    SUFFIX,
    assert_same,
    floats,
    pixels,
    read_all,
    stored,
    written,
)

BACKENDS = list(SUFFIX)
TEXT = [name for name in BACKENDS if STORES.find(name).holds == "text"]
OURS = [name for name in BACKENDS if name not in TEXT]
# LMDB is written to local disks only
REMOTE = [name for name in BACKENDS if issubclass(STORES.find(name), RangeStore) and name != "lmdb"]


def as_read(backend: str, records: Arrays) -> Arrays:
    """Say what comes back: text holds numbers in a row."""
    if backend not in TEXT:
        return records
    values = records["data"] if "data" in records else records["pixel"]
    row = {"data": values.reshape(len(values), -1).astype(np.float32)}
    return {**row, "label": records["label"]}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [pixels, floats])
def test_records_come_back(backend: str, make: type, tmp_path: Path) -> None:
    records = make(700)
    with stored(tmp_path, backend, records) as store:
        assert store.count == 700
        assert_same(read_all(store), as_read(backend, records))


@pytest.mark.parametrize("backend", OURS)
def test_records_without_labels(backend: str, tmp_path: Path) -> None:
    records = pixels(9, labels=False)
    with stored(tmp_path, backend, records) as store:
        assert list(store.schema) == ["pixel"]
        assert_same(read_all(store), records)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [pixels, floats])
def test_every_store_passes_the_exam(backend: str, make: type, tmp_path: Path) -> None:
    assert check_store(backend, written(tmp_path, backend, make(3000))) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_record(backend: str, tmp_path: Path) -> None:
    with stored(tmp_path, backend, pixels(1)) as store:
        assert (store.count, len(store.blocks)) == (1, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_are_about_a_mebibyte_and_hold_all(backend: str, tmp_path: Path) -> None:
    records = pixels(3000, (1000,))
    with stored(tmp_path, backend, records) as store:
        assert len(store.blocks) > 2
        assert [block.id for block in store.blocks] == list(range(len(store.blocks)))
        assert sum(block.n for block in store.blocks) == 3000
        assert all(block.length < 3 << 20 and block.file for block in store.blocks)
        np.testing.assert_array_equal(store.starts[1:], np.cumsum([block.n for block in store.blocks]))
        assert_same(read_all(store), as_read(backend, records))
        last = store.blocks[-1]
        assert len(store.read_block(last.id)["label"]) == last.n


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_fingerprint_is_of_the_records_not_of_the_place(backend: str, tmp_path: Path) -> None:
    urls = [written(tmp_path, backend, pixels(n), name=name) for n, name in ((20, "a"), (20, "b"), (21, "c"))]
    prints = []
    for url in urls:
        with open_store(url, backend) as store:
            prints.append(store.fingerprint)
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_missing_file_is_named(backend: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*no such file"):
        open_store(str(tmp_path / "nowhere"), backend)
    with pytest.raises(DataError, match=r"nowhere.*no such file"):
        open_store(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_file_is_named(backend: str, tmp_path: Path) -> None:
    path = tmp_path / f"empty{SUFFIX[backend]}"
    path.touch()
    with pytest.raises(DataError, match="empty"):
        open_store(str(path), backend)


@pytest.mark.parametrize("backend", OURS)
def test_a_file_cut_short_anywhere_is_named(backend: str, tmp_path: Path) -> None:
    url = written(tmp_path, backend, pixels(400))
    path = Path(url) / "data.mdb" if backend == "lmdb" else Path(url)
    whole = path.read_bytes()
    for length in sorted({1, 7, 100, len(whole) // 2 + 3, len(whole) - 1}):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=path.name):
            open_store(url, backend)


@pytest.mark.parametrize("backend", REMOTE)
def test_a_url_that_is_not_local(backend: str, tmp_path: Path) -> None:
    records = pixels(3000, (250,) if backend in TEXT else (1000,))  # numbers as texts are longer, and slow
    url = f"memory://contract/{backend}{SUFFIX[backend]}"
    STORES.find(backend).write(url, records)
    with open_store(url) as store:
        assert len(store.blocks) > 2
        assert_same(read_all(store), as_read(backend, records))
        check_fetched(store)
    fs.remove_tree("memory://contract")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_target_is_written_whole_or_not_at_all(backend: str, tmp_path: Path) -> None:
    url = written(tmp_path, backend, pixels(10))
    broken = {**pixels(10), "label": np.arange(9, dtype=np.int32)}
    with pytest.raises(DataError, match=r"have different lengths: \{'pixel': 10, 'label': 9\}"):
        STORES.find(backend).write(url, broken)
    with open_store(url, backend) as store:
        assert store.count == 10
    assert [path.name for path in tmp_path.iterdir()] == [Path(url).name]


@pytest.mark.parametrize("backend", [*OURS, "csv"])
def test_the_backend_is_told_by_suffix_or_content(backend: str, tmp_path: Path) -> None:
    url = written(tmp_path, backend, pixels(10))
    with open_store(url) as store:
        assert type(store) is STORES.find(backend)


def test_content_counts_more_than_the_name(tmp_path: Path) -> None:
    url = written(tmp_path, "arrow", pixels(10))
    other = Path(url).rename(tmp_path / "records.data")
    with open_store(str(other)) as store:
        assert store.count == 10


def test_unknown_formats(tmp_path: Path) -> None:
    path = tmp_path / "file.xyz"
    path.write_bytes(b"what")
    with pytest.raises(DataError, match=rf"the format is unknown.*Known: {', '.join(STORES.names())}\."):
        open_store(str(path))
    with pytest.raises(ConfigError, match=r"unknown store backend 'arow'\. Did you mean 'arrow'\?"):
        open_store(str(path), "arow")


@pytest.mark.parametrize(("backend", "other"), [*itertools.permutations(OURS, 2)])
def test_another_format_is_refused(backend: str, other: str, tmp_path: Path) -> None:
    url = written(tmp_path, backend, pixels(10))
    if (backend, other) == ("arrow", "parquet"):  # it reads files of Arrow too
        with open_store(url) as store, open_store(url, other) as in_memory:
            assert_same(read_all(in_memory), read_all(store))
        return
    with pytest.raises(DataError, match=Path(url).name):
        open_store(url, other)
