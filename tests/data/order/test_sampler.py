"""Order: each record once an epoch, the same for any number of workers, found again by a cursor of a few integers."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data import random
from singa_dask.data.random import permutation, random_skip
from singa_dask.data.sampler import Sampler
from singa_dask.errors import DataError
from tests.selection import few_examples

SHUFFLES = ["none", "block", "full"]
LAST_BATCHES = ["wrap", "drop_last", "pad"]


@st.composite
def orders(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what an order is made of: blocks of any size, also fewer than workers, and a single record."""
    n_groups = draw(st.integers(1, 3))
    batch_size = draw(st.integers(1, 40) | st.sampled_from([12, 24]))
    last_batch = draw(st.sampled_from(LAST_BATCHES))
    least = n_groups * (batch_size if last_batch == "drop_last" else 1)
    sizes = draw(st.lists(st.integers(0, 15), min_size=1, max_size=12))
    sizes = [*sizes, max(least - sum(sizes), 0)]
    return {
        "sizes": sizes,
        "batch_size": batch_size,
        "shuffle": draw(st.sampled_from(SHUFFLES)),
        "seed": draw(st.integers(0, 2**63)),
        "n_groups": n_groups,
        "window": draw(st.integers(1, 9)),
        "assignment": draw(st.none() | st.permutations(range(len(sizes)))),
        "runs": draw(st.none() | st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes)).map(np.sort)),
        "skip": draw(st.integers(0, 30)),
        "last_batch": last_batch,
    }


def sequence(order: Sampler, n_records: int) -> np.ndarray:
    """Return the first records of an order, at least so many."""
    return order.rows(0, n_steps=-(-n_records // order.batch_size)).ravel()


def epochs_of(order: Sampler, n: int) -> list[np.ndarray]:
    """Return the records of the first whole epochs."""
    ids = sequence(order, n * order.period + order.skip)
    epochs = np.concatenate([order.epoch_of(step) for step in range(len(ids) // order.batch_size)])
    np.testing.assert_array_equal(epochs, (np.arange(len(ids)) + order.skip) // order.period)
    first = int(epochs[0]) + (order.skip % order.period > 0)
    return [ids[epochs == epoch] for epoch in range(first, int(epochs[-1]))]


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_threads_share_an_order(shuffle: Any) -> None:
    order, other = (Sampler([1000] * 20, 500, shuffle, seed=3, window=4) for _ in range(2))
    # of an epoch of 40 steps and the next one, by turns; NumPy lets other threads run while it works on so many records
    steps = [step % 2 * 40 + step % 40 for step in range(100)]
    expected = [(other.rows(step), other.epoch_of(step)) for step in steps]
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda step: (order.rows(step), order.epoch_of(step)), steps * 2))
    finally:
        sys.setswitchinterval(before)
    for i, each in enumerate(found):
        np.testing.assert_array_equal(each[0], expected[i % len(steps)][0])
        np.testing.assert_array_equal(each[1], expected[i % len(steps)][1])


@few_examples(25)
@given(orders())
def test_each_record_once_an_epoch(parts: dict[str, Any]) -> None:
    shares = []
    for group in range(parts["n_groups"]):
        order = Sampler(**parts, group=group)
        share: set[int] = set()
        for ids in epochs_of(order, 4):
            assert len(ids) == order.period
            assert len(set(ids)) == min(order.period, order.count)
            share |= set(ids)
        shares.append(share)
    # the shares of the groups are disjoint, and are all there is, but for what an epoch may leave out
    assert sum(map(len, shares)) == len(set().union(*shares))
    if parts["last_batch"] != "drop_last":
        assert set().union(*shares) == set(range(sum(parts["sizes"])))


@few_examples(25)
@given(orders())
def test_an_epoch_is_whole_batches_unless_it_wraps(parts: dict[str, Any]) -> None:
    order = Sampler(**parts)
    if order.last_batch == "wrap":
        assert order.period == order.count
        return
    assert order.period % order.batch_size == order.skip % order.batch_size == 0
    assert 0 <= (order.period - order.count) * (1 if order.last_batch == "pad" else -1) < order.batch_size
    for ids in epochs_of(order, 3) if order.last_batch == "pad" else ():
        # only the last batch repeats what the epoch began with
        first, last = ids[: -order.batch_size], ids[-order.batch_size :]
        assert len(set(first)) == len(first)
        assert set(first) | set(last) == set(epochs_of(order, 3)[0])


@few_examples(25)
@given(orders(), st.integers(0, 50), st.data())
def test_a_step_is_the_same_for_any_number_of_workers(parts: dict[str, Any], step: int, data: st.DataObject) -> None:
    batch = parts["batch_size"]
    divisors = [k for k in range(1, batch + 1) if batch % k == 0]
    for n in {k for k in divisors if k <= 4} | {data.draw(st.sampled_from(divisors))}:
        shares = [Sampler(**parts).rows(step, worker, n)[0] for worker in range(n)]
        assert {len(share) for share in shares} == {batch // n}
        np.testing.assert_array_equal(np.concatenate(shares), Sampler(**parts).rows(step)[0])
        epochs = [Sampler(**parts).epoch_of(step, worker, n) for worker in range(n)]
        np.testing.assert_array_equal(np.concatenate(epochs), Sampler(**parts).epoch_of(step))


@few_examples(25)
@given(orders(), st.lists(st.integers(1, 20), min_size=1, max_size=5), st.data())
def test_killed_and_resumed_with_other_workers_it_reads_the_same(
    parts: dict[str, Any], lives: list[int], data: st.DataObject
) -> None:
    whole, cursor, read = Sampler(**parts), Sampler(**parts).cursor(0), []
    workers = st.sampled_from([k for k in range(1, 13) if parts["batch_size"] % k == 0])
    for n_steps in lives:
        order, n = Sampler(**parts), data.draw(workers)
        step = order.seek(json.loads(json.dumps(cursor)))
        read.append(np.concatenate([order.rows(step, worker, n, n_steps) for worker in range(n)], axis=1))
        # what was read after the last checkpoint is read again
        step += data.draw(st.integers(0, n_steps))
        read[-1] = read[-1][: step - sum(map(len, read[:-1]))]
        cursor = order.cursor(step)
    n_read = sum(map(len, read))
    if n_read:
        np.testing.assert_array_equal(np.concatenate(read), whole.rows(0, n_steps=n_read))


@few_examples(25)
@given(orders(), st.data())
def test_workers_that_read_apart_read_each_record_once(parts: dict[str, Any], data: st.DataObject) -> None:
    size, n_records = parts["batch_size"], sum(parts["sizes"])
    n_batches = data.draw(st.integers(1, 4))
    stop = n_batches * size
    sizes = [*parts["sizes"], max(stop + 3 - n_records, 0)]
    order = Sampler(sizes, size, "none", span=(3, stop + 3), consecutive=True)
    n = data.draw(st.sampled_from([k for k in range(1, size + 1) if size % k == 0]))
    # a second pass is the same
    for first in (0, n_batches):
        read = [order.rows(first, worker, n, n_batches) for worker in range(n)]
        assert all(each.shape == (n_batches, size // n) for each in read)
        # each its own part, in the order of the file
        np.testing.assert_array_equal(np.concatenate([each.ravel() for each in read]), np.arange(3, stop + 3))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for worker, each in enumerate(read):
        blocks = np.bincount(np.searchsorted(starts, each.ravel(), side="right") - 1, minlength=len(sizes))
        np.testing.assert_array_equal(order.block_rows(worker, n), blocks)


@few_examples(25)
@given(orders(), st.data())
def test_it_tells_which_blocks_a_worker_reads(parts: dict[str, Any], data: st.DataObject) -> None:
    order = Sampler(**{**parts, "skip": 0})
    n = data.draw(st.sampled_from([k for k in range(1, order.batch_size + 1) if order.batch_size % k == 0]))
    worker = data.draw(st.integers(0, n - 1))
    n_steps = -(-order.period // order.batch_size)
    ids = order.rows(0, worker, n, n_steps).ravel()
    epochs = np.concatenate([order.epoch_of(step, worker, n) for step in range(n_steps)])
    starts = np.concatenate([[0], np.cumsum(parts["sizes"])])
    read = np.bincount(np.searchsorted(starts, ids[epochs == 0], side="right") - 1, minlength=len(parts["sizes"]))
    assert set(np.flatnonzero(read)) <= set(np.flatnonzero(order.block_rows(worker, n)))
    if order.shuffle == "none":
        np.testing.assert_array_equal(order.block_rows(worker, n), read)


@few_examples(25)
@given(orders(), st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_steps_may_be_asked_for_in_any_order(parts: dict[str, Any], steps: list[int]) -> None:
    order, all_at_once = Sampler(**parts), Sampler(**parts).rows(0, n_steps=61)
    for step in steps:
        np.testing.assert_array_equal(order.rows(step)[0], all_at_once[step])


@few_examples(25)
@given(orders(), st.integers(0, 1000))
def test_a_cursor_leads_back(parts: dict[str, Any], step: int) -> None:
    text = json.dumps(Sampler(**parts, fingerprint="0123456789abcdef").cursor(step))
    assert len(text) < 300
    assert Sampler(**parts, fingerprint="0123456789abcdef").seek(json.loads(text)) == step


def test_file_order_runs_on_inside_a_batch() -> None:
    order = Sampler([4, 3], 5)
    np.testing.assert_array_equal(order.rows(0, n_steps=3), [[0, 1, 2, 3, 4], [5, 6, 0, 1, 2], [3, 4, 5, 6, 0]])
    np.testing.assert_array_equal(Sampler([4, 3], 5, skip=3).rows(0)[0], [3, 4, 5, 6, 0])


def test_a_batch_may_be_larger_than_the_share() -> None:
    assert sorted(Sampler([2], 6, "block").rows(0)[0]) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 6, 8, 12])
def test_a_block_is_read_by_one_worker_but_where_a_cut_goes_through_it(n_workers: int) -> None:
    order, sizes = Sampler([50] * 96, 48, "block", 3), 50
    readers = [set((order.rows(0, w, n_workers, n_steps=100) // sizes).ravel()) for w in range(n_workers)]
    assert sum(map(len, readers)) <= 96 + n_workers - 1


def test_a_window_bounds_the_blocks_in_use() -> None:
    order = Sampler([100] * 480, 48, "block", 1, window=96)
    for step in range(0, 900, 50):
        blocks = np.unique(order.rows(step, n_steps=2) // 100)
        assert len(blocks) <= (order.blocks_in_use() or 0)
    assert Sampler([100] * 4, 10, "none").blocks_in_use() == 2
    assert Sampler([100] * 4, 10, "full").blocks_in_use() is None


def test_a_stream_reads_the_blocks_of_a_run_one_after_the_other() -> None:
    # 30 runs of 8 blocks of 10 records, by 3 streams of 4 rows
    order = Sampler([10] * 240, 12, "block", 1, window=3, runs=np.repeat(np.arange(30), 8))
    assert order.blocks_in_use() == 6
    for stream in range(3):
        blocks = order.rows(0, stream, 3, n_steps=200).ravel() // 10
        in_order = blocks[np.concatenate([[True], np.diff(blocks) != 0])]
        entered = in_order[np.sort(np.unique(in_order // 8, return_index=True)[1])]
        assert len(entered) <= 11
        # within windows of a block records are mixed, and a stream is in one block at a time
        assert (
            in_order.tolist()
            == [block for first in entered for block in range(first, first // 8 * 8 + 8)][: len(in_order)]
        )
        assert np.any(np.diff(entered) < 0)


@pytest.mark.parametrize("shuffle", ["block", "full"])
def test_epochs_and_seeds_differ(shuffle: Any) -> None:
    first, other = (Sampler([40] * 5, 200, shuffle, seed).rows(0, n_steps=2) for seed in (1, 2))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], np.arange(200))


def class_spread(order: Sampler, labels: np.ndarray, n_steps: int) -> float:
    """Return the mean distance of a batch's classes from an even share (0.075 for 256 random ones of 10)."""
    counts = [np.bincount(labels[order.rows(step)[0]], minlength=10) for step in range(n_steps)]
    return float(np.mean([0.5 * np.abs(count / count.sum() - 0.1).sum() for count in counts]))


@pytest.mark.parametrize("sizes", [[256] * 234 + [96], [1337] * 44 + [1172]])
def test_sorted_records_are_mixed(sizes: list[int]) -> None:
    labels = np.arange(60000) // 6000
    assert class_spread(Sampler(sizes, 256, "block", 1), labels, 234) <= 0.20
    assert class_spread(Sampler(sizes, 256, "full", 1), labels, 234) <= 0.09
    assert class_spread(Sampler(sizes, 256), labels, 234) > 0.8


def test_groups_take_stretches_of_the_assignment() -> None:
    parts: dict[str, Any] = {"batch_size": 8, "shuffle": "block", "seed": 1, "n_groups": 2}
    assignment = [5, 0, 3, 6, 1, 7, 2, 4]
    for group in range(2):
        order = Sampler([10] * 8, **parts, assignment=assignment, group=group)
        assert set(order.rows(0)[0] // 10) | set(order.rows(1)[0] // 10) <= set(assignment[4 * group : 4 * group + 4])
        assert sorted(np.flatnonzero(order.block_rows())) == sorted(assignment[4 * group : 4 * group + 4])
    assert Sampler([10] * 8, **parts).cursor(0)["version"] == 2


@pytest.mark.parametrize("shuffle", ["block", "full"])
def test_other_records_are_left_out_in_each_epoch(shuffle: Any) -> None:
    order = Sampler([9] * 11, 24, shuffle, 4, last_batch="drop_last")
    left_out = [frozenset(range(99)) - set(ids) for ids in epochs_of(order, 5)]
    assert [len(ids) for ids in left_out] == [3] * 4
    assert len(set(left_out)) == 4


def test_the_last_batch() -> None:
    drop, pad = (Sampler([4, 3], 3, skip=4, last_batch=last) for last in ("drop_last", "pad"))
    np.testing.assert_array_equal(drop.rows(0, n_steps=3), [[3, 4, 5], [0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(pad.rows(0, n_steps=3), [[3, 4, 5], [6, 0, 1], [0, 1, 2]])
    np.testing.assert_array_equal(Sampler([1], 4, last_batch="pad").rows(0, n_steps=2), [[0] * 4] * 2)
    with pytest.raises(DataError, match="group 0 has 7 records, less than a batch of 8"):
        Sampler([4, 3], 8, last_batch="drop_last")


def test_an_assignment_may_be_given() -> None:
    by_host = Sampler([10] * 8, 8, "block", 1, assignment=[7, 6, 5, 4, 3, 2, 1, 0])
    assert set(by_host.rows(0, 0, 8, n_steps=10).ravel() // 10) == {7}
    with pytest.raises(DataError, match="Expected a permutation of the 8 blocks"):
        Sampler([10] * 8, 8, "block", assignment=[0] * 8).rows(0)[0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seed": 5}, "seed"),
        ({"shuffle": "full"}, "shuffle"),
        ({"window": 3}, "window"),
        ({"streams": 5}, "streams"),
        ({"skip": 1}, "the number of records skipped at the start"),
        ({"fingerprint": "new"}, "the version of the data"),
        ({"last_batch": "pad"}, "last_batch"),
        ({"assignment": [1, 0]}, "the order of blocks by hosts"),
        ({"n_groups": 2}, "the way in which worker groups share records"),
    ],
)
def test_a_cursor_of_something_else_is_refused(change: dict[str, Any], field: str) -> None:
    parts: dict[str, Any] = {"batch_size": 10, "shuffle": "block", "seed": 1, "fingerprint": "old"}
    cursor = Sampler([20, 20], **parts).cursor(7)
    with pytest.raises(DataError, match=f"does not fit these records: {field} is"):
        Sampler([20, 20], **{**parts, **change}).seek(cursor)
    with pytest.raises(DataError, match=f"does not fit these records: {field} is"):
        Sampler([20, 20], **parts).seek(Sampler([20, 20], **{**parts, **change}).cursor(7))


@few_examples(25)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.sampled_from(["none", "full"]),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 25), st.integers(1, 12)), min_size=2, max_size=4),
)
def test_with_other_batch_sizes_each_record_is_read_once_an_epoch(
    sizes: list[int], shuffle: Any, skip: int, lives: list[tuple[int, int]]
) -> None:
    n, read = sum(sizes), list[int]()
    cursor = Sampler(sizes, lives[0][0], shuffle, 5, skip=skip).cursor(0)
    for batch_size, n_steps in [*lives, (7, n)]:
        order = Sampler(sizes, batch_size, shuffle, 5, skip=skip)
        step = order.seek(json.loads(json.dumps(cursor)))
        read += order.rows(step, n_steps=n_steps).ravel().tolist()
        cursor = order.cursor(step + n_steps)
    assert cursor["samples_seen"] == len(read)
    # the first epoch lacks those that were skipped
    begun = -skip % n
    for first in range(begun, len(read) - n + 1, n):
        assert sorted(read[first : first + n]) == list(range(n))
    assert len(set(read[:begun])) == begun


@pytest.mark.parametrize("shuffle", ["none", "full", "block"])
@pytest.mark.parametrize("last_batch", ["drop_last", "pad"])
def test_with_another_batch_size_a_run_stays_in_its_epoch(shuffle: Any, last_batch: Any) -> None:
    parts: dict[str, Any] = {"shuffle": shuffle, "seed": 1, "last_batch": last_batch}
    before, after = (Sampler([17] * 6, size, **parts) for size in (10, 16))
    # 15 of the 10 or 11 batches of an epoch
    step = after.seek(before.cursor(15))
    assert set(after.epoch_of(step)) == {1}
    seen = 15 * 10 - before.period
    if shuffle != "block":
        rest = after.rows(step, n_steps=(min(after.period, 102) - seen) // 16).ravel()
        assert not set(rest) & set(before.rows(before.period // 10, n_steps=seen // 10).ravel())
    assert after.cursor(step)["samples_seen"] // after.period == 1


def test_with_a_batch_size_that_leaves_out_more_the_next_epoch_begins_with_its_first_record() -> None:
    parts: dict[str, Any] = {"shuffle": "full", "seed": 1, "last_batch": "drop_last"}
    before, after, fresh = Sampler([100], 10, **parts), Sampler([100], 35, **parts), Sampler([100], 35, **parts)
    # 90 records of an epoch that now ends after 70
    step = after.seek(before.cursor(9))
    np.testing.assert_array_equal(after.rows(step), fresh.rows(2))


def test_a_row_that_fills_the_last_batch_is_of_the_worker_that_reads_it() -> None:
    order = Sampler([5, 5], 4, "none", 0, last_batch="pad")
    # of steps 0 1 2 3 | 4 5 6 7 | 8 9 0 1 the workers read two records each
    np.testing.assert_array_equal([order.block_rows(worker, 2) for worker in range(2)], [[3, 3], [4, 2]])


def test_what_makes_no_order() -> None:
    with pytest.raises(DataError, match="too few for 3 groups"):
        Sampler([2], 1, n_groups=3)
    with pytest.raises(ValueError, match="shared equally by 3"):
        Sampler([9], 4).rows(0, 0, 3)
    with pytest.raises(ValueError, match="3 streams"):
        Sampler([9], 4, streams=3)


def test_random_numbers_stay_what_they_are() -> None:
    assert permutation(8, 7, "test", 1, 2, 3).tolist() == [6, 5, 2, 7, 0, 1, 3, 4]
    assert [random_skip(1, "data", group, 100) for group in range(4)] == [100, 51, 61, 83]
    assert {random_skip(seed, "data", 0, 3) for seed in range(60)} == {0, 1, 2, 3}


@pytest.mark.parametrize("most", [1 << 20, 1 << 40, 1 << 64])
def test_numbers_are_sorted_whatever_their_bits(most: int) -> None:
    generator = np.random.default_rng(0)
    for n in (0, 1, 2, 1000):
        numbers = generator.integers(0, most, n, np.uint64, endpoint=most < 1 << 64)
        np.testing.assert_array_equal(numbers[random._argsort(numbers)], np.sort(numbers))
