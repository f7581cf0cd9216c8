"""LookAhead: it predicts exactly which blocks a loader reads, in every order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.loading import Loader
from singa_dask.data.loading.look_ahead import LookAhead
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.sampler import MAX_STEPS, Sampler, Shuffle
from singa_dask.data.stores import open_store
from tests.contracts.records import pixels, written

STARTS = np.arange(0, 110, 10)


def ahead(shuffle: Shuffle = "none", n_kept: int = 2, n_steps: int = 1, **options: int) -> LookAhead:
    return LookAhead(Sampler([10] * 10, 5, shuffle, window=4), 0, 1, n_steps, STARTS, n_kept, **options)


def test_blocks_in_file_order() -> None:
    look = ahead()
    look.restart(0)
    blocks = [look.next_blocks(0) for _ in range(8)]
    assert blocks == [[(0, 0)], [], [(2, 1)], [], [(4, 2)], [], [(6, 3)], []]


def test_the_first_block_follows_the_last() -> None:
    look = LookAhead(Sampler([10] * 10, 25, "none"), 0, 1, 1, STARTS, 2)
    look.restart(2)
    assert [look.next_blocks(2) for _ in range(3)] == [
        [(2, block) for block in (5, 6, 7)],
        [(3, block) for block in (8, 9)],
        [(4, block) for block in (0, 1, 2)],
    ]


def test_it_ends_where_all_blocks_are_in_memory_or_at_the_horizon() -> None:
    look = ahead(n_kept=10)
    look.restart(0)
    found = [pair for _ in range(20) for pair in look.next_blocks(0) or []]
    assert [block for _, block in found] == list(range(10))
    assert look.next_blocks(0) is None
    look = ahead("block", n_kept=3)
    look.restart(0)
    blocks = [look.next_blocks(0) for _ in range(2 * MAX_STEPS)]
    assert None not in blocks
    assert look.next_blocks(0) is None
    assert look.next_blocks(1) is not None


@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
def test_ids_are_those_of_the_sampler_in_any_case(shuffle: Shuffle) -> None:
    sampler = Sampler([10] * 10, 5, shuffle, window=4)
    look = ahead(shuffle, n_steps=3)
    look.restart(6)
    for step in range(6, 300, 3):
        for _ in range(2):
            look.next_blocks(step)
        np.testing.assert_array_equal(look.ids(step), sampler.rows(step, n_steps=3))
    np.testing.assert_array_equal(look.ids(1), sampler.rows(1, n_steps=3))


@pytest.mark.pairs
@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("last_batch", ["wrap", "pad"])
@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
@pytest.mark.parametrize("n_bytes", [5_000, 20_000, 1 << 20])
def test_a_loader_reads_the_blocks_that_were_predicted(
    shuffle: Shuffle, last_batch: str, n_workers: int, n_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    load = BlockReader.load
    monkeypatch.setattr(BlockReader, "load", lambda reader, block: (read.append(block), load(reader, block))[1])
    with open_store(written(tmp_path, "arrow", pixels(1000), block_bytes=12 * 16)) as store:
        # all blocks of a mapped store are kept
        store.mapped = False
        sizes = [block.n for block in store.blocks]
        sampler = Sampler(sizes, 48, shuffle, window=4, last_batch=last_batch)  # type: ignore[arg-type]
        with Loader(store, sampler, 0, n_workers, prefetch=False, bytes_bound=n_bytes) as loader:
            batches = loader._batches
            look = LookAhead(sampler, 0, n_workers, batches._ahead._n_steps, store.starts, batches.n_kept)
            for start in (0, 50):
                loader.advance(start)
                look.restart(loader._step, batches.blocks_in_memory())
                for _ in range(100):
                    step = loader._step
                    read.clear()
                    loader.next()
                    if loader._buffer is not None and loader._buffer.first_step == step:
                        assert [block for _, block in look.next_blocks(step) or []] == read
