"""Part files on hosts: read in place on this one, by ranges from the others, as long as their catalog is mounted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask import fs
from singa_dask.data.loading.locality import Locations
from singa_dask.data.stores import open_store
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.data.stores.tables import table_store
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError
from singa_dask.fs import range_reader
from singa_dask.fs.host_files import Catalog, PartFile, dataset_of, mounted
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.versions import version

X = np.arange(60, dtype=np.float32).reshape(12, 5)


class Hosts:
    """Four parts of a dataset, two on this host and two on another one.

    Attributes
    ----------
    fetched : list of (str, int, int)
        Ranges that were read from the other host: name, offset and length.
    """

    def __init__(self, folder: Path) -> None:
        self.fetched: list[tuple[str, int, int]] = []
        self._elsewhere: dict[str, Path] = {}
        files = []
        for i in range(4):
            name, host = f"part-{i:05d}.arrow", ("here", "there")[i % 2]
            path = folder / host / name
            path.parent.mkdir(exist_ok=True)
            rows = slice(3 * i, 3 * i + 3)
            chunk = {"data": X[rows], "label": np.arange(12, dtype=np.int32)[rows]}
            ArrowStore.write(str(path), [chunk])
            told = path if host == "here" else Path("/nowhere", name)
            self._elsewhere[name] = path
            files.append(PartFile(name, host, f"tcp://{host}:1", str(told), path.stat().st_size, 3))
        self.catalog = Catalog("train", "train-1", tuple(files))

    def fetch(self, catalog: Catalog, file: PartFile, offset: int, length: int) -> bytes:
        assert (catalog, file.host) == (self.catalog, "there")
        self.fetched.append((file.name, offset, length))
        return self._elsewhere[file.name].read_bytes()[offset : offset + length]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_a_mounted_catalog_is_a_directory_of_files(hosts: Hosts) -> None:
    here, there = "dask://train-1/part-00000.arrow", "dask://train-1/part-00001.arrow"
    with mounted([Catalog.of(hosts.catalog.message())], hosts.fetch):
        assert fs.ls("dask://train-1") == [file.name for file in hosts.catalog.files]
        assert fs.look("dask://train-1") == (True, 0)
        assert fs.look(here) == (False, hosts.catalog.files[0].size) == (False, fs.size(here))
        assert fs.look("dask://train-1/part-9.arrow") is None
        assert fs.local_path(here) == Path(hosts.catalog.files[0].path)
        assert fs.local_path(there) is None
        assert (fs.exists(there), fs.is_dir("dask://train-1"), fs.has_locations(here)) == (True, True, True)
        assert version(there) != ""
        assert fs.get_block_locations(there) == [{"hosts": ["there"], "offset": 0, "length": fs.size(there)}]
        assert hosts.fetched == []
        assert fs.read_bytes(here, 0, 6) == fs.read_bytes(there, 0, 6) == b"ARROW1"
        assert hosts.fetched == [("part-00001.arrow", 0, 6)]
        with fs.open(there) as file:
            file.seek(2)
            assert file.read(4) == b"ROW1"
        with pytest.raises(DataError, match=r"part-9\.arrow: no such file"):
            fs.read_bytes("dask://train-1/part-9.arrow")
        with pytest.raises(DataError, match="cannot be written"):
            fs.open(here, "wb")


def test_records_of_all_parts_are_one_store(hosts: Hosts) -> None:
    with mounted([hosts.catalog], hosts.fetch), open_store(hosts.catalog.url) as store:
        found = [store.read_block(i) for i in range(len(store.blocks))]
        np.testing.assert_array_equal(np.concatenate([each["data"] for each in found]), X)
        assert {name for name, _, _ in hosts.fetched} == {"part-00001.arrow", "part-00003.arrow"}
        locations = Locations()
        assert [locations.hosts(block) for block in store.blocks] == [("here",), ("there",)] * 2
        assert RangeReader("dask://train-1/part-00000.arrow").is_local


def test_ranges_of_another_host_are_fetched_once(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "MIN_CACHED_BYTES", 1)
    for _ in range(2):
        with mounted([hosts.catalog], hosts.fetch, lambda catalog: tmp_path / "cache" / catalog.token):
            there, here = (RangeReader(f"dask://train-1/part-0000{i}.arrow") for i in (1, 0))
            assert bytes(there.read(0, 6)) == bytes(there.read(0, 6)) == bytes(here.read(0, 6)) == b"ARROW1"
    assert hosts.fetched == [("part-00001.arrow", 0, 6)]
    assert (tmp_path / "cache" / "train-1").is_dir()


def test_the_index_of_a_dataset_of_one_job_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_store, "MIN_INDEXED_BYTES", 0)
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "part-00000.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0], "kind": ["cat", "dog"]}), path)
    file = PartFile(path.name, "here", "tcp://here:1", str(path), path.stat().st_size, 2)
    with mounted([Catalog("train", "train-1", (file,))], lambda *_: b""):
        store = TableStore("dask://train-1/part-*.parquet", label="kind")
        assert store.class_names == ("cat", "dog")
        store.close()
    assert not (tmp_path / "cache").exists()


def test_a_file_of_another_size_is_not_this_one(hosts: Hosts) -> None:
    Path(hosts.catalog.files[0].path).write_bytes(b"other")
    with mounted([hosts.catalog], hosts.fetch):
        assert fs.local_path("dask://train-1/part-00000.arrow") is None


def test_what_is_not_mounted_is_not_there(hosts: Hosts) -> None:
    with mounted([hosts.catalog], hosts.fetch):
        with mounted([hosts.catalog], hosts.fetch):
            pass
        assert fs.exists("dask://train-1/part-00000.arrow")
    for url in ("dask://train-1/part-00000.arrow", "dask://train-1"):
        for ask in (fs.exists, fs.look):
            with pytest.raises(DataError, match=r"there is no dataset 'train-1' here\. Pass it from Python"):
                ask(url)


def test_names_of_datasets() -> None:
    assert [dataset_of(url) for url in ("dask://a", "dask://a/", "dask://a/b", "a", "s3://a")] == ["a", "a", "", "", ""]
