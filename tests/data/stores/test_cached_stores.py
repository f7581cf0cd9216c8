"""Stores that read by ranges: their blocks come from the cache the second time, scans pass it by."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import open_store, write_manifest
from singa_dask.errors import DataError
from singa_dask.fs.cache import Cache, open_cache
from singa_dask.fs.range_reader import MIN_CACHED_BYTES, RangeReader
from singa_dask.fs.versions import version
from tests.contracts.records import assert_same, floats, pixels, read_all, written

READ_BY_RANGES = ["arrow", "csv", "kvfile", "parquet"]


class Far:
    """A folder that is not local, and a cache for it."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = f"memory://{tmp_path.name}-cached"
        self.settings = {"dir": str(tmp_path / "cache"), "limit_gb": 0.1}
        self.options: Any = {fs.CACHE: self.settings}

    @property
    def cache(self) -> Cache:
        return open_cache(self.settings)

    def put(self, near: str) -> str:
        url = fs.join(self.folder, Path(near).name)
        fs.write_atomic(url, Path(near).read_bytes())
        return url


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "default"))
    return Far(tmp_path)


@pytest.mark.parametrize("backend", READ_BY_RANGES)
def test_the_second_epoch_comes_from_the_cache(backend: str, far: Far, tmp_path: Path) -> None:
    records = floats(14_000, (40,))
    url = far.put(written(tmp_path, backend, records))
    with open_store(url, storage_options=far.options) as store:
        n = sum(block.length >= MIN_CACHED_BYTES for block in store.blocks)
        assert n > 2
        before = far.cache.misses
        assert_same(read_all(store), records)
        misses = far.cache.misses
        # Parquet has read 64 KiB of footer
        assert before == (backend == "parquet")
        assert misses == n + (backend == "parquet")
        assert_same(read_all(store), records)
        assert far.cache.misses == misses
        assert far.cache.hits >= n
    with open_store(url, storage_options=far.options) as store, open_store(url) as plain:
        assert store.fingerprint == plain.fingerprint
        assert_same(read_all(store), records)
        assert far.cache.misses == misses


@pytest.mark.parametrize("backend", ["arrow", "csv"])
def test_bytes_damaged_on_the_way_are_read_again(
    backend: str, far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = floats(14_000, (40,))
    url = far.put(written(tmp_path, backend, records))
    write_manifest(url)
    right, damaged = MemoryFileSystem.cat_file, []

    def damage_first(self: MemoryFileSystem, path: str, start: int, end: int) -> bytes:
        data = bytearray(right(self, path, start=start, end=end))
        if not damaged and len(data) >= MIN_CACHED_BYTES:
            damaged.append(start)
            data[len(data) // 2] ^= 1
        return bytes(data)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", damage_first)
    for _ in range(2):
        with open_store(url, storage_options=far.options) as store:
            assert_same(read_all(store), records)
    assert len(damaged) == 1


def test_a_loader_reads_through_the_cache(far: Far, tmp_path: Path) -> None:
    records = pixels(5000, (28, 28))
    url = far.put(written(tmp_path, "arrow", records))
    with open_store(url, storage_options=far.options) as store:
        order = Sampler([block.n for block in store.blocks], 250, "none", seed=0)
        for _ in range(2):
            with Loader(store, order) as loader:
                for step in range(20):
                    got = loader.next().arrays["pixel"]
                    np.testing.assert_array_equal(got, records["pixel"][step * 250 : (step + 1) * 250])
    assert far.cache.hits >= len(store.blocks)


@pytest.mark.parametrize("backend", READ_BY_RANGES)
def test_a_file_written_again_is_another(backend: str, far: Far, tmp_path: Path) -> None:
    for seed in (0, 1):
        records = pixels(3000, (50,), seed=seed) if backend != "csv" else floats(3000, (50,), seed=seed)
        url = far.put(written(tmp_path, backend, records))
        with open_store(url, storage_options=far.options) as store:
            assert_same(read_all(store), records)


def test_small_reads_and_scans_pass_the_cache_by(far: Far, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(300_000))
    reader = RangeReader(far.put(str(path)), far.options)
    reader.scan(0, 300_000)
    reader.read(0, 65_535)
    assert far.cache.misses == 0
    assert not isinstance(reader.read(0, 65_536).obj, mmap.mmap)
    assert isinstance(reader.read(0, 65_536).obj, mmap.mmap)
    with pytest.raises(DataError, match="of a file of 300000 bytes"):
        reader.read(200_000, 200_000)


def test_local_files_are_not_cached(far: Far, tmp_path: Path) -> None:
    url = written(tmp_path, "arrow", pixels(5000, (28, 28)))
    with open_store(url, storage_options=far.options) as store:
        read_all(store)
        assert store.mapped
    assert not (tmp_path / "cache").exists()


def test_a_version_tells_what_was_written_again(far: Far, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    url = far.put(str(path))
    first = version(url, far.options)
    assert first == version(url)
    far.put(str(path))
    assert version(url) != first


def test_a_file_without_a_version_is_not_kept(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.fs.versions.VERSIONS", ())
    url = far.put(written(tmp_path, "arrow", pixels(5000, (28, 28))))
    with open_store(url, storage_options=far.options) as store:
        assert_same(read_all(store), pixels(5000, (28, 28)))
    assert (far.cache.hits, far.cache.misses) == (0, 0)


def test_a_limit_below_one_block_is_told_at_opening(far: Far, tmp_path: Path) -> None:
    url = far.put(written(tmp_path, "arrow", pixels(5000, (28, 28))))
    options = {fs.CACHE: {"dir": str(tmp_path / "small"), "limit_gb": 0.0005}}
    with pytest.raises(DataError, match="the limit of 500000"):
        open_store(url, storage_options=options)


def test_shards_are_cached(far: Far, tmp_path: Path) -> None:
    for seed, name in enumerate("ab"):
        far.put(written(tmp_path, "arrow", pixels(3000, (28, 28), seed=seed), name=name))
    with open_store(f"{far.folder}/*.arrow", storage_options=far.options) as store:
        first = read_all(store)
        assert_same(read_all(store), first)
        assert far.cache.hits == far.cache.misses == len(store.blocks)


def test_manifest_and_cache_together(far: Far, tmp_path: Path) -> None:
    url = far.put(written(tmp_path, "kvfile", pixels(5000, (28, 28))))
    write_manifest(url, storage_options=far.options)
    with open_store(url, storage_options=far.options) as store:
        assert store.blocks[0].crc is not None
        for _ in range(2):
            assert_same(read_all(store), pixels(5000, (28, 28)))
