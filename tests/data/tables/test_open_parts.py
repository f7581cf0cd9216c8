"""Tables that are not local: files and row groups are opened and read once, by the threads that read ahead."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables import table_reader
from singa_dask.data.tables.files.open_parts import OpenParts
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from tests.contracts.records import read_all


@pytest.mark.parametrize("row_group_size", [1000, 300, 70])
def test_parts_of_a_row_group_that_is_not_local_are_read_once(
    row_group_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_reader, "DECODED_BYTES", 4 * 70)
    monkeypatch.setattr(table_reader, "DECODED_RECORDS", 1)
    parquet = tmp_path / "far.parquet"
    pq.write_table(pa.table({"x": np.arange(1000.0), "y": np.ones(1000)}), str(parquet), row_group_size=row_group_size)
    fs.write_atomic("memory://far.parquet", parquet.read_bytes())
    with TableStore("memory://far.parquet", features=["x"]) as store, TableStore(str(parquet), features=["x"]) as near:
        assert store.fingerprint == near.fingerprint
        assert sum(map(store.fetch_bytes, range(len(store.blocks)))) < sum(block.length for block in store.blocks)
        reads = []
        read = RangeReader.read
        monkeypatch.setattr(RangeReader, "read", lambda *args: reads.append(args[1:]) or read(*args))
        assert read_all(store)["data"].ravel().tolist() == list(range(1000))
        assert len(reads) == len({store.ranges(block.id) for block in store.blocks})
        reads.clear()
        order = Sampler([block.n for block in store.blocks], 50, "block", seed=0, window=2, runs=store.runs)
        with Loader(store, order) as batches:
            found = [batches.next().arrays["data"] for _ in range(20)]
        assert sorted(np.concatenate(found).ravel()) == list(range(1000))
        # once; two streams can each have a part of one
        assert len(reads) <= len({store.ranges(block.id) for block in store.blocks}) + 1
        with Loader(near, order) as expected:
            for data in found:
                np.testing.assert_array_equal(data, expected.next().arrays["data"])


def test_many_files_that_are_not_local_are_opened_by_the_threads_that_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        fs.write_atomic(f"memory://{tmp_path.name}/{i}.csv", f"x\n{i}\n".encode())
    with TableStore(f"memory://{tmp_path.name}", features=["x"]) as store:
        opened = []
        files, make = store._parts.files, store._parts._open
        store._table.parts = OpenParts(files, lambda file: opened.append(file.url) or make(file))
        order = Sampler([block.n for block in store.blocks], 2, "none", seed=0)
        with Loader(store, order) as batches:
            found = [batches.next().arrays["data"].ravel().tolist() for _ in range(20)]
        assert found == [[i, i + 1] for i in range(0, 20, 2)] * 2
        assert sorted(opened) == sorted(file.url for file in files)


def test_the_parts_used_last_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def make(file: int) -> Any:
        opened.append(file)
        return SimpleNamespace(source=SimpleNamespace(is_local=file < 100))

    parts = OpenParts(range(200), make)
    for file in (*range(9), 8, 1, 0):
        assert parts(file) is parts.find(file)
    assert opened == [*range(9), 0]
    assert parts.find(2) is None
    for file in range(100, 120):
        parts(file)
    parts(100)
    assert len(opened) == 30
    parts.close()
    assert parts.find(100) is None


def test_a_file_that_is_opened_again_must_be_the_same(tmp_path: Path) -> None:
    parquet = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0]}), str(parquet))
    store = TableStore(str(parquet), features=["x"])
    assert read_all(store)["data"].ravel().tolist() == [1, 2]
    parquet.unlink()
    pq.write_table(pa.table({"x": [3.0, 4.0]}), str(parquet))
    # as where other files of the table are read
    store._parts.close()
    with pytest.raises(DataError, match=r"x\.parquet, block 0: the file was replaced while it was read"):
        read_all(store)
