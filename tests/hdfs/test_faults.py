"""What breaks on a real HDFS: DataNodes, blocks, the NameNode."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.loading import BadPolicy, Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import open_store
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from tests.contracts.records import pixels
from tests.hdfs.cluster import BLOCK_BYTES, MiniHdfs
from tests.hdfs.epochs import check_epoch
from tests.runtime.ahead import read_little_ahead
from tests.selection import mostly_soak

DATA = os.urandom(4 * BLOCK_BYTES)


@pytest.mark.soak
def test_a_datanode_that_dies_in_mid_read_costs_nothing(faulty: MiniHdfs) -> None:
    url = f"{faulty.url}/survives"
    fs.write_atomic(url, DATA)
    reader = RangeReader(url)
    assert bytes(reader.read(0, 100)) == DATA[:100]
    faulty.kill("node-b")
    assert bytes(reader.read(0, len(DATA))) == DATA
    assert fs.read_bytes(url) == DATA


@pytest.mark.soak
def test_a_datanode_that_dies_in_mid_epoch_costs_no_step(faulty: MiniHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    read_little_ahead(monkeypatch.setattr)
    check_epoch(f"{faulty.url}/epoch.arrow", lambda: faulty.kill("node-a"))


@pytest.mark.soak
def test_an_epoch_survives_two_of_three_datanodes(
    faulty: MiniHdfs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def harm() -> None:
        faulty.kill("node-a")
        faulty.stop("node-b")

    read_little_ahead(monkeypatch.setattr)
    pause_s = check_epoch(f"{faulty.url}/two.arrow", harm, {"dfs.replication": 3})
    with capsys.disabled():
        print(f"\nDataNodes killed and stopped: longest pause {pause_s:.1f} s")


@pytest.mark.soak
def test_a_datanode_that_stutters_costs_nothing(
    faulty: MiniHdfs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    over, process = threading.Event(), faulty.java_of("node-b")

    def stutter() -> None:
        while not over.wait(0.1):
            process.suspend()
            over.wait(1.0)
            process.resume()

    thread = threading.Thread(target=stutter)
    read_little_ahead(monkeypatch.setattr)
    try:
        pause_s = check_epoch(f"{faulty.url}/stutters.arrow", thread.start, {"dfs.replication": 3})
    finally:
        over.set()
        thread.join()
    with capsys.disabled():
        print(f"\nDataNode stopped for 1 s of 1.1 s: longest pause {pause_s:.1f} s")


@pytest.mark.long
def test_a_datanode_that_hangs_costs_one_deadline(faulty: MiniHdfs, capsys: pytest.CaptureFixture[str]) -> None:
    url, data = f"{faulty.url}/hangs", os.urandom(12 * BLOCK_BYTES)
    fs.write_atomic(url, data, {"dfs.replication": 3})
    # of each reader the NameNode names the replicas in another order
    readers = [RangeReader(url) for _ in range(6)]
    faulty.stop("node-b")
    waits = []
    for i in range(12):
        for reader in readers:
            began = time.monotonic()
            at = i * BLOCK_BYTES
            assert bytes(reader.read(at, BLOCK_BYTES)) == data[at : at + BLOCK_BYTES]
            waits.append(time.monotonic() - began)
    with capsys.disabled():
        print(f"\nDataNode stopped: longest read {max(waits):.1f} s, {sum(each > 0.2 for each in waits)} of 72 waited")


@pytest.mark.long
@pytest.mark.parametrize("replication", mostly_soak([3, 2], 2))
def test_files_are_written_without_one_datanode(faulty: MiniHdfs, replication: int) -> None:
    folder, options = f"{faulty.url}/written-{replication}", {"dfs.replication": replication}
    fs.makedirs(folder)
    faulty.kill("node-c")
    for i in range(3):
        fs.write_atomic(f"{folder}/{i}", DATA[: 2 * BLOCK_BYTES + i], options)
    assert fs.ls(folder) == ["0", "1", "2"]
    for i in range(3):
        assert fs.read_bytes(f"{folder}/{i}") == DATA[: 2 * BLOCK_BYTES + i]


def damage(cluster: MiniHdfs, content: bytes, at: int) -> None:
    """Flip a bit of a block in each file of a DataNode that holds it.

    There is more than one where a write was repeated and the blocks of the first attempt are not deleted yet.
    """
    damaged = bytearray(content)
    damaged[at] ^= 1
    n_files = 0
    for path in cluster.block_files():
        # blocks that are deleted may vanish meanwhile
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == content:
                path.write_bytes(damaged)
                n_files += 1
    assert n_files, "no DataNode holds the block"


@pytest.mark.long
def test_a_damaged_last_replica_is_named(faulty: MiniHdfs) -> None:
    url = f"{faulty.url}/damaged"
    data = os.urandom(3 * BLOCK_BYTES)
    fs.write_atomic(url, data, {"dfs.replication": 1})
    damage(faulty, data[BLOCK_BYTES : 2 * BLOCK_BYTES], 1000)
    reader = RangeReader(url)
    assert bytes(reader.read(0, BLOCK_BYTES)) == data[:BLOCK_BYTES]
    with pytest.raises(DataError, match=rf"^{re.escape(url)}, offset {BLOCK_BYTES}: "):
        reader.read(BLOCK_BYTES, BLOCK_BYTES)


@pytest.mark.long
@pytest.mark.parametrize("on_error", mostly_soak(["skip", "raise"], 2))
def test_a_damaged_last_replica_is_passed_over_where_the_job_says_so(faulty: MiniHdfs, on_error: Any) -> None:
    # no other file of the cluster may hold the same bytes
    url, records = f"{faulty.url}/damaged-{on_error}.arrow", pixels(6000, (1000,), seed=len(on_error))
    ArrowStore.write(url, records, {"dfs.replication": 1})
    whole = fs.read_bytes(url)
    at = whole.index(records["pixel"][2500].tobytes()) + 500
    low = at - at % BLOCK_BYTES
    damage(faulty, whole[low : low + BLOCK_BYTES], at - low)
    with open_store(url) as store:
        block = int(np.searchsorted(store.starts, 2500, side="right")) - 1
        first, end = store.starts[block : block + 2].tolist()
        order = Sampler([each.n for each in store.blocks], 100)
        with Loader(store, order, policy=BadPolicy(on_error, end - first)) as loader:
            if on_error == "raise":
                with pytest.raises(DataError, match=rf"^{re.escape(url)}, block {block}, offset \d+: "):
                    for _ in range(60):
                        loader.next()
                return
            for step in range(60):
                batch = loader.next()
                wanted = np.arange(step * 100, step * 100 + 100)
                # the first record of the next block stands in for all of the bad one
                np.testing.assert_array_equal(batch.ids, np.where((wanted >= first) & (wanted < end), end, wanted))
                np.testing.assert_array_equal(batch.arrays["pixel"], records["pixel"][batch.ids])
            assert sorted(loader.bad.records) == list(range(first, end))
            (told,) = loader.bad.take()
            assert (told.block, told.row, told.rows) == (block, None, end - first)


@pytest.mark.long
def test_a_namenode_that_dies_is_said_within_the_deadline_and_comes_back(faulty: MiniHdfs) -> None:
    url = f"{faulty.url}/again"
    fs.write_atomic(url, DATA)
    reader = RangeReader(url)
    faulty.kill("namenode")
    # the places of the blocks are known already
    assert bytes(reader.read(0, len(DATA))) == DATA
    with pytest.raises(DataError, match=rf"{re.escape(url)}: .*(no answer within 1 s|refused)"):
        fs.read_bytes(url, storage_options={"deadline_s": 1})
    faulty.restart_killed()
    assert fs.read_bytes(url, storage_options={"deadline_s": 60}) == DATA


@pytest.mark.long
@pytest.mark.parametrize("length", mostly_soak([len(DATA), 100], 2))
def test_a_file_that_was_replaced_is_not_mixed_with_the_old_one(faulty: MiniHdfs, length: int) -> None:
    url = f"{faulty.url}/replaced-{length}"
    fs.write_atomic(url, DATA)
    filesystem, path = fs.resolve(url)
    reader = filesystem.reader(path)
    fs.write_atomic(url, bytes(length))
    with pytest.raises(OSError, match=f"replaced-{length}: the file was replaced while it was read"):
        reader._open(1.0)
