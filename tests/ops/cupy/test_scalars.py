"""Scalars of a GPU: `poll` does not wait, and returns a value that an earlier call has asked for."""

from __future__ import annotations

from typing import Any

from tests.backends import backend


def test_poll_returns_a_total_once_it_has_arrived() -> None:
    ops: Any = backend("cuda:0")
    total = ops.accumulate(2.0, 0.5)
    assert ops.poll(total) in (None, 2.5)
    ops.synchronize()
    assert ops.poll(total) == 2.5
    ops.synchronize()
    # the last call asked for the value before this
    assert ops.accumulate(1.0, total) is total
    assert ops.poll(total) == 2.5
    ops.synchronize()
    assert ops.poll(total) == 3.5


def test_two_totals_do_not_mix() -> None:
    ops: Any = backend("cuda:0")
    totals = [ops.accumulate(value, 0.0) for value in (1.0, 2.0)]
    for total in totals:
        ops.poll(total)
    ops.synchronize()
    assert [ops.poll(total) for total in totals] == [1.0, 2.0]


def test_poll_of_a_number() -> None:
    assert backend("cuda:0").poll(4) == 4.0
