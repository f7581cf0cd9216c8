"""Transports over real sockets: order, size, loss, and nothing left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed.security import Security

from singa_dask.comm.message import Address, Message, pack
from tests.comm.ends import TIMEOUT_S, End, transport_threads
from tests.selection import mostly_long


def security() -> dict[str, Any]:
    """Return the arguments of a transport for TLS."""
    own = Security.temporary()
    return {
        "listen_args": own.get_listen_args("worker"),
        "connect_args": own.get_connection_args("worker"),
    }


@pytest.fixture(params=mostly_long(["tcp://127.0.0.1", "tls://127.0.0.1", "inproc://", "ws://127.0.0.1"], 2))
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[End, End]]:
    before = transport_threads()
    given = security() if request.param.startswith("tls") else {}
    pair = End(request.param, **given), End(request.param, **given)
    yield pair
    for end in pair:
        end.transport.close()
        end.transport.close()
    assert transport_threads() <= before


def test_messages_arrive_whole_and_in_order(ends: tuple[End, End]) -> None:
    a, b = ends
    for step in range(50):
        array = np.full(step * 1000, step, np.float32)
        a.transport.send(
            b.transport.address, Message("put", Address.worker(0, 0), Address.server(0, 0), step=step, arrays=(array,))
        )
    for step in range(50):
        got = b.messages.get(timeout=TIMEOUT_S)
        assert got.step == step
        assert got.arrays[0].shape == (step * 1000,)
        assert (got.arrays[0] == step).all()
        got.arrays[0][:] = 0  # what arrives may be written to
    assert b.transport.received_bytes == a.transport.sent_bytes == sum(4000 * step for step in range(50))


def test_both_directions_at_once(ends: tuple[End, End]) -> None:
    big = np.ones(1 << 20, np.float32)
    for source, sink in (ends, ends[::-1]):
        for step in range(8):
            source.transport.send(
                sink.transport.address,
                Message("put", Address.worker(0, 0), Address.server(0, 0), step=step, arrays=(big,)),
            )
    for end in ends:
        assert [end.messages.get(timeout=TIMEOUT_S).step for _ in range(8)] == list(range(8))


@pytest.mark.parametrize("first", [0, 1])
def test_closing_while_a_connection_is_made_leaves_no_socket(first: int) -> None:
    for _ in range(10):
        pair = End("tcp://127.0.0.1"), End("tcp://127.0.0.1")
        pair[0].transport.send(pair[1].transport.address, Message("stop", Address.stub(0), Address.stub(1)))
        pair[first].transport.close()
        pair[1 - first].transport.close()
    del pair
    gc.collect()  # warns of a socket that is open


def test_a_pack_arrives_whole(ends: tuple[End, End]) -> None:
    a, b = ends
    sizes = [3, 0, 40_000, 100, 1, 50_000, 50_000, 7]  # some small enough to be written together, some not
    parts = [
        Message("update", Address.stub(0), Address.server(0, 0), slice=i, arrays=(np.full(size, i, np.float32),))
        for i, size in enumerate(sizes)
    ]
    (packed,) = pack(parts)
    a.transport.send(b.transport.address, packed)
    got = b.messages.get(timeout=TIMEOUT_S)
    assert [part.slice for part in got.parts] == list(range(len(sizes)))
    for part, size in zip(got.parts, sizes, strict=True):
        assert part.arrays[0].tolist() == [part.slice] * size
    parts[0].arrays[0][:] = 9
    assert got.parts[0].arrays[0].tolist() == [0, 0, 0]


def test_messages_with_and_without_arrays_arrive_whole(ends: tuple[End, End]) -> None:
    """Those of few bytes, and those without any."""
    a, b = ends
    src, dst = Address.worker(0, 0), Address.server(0, 0)
    sizes = [0, 1, 16_384, 16_385, 0, 300_000, 3]  # around what counts as small
    for step, size in enumerate(sizes):
        array = np.arange(size, dtype=np.float32)
        a.transport.send(b.transport.address, Message("stop", src, dst, step=step))
        a.transport.send(b.transport.address, Message("put", src, dst, step=step, arrays=(array,)))
    for step, size in enumerate(sizes):
        assert b.messages.get(timeout=TIMEOUT_S).all_arrays == []
        (array,) = b.messages.get(timeout=TIMEOUT_S).all_arrays
        assert np.array_equal(array, np.arange(size, dtype=np.float32)), (step, size)
