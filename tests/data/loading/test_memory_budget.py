"""MemoryBudget: how memory is divided, what is refused, and that what loaders allocate is within it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.loading.memory_budget import DEFAULT_BYTES, MemoryBudget
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import STORES, Store
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError
from tests.contracts.records import SUFFIX, pixels
from tests.data.loading.peak import allocated
from tests.selection import few_examples, mostly_long

MIB = 1 << 20
# objects of Python, and a block that is read once more because it is late
ALLOWANCE = MIB
BLOCK_BYTES = 1 << 20
BOUND = 14 * MIB
N, SHAPE = 12_000, (3, 28, 28)


class Plain(Store):
    """Blocks of a schema; nothing can be read."""

    def __init__(self, sizes: Sequence[int], record: int, mapped: bool, remote: bool) -> None:
        super().__init__("plain://store")
        self.mapped, self._remote = mapped, remote
        self.schema = {"pixel": Field(np.dtype(np.uint8), (record,))}
        self.blocks = tuple(Block(i, n, self.url, 0, n * record) for i, n in enumerate(sizes))

    @property
    def remote(self) -> bool:
        return self._remote

    def read_block(self, block_id: int) -> Arrays:
        raise NotImplementedError

    def close(self) -> None:
        pass


def divide(
    store: Store, shuffle: Any, chosen: int | None, share: int | None = None, batch: int = 48, in_flight: int = 64 * MIB
) -> MemoryBudget:
    sampler = Sampler([each.n for each in store.blocks], batch, shuffle)
    return MemoryBudget(store, sampler, 1, False, chosen, share, in_flight)


@few_examples(25)
@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=60),
    record=st.integers(1, 5000),
    mapped=st.booleans(),
    remote=st.booleans(),
    shuffle=st.sampled_from(["none", "block", "full"]),
    bound=st.integers(1, 400 * MIB),
    in_flight=st.integers(0, 100 * MIB),
    of_run=st.integers(1, 5),
)
def test_the_parts_together_are_within_the_bound(
    sizes: list[int], record: int, mapped: bool, remote: bool, shuffle: Any, bound: int, in_flight: int, of_run: int
) -> None:
    store = Plain(sizes, record, mapped, remote and not mapped)
    runs = 0
    if of_run > 1:
        store.runs = np.arange(len(sizes)) // of_run
        runs = max(sum(sizes[i : i + of_run]) for i in range(0, len(sizes), of_run)) * record * store.remote
    try:
        made = divide(store, shuffle, bound, in_flight=in_flight)
    except DataError as error:
        assert "Set memory_mb: " in str(error)
        return
    largest = max(sizes) * record
    pool = made.pool_blocks * max(sizes) * record
    if made.pool_blocks == len(sizes):
        pool = sum(sizes) * record
    reading = 0 if mapped else 3 * largest
    assert made.bytes_bound == bound
    kept = 0 if mapped else made.n_kept * largest
    if made.n_kept == len(sizes) and not mapped:
        kept = sum(sizes) * record
    runs *= made.n_runs
    assert made.batches + made.in_flight + pool + kept + made.resident_bytes + reading + runs <= bound
    assert (of_run > 1) == (made.n_runs > 0)
    assert not (made.resident_bytes and mapped)
    assert made.batches >= 2 * made.buffer_bytes
    n_buffers = made.batches // made.buffer_bytes
    assert n_buffers == 2 or n_buffers * made.buffer_steps <= 128
    assert made.in_flight <= max(in_flight, largest if store.remote else 0)


def test_by_default_it_is_as_large_as_blocks_need_within_a_share() -> None:
    small, large = Plain([100] * 50, 1000, False, True), Plain([100] * 50, 4 * MIB, False, True)
    assert divide(small, "none", None).bytes_bound == DEFAULT_BYTES
    assert divide(small, "none", None, 100 * MIB).bytes_bound == 100 * MIB
    needed = divide(large, "none", None).bytes_bound
    assert needed > DEFAULT_BYTES
    half = -(-needed // 2)
    assert divide(large, "none", None, needed).bytes_bound == divide(large, "none", None, half).bytes_bound == needed
    with pytest.raises(
        DataError, match=r"plain://store, block 0: the block has 100 records, 400 MiB\. .* allows this reader"
    ):
        divide(large, "none", None, half - 1)


def test_a_block_or_a_batch_that_is_too_large_is_named() -> None:
    with pytest.raises(
        DataError, match=r"block 1: the block has 90 records, 90 MiB\. .*allows 100 MiB\. Set memory_mb: .*block"
    ):
        divide(Plain([1, 90], MIB, False, False), "full", 100 * MIB, batch=1)
    with pytest.raises(DataError, match=r"batches of 200 MiB\. .*Set memory_mb: 200, or lower batchsize"):
        divide(Plain([1000], MIB, True, False), "full", 100 * MIB, batch=100)


def test_a_window_that_does_not_fit_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    store = Plain([100] * 200, 10_000, False, False)
    Loader(store, Sampler([100] * 200, 48, "block"), bytes_bound=50 * MIB)
    assert "alternates between 192 blocks, and memory_mb, 50, has room for" in caplog.text
    caplog.clear()
    Loader(store, Sampler([100] * 200, 48, "block"))
    assert not caplog.text


# -- what is allocated --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write records in several formats, in blocks of 1 MiB."""
    made = tmp_path_factory.mktemp("budget")
    records = pixels(N, SHAPE)
    for backend in ("arrow", "kvfile", "npz", "parquet"):
        given: dict[str, Any] = {"block_bytes": BLOCK_BYTES} if backend in ("arrow", "parquet") else {}
        STORES.find(backend).write(str(made / f"records{SUFFIX[backend]}"), records, **given)
    return made


ORDERS = ["none", "block", "full"]
FILES = ["records.arrow", "records.bin", "records.npz"]


@pytest.mark.parametrize(("remote", "name", "shuffle"), mostly_long(itertools.product([False, True], FILES, ORDERS), 5))
def test_what_a_loader_allocates_is_within_its_bound(folder: Path, name: str, shuffle: Any, remote: bool) -> None:
    url = str(folder / name)
    if remote:
        url = f"memory://{name}"
        fs.write_atomic(url, (folder / name).read_bytes())
    assert allocated(url, shuffle, BOUND) <= BOUND + ALLOWANCE


@pytest.mark.long
@pytest.mark.parametrize("shuffle", ORDERS)
def test_what_a_loader_of_parquet_allocates_is_within_its_bound(folder: Path, shuffle: str) -> None:
    command = [sys.executable, "-m", "tests.data.loading.peak", str(folder / "records.parquet"), shuffle, str(BOUND)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= BOUND + ALLOWANCE
