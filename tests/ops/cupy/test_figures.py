"""Totals of figures on a GPU: who asks does not wait, and finds later what was there when he asked."""

from __future__ import annotations

from typing import Any

from tests.backends import backend


def test_a_total_is_found_once_it_has_come() -> None:
    ops: Any = backend("cuda:0")
    total = ops.accumulate(2.0, 0.5)
    assert ops.settled(total) in (None, 2.5)
    ops.synchronize()
    assert ops.settled(total) == 2.5
    ops.synchronize()
    # of now, where the last question was of before
    assert ops.accumulate(1.0, total) is total
    assert ops.settled(total) == 2.5
    ops.synchronize()
    assert ops.settled(total) == 3.5


def test_two_totals_do_not_mix() -> None:
    ops: Any = backend("cuda:0")
    totals = [ops.accumulate(value, 0.0) for value in (1.0, 2.0)]
    for total in totals:
        ops.settled(total)
    ops.synchronize()
    assert [ops.settled(total) for total in totals] == [1.0, 2.0]


def test_a_number_is_settled() -> None:
    assert backend("cuda:0").settled(4) == 4.0
