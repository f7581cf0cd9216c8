"""Maps of files: what is read of them does not stay in the memory of the process, and stays right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import STORES, open_store
from singa_dask.fs import mapped_file
from singa_dask.fs.mapped_file import CHECK_BYTES, STATM
from singa_dask.fs.range_reader import RangeReader
from tests.contracts.records import SUFFIX
from tests.selection import mostly_long

N_BYTES = 128 << 20
BOUND = 8 << 20

pytestmark = pytest.mark.skipif(not STATM.exists(), reason="the system does not tell what a process holds")


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes of files in the memory of this process, of which maps may add ``BOUND``."""
    monkeypatch.setattr(mapped_file, "RESIDENT_BYTES", BOUND)
    mapped_file.limit_resident()
    monkeypatch.setattr(mapped_file._RESIDENT, "floor", mapped_file._resident_bytes())
    return mapped_file._resident_bytes()


# many short reads map 64 KiB each
@pytest.mark.parametrize(("step", "length"), [(20, 1 << 20), (16, 100)])
def test_pages_of_a_file_are_given_back(step: int, length: int, before: int, tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(N_BYTES)
        file.seek(N_BYTES // 2)
        file.write(b"here")
    reader = RangeReader(str(path))
    first = reader.read(N_BYTES // 2, 4)
    most = 0
    for offset in range(0, N_BYTES, 1 << step):
        np.frombuffer(reader.read(offset, length), np.uint8).max()
        most = max(most, mapped_file._resident_bytes())
    assert most - before < BOUND + 2 * CHECK_BYTES < N_BYTES / 2
    assert bytes(first) == b"here"
    reader.close()


@pytest.mark.parametrize("backend", mostly_long(["arrow", "lmdb", "parquet"], 3))
def test_a_loader_holds_little_of_a_store(backend: str, before: int, tmp_path: Path) -> None:
    path = str(tmp_path / f"a{SUFFIX[backend]}")
    n = 150_000
    STORES.find(backend).write(path, {"pixel": np.zeros((n, 28, 28), np.uint8), "label": np.arange(n, dtype=np.int32)})
    most = 0
    with open_store(path) as store:
        sampler = Sampler([block.n for block in store.blocks], 1000, "none")
        with Loader(store, sampler, prefetch=False) as loader:
            for step in range(2 * n // 1000):
                arrays = loader.next().arrays
                assert arrays["label"][0] == step * 1000 % n
                arrays["pixel"].max()
                most = max(most, mapped_file._resident_bytes())
    # of 112 MiB
    assert most - before < BOUND + 2 * CHECK_BYTES


def test_a_large_batch_of_shuffled_records_holds_little_of_a_store(before: int, tmp_path: Path) -> None:
    path, n = str(tmp_path / "a.arrow"), 100_000
    STORES.find("arrow").write(path, {"pixel": np.zeros((n, 28, 28), np.uint8), "label": np.arange(n, dtype=np.int32)})
    with open_store(path) as store:
        sampler = Sampler([block.n for block in store.blocks], 10_000, "full")
        with Loader(store, sampler, prefetch=False, bytes_bound=32 << 20) as loader:
            batch = loader.next()
            assert (batch.arrays["label"] == batch.ids).all()
            held = mapped_file._resident_bytes() - before
    # of 75 MiB
    assert held < BOUND + 2 * CHECK_BYTES


def test_ranges_of_a_large_file_are_read_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mapped_file, "LARGE_BYTES", 0)
    monkeypatch.setattr(mapped_file, "MIN_AHEAD_BYTES", 1)
    data = np.random.default_rng(0).bytes(20_000)
    (tmp_path / "a").write_bytes(data)
    reader = RangeReader(str(tmp_path / "a"))
    for offset, length in ((0, 20_000), (4097, 10_000), (19_999, 1), (20_000, 0)):
        assert bytes(reader.read(offset, length)) == data[offset : offset + length]
    reader.close()
