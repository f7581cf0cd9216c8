"""Sums on their way to servers: the bits of a direct exchange, in any order of arrival, by few messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm import tree
from singa_dask.comm.message import Address, Message
from singa_dask.comm.tree import ProcessTree
from tests.comm.test_sum_tree import SIZES, Job
from tests.selection import few_examples


@few_examples(8)
@given(st.sampled_from([2, 3, 4, 5, 8, 13, 16]), st.sampled_from([1, 2]), st.data())
def test_the_bits_are_those_of_a_direct_exchange(n_processes: int, n_each: int, data: st.DataObject) -> None:
    """Also if some messages are small and fused, and others are not, and a step leaves in parts."""
    n_workers = n_processes * n_each - data.draw(st.integers(0, n_each - 1))
    places = [worker // n_each for worker in range(n_workers)]
    servers = data.draw(st.lists(st.integers(0, n_processes + 1), min_size=1, max_size=n_processes + 2))
    users = [dict.fromkeys(range(n_workers), count) for count in (1, 2, -2)]
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("singa_dask.comm.tree.FUSED_BYTES", data.draw(st.sampled_from([4, 8, 1 << 18])))
        patch.setattr("singa_dask.comm.tree.BUCKET_BYTES", data.draw(st.sampled_from([8, 40, 1 << 20])))
        direct, through_tree = Job(places, servers, users), Job(places, servers, users, ProcessTree(n_processes))
        for step in range(3):
            direct.step(step, random)
            through_tree.step(step, random)
            assert through_tree.values() == direct.values()
    for process in set(places):
        for param in range(len(SIZES)):
            mine, other = (job.stubs[process].worker_values(0, param).tobytes() for job in (direct, through_tree))
            assert mine == other


def test_a_slice_passes_each_process_once_in_each_direction() -> None:
    n = 16
    job = Job(range(n), range(n), [dict.fromkeys(range(n), 1)] * len(SIZES), ProcessTree(n))
    sent: list[tuple[int, int]] = []
    real = job.received

    def watched(message):  # type: ignore[no-untyped-def]
        if message.kind in ("reduce", "gather"):
            sent.append((message.src.group, message.dst.group))
            counts[message.kind] += message.n_bytes
        return real(message)

    counts = {"reduce": 0, "gather": 0}
    job.received = watched  # type: ignore[method-assign]
    job.step(0, np.random.default_rng(0))
    assert counts == dict.fromkeys(counts, (n - 1) * 4 * sum(SIZES))
    assert all((source ^ to).bit_count() == 1 for source, to in sent)
    # with 16 servers and 19 values some servers have none, and what leads to them alone is not sent
    assert max(sum(source == i for source, _ in sent) for i in range(n)) <= 2 * 4


@pytest.mark.parametrize("n", [5, 16])
def test_servers_apart_get_each_sum_once(n: int) -> None:
    job = Job(range(n), [n, n + 1], [dict.fromkeys(range(n), 1)] * len(SIZES), ProcessTree(n))
    received: list[Message] = []
    real = job.received

    def watched(message: Message) -> Message:
        received.extend([] if message.parts else [message])
        return real(message)

    job.received = watched  # type: ignore[method-assign]
    job.step(0, np.random.default_rng(0))
    updates = [message for message in received if message.kind == "update"]
    assert sorted(message.slice for message in updates) == [piece.id for piece in job.slices]
    answers = [message for message in received if message.kind == "r-update"]
    assert {(message.dst, message.slice) for message in answers} == {(one.src, one.slice) for one in updates}
    assert len(answers) == len(updates)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 11, 64, 100])
def test_every_process_is_reached_by_neighbours(n: int) -> None:
    those = ProcessTree(n)
    for here in range(n):
        assert len(those.neighbours(here)) <= (n - 1).bit_length()
        for to in range(n):
            way = [here]
            while way[-1] != to:
                way.append(those.hop(way[-1], to))
                assert way[-1] in those.neighbours(way[-2])
            assert len(way) == 1 + (here ^ to).bit_count()


def units(workers: list[int], servers: list[int]) -> dict[Address, int]:
    """Return the process of each unit of one group, from those of workers and servers."""
    kinds = {"worker": workers, "server": servers}
    return {Address(kind, 0, i): process for kind, some in kinds.items() for i, process in enumerate(some)}


def test_other_jobs_exchange_slices_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    five = list(range(5))
    assert ProcessTree.of(units(five, five)) is not None
    assert ProcessTree.of(units([0, 0, 1, 1, 2, 2, 3, 3, 4], five)) is not None
    assert ProcessTree.of(units([0, 1, 2, 3], [0, 1, 2, 3])) is None  # few
    assert ProcessTree.of(units(five, [5, 6])) is None  # servers apart
    assert ProcessTree.of(units(list(range(9)), [9, 10])) is not None
    assert ProcessTree.of(units([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4], five)) is None  # three are no node of the tree
    assert ProcessTree.of(units([0, 1, 1, 2, 2, 3, 3, 4, 4], five)) is None
    assert ProcessTree.of(units([1, 0, 2, 3, 4], five)) is None
    assert ProcessTree.of(units(five, five) | {Address.worker(1, 0): 0}) is None
    large = 48_000_000
    assert ProcessTree.of(units(list(range(8)), [0]), 101_800) is not None
    assert ProcessTree.of(units(list(range(8)), [0]), large) is None
    assert ProcessTree.of(units(list(range(16)), [0]), large) is not None
    monkeypatch.setattr(tree, "MIN_PROCESSES", 2)
    assert ProcessTree.of(units([0, 1], [0, 1])) is not None
    assert ProcessTree.of(units([0], [0])) is None


@pytest.mark.parametrize("n", [2, 5, 8, 13, 33])
def test_all_who_climb_take_their_routes(n: int) -> None:
    tree, roots = ProcessTree(n), np.arange(n)[::-1]
    found = {
        (int(roots[i]), int(here)): int(to) for step in tree.climb(roots) for i, here, to in zip(*step, strict=True)
    }
    routes = {(root, here): tree.route(here, root).parent for root in range(n) for here in range(n)}
    assert found == {key: parent for key, parent in routes.items() if parent is not None}
