"""Cancellation: what a unit waits for, as long as it does."""

from __future__ import annotations

import pytest

from singa_dask.cancellation import Cancellation


def test_a_wait_that_fails_is_over_and_told() -> None:
    cancellation, ended = Cancellation(), list[str]()
    cancellation.on_waited = lambda what, since: ended.append(what)
    with pytest.raises(OSError, match="unreadable"), cancellation.waiting("records"):
        assert cancellation.waiting_for is not None and cancellation.waiting_for[0] == "records"
        raise OSError("unreadable")
    assert cancellation.waiting_for is None
    assert ended == ["records"]
