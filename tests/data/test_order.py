"""Order: each record once an epoch, the same for any number of workers, found again by a cursor of a few integers."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data import Order, permutation, random_skip
from singa_dask.errors import DataError

SHUFFLES = ["none", "block", "full"]


@st.composite
def orders(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what an order is made of."""
    n_groups = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(0, 15), min_size=1, max_size=12).filter(lambda sizes: sum(sizes) >= n_groups))
    return {
        "sizes": sizes,
        "batch_size": draw(st.integers(1, 40)),
        "shuffle": draw(st.sampled_from(SHUFFLES)),
        "seed": draw(st.integers(0, 2**63)),
        "n_groups": n_groups,
        "window": draw(st.integers(1, 9)),
        "skip": draw(st.integers(0, 30)),
    }


def sequence(order: Order, n_records: int) -> np.ndarray:
    """Return the first records of an order, at least so many."""
    return order.rows(0, n_steps=-(-n_records // order.batch_size)).ravel()


@given(orders())
def test_each_record_once_an_epoch(parts: dict[str, Any]) -> None:
    total, ends = sum(parts["sizes"]), []
    for group in range(parts["n_groups"]):
        order = Order(**parts, group=group)
        share = np.arange(order.start, order.start + order.count)
        ids = sequence(order, 3 * order.count + parts["skip"])
        epochs = (np.arange(len(ids)) + parts["skip"]) // order.count
        for epoch in range(epochs[0] + (parts["skip"] > 0), epochs[-1]):
            np.testing.assert_array_equal(np.sort(ids[epochs == epoch]), share)
        ends.append((order.start, order.start + order.count))
    # the shares of the groups are disjoint, and are all there is
    assert ends[0][0] == 0
    assert ends[-1][1] == total
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ends))


@given(orders(), st.integers(0, 50), st.data())
def test_a_step_is_the_same_for_any_number_of_workers(parts: dict[str, Any], step: int, data: st.DataObject) -> None:
    batch = parts["batch_size"]
    n = data.draw(st.sampled_from([k for k in range(1, batch + 1) if batch % k == 0]))
    shares = [Order(**parts).rows(step, worker, n)[0] for worker in range(n)]
    assert {len(share) for share in shares} == {batch // n}
    np.testing.assert_array_equal(np.concatenate(shares), Order(**parts).ids(step))


@given(orders(), st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_steps_may_be_asked_for_in_any_order(parts: dict[str, Any], steps: list[int]) -> None:
    order, all_at_once = Order(**parts), Order(**parts).rows(0, n_steps=61)
    for step in steps:
        np.testing.assert_array_equal(order.ids(step), all_at_once[step])


@given(orders(), st.integers(0, 1000))
def test_a_cursor_leads_back(parts: dict[str, Any], step: int) -> None:
    text = json.dumps(Order(**parts, fingerprint="0123456789abcdef").cursor(step))
    assert len(text) < 300
    assert Order(**parts, fingerprint="0123456789abcdef").step_at(json.loads(text)) == step


def test_file_order_runs_on_inside_a_batch() -> None:
    order = Order([4, 3], 5)
    np.testing.assert_array_equal(order.rows(0, n_steps=3), [[0, 1, 2, 3, 4], [5, 6, 0, 1, 2], [3, 4, 5, 6, 0]])
    np.testing.assert_array_equal(Order([4, 3], 5, skip=3).ids(0), [3, 4, 5, 6, 0])


def test_a_batch_may_be_larger_than_the_share() -> None:
    assert sorted(Order([2], 6, "block").ids(0)) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 6, 8, 12])
def test_a_block_is_read_by_one_worker_but_where_a_cut_goes_through_it(n_workers: int) -> None:
    order, sizes = Order([50] * 96, 48, "block", 3), 50
    readers = [set((order.rows(0, w, n_workers, n_steps=100) // sizes).ravel()) for w in range(n_workers)]
    assert sum(map(len, readers)) <= 96 + n_workers - 1


def test_a_window_bounds_the_blocks_in_use() -> None:
    order = Order([100] * 480, 48, "block", 1, window=96)
    for step in range(0, 900, 50):
        blocks = np.unique(order.rows(step, n_steps=2) // 100)
        assert len(blocks) <= (order.blocks_in_use() or 0)
    assert Order([100] * 4, 10, "none").blocks_in_use() == 2
    assert Order([100] * 4, 10, "full").blocks_in_use() is None


@pytest.mark.parametrize("shuffle", ["block", "full"])
def test_epochs_and_seeds_differ(shuffle: Any) -> None:
    first, other = (Order([40] * 5, 200, shuffle, seed).rows(0, n_steps=2) for seed in (1, 2))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], np.arange(200))


def class_spread(order: Order, labels: np.ndarray, n_steps: int) -> float:
    """Return the mean distance of a batch's classes from an even share (0.075 for 256 random ones of 10)."""
    counts = [np.bincount(labels[order.ids(step)], minlength=10) for step in range(n_steps)]
    return float(np.mean([0.5 * np.abs(count / count.sum() - 0.1).sum() for count in counts]))


@pytest.mark.parametrize("sizes", [[256] * 234 + [96], [1337] * 44 + [1172]])
def test_sorted_records_are_mixed(sizes: list[int]) -> None:
    labels = np.arange(60000) // 6000
    assert class_spread(Order(sizes, 256, "block", 1), labels, 234) <= 0.20
    assert class_spread(Order(sizes, 256, "full", 1), labels, 234) <= 0.09
    assert class_spread(Order(sizes, 256), labels, 234) > 0.8


def test_a_deal_may_be_given() -> None:
    by_host = Order([10] * 8, 8, "block", 1, deal=[7, 6, 5, 4, 3, 2, 1, 0])
    assert set(by_host.rows(0, 0, 8, n_steps=10).ravel() // 10) == {7}
    with pytest.raises(ValueError, match="each of the 8 blocks once"):
        Order([10] * 8, 8, "block", deal=[0] * 8).ids(0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"batch_size": 20}, "batch_size"),
        ({"seed": 5}, "seed"),
        ({"shuffle": "full"}, "shuffle"),
        ({"window": 3}, "window"),
        ({"streams": 5}, "streams"),
        ({"skip": 1}, "skip"),
        ({"fingerprint": "new"}, "fingerprint"),
    ],
)
def test_a_cursor_of_something_else_is_refused(change: dict[str, Any], field: str) -> None:
    parts: dict[str, Any] = {"batch_size": 10, "shuffle": "block", "seed": 1, "fingerprint": "old"}
    cursor = Order([20, 20], **parts).cursor(7)
    with pytest.raises(DataError, match=f"does not fit these records: {field} is"):
        Order([20, 20], **{**parts, **change}).step_at(cursor)


def test_what_makes_no_order() -> None:
    with pytest.raises(DataError, match="too few for 3 groups"):
        Order([2], 1, n_groups=3)
    with pytest.raises(ValueError, match="shared equally by 3"):
        Order([9], 4).rows(0, 0, 3)
    with pytest.raises(ValueError, match="3 streams"):
        Order([9], 4, streams=3)


def test_random_numbers_stay_what_they_are() -> None:
    assert permutation(8, 7, "test", 1, 2, 3).tolist() == [6, 5, 2, 7, 0, 1, 3, 4]
    assert [random_skip(1, "data", group, 100) for group in range(4)] == [100, 51, 61, 83]
    assert {random_skip(seed, "data", 0, 3) for seed in range(60)} == {0, 1, 2, 3}
