"""Table: rows of the blocks it holds, and the one used least goes first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from singa_dask.data.loading.block_pool import BlockPool
from singa_dask.data.loading.reader import empty_arrays
from tests.contracts.records import pixels, stored


def test_rows_of_the_blocks_it_holds(tmp_path: Path) -> None:
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
