"""Assignments by host: counts stay equal, each block comes once, and what can be read locally is."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from singa_dask import fs
from singa_dask.data.loading import HostSpan, Loader, assign_by_host, host_names, same_host
from singa_dask.data.loading.locality import Locations
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.types import Block
from singa_dask.errors import DataError
from tests.contracts.records import pixels
from tests.selection import few_examples


@st.composite
def stores(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, ...]], list[HostSpan]]:
    """Draw sizes and hosts of blocks, and stretches of the line."""
    n_hosts = draw(st.integers(1, 4))
    hosts = st.lists(st.integers(0, n_hosts - 1), max_size=3, unique=True).map(tuple)
    blocks = draw(st.lists(st.tuples(st.integers(0, 20), hosts), min_size=1, max_size=40))
    sizes = [size for size, _ in blocks]
    readers = draw(st.lists(st.integers(-1, n_hosts), min_size=1, max_size=8))
    spans = [HostSpan((i + 1) * sum(sizes) // len(readers), host) for i, host in enumerate(readers)]
    return sizes, [hosts for _, hosts in blocks], spans


def local_blocks(
    assignment: Sequence[int], sizes: Sequence[int], hosts: Sequence[Sequence[int]], spans: Sequence[HostSpan]
) -> int:
    """Count the blocks whose larger part falls on a host that has them."""
    lengths = np.array([sizes[block] for block in assignment])
    middles = np.cumsum(lengths) - lengths / 2
    readers = np.searchsorted([stretch.high for stretch in spans], middles, side="left")
    return sum(spans[reader].host in hosts[block] for reader, block in zip(readers, assignment, strict=True))


@few_examples(25)
@given(stores(), st.integers(0, 9))
def test_an_assignment_names_each_block_once_whatever_is_where(
    store: tuple[list[int], list[tuple[int, ...]], list[HostSpan]], seed: int
) -> None:
    assignment = assign_by_host(*store, seed)
    assert sorted(assignment) == list(range(len(store[0])))
    assert assignment == assign_by_host(*store, seed)


@few_examples(25)
@given(st.integers(1, 5), st.integers(1, 6), st.randoms(use_true_random=False))
def test_all_is_local_where_each_block_has_one_host(n_hosts: int, per_host: int, random: Any) -> None:
    hosts = [(i % n_hosts,) for i in range(n_hosts * per_host)]
    random.shuffle(hosts)
    sizes = [7] * len(hosts)
    spans = [HostSpan(7 * per_host * (host + 1), host) for host in range(n_hosts)]
    assert local_blocks(assign_by_host(sizes, hosts, spans, 0), sizes, hosts, spans) == len(sizes)


@few_examples(25)
@given(st.integers(2, 6), st.integers(1, 8), st.integers(1, 3), st.integers(0, 1 << 30))
def test_as_many_blocks_are_local_as_a_maximum_matching_has(
    n_hosts: int, per_host: int, copies: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    n_blocks = n_hosts * per_host
    hosts = [random.choice(n_hosts, min(copies, n_hosts), replace=False).tolist() for _ in range(n_blocks)]
    places = np.array([[host in held for host in range(n_hosts) for _ in range(per_host)] for held in hosts])
    most = (maximum_bipartite_matching(csr_matrix(places)) >= 0).sum()
    spans = [HostSpan(per_host * (host + 1), host) for host in range(n_hosts)]
    assert local_blocks(assign_by_host([1] * n_blocks, hosts, spans, 3), [1] * n_blocks, hosts, spans) == most


def test_blocks_make_room_for_those_that_have_no_other_host() -> None:
    hosts = [(0, 1), (0, 1), (0,), (0,)]
    spans = [HostSpan(2, 0), HostSpan(4, 1)]
    assert local_blocks(assign_by_host([1] * 4, hosts, spans, 3), [1] * 4, hosts, spans) == 4


def test_a_host_of_two_workers_apart_reads_its_blocks_in_both() -> None:
    hosts = [(0,), (0,), (1,), (1,)] * 3
    spans = [HostSpan(3, 0), HostSpan(6, 1), HostSpan(9, 0), HostSpan(12, 1)]
    assert local_blocks(assign_by_host([1] * 12, hosts, spans, 3), [1] * 12, hosts, spans) == 12


def test_a_huge_block_does_not_keep_others_away() -> None:
    sizes, hosts = [1000, *[10] * 100], [(0,), *[(i % 2,) for i in range(100)]]
    spans = [HostSpan(1000, 0), HostSpan(2000, 1)]
    assert local_blocks(assign_by_host(sizes, hosts, spans, 1), sizes, hosts, spans) >= 50


@few_examples(25)
@given(st.integers(1, 30), st.sampled_from([1, 2, 3, 4]), st.sampled_from(["wrap", "drop_last", "pad"]))
def test_workers_read_equally_many_records_in_any_assignment(n_blocks: int, n_workers: int, last_batch: Any) -> None:
    sizes = [5 + block % 7 for block in range(n_blocks)]
    plain = Sampler([*sizes, 24], 24, "block", 1, last_batch=last_batch)
    hosts = [(block % 3,) for block in range(n_blocks + 1)]
    spans = [HostSpan(high, worker % 3) for worker, _, high in plain.spans(n_workers)]
    assert spans[-1].high == plain.count or last_batch == "pad"
    assignment = assign_by_host([*sizes, 24], hosts, spans, 1)
    order = Sampler([*sizes, 24], 24, "block", 1, assignment=assignment, last_batch=last_batch)
    n_steps = -(-order.period // 24)
    assert {order.rows(0, worker, n_workers, n_steps).size for worker in range(n_workers)} == {
        n_steps * 24 // n_workers
    }
    ids = order.rows(0, n_steps=n_steps).ravel()[: order.period]
    assert len(set(ids)) == min(order.period, order.count)


def test_hosts_are_known_by_full_and_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Box7")
    monkeypatch.setattr(socket, "getfqdn", lambda: "box7.example.org")
    names = host_names("node-a.Cluster", "10.0.0.7")
    for host in ("NODE-A", "node-a.cluster", "box7", "Box7.example.org", "box7.other", "10.0.0.7"):
        assert same_host(host, names), host
    for host in ("node-b", "10", "10.0.0.8", "localhost", "127.0.0.1", ""):
        assert not same_host(host, names), host
    # workers on loopback share a machine, and names tell them apart
    assert same_host("localhost", host_names("node-a", "127.0.0.1"))
    assert not same_host("node-b", host_names("node-a", "127.0.0.1"))


class Told:
    """What a filesystem tells, in place of the real one."""

    def __init__(self, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.asked = answers, list[str]()
        monkeypatch.setattr(fs, "get_block_locations", self._tell)

    def _tell(self, url: str, storage_options: Any = None) -> Any:
        self.asked.append(url)
        if url not in self.answers:
            raise DataError(f"{url}: nobody knows.")
        return self.answers[url]


def test_locations_are_asked_once_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        {"hosts": ["b", "c"], "offset": 100, "length": 100},
        {"hosts": ["a", "b"], "offset": 0, "length": 100},
    ]
    told = Told({"hdfs://n/x": places}, monkeypatch)
    locations = Locations()
    blocks = {(offset, n): Block(0, 1, "hdfs://n/x", offset, n) for offset, n in [(0, 100), (90, 20), (99, 101)]}
    assert [locations.hosts(block) for block in blocks.values()] == [("a", "b"), ("b",), ("b",)]
    assert locations.local_bytes(blocks[90, 20], host_names("a")) == 10
    assert locations.local_bytes(blocks[90, 20], host_names("b")) == 20
    assert locations.local_bytes(blocks[99, 101], host_names("c")) == 100
    assert locations.local_bytes(blocks[99, 101], ()) == 0
    assert told.asked == ["hdfs://n/x"]


def test_a_filesystem_that_does_not_tell_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told({}, monkeypatch)
    locations = Locations()
    for name in ("x", "x", "y"):
        assert locations.hosts(Block(0, 1, f"hdfs://n/{name}", 0, 9)) == ()
    assert told.asked == ["hdfs://n/x"]


def test_local_files_are_local() -> None:
    assert Locations().local_bytes(Block(0, 1, "/some/file", 5, 9), ()) == 9


def test_a_loader_counts_what_it_reads_on_its_own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "x.arrow")
    STORES.find("arrow").write(url, pixels(4000, (28, 28)))

    def count(*names: str) -> tuple[int, int]:
        with open_store(url) as store, Loader(store, Sampler([4000], 100), host_names=host_names(*names)) as loader:
            loader.next()
            loader.close()
            return loader.reader.bytes_read, loader.reader.bytes_local

    read, local = count()
    assert read == local > 0
    Told({url: [{"hosts": ["node-a"], "offset": 0, "length": 1 << 30}]}, monkeypatch)
    monkeypatch.setattr("singa_dask.data.loading.locality.fs.local_path", lambda _: None)
    read, local = count("node-a")
    assert read == local > 0
    assert count("node-b")[1] == 0
