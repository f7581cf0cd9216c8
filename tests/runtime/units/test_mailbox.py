"""What workers send each other arrives, whenever it comes."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Address, Message
from singa_dask.runtime.units.mailbox import Mailbox

ME, OTHER = Address.worker(0, 0), Address.worker(0, 1)


@pytest.fixture
def collecting_at_once() -> Iterator[None]:
    """Collect garbage at the next object that the collector looks after, if there were some before."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


def test_arrays_that_come_while_a_worker_looks_for_them(collecting_at_once: None) -> None:
    """The collector can run in the middle of any look-up, and other threads while it runs."""
    mailbox = Mailbox(ME, lambda message: None, Cancellation())
    message = Message("bridge", src=OTHER, dst=ME, info={"key": "a", "names": ["data"]}, arrays=(np.ones(2),))

    def put(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(put)
        mailbox.put(message)

    gc.disable()
    gc.callbacks.append(put)
    objects = [[] for _ in range(5)]  # type: list[list[int]]
    gc.enable()
    mailbox.has("a")
    if put in gc.callbacks:
        put("start", {})
    del objects
    assert mailbox.has("a")
    assert mailbox.receive("a").keys() == {"data"}
