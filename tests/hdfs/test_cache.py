"""Records on a real HDFS that are kept on a local disk: stores read by ranges, whole LMDB files, manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask import fs
from singa_dask.data.stores import STORES, open_store, write_manifest
from singa_dask.fs.cache import open_cache
from singa_dask.fs.versions import version
from tests.contracts.records import assert_same, pixels, read_all, written
from tests.selection import mostly_soak

pytestmark = pytest.mark.long


@pytest.mark.parametrize("backend", mostly_soak(["arrow", "kvfile"], 2))
def test_blocks_are_read_from_hdfs_once(backend: str, folder: str, tmp_path: Path) -> None:
    records = pixels(5000, (28, 28))
    url = fs.join(folder, f"records.{backend}")
    STORES.find(backend).write(url, records)
    assert write_manifest(url) == [fs.join(folder, "_singa", f"records.{backend}.json")]
    settings = {"dir": str(tmp_path / "cache"), "limit_gb": 0.1}
    for _ in range(2):
        with open_store(url, backend, {fs.CACHE: settings}) as store:
            assert None not in [block.crc for block in store.blocks]
            assert_same(read_all(store), records)
    cache = open_cache(settings)
    assert cache.hits == cache.misses == len(store.blocks)


def test_lmdb_is_fetched_whole(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    url = fs.join(folder, "records.lmdb")
    for seed in range(2):
        near = written(tmp_path, "lmdb", pixels(5000, (28, 28), seed=seed))
        fs.write_atomic(fs.join(url, "data.mdb"), (Path(near) / "data.mdb").read_bytes())
        for _ in range(2):
            with open_store(url) as store:
                assert store.mapped
                assert_same(read_all(store), pixels(5000, (28, 28), seed=seed))
    assert (open_cache().hits, open_cache().misses) == (2, 2)


def test_a_file_written_again_has_another_version(folder: str) -> None:
    url = fs.join(folder, "file")
    fs.write_atomic(url, b"one")
    first = version(url)
    assert first == version(url)
    assert "mtime" in first
    fs.write_atomic(url, b"two")
    assert version(url) != first
