"""Parquet that is not local: which ranges are read, and that nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import open_store
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.tables.files import row_groups
from singa_dask.data.tables.files.row_groups import RowGroups
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from tests.contracts.records import assert_same, pixels, read_all, written

WIDE = 1 << 16


def far(tmp_path: Path, near: str | Path) -> str:
    """Copy a file to a filesystem that is not local; return its URL."""
    url = f"memory://{tmp_path.name}/{Path(near).name}"
    fs.write_atomic(url, Path(near).read_bytes())
    return url


def table(tmp_path: Path, **options: str) -> Path:
    """Write columns a, b (a wide one) and c in two row groups."""
    random = np.random.default_rng(0)
    rows = {"a": np.arange(8.0), "b": [random.bytes(WIDE) for _ in range(8)], "c.d": np.arange(8), "c": np.arange(8)}
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(rows), str(path), row_group_size=4, **options)
    return path


def test_ranges_hold_the_columns_and_are_merged_where_they_are_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = RangeReader(far(tmp_path, table(tmp_path)))
    groups = RowGroups(source)
    first, second = groups.ranges(1, ["a", "c.d"])
    assert first.length + second.length < 1000
    assert second.offset > first.offset + 4 * WIDE
    columns = {"a": [4.0, 5, 6, 7], "c.d": [4, 5, 6, 7]}
    data = [source.read(each.offset, each.length) for each in (first, second)]
    # nothing else is read
    monkeypatch.setattr(source, "read", None)
    for _ in range(2):
        assert groups.read(1, ["a", "c.d"], (first, second), data).to_pydict() == columns
        reader = groups.reader()
        reader.take_from((first, second), data)
        assert pa.Table.from_batches(reader.batches(["a", "c.d"], 3, 1)).to_pydict() == columns
    monkeypatch.setattr(row_groups, "MAX_GAP_BYTES", 8 * WIDE)
    (whole,) = groups.ranges(1, ["a", "c.d"])
    assert (whole.offset, whole.offset + whole.length) == (first.offset, second.offset + second.length)


def test_what_was_not_fetched_is_read_from_the_file(tmp_path: Path) -> None:
    groups = RowGroups(RangeReader(str(table(tmp_path, compression="zstd"))))
    assert groups.read(0, ["a"]).column("a").to_pylist() == [0, 1, 2, 3]
    assert [batch.num_rows for batch in groups.reader().batches(["c"], 3)] == [3, 3, 2]


def test_blocks_that_are_not_local_are_fetched_ahead(tmp_path: Path) -> None:
    near = written(tmp_path, "parquet", pixels(40))
    with open_store(near) as store, open_store(far(tmp_path, near)) as remote:
        assert isinstance(remote, RangeStore)
        assert remote.remote
        assert not store.remote
        assert_same(read_all(remote), read_all(store))
        for block in remote.blocks:
            assert_same(remote.read_block(block.id, remote.fetch(block.id, again=True)), store.read_block(block.id))
        order = Sampler([block.n for block in store.blocks], 8, "block", seed=0)
        with Loader(remote, order) as batches, Loader(store, order) as expected:
            for _ in range(7):
                assert_same(batches.next().arrays, expected.next().arrays)


def test_a_range_beyond_the_end_is_an_error_of_the_block(tmp_path: Path) -> None:
    near = written(tmp_path, "parquet", pixels(40))
    with open_store(far(tmp_path, near)) as store:
        assert isinstance(store, RangeStore)
        store.sources[0].size = 10
        with pytest.raises(DataError, match=r"\.parquet, block 0: cannot read bytes \d+ to \d+ of a file of 10 bytes"):
            store.read_block(0)
