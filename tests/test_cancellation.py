"""Cancellation: what a unit waits for, as long as it does."""

from __future__ import annotations

import threading

import pytest

from singa_dask import cancellation as module
from singa_dask.cancellation import Cancellation
from tests.interrupts import interrupted_conditions


def test_a_wait_that_fails_is_over_and_told() -> None:
    cancellation, ended = Cancellation(), list[str]()
    cancellation.on_waited = lambda what, since: ended.append(what)
    with pytest.raises(OSError, match="unreadable"), cancellation.waiting("records"):
        assert cancellation.waiting_for is not None and cancellation.waiting_for[0] == "records"
        raise OSError("unreadable")
    assert cancellation.waiting_for is None
    assert ended == ["records"]


def test_an_exception_of_a_signal_leaves_no_lock_taken() -> None:
    cancellation, cancelled = Cancellation(), threading.Event()
    with interrupted_conditions(module):
        cancellation.on_cancel(cancelled.set)
    cancellation.on_cancel(cancelled.set)
    threading.Thread(target=cancellation.cancel, args=("the end",), daemon=True).start()
    assert cancelled.wait(20)
