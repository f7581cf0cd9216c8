"""The memory for gradients of many worker groups is bounded, and who has to wait is not given up."""

from __future__ import annotations

from contextlib import ExitStack
from queue import Empty

import numpy as np
import pytest

from singa_dask.comm.backlog import Backlog
from singa_dask.comm.message import Address
from singa_dask.comm.slices import slice_table
from singa_dask.comm.stub import Stub
from tests.comm.ends import end
from tests.runtime.processes import wait_until
from tests.selection import mostly_soak

SIZE = 1 << 16
N_GROUPS = 12


def test_a_backlog_counts_what_is_referred_to() -> None:
    called = []
    backlog = Backlog(limit=100)
    backlog.on_room = lambda: called.append(True)
    first, second = backlog.empty(100, np.uint8), backlog.empty(1, np.uint8)
    view = first[:10]
    assert backlog.is_full
    del first
    assert backlog.is_full  # the view needs its memory
    del second
    assert not backlog.is_full
    assert len(called) == 1
    del view
    assert len(called) == 1


@pytest.mark.long
@pytest.mark.parametrize("host", mostly_soak(["tcp://127.0.0.1", "ws://127.0.0.1"], 2))
def test_gradients_of_many_groups_wait_for_a_slow_server(host: str) -> None:
    n_bytes = 4 * SIZE
    workers = [Address.worker(group, 0) for group in range(N_GROUPS)]
    process_of = {Address.server(0, 0): 0} | {worker: 1 + worker.group for worker in workers}
    slices = slice_table([SIZE], 1, 1)
    stubs = [Stub(process, slices, process_of, [1], lambda group: 0) for process in range(2)]
    stubs[0].backlog = Backlog(limit=2 * n_bytes)
    with ExitStack() as stack:
        kept = {"receive_buffer": stubs[0].receive_buffer, "backlog": stubs[0].backlog}
        receiver = end(stack, host=host, **kept)
        senders = [end(stack, host=host, process=1 + group, retry_s=1.0, timeout_s=0.5) for group in range(N_GROUPS)]
        for step in range(2):
            for group, sender in enumerate(senders):
                values = np.full(SIZE, 100 * group + step, np.float32)
                sender.send(receiver.address, stubs[1]._request("update", group, 0, step, values, node=1))
        # a second of silence would be enough to give a peer up
        wait_until(lambda: receiver.messages.qsize() == 3, "three messages")
        with pytest.raises(Empty):
            senders[-1].lost.get(timeout=3)
        assert receiver.messages.qsize() == 3  # what there is room for, and the one that fills it
        assert all(sender.lost.empty() for sender in senders)
        seen: dict[int, list[int]] = {group: [] for group in range(N_GROUPS)}
        for _ in range(2 * N_GROUPS):
            message = receiver.get()
            assert receiver.messages.qsize() <= 3
            group = message.info["group"]
            assert (message.arrays[0] == 100 * group + message.step).all()
            seen[group].append(message.step)
            del message
        assert all(steps == [0, 1] for steps in seen.values())


def test_memory_is_used_again_once_nobody_refers_to_it() -> None:
    backlog = Backlog()
    first = backlog.empty(100, np.float32)
    first[:] = 1
    address, part = first.ctypes.data, first.reshape(10, 10)[3:5]
    del first
    # a view is left
    other = backlog.empty(100, np.float32)
    assert other.ctypes.data != address
    other[:] = 2
    assert (part == 1).all()
    del part
    again = backlog.empty(50, np.float64)
    assert again.ctypes.data == address and again.flags.writeable and again.shape == (50,)


def test_memory_that_is_kept_has_a_limit() -> None:
    backlog = Backlog(limit=1000)
    arrays = [backlog.empty(100, np.float32) for _ in range(5)]
    addresses = {array.ctypes.data for array in arrays}
    arrays.clear()
    kept = [backlog.empty(100, np.float32) for _ in range(2)]
    assert {array.ctypes.data for array in kept} < addresses
    assert not any(backlog._kept.values())
