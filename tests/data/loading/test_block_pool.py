"""Table: rows of the blocks it holds, and the one used least goes first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.loading import loader
from singa_dask.data.loading.loader import BlockPool
from singa_dask.data.loading.reader import empty_arrays
from singa_dask.fs.io_threads import IoThreads
from tests.contracts.records import pixels, stored


@pytest.mark.parametrize("gathers", ["alone", "with threads", "with busy threads"])
def test_rows_of_the_blocks_it_holds(gathers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = IoThreads(3)
    if gathers != "alone":
        monkeypatch.setattr(loader, "PART_BYTES", 200)
    if gathers == "with busy threads":
        # closed ones take no more calls
        threads.close()
    monkeypatch.setattr(loader, "decode_threads", lambda: threads)
    records = pixels(1000)
    with stored(tmp_path, "arrow", records, block_bytes=256 * 16) as store:
        table = BlockPool(store, 2)
        for blocks, missing in (([0, 1], [0, 1]), ([0], []), ([2], [2]), ([0, 2], []), ([1, 3], [1, 3])):
            assert table.missing(blocks) == missing
            for block in missing:
                table.put(block, store.read_block(block))
            ids = np.concatenate([np.arange(store.starts[block], store.starts[block + 1])[::-3] for block in blocks])
            out = empty_arrays(store, len(ids))
            table.take(table.rows_of(ids, np.searchsorted(store.starts, ids, side="right") - 1), out)
            for name, array in out.items():
                np.testing.assert_array_equal(array, records[name][ids])
